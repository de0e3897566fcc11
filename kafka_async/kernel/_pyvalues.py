"""What the kernel in plain Python hands out: the consumed record and the handle of a sent one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NoReturn

from typing_extensions import TypeVar

from kafka_async.errors import IllegalStateError
from kafka_async.kernel._shared import show, uncopied

if TYPE_CHECKING:
    from collections.abc import Generator

    from kafka_async.kernel._shared import Outcome
    from kafka_async.types import Header, RecordMetadata

K = TypeVar("K", default=bytes)
V = TypeVar("V", default=bytes)


class Record(Generic[K, V]):
    """A record as it was consumed. Immutable; owns its key, value and headers.

    `timestamp` is in milliseconds since the epoch; `timestamp_type` is 0 if the producer set it
    (CreateTime) and 1 if the broker did (LogAppendTime); `leader_epoch` is None if unknown.
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
    key: K | None
    value: V | None
    headers: tuple[Header, ...]
    leader_epoch: int | None

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int,
        timestamp_type: int,
        key: K | None,
        value: V | None,
        headers: tuple[Header, ...] = (),
        leader_epoch: int | None = None,
    ) -> None:
        put = object.__setattr__
        put(self, "topic", topic)
        put(self, "partition", partition)
        put(self, "offset", offset)
        put(self, "timestamp", timestamp)
        put(self, "timestamp_type", timestamp_type)
        put(self, "key", key)
        put(self, "value", value)
        put(self, "headers", headers)
        put(self, "leader_epoch", leader_epoch)

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


class Delivery:
    """The handle of a record that was appended: await it for the record's `RecordMetadata`.

    It may be awaited any number of times, by any number of tasks; cancelling one of them, or
    forgetting the handle, changes nothing for the record. Immutable; it refers to the outcome of
    its batch, never to the batch's bytes.
    """

    __slots__ = ("index", "outcome", "timestamp")

    outcome: Outcome | None
    index: int
    timestamp: int

    def __init__(self, outcome: Outcome | None, index: int, timestamp: int) -> None:
        put = object.__setattr__
        put(self, "outcome", outcome)
        put(self, "index", index)
        put(self, "timestamp", timestamp)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"Delivery.{name} cannot be changed")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"Delivery.{name} cannot be changed")

    def __reduce__(self) -> NoReturn:
        raise uncopied(self)

    def __await__(self) -> Generator[Any, Any, RecordMetadata]:
        return self._outcome().wait(self).__await__()

    def done(self) -> bool:
        """Whether the record was acknowledged or has failed."""
        return self._outcome().done

    def result(self) -> RecordMetadata:
        """The record's metadata; raises its error, or IllegalStateError while it is not done."""
        return self._outcome().result(self)

    def exception(self) -> BaseException | None:
        """The record's error, or None; raises IllegalStateError while it is not done."""
        return self._outcome().exception(self)

    def _outcome(self) -> Outcome:
        if self.outcome is None:
            raise IllegalStateError("the record's batch has no outcome")
        return self.outcome

    def __repr__(self) -> str:
        state = "done" if self.outcome is not None and self.outcome.done else "pending"
        return f"<Delivery index={self.index} timestamp={self.timestamp} {state}>"
