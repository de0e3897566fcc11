"""What the kernel in plain Python hands out: the consumed record and the handle of a sent one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NoReturn

from typing_extensions import TypeVar

from kafka_async.errors import IllegalStateError
from kafka_async.kernel._shared import show, uncopied

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from kafka_async.kernel._shared import Outcome
    from kafka_async.types import Header, RecordMetadata

K = TypeVar("K", default=bytes)
V = TypeVar("V", default=bytes)


class RecordFields:
    """A record while it is made: its attributes can be set, at a seventh of the price.

    Whoever has set all of them makes it what it is for good: `fields.__class__ = Record`.
    """

    __slots__ = (
        "headers",
        "key",
        "leader_epoch",
        "offset",
        "partition",
        "timestamp",
        "timestamp_type",
        "topic",
        "value",
    )

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: Any
    value: Any
    headers: tuple[Header, ...]
    leader_epoch: int | None


class Record(RecordFields, Generic[K, V]):
    """A record as it was consumed. Immutable; owns its key, value and headers.

    `timestamp` is in milliseconds since the epoch; `timestamp_type` is 0 if the producer set it
    (CreateTime) and 1 if the broker did (LogAppendTime); `leader_epoch` is None if unknown.
    """

    __slots__ = ()

    key: K | None
    value: V | None

    def __new__(
        cls,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int,
        timestamp_type: int,
        key: K | None,
        value: V | None,
        headers: tuple[Header, ...] = (),
        leader_epoch: int | None = None,
    ) -> Record[K, V]:
        """The record with these attributes."""
        fields: Any = RecordFields()
        fields.topic = topic
        fields.partition = partition
        fields.offset = offset
        fields.timestamp = timestamp
        fields.timestamp_type = timestamp_type
        fields.key = key
        fields.value = value
        fields.headers = headers
        fields.leader_epoch = leader_epoch
        fields.__class__ = cls
        return fields

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"Record.{name} cannot be changed")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"Record.{name} cannot be changed")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return _fields(self) == _fields(other)  # pyright: ignore[reportUnknownArgumentType] generic

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), _fields(self)

    def __repr__(self) -> str:
        return (
            f"Record(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"timestamp={self.timestamp}, key={show(self.key)}, value={show(self.value)}, "
            f"headers=({', '.join(f'({n!r}, {show(v)})' for n, v in self.headers)}))"
        )


def _fields(record: Record[Any, Any]) -> tuple[object, ...]:
    return (
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        record.timestamp_type,
        record.key,
        record.value,
        record.headers,
        record.leader_epoch,
    )


class DeliveryFields:
    """A handle while it is made, as `RecordFields` is a record."""

    __slots__ = ("index", "outcome", "timestamp")

    outcome: Outcome | None
    index: int
    timestamp: int


class Delivery(DeliveryFields):
    """The handle of a record that was appended: await it for the record's `RecordMetadata`.

    It may be awaited any number of times, by any number of tasks; cancelling one of them, or
    forgetting the handle, changes nothing for the record. Immutable; it refers to the outcome of
    its batch, never to the batch's bytes.
    """

    __slots__ = ()

    def __new__(cls, outcome: Outcome | None, index: int, timestamp: int) -> Delivery:
        """The handle with these attributes."""
        fields: Any = DeliveryFields()
        fields.outcome = outcome
        fields.index = index
        fields.timestamp = timestamp
        fields.__class__ = cls
        return fields

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"Delivery.{name} cannot be changed")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"Delivery.{name} cannot be changed")

    def __reduce__(self) -> NoReturn:
        raise uncopied(self)

    def __await__(self) -> Generator[Any, Any, RecordMetadata]:
        return self._outcome().wait(self)

    def done(self) -> bool:
        """Whether the record was acknowledged or has failed."""
        return self._outcome().done

    def result(self) -> RecordMetadata:
        """The record's metadata; raises its error, or IllegalStateError while it is not done."""
        return self._outcome().result(self)

    def exception(self) -> BaseException | None:
        """The record's error, or None; raises IllegalStateError while it is not done."""
        return self._outcome().exception(self)

    def add_done_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Have `callback(delivery)` called by the event loop once the record's outcome is known.

        It is called soon if the outcome is known already. What it raises goes to the event loop's
        exception handler. It does not count as awaiting: the record lingers, and `flush()` raises
        its failure unless the callback asks for `result()` or `exception()`.
        """
        if not callable(callback):
            raise TypeError(f"callback must be callable, not {callback!r:.60}")
        self._outcome().add_done_callback(self, callback)

    def _outcome(self) -> Outcome:
        if self.outcome is None:
            raise IllegalStateError("the record's batch has no outcome")
        return self.outcome

    def __repr__(self) -> str:
        state = "done" if self.outcome is not None and self.outcome.done else "pending"
        return f"<Delivery index={self.index} timestamp={self.timestamp} {state}>"
