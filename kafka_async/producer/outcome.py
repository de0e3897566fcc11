"""What became of a batch, and who waits to hear of it.

A handle (`Delivery`) knows its batch's outcome and its own index, nothing else; a future exists
only for somebody who waits, one for each, so that cancelling one touches no other. Futures come
from a factory, so nothing here knows about loops.
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

__all__ = ["BatchOutcome", "NewPromise", "Promise", "Settles", "Undesignated"]


class Promise(Protocol):
    """As much of a future as is needed here."""

    def done(self) -> bool:
        """Whether it was fulfilled or cancelled."""
        ...

    def set_result(self, result: Any, /) -> None:
        """Fulfil it."""
        ...

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        """Have it called in the loop's turn after the one in which this is fulfilled."""
        ...

    def __await__(self) -> Generator[Any, None, Any]: ...


NewPromise: TypeAlias = "Callable[[], Promise]"

WOKEN_A_TURN: Final = 250
"""Tasks that are woken in one turn of the event loop: their steps take a millisecond, or some."""


def _wake(waiters: Iterator[Promise]) -> None:
    """Fulfil promises, as many as a turn of the loop allows, and the others in the turns after."""
    woken = 0
    for promise in waiters:
        if promise.done():
            continue
        woken += 1
        if woken == WOKEN_A_TURN:
            promise.add_done_callback(lambda _: _wake(waiters))
        promise.set_result(None)
        if woken == WOKEN_A_TURN:
            return


class Settles:
    """Something that is settled once, and that any number of tasks may wait for."""

    __slots__ = ("_new_promise", "_waiters", "done")

    def __init__(self, new_promise: NewPromise) -> None:
        self.done = False
        self._new_promise = new_promise
        self._waiters: list[Promise] | None = None  # most have none

    async def settled(self) -> None:
        """Wait until it is settled, well or badly."""
        if not self.done:
            await self.waiter()

    def add_callback(self, callback: Callable[[], object]) -> None:
        """Have a function called by the loop once this is settled; soon, if it is already."""
        promise = self.waiter()
        promise.add_done_callback(lambda _: callback())
        if self.done:
            promise.set_result(None)

    def waiter(self) -> Promise:
        """A promise that is fulfilled when it is settled."""
        promise = self._new_promise()
        if self.done:
            return promise
        if self._waiters is None:
            self._waiters = [promise]
        else:
            self._waiters.append(promise)
        return promise

    def settle(self) -> None:
        """Wake everyone who waits, the oldest first."""
        self.done = True
        if self._waiters is not None:
            waiters, self._waiters = self._waiters, None
            _wake(iter(waiters))


class BatchOutcome(Settles):
    """The outcome of one batch: acknowledged at an offset, failed, or split into smaller ones."""

    __slots__ = (
        "_on_await",
        "_parent",
        "_parts",
        "_told",
        "append_time",
        "base_offset",
        "count",
        "error",
        "partition",
        "topic",
    )

    def __init__(self, topic: str, partition: int, new_promise: NewPromise) -> None:
        Settles.__init__(self, new_promise)  # super() is slow, and this is done for each batch
        self.topic = topic
        self.partition = partition
        self.count = 0
        self.base_offset = -1
        self.append_time = -1
        self.error: Exception | None = None
        self._parts: Sequence[tuple[int, BatchOutcome]] = ()
        self._parent: BatchOutcome | None = None
        self._told: set[int] | None = None
        self._on_await: Callable[[BatchOutcome], None] | None = None

    def on_await(self, callback: Callable[[BatchOutcome], None] | None) -> None:
        """Set what is called once, when a task first awaits one of the batch's deliveries."""
        self._on_await = callback

    def acknowledge(self, base_offset: int, append_time: int, count: int) -> None:
        """The batch is written. `append_time` is the broker's (ms), -1 with CreateTime."""
        self.base_offset = base_offset
        self.append_time = append_time
        self.count = count
        self.settle()

    def fail(self, error: Exception, count: int) -> None:
        """The batch will not be written, or nobody knows whether it was."""
        self.error = error
        self.count = count
        self.settle()

    def split(self, counts: Sequence[int]) -> list[BatchOutcome]:
        """Outcomes of smaller batches, of so many records each, that take this one's place."""
        parts: list[tuple[int, BatchOutcome]] = []
        first = 0
        for count in counts:
            part = BatchOutcome(self.topic, self.partition, self._new_promise)
            part._parent = self  # its own class
            parts.append((first, part))
            first += count
        self._parts = parts
        return [part for _, part in parts]

    def settle(self) -> None:
        """Wake everyone who waits, of a batch that was split once all its parts are settled."""
        self._on_await = None
        Settles.settle(self)
        if self._parent is not None:
            self._parent.part_settled()

    def part_settled(self) -> None:
        """A part is settled: this one is, too, if it was the last."""
        if all(part.done for _, part in self._parts):
            self.settle()

    def wait(self, delivery: Delivery) -> Generator[Any, None, RecordMetadata]:
        """Wait until the batch is done; the metadata of that record, or the batch's error."""
        if not self.done:
            if self._on_await is not None:
                callback, self._on_await = self._on_await, None
                callback(self)
            yield from self.waiter().__await__()
        return self.result(delivery)

    def result(self, delivery: Delivery) -> RecordMetadata:
        """The metadata of that record; raises its error, or IllegalStateError if not done."""
        part, index = self, delivery.index
        if self._parts or not self.done:
            part, index = self.find(index)
        if part.error is not None:
            part.tell(index)
            # One error serves every record of the batch: each raise starts a traceback of its own.
            raise part.error.with_traceback(None)
        offset = part.base_offset + index if part.base_offset >= 0 else -1
        time = part.append_time if part.append_time >= 0 else delivery.timestamp
        return RecordMetadata(part.topic, part.partition, offset, time)

    def exception(self, delivery: Delivery) -> BaseException | None:
        """The batch's error, None if it was acknowledged; raises IllegalStateError if not done."""
        part, index = self.find(delivery.index)
        if part.error is not None:
            part.tell(index)
        return part.error

    def add_done_callback(self, delivery: Delivery, callback: Callable[[Delivery], object]) -> None:
        """Call a function with the delivery once the batch is done."""
        self.add_callback(partial(callback, delivery))

    def unreported(self) -> DeliveryFailure | None:
        """What failed of this batch and nobody has been told."""
        untold = self.count - (0 if self._told is None else len(self._told))
        if self.error is None or untold <= 0:
            return None
        return DeliveryFailure(self.topic, self.partition, untold, self.error)

    def tell(self, index: int) -> None:
        """Somebody has learnt that this record failed."""
        if self._told is None:
            self._told = set()
        self._told.add(index)

    def find(self, index: int) -> tuple[BatchOutcome, int]:
        """The part that has a record, and the record's index in it."""
        if not self.done:
            raise IllegalStateError("the record is neither acknowledged nor failed yet")
        for first, part in reversed(self._parts):
            if index >= first:
                return part.find(index - first)
        return self, index


