"""Outcomes of batches and of unpartitioned records, and the tasks that await them.

A handle (`Delivery`) refers to its batch's outcome and its index in it. A future is created only
for a task that waits, one for each, so that cancelling one affects no other. Futures come from a
factory, so that nothing here depends on an event loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from kafka_async.errors import DeliveryFailure, IllegalStateError
from kafka_async.foundation.arguments import plain_function
from kafka_async.foundation.fairness import MAX_WAKEUPS_PER_ITERATION
from kafka_async.types import RecordMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from kafka_async.kernel import Delivery
    from kafka_async.types import Headers

__all__ = ["BatchOutcome", "FutureFactory", "FutureLike", "UnpartitionedRecord"]


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


def _wake_waiters(waiters: Iterator[FutureLike]) -> None:
    """Complete futures up to the limit per event loop iteration, the others in the next ones."""
    woken = 0
    for future in waiters:
        if future.done():
            continue
        # The others are woken from the last future's callback, so in the next iteration.
        woken += 1
        if woken == MAX_WAKEUPS_PER_ITERATION:
            future.add_done_callback(lambda _: _wake_waiters(waiters))
        future.set_result(None)
        if woken == MAX_WAKEUPS_PER_ITERATION:
            return


@dataclass(slots=True, eq=False, repr=False)
class BatchOutcome:
    """Outcome of one batch: acknowledged at an offset, failed, or split into smaller ones.

    Attributes:
        partition: Partition of the batch, -1 for an unpartitioned record.
        done: True once the batch is acknowledged or has failed.
        count: Number of records; 0 while the batch is not done.
        base_offset: Offset of the first record, -1 if unknown.
        append_time: Time at which the broker appended it, in milliseconds, -1 with CreateTime.
    """

    # Slots of a class that exists once per batch; what most batches never need is created on
    # demand.
    topic: str
    partition: int
    _new_future: FutureFactory
    done: bool = False
    count: int = 0
    base_offset: int = -1
    append_time: int = -1
    error: Exception | None = None
    _waiters: list[FutureLike] | None = None  # most batches have none
    # Parts of a batch that was split, with the index of their first record, and the batch it is a
    # part of.
    _parts: Sequence[tuple[int, BatchOutcome]] = ()
    _parent: BatchOutcome | None = None
    # Records whose failure the application has seen: `flush` raises only the others.
    _reported: set[int] | None = None
    _await_callback: Callable[[BatchOutcome], None] | None = None

    # -- completing -------------------------------------------------------------------------------

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
        self.done = True
        self._await_callback = None
        if self._waiters is not None:
            # Detached first: a woken task may await another record of the batch.
            waiters, self._waiters = self._waiters, None
            _wake_waiters(iter(waiters))
        if self._parent is not None:
            self._parent.part_completed()

    def part_completed(self) -> None:
        """Complete if all parts are complete."""
        if all(part.done for _, part in self._parts):
            self.complete()

    # -- waiting ----------------------------------------------------------------------------------

    def note_awaited(self) -> None:
        """Call the await callback, unless it was called before."""
        if self._await_callback is not None:
            callback, self._await_callback = self._await_callback, None
            callback(self)

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

    def add_waiters(self, waiters: list[FutureLike]) -> None:
        """Wake these futures too."""
        if self._waiters is None:
            self._waiters = waiters
        else:
            self._waiters += waiters

    async def wait_completed(self) -> None:
        """Wait until this is complete."""
        if not self.done:
            await self.new_waiter()

    def wait(self, delivery: Delivery) -> Generator[Any, None, RecordMetadata]:
        """Wait until the batch is done; return the metadata of a record or raise its error."""
        if not self.done:
            # As `note_awaited`, inlined since it runs for each await.
            if self._await_callback is not None:
                callback, self._await_callback = self._await_callback, None
                callback(self)
            yield from self.new_waiter().__await__()
        return self.result(delivery)

    def result(self, delivery: Delivery) -> RecordMetadata:
        """Return the metadata of a record; raise its error, or IllegalStateError if not done."""
        part, index = self, delivery.index
        # Most batches are not split. `find` raises for one that is not done.
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
        """Call a function with the delivery once the batch is done; soon, if it already is."""
        plain_function(callback, "callback")
        future = self.new_waiter()
        future.add_done_callback(lambda _: callback(delivery))
        if self.done:
            future.set_result(None)

    # -- reporting --------------------------------------------------------------------------------

    def unreported_failure(self) -> DeliveryFailure | None:
        """Return the failure of records that were not reported yet, or None if all were."""
        unreported = self.count - (0 if self._reported is None else len(self._reported))
        if self.error is None or unreported <= 0:
            return None
        partition = None if self.partition < 0 else self.partition
        return DeliveryFailure(self.topic, partition, unreported, self.error)

    def mark_reported(self, index: int) -> None:
        """Note that the failure of a record was reported to the application."""
        if self._reported is None:
            self._reported = set()
        self._reported.add(index)

    def find(self, index: int) -> tuple[BatchOutcome, int]:
        """Return the part that contains a record, and the index of the record in it."""
        if not self.done:
            raise IllegalStateError(
                "the record is neither acknowledged nor failed yet: await its delivery, or call "
                "flush() first"
            )
        # From the last part back, the first one whose start is not after the record.
        for first, part in reversed(self._parts):
            if index >= first:
                return part.find(index - first)
        return self, index


class UnpartitionedRecord(BatchOutcome):
    """A record in no batch yet, since its topic has no metadata to choose a partition.

    Its delivery refers to this object, which has the outcome of the batch that the record is
    assigned to.
    """

    __slots__ = (
        *("_awaited", "_batch", "_failed"),
        *("created", "headers", "key", "size", "timestamp", "value"),
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
        self._batch: BatchOutcome | None = None
        super().__init__(topic, -1, new_future)
        self.key = key
        self.value = value
        self.headers = headers
        self.timestamp = timestamp
        self.size = size
        self.created = created
        self._awaited = False

    @property
    def done(self) -> bool:
        """True once the record's batch is done, or the record has failed without one."""
        return self._failed if self._batch is None else self._batch.done

    @done.setter
    def done(self, done: bool) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]  # thousands share a batch
        self._failed = done

    def assign(self, delivery: Delivery, batch: BatchOutcome) -> None:
        """Complete with the batch in which the record has this delivery."""
        self._batch = batch
        # A negative start maps index 0 of this record to its index in the batch.
        self._parts = ((-delivery.index, batch),)
        if self._waiters is not None:
            # The batch wakes them, so that the limit per event loop iteration holds.
            waiters, self._waiters = self._waiters, None
            batch.add_waiters(waiters)
        # Awaiting it before the partition was known must still end the batch's linger time.
        if self._awaited:
            batch.note_awaited()

    def new_waiter(self) -> FutureLike:
        """Return a new future, as `BatchOutcome.new_waiter`."""
        return super().new_waiter() if self._batch is None else self._batch.new_waiter()

    def wait(self, delivery: Delivery) -> Generator[Any, None, RecordMetadata]:
        """Wait until the record is done; return its metadata or raise its error."""
        self._awaited = True
        if self._batch is not None:
            self._batch.note_awaited()
        return super().wait(delivery)
