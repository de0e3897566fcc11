"""Consumed records and delivery handles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol

from typing_extensions import TypeVar

from kafka_async.errors import IllegalStateError
from kafka_async.kernel.shared import abbreviate, copy_error

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from kafka_async.types import Header, RecordMetadata

K = TypeVar("K", default=bytes)
V = TypeVar("V", default=bytes)


class RecordFields:
    """Holds the attributes of a record while it is made.

    Setting these attributes takes a seventh of the time that an immutable object needs. When all
    are set, `fields.__class__ = Record` makes the object immutable.
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
    """Represents a consumed record; immutable.

    Attributes:
        topic: Topic name.
        partition: Partition number.
        offset: Offset in the partition.
        timestamp: Milliseconds since the epoch.
        timestamp_type: 0 if the producer set the timestamp (CreateTime), 1 if the broker did
            (LogAppendTime).
        key: Bytes, or the deserialized object; None if null.
        value: Bytes, or the deserialized object; None for a tombstone.
        headers: (name, value) pairs; a value is bytes or None.
        leader_epoch: Leader epoch of the record's batch; None if unknown.
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
        """Return a record with these attributes."""
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
        headers = ", ".join([f"({name!r}, {abbreviate(value)})" for name, value in self.headers])
        return (
            f"Record(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"timestamp={self.timestamp}, key={abbreviate(self.key)}, "
            f"value={abbreviate(self.value)}, headers=({headers}))"
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


class DeliveryOutcome(Protocol):
    """Outcome of a batch, shared by its deliveries."""

    @property
    def done(self) -> bool:
        """True if the batch was acknowledged or has failed."""
        ...

    def wait(self, delivery: Delivery) -> Generator[Any, None, RecordMetadata]:
        """Wait until the batch is done; return or raise the outcome of the delivery."""
        ...

    def result(self, delivery: Delivery) -> RecordMetadata:
        """Return the record's metadata; raise its error, or IllegalStateError while pending."""
        ...

    def exception(self, delivery: Delivery) -> BaseException | None:
        """Return the record's error, or None; raise IllegalStateError while it is pending."""
        ...

    def add_done_callback(self, delivery: Delivery, callback: Callable[[Delivery], object]) -> None:
        """Call `callback(delivery)` once the batch is done."""
        ...


class DeliveryFields:
    """Holds the attributes of a delivery while it is made; see `RecordFields`."""

    __slots__ = ("index", "outcome", "timestamp")

    outcome: DeliveryOutcome | None
    index: int
    timestamp: int


class Delivery(DeliveryFields):
    """Represents an appended record; await it for the record's `RecordMetadata`.

    It may be awaited any number of times, by any number of tasks. Cancelling one of these tasks, or
    dropping the handle, does not affect the record. Immutable; it refers to the outcome of its
    batch, never to the batch's bytes.
    """

    __slots__ = ()

    def __new__(cls, outcome: DeliveryOutcome | None, index: int, timestamp: int) -> Delivery:
        """Return a delivery with these attributes."""
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
        raise copy_error(self)

    def __await__(self) -> Generator[Any, Any, RecordMetadata]:
        return self._outcome().wait(self)

    def done(self) -> bool:
        """Return True if the record was acknowledged or has failed."""
        return self._outcome().done

    def result(self) -> RecordMetadata:
        """Return the record's metadata.

        Raises:
            KafkaError: The record was not delivered.
            IllegalStateError: The record is still pending.
        """
        return self._outcome().result(self)

    def exception(self) -> BaseException | None:
        """Return the record's error, or None if the record was acknowledged.

        Raises:
            IllegalStateError: The record is still pending.
        """
        return self._outcome().exception(self)

    def add_done_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Call `callback(delivery)` from the event loop once the record's outcome is decided.

        If that has already happened, the callback is scheduled at once. An exception that it raises
        goes to the event loop's exception handler. A callback does not count as awaiting: the
        record still lingers, and `flush()` still raises its failure unless the callback calls
        `result()` or `exception()`.

        Args:
            callback: Called with this delivery.

        Raises:
            TypeError: `callback` is not callable, or an async function.
        """
        if not callable(callback):
            raise TypeError(f"callback must be callable, not {callback!r:.60}")
        self._outcome().add_done_callback(self, callback)

    def _outcome(self) -> DeliveryOutcome:
        if self.outcome is None:
            raise IllegalStateError("the record's batch has no outcome")
        return self.outcome

    def __repr__(self) -> str:
        state = "done" if self.outcome is not None and self.outcome.done else "pending"
        return f"<Delivery index={self.index} timestamp={self.timestamp} {state}>"
