"""Values shared by the packages and returned to applications."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from kafka_async.secrets import Secret

if TYPE_CHECKING:
    from uuid import UUID

Header: TypeAlias = tuple[str, bytes | None]
Headers: TypeAlias = Sequence[Header]


def check_topic(name: object) -> None:
    """Raise if a topic name is empty or not a str; brokers check its characters."""
    if not isinstance(name, str):
        raise TypeError(f"a topic's name must be str, not {type(name).__name__}: {name!r:.60}")
    if not name:
        raise ValueError("a topic's name must not be empty")


class ArrowData(Protocol):
    """Arrow data of any library, such as a record batch or a table of pyarrow."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return a capsule with an Arrow C stream."""
        ...


class TopicPartition(NamedTuple):
    """Names a partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Node(NamedTuple):
    """Holds a broker's id, rack and advertised address."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id {self.id})"


class RecordMetadata(NamedTuple):
    """Holds the partition and offset of an acknowledged record.

    Attributes:
        topic: The record's topic.
        partition: The record's partition.
        offset: The record's offset; -1 with acks=0, and if the broker wrote the record in an
            earlier attempt and no longer has its offset.
        timestamp: Milliseconds since the epoch: the record's own, or the broker's for a topic with
            LogAppendTime.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


class OffsetAndMetadata(NamedTuple):
    """Holds a position to commit.

    Attributes:
        offset: The offset of the next record to read.
        leader_epoch: The leader epoch of the last record read; None if unknown.
        metadata: Text that is stored with the offset.
    """

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


@dataclass(frozen=True)
class PreparedTransaction:
    """Names an open transaction whose records are delivered, so that another process can end it.

    Attributes:
        transactional_id: The producer's transactional id.
        producer_id: The producer's id.
        epoch: The producer's epoch in this transaction.
        version: 2 if the transaction uses transactions v2 (KIP-890), else 1.
        offsets: First and last offset of its records by partition, where known.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    version: int = 2
    offsets: Mapping[TopicPartition, tuple[int, int]] = field(
        default_factory=dict[TopicPartition, tuple[int, int]]
    )


class OffsetAndTimestamp(NamedTuple):
    """Holds an offset found by time.

    Attributes:
        offset: The offset of the first record at or after the requested time.
        timestamp: That record's timestamp in milliseconds since the epoch.
        leader_epoch: The leader epoch of that record; None if unknown.
    """

    offset: int
    timestamp: int
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """Identifies a member in a generation of its group, to fence old members' offsets (KIP-447).

    Attributes:
        group_id: The group.
        generation_id: The group's generation; -1 outside the group.
        member_id: The member id that the coordinator assigned; empty outside the group.
        group_instance_id: The id of a static member; None for a dynamic one.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(slots=True)
class ProducerRecord:
    """Holds a record to send.

    Attributes:
        topic: The topic.
        value: The value; None is a tombstone in a compacted topic.
        key: The key.
        headers: (name, value) pairs.
        partition: The partition; None lets the partitioner choose.
        timestamp: Milliseconds since the epoch; None uses the client's clock.
    """

    topic: str
    value: bytes | None = None
    key: bytes | None = None
    headers: Headers = field(default=())
    partition: int | None = None
    timestamp: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Holds a snapshot of a client's condition, taken without a request.

    Fields that do not apply to a kind of client keep their defaults. Times are seconds before the
    snapshot; None if the event has not happened yet.

    Attributes:
        state: "new", "starting", "running", "degraded" (no broker is connected and responding, or
            a broker has not responded for 5 s to a request that it need not delay), "stopping",
            "closed" or "failed".
        brokers_connected: Ids of the brokers with an open connection.
        last_response_s: Time since the last response of any broker.
        in_flight: Requests without a response yet.
        buffered_bytes: Producer: bytes of unacknowledged records. Consumer: bytes fetched and not
            returned yet.
        assignment: Consumer: the assigned partitions; empty until the group has assigned some.
        lag: Consumer: records between each position and the high watermark (the last stable offset
            with `read_committed`), by partition; without partitions that were not fetched yet.
            While `process` or `partition_streams` runs, counted from the first record that is not
            done.
        in_progress: Consumer: records that `process` or `partition_streams` has read and that are
            not done, by partition; without partitions that have none.
        oldest_unfinished_s: Consumer: time since the oldest running handler of `process` has begun,
            or since a task has got the oldest record of `partition_streams` that is not done, by
            partition; without partitions that have none.
        last_poll_s: Consumer: time since the application's last poll.
        last_heartbeat_s: Group member: time since the last successful heartbeat.
        last_error: The last error in a background task, as "ClassName: message". Includes the
            missing topics or partitions of a consumer, and the broker of a degraded client.
        kernel: "c" (compiled) or "python".
    """

    state: str
    brokers_connected: tuple[int, ...] = ()
    last_response_s: float | None = None
    in_flight: int = 0
    buffered_bytes: int = 0
    assignment: tuple[TopicPartition, ...] = ()
    lag: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    in_progress: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    oldest_unfinished_s: Mapping[TopicPartition, float] = field(
        default_factory=dict[TopicPartition, float]
    )
    last_poll_s: float | None = None
    last_heartbeat_s: float | None = None
    last_error: str | None = None
    kernel: str = ""


@dataclass(frozen=True, slots=True)
class Token:
    """Holds an OAUTHBEARER token, as a `sasl_token_provider` returns it (KIP-255).

    Attributes:
        value: The token; a str is wrapped into a `Secret`.
        expires_at: Seconds since the epoch; a new token is fetched before then. None: unknown.
        extensions: SASL extensions to send with it (KIP-342).
    """

    value: Secret
    expires_at: float | None = None
    extensions: Mapping[str, str] = field(default_factory=dict[str, str])

    def __init__(
        self,
        value: Secret | str,
        expires_at: float | None = None,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        object.__setattr__(self, "value", value if isinstance(value, Secret) else Secret(value))
        object.__setattr__(self, "expires_at", expires_at)
        object.__setattr__(self, "extensions", dict(extensions or {}))


@runtime_checkable
class HasOffsetSource(Protocol):
    """A consumer whose offsets a transaction can commit."""

    def __offset_source__(self) -> OffsetSource:
        """Return the consumer's offset source."""
        ...


class OffsetSource(Protocol):
    """Provides a transaction with the offsets of a consumer (KIP-447)."""

    def uncommitted(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return the positions of partitions whose records were returned since the last commit."""
        ...

    def group_metadata(self) -> GroupMetadata:
        """Return the consumer's current member id and generation."""
        ...

    async def next_generation(self, former: GroupMetadata, timeout: float) -> GroupMetadata | None:
        """Wait up to `timeout` seconds for the generation after `former`.

        Returns:
            Its metadata, or None if the member has lost its partitions.
        """
        ...

    def mark_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Record offsets that a transaction has committed."""
        ...

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, UUID]:
        """Return the ids of topics that the consumer reads, where known."""
        ...

    async def find_ended(self, topic_ids: Mapping[str, UUID], timeout: float) -> frozenset[str]:
        """Return the topics that were deleted, including those created again with another id."""
        ...
