"""Small values that pass between the rooms: no behaviour, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

Header: TypeAlias = tuple[str, bytes | None]
Headers: TypeAlias = Sequence[Header]


def check_topic(name: object) -> None:
    """Raise for a topic's name that is empty or no str; brokers check its characters."""
    if not isinstance(name, str):
        raise TypeError(f"a topic's name must be str, not {type(name).__name__}: {name!r:.60}")
    if not name:
        raise ValueError("a topic's name must not be empty")


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Node(NamedTuple):
    """A broker's id and address, as its cluster advertises it."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id {self.id})"


class RecordMetadata(NamedTuple):
    """Where an acknowledged record lies.

    `offset` is -1 when the producer asked for no acknowledgement (acks=0) or when the broker wrote
    the record in an earlier attempt and no longer knows where. `timestamp` is in milliseconds since
    the epoch: the record's own, or the broker's for a topic with LogAppendTime.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


class OffsetAndMetadata(NamedTuple):
    """A position to commit: the offset of the next record to read, and what the committer notes."""

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


class OffsetAndTimestamp(NamedTuple):
    """An offset found by time; the timestamp is in milliseconds since the epoch."""

    offset: int
    timestamp: int
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """Who a consumer is in its group: what fences a zombie's transactional offsets (KIP-447)."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(slots=True)
class ProducerRecord:
    """A record to send.

    `partition` None lets the partitioner choose; `timestamp` None takes the client's clock
    (milliseconds since the epoch).
    """

    topic: str
    value: bytes | None = None
    key: bytes | None = None
    headers: Headers = field(default=())
    partition: int | None = None
    timestamp: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A snapshot of a client's condition, taken without a request.

    Fields that do not apply to a kind of client keep their defaults. Durations are seconds before
    the snapshot; None means that it has not happened yet.

    Attributes:
        state: "new", "starting", "running", "degraded" (no broker is connected and responding, or
            one has not responded for 5 s to a request that it does not hold back, as a frozen
            one), "stopping", "closed" or "failed".
        brokers_connected: Ids of the brokers with an open connection.
        last_response_s: Time since the last response of any broker.
        in_flight: Requests that were sent and have no response yet.
        buffered_bytes: Producer: bytes of unacknowledged records. Consumer: bytes fetched and not
            returned yet.
        assignment: Consumer: the assigned partitions.
        lag: Consumer: records between each position and its high watermark (or last stable offset
            with `read_committed`), where both are known.
        last_poll_s: Consumer: time since the application last asked for records.
        last_heartbeat_s: Group member: time since the last successful heartbeat.
        last_error: The last error that a background task met, as "ClassName: message". Of a
            consumer whose topic or partition does not exist it names those, of a degraded client
            the broker.
        kernel: "c" (compiled) or "python".
    """

    state: str
    brokers_connected: tuple[int, ...] = ()
    last_response_s: float | None = None
    in_flight: int = 0
    buffered_bytes: int = 0
    assignment: tuple[TopicPartition, ...] = ()
    lag: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    last_poll_s: float | None = None
    last_heartbeat_s: float | None = None
    last_error: str | None = None
    kernel: str = ""


class OffsetSource(Protocol):
    """What a transaction needs of a consumer to commit its offsets (KIP-447)."""

    def uncommitted(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Positions of what was handed out and not committed yet."""
        ...

    def group_metadata(self) -> GroupMetadata:
        """The consumer's place in its group right now."""
        ...

    async def next_generation(self, former: GroupMetadata, timeout: float) -> GroupMetadata | None:
        """Wait for the generation after `former`'s; None if the member lost its partitions."""
        ...

    def mark_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Note that these offsets were committed by somebody else."""
        ...
