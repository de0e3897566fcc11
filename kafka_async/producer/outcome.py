"""Outcomes of batches and of unpartitioned records, and the tasks that await them.

A handle (`Delivery`) refers to its batch's outcome and its index in it. A future is created only
for a task that waits, one for each, so that cancelling one affects no other. Futures come from a
factory, so that nothing here depends on an event loop.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from kafka_async.errors import DeliveryFailure, IllegalStateError
from kafka_async.types import RecordMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from kafka_async.kernel import Delivery
    from kafka_async.types import Headers

__all__ = ["BatchOutcome", "Completion", "FutureFactory", "FutureLike", "UnpartitionedRecord"]


class FutureLike(Protocol):
    """The part of asyncio.Future that is used here."""

    def done(self) -> bool:
        """Return True if the future has a result or was cancelled."""
        ...

    def set_result(self, result: Any, /) -> None:
        """Set the result."""
        ...

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        """Call a function in the event loop iteration after this is done."""
        ...

    def __await__(self) -> Generator[Any, None, Any]: ...


FutureFactory: TypeAlias = "Callable[[], FutureLike]"

MAX_WAKEUPS_PER_ITERATION: Final = 250
"""Tasks that one outcome wakes per event loop iteration; their first steps take about 1 ms."""


def _wake_waiters(waiters: Iterator[FutureLike]) -> None:
    """Complete futures up to the limit per event loop iteration, the others in the next ones."""
    woken = 0
    for future in waiters:
        if future.done():
            continue
        woken += 1
        if woken == MAX_WAKEUPS_PER_ITERATION:
            future.add_done_callback(lambda _: _wake_waiters(waiters))
        future.set_result(None)
        if woken == MAX_WAKEUPS_PER_ITERATION:
            return


class Completion:
    """Completes once; any number of tasks may wait for it."""

    __slots__ = ("_new_future", "_waiters", "done")

    def __init__(self, new_future: FutureFactory) -> None:
        self.done = False
        self._new_future = new_future
        self._waiters: list[FutureLike] | None = None  # most batches have none

    async def wait_completed(self) -> None:
        """Wait until this is complete."""
        if not self.done:
            await self.new_waiter()

    def add_callback(self, callback: Callable[[], object]) -> None:
        """Call a function in the event loop once this is complete; soon, if it already is."""
        future = self.new_waiter()
        future.add_done_callback(lambda _: callback())
        if self.done:
            future.set_result(None)

    def new_waiter(self) -> FutureLike:
        """Return a new future that `complete` wakes.

        The caller checks `done` first: if this is complete already, the future is done only when
        the caller completes it.
        """
        future = self._new_future()
        if self.done:
            return future
        if self._waiters is None:
            self._waiters = [future]
        else:
            self._waiters.append(future)
        return future

    def complete(self) -> None:
        """Wake all waiting tasks, the oldest first."""
        self.done = True
        if self._waiters is not None:
            waiters, self._waiters = self._waiters, None
            _wake_waiters(iter(waiters))


class BatchOutcome(Completion):
    """Outcome of one batch: acknowledged at an offset, failed, or split into smaller ones.

    Attributes:
        topic: Topic of the batch.
        partition: Partition of the batch.
        count: Number of records; 0 while the batch is not done.
        base_offset: Offset of the first record, -1 if unknown.
        append_time: Time at which the broker appended it, in milliseconds, -1 with CreateTime.
        error: Error of the batch if it failed.
    """

    __slots__ = (
        "_await_callback",
        "_parent",
        "_parts",
        "_reported",
        "append_time",
        "base_offset",
        "count",
        "error",
        "partition",
        "topic",
    )

    def __init__(self, topic: str, partition: int, new_future: FutureFactory) -> None:
        Completion.__init__(self, new_future)  # super() is slow, and this runs for each batch
        self.topic = topic
        self.partition = partition
        self.count = 0
        self.base_offset = -1
        self.append_time = -1
        self.error: Exception | None = None
        self._parts: Sequence[tuple[int, BatchOutcome]] = ()
        self._parent: BatchOutcome | None = None
        self._reported: set[int] | None = None
        self._await_callback: Callable[[BatchOutcome], None] | None = None

    def set_await_callback(self, callback: Callable[[BatchOutcome], None] | None) -> None:
        """Set what is called once, when a task first awaits one of the batch's deliveries."""
        self._await_callback = callback

    def acknowledge(self, base_offset: int, append_time: int, count: int) -> None:
        """Complete the batch as written. `append_time` is -1 with CreateTime."""
        self.base_offset = base_offset
        self.append_time = append_time
        self.count = count
        self.complete()

    def fail(self, error: Exception, count: int) -> None:
        """Complete the batch with an error; it may have been written."""
        self.error = error
        self.count = count
        self.complete()

    def split(self, counts: Sequence[int]) -> list[BatchOutcome]:
        """Return outcomes for the batches that replace this one, given their record counts."""
        parts: list[tuple[int, BatchOutcome]] = []
        first = 0
        for count in counts:
            part = BatchOutcome(self.topic, self.partition, self._new_future)
            part._parent = self  # a private attribute of this class
            parts.append((first, part))
            first += count
        self._parts = parts
        return [part for _, part in parts]

    def complete(self) -> None:
        """Wake all waiting tasks; an outcome that was split completes with its last part."""
        self._await_callback = None
        Completion.complete(self)
        if self._parent is not None:
            self._parent.part_completed()

    def part_completed(self) -> None:
        """Complete if all parts are complete."""
        if all(part.done for _, part in self._parts):
            self.complete()

    def wait(self, delivery: Delivery) -> Generator[Any, None, RecordMetadata]:
        """Wait until the batch is done; return the metadata of a record or raise its error."""
        if not self.done:
            if self._await_callback is not None:
                callback, self._await_callback = self._await_callback, None
                callback(self)
            yield from self.new_waiter().__await__()
        return self.result(delivery)

    def result(self, delivery: Delivery) -> RecordMetadata:
        """Return the metadata of a record; raise its error, or IllegalStateError if not done."""
        part, index = self, delivery.index
        if self._parts or not self.done:
            part, index = self.find(index)
        if part.error is not None:
            part.mark_reported(index)
            # All records of the batch raise the same error, each with a new traceback.
            raise part.error.with_traceback(None)
        offset = part.base_offset + index if part.base_offset >= 0 else -1
        time = part.append_time if part.append_time >= 0 else delivery.timestamp
        return RecordMetadata(part.topic, part.partition, offset, time)

    def exception(self, delivery: Delivery) -> BaseException | None:
        """Return the error, None if acknowledged; raise IllegalStateError if not done."""
        part, index = self.find(delivery.index)
        if part.error is not None:
            part.mark_reported(index)
        return part.error

    def add_done_callback(self, delivery: Delivery, callback: Callable[[Delivery], object]) -> None:
        """Call a function with the delivery once the batch is done."""
        self.add_callback(partial(callback, delivery))

    def unreported_failure(self) -> DeliveryFailure | None:
        """Return the failure of records that were not reported yet; None if there are none."""
        unreported = self.count - (0 if self._reported is None else len(self._reported))
        if self.error is None or unreported <= 0:
            return None
        return DeliveryFailure(self.topic, self.partition, unreported, self.error)

    def mark_reported(self, index: int) -> None:
        """Note that the failure of a record was reported to the application."""
        if self._reported is None:
            self._reported = set()
        self._reported.add(index)

    def find(self, index: int) -> tuple[BatchOutcome, int]:
        """Return the part that contains a record, and the index of the record in it."""
        if not self.done:
            raise IllegalStateError("the record is neither acknowledged nor failed yet")
        for first, part in reversed(self._parts):
            if index >= first:
                return part.find(index - first)
        return self, index