class Undesignated:
    """A record without a partition, since its topic is not known yet: it is in no batch.

    It is the outcome of its own handle; once designated, it passes every question on to the handle
    that the batch gave.
    """

    __slots__ = (
        "_decision",
        "_delivery",
        "_outcome",
        "_told",
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
        new_promise: NewPromise,
    ) -> None:
        self.topic = topic
        self.key = key
        self.value = value
        self.headers = headers
        self.timestamp = timestamp
        self.size = size
        self.created = created
        self.error: Exception | None = None
        self._decision = Settles(new_promise)
        self._delivery: Delivery | None = None
        self._outcome: BatchOutcome | None = None
        self._told = False

    @property
    def done(self) -> bool:
        """Whether the record was acknowledged or has failed."""
        return self.error is not None or (self._outcome is not None and self._outcome.done)

    def designate(self, delivery: Delivery, outcome: BatchOutcome) -> None:
        """The record is in a batch now, under that handle."""
        self._delivery = delivery
        self._outcome = outcome
        self._decision.settle()

    def fail(self, error: Exception) -> None:
        """The record will never be in a batch."""
        self.error = error
        self._decision.settle()

    async def settled(self) -> None:
        """Wait until the record is acknowledged or has failed."""
        await self._decision.settled()
        if self._outcome is not None:
            await self._outcome.settled()

    def wait(self, delivery: Delivery) -> Generator[Any, None, RecordMetadata]:
        """Wait until the record is done; its metadata, or its error."""
        yield from self._decision.settled().__await__()
        if self._outcome is not None and self._delivery is not None:
            return (yield from self._outcome.wait(self._delivery))
        return self.result(delivery)

    def result(self, delivery: Delivery) -> RecordMetadata:
        """The record's metadata; raises its error, or IllegalStateError if not done."""
        if self.error is not None:
            self._told = True
            raise self.error.with_traceback(None)
        if self._outcome is None or self._delivery is None:
            raise IllegalStateError("the record is neither acknowledged nor failed yet")
        return self._outcome.result(self._delivery)

    def exception(self, delivery: Delivery) -> BaseException | None:
        """The record's error, None if it was acknowledged; raises IllegalStateError if not done."""
        if self.error is not None:
            self._told = True
            return self.error
        if self._outcome is None or self._delivery is None:
            raise IllegalStateError("the record is neither acknowledged nor failed yet")
        return self._outcome.exception(self._delivery)

    def add_done_callback(self, delivery: Delivery, callback: Callable[[Delivery], object]) -> None:
        """Call a function with the delivery once the record is done."""

        def decided() -> None:
            if self._outcome is None:
                callback(delivery)
            else:
                self._outcome.add_done_callback(delivery, callback)

        self._decision.add_callback(decided)

    def unreported(self) -> DeliveryFailure | None:
        """The failure, if nobody has been told."""
        if self.error is None or self._told:
            return None
        return DeliveryFailure(self.topic, None, 1, self.error)
