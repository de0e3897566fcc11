"""The record that a share consumer returns, with the number of its deliveries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from typing_extensions import TypeVar

if TYPE_CHECKING:
    from kafka_async.kernel import Record
    from kafka_async.types import Header

K = TypeVar("K", default=bytes)
V = TypeVar("V", default=bytes)


@dataclass(frozen=True, slots=True)
class ShareRecord(Generic[K, V]):
    """A record acquired from a share group; immutable.

    Attributes:
        topic: Topic name.
        partition: Partition number.
        offset: Offset in the partition.
        timestamp: Milliseconds since the epoch.
        timestamp_type: 0 if the producer set the timestamp (CreateTime), 1 if the broker did
            (LogAppendTime).
        key: Bytes, or the object that the deserializer returned; None if null.
        value: Bytes, or the object that the deserializer returned; None for a tombstone.
        headers: Pairs of a name and a value, which is bytes or None.
        leader_epoch: Leader epoch of the record's batch, None if unknown.
        delivery_count: Number of times that the group has delivered the record, this time
            included. It is a hint: a broker's failure may reset it.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: K | None
    value: V | None
    headers: tuple[Header, ...]
    leader_epoch: int | None
    delivery_count: int

    @classmethod
    def of(cls, record: Record[Any, Any], delivery_count: int) -> ShareRecord[Any, Any]:
        """Return a record with its delivery count."""
        return cls(
            record.topic,
            record.partition,
            record.offset,
            record.timestamp,
            record.timestamp_type,
            record.key,
            record.value,
            record.headers,
            record.leader_epoch,
            delivery_count,
        )