class UnpartitionedRecord:
    """A record in no batch yet, since its topic has no metadata to choose a partition.

    Its handle refers to this object. Once the record is in a batch, all calls are passed on to the
    handle that the batch returned.
    """

    __slots__ = (
        "_assigned",
        "_delivery",
        "_outcome",
        "_reported",
        "created",
        "error",
        "headers",
        "key",
        "size",
        "timestamp",
        "topic",
        "value",
    )

    def __init__(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp: int,
        *,
        size: int,
        created: float,
        new_future: FutureFactory,
    ) -> None:
        self.topic = topic
        self.key = key
        self.value = value
        self.headers = headers
        self.timestamp = timestamp
        self.size = size
        self.created = created
        self.error: Exception | None = None
        self._assigned = Completion(new_future)
        self._delivery: Delivery | None = None
        self._outcome: BatchOutcome | None = None
        self._reported = False

    @property
    def done(self) -> bool:
        """True if the record was acknowledged or has failed."""
        return self.error is not None or (self._outcome is not None and self._outcome.done)

    def assign(self, delivery: Delivery, outcome: BatchOutcome) -> None:
        """Set the batch and the handle of the record in it."""
        self._delivery = delivery
        self._outcome = outcome
        self._assigned.complete()

    def fail(self, error: Exception) -> None:
        """Complete the record with an error."""
        self.error = error
        self._assigned.complete()

    async def wait_completed(self) -> None:
        """Wait until the record is acknowledged or has failed."""
        await self._assigned.wait_completed()
        if self._outcome is not None:
            await self._outcome.wait_completed()

    def wait(self, delivery: Delivery) -> Generator[Any, None, RecordMetadata]:
        """Wait until the record is done; return its metadata or raise its error."""
        yield from self._assigned.wait_completed().__await__()
        if self._outcome is not None and self._delivery is not None:
            return (yield from self._outcome.wait(self._delivery))
        return self.result(delivery)

    def result(self, delivery: Delivery) -> RecordMetadata:
        """Return the metadata; raise the error, or IllegalStateError if not done."""
        if self.error is not None:
            self._reported = True
            raise self.error.with_traceback(None)
        if self._outcome is None or self._delivery is None:
            raise IllegalStateError("the record is neither acknowledged nor failed yet")
        return self._outcome.result(self._delivery)

    def exception(self, delivery: Delivery) -> BaseException | None:
        """Return the error, None if acknowledged; raise IllegalStateError if not done."""
        if self.error is not None:
            self._reported = True
            return self.error
        if self._outcome is None or self._delivery is None:
            raise IllegalStateError("the record is neither acknowledged nor failed yet")
        return self._outcome.exception(self._delivery)

    def add_done_callback(self, delivery: Delivery, callback: Callable[[Delivery], object]) -> None:
        """Call a function with the delivery once the record is done."""

        def on_assigned() -> None:
            if self._outcome is None:
                callback(delivery)
            else:
                self._outcome.add_done_callback(delivery, callback)

        self._assigned.add_callback(on_assigned)

    def unreported_failure(self) -> DeliveryFailure | None:
        """Return the failure if it was not reported yet."""
        if self.error is None or self._reported:
            return None
        return DeliveryFailure(self.topic, None, 1, self.error)
