"""Arguments and results of the admin client.

Separate from the modules that send requests, so that importing them loads no messages.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from kafka_async.types import Node, TopicPartition


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    Attributes:
        name: Name of the topic.
        partitions: Number of partitions; -1 for the cluster's default.
        replication_factor: Replicas per partition; -1 for the cluster's default.
        configs: Topic options under Kafka's names, such as "retention.ms".
        assignments: Broker ids of each partition's replicas, the preferred leader first; replaces
            `partitions` and `replication_factor`.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict[int, "Sequence[int]"])


class TopicListing(NamedTuple):
    """An existing topic; `topic_id` is the zero UUID on clusters without topic ids."""

    name: str
    topic_id: UUID
    partitions: int
    is_internal: bool


class PartitionDescription(NamedTuple):
    """One partition, with the ids of its brokers; `leader` is None if it has no leader."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]


class TopicDescription(NamedTuple):
    """A topic and its partitions, in order."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


class ClusterDescription(NamedTuple):
    """A cluster: its id, its brokers and the id of the controller (None if unknown)."""

    cluster_id: str
    controller_id: int | None
    brokers: tuple[Node, ...]


class GroupListing(NamedTuple):
    """An existing group; `state` and `type` are empty on clusters too old to report them.

    `session_timeout_ms` is set if it was requested. It is None for classic groups, where each
    member has its own, and if the client's principal may not DESCRIBE_CONFIGS the group.
    """

    group_id: str
    protocol_type: str
    state: str
    type: str
    session_timeout_ms: int | None = None


class MemberDescription(NamedTuple):
    """A member of a group; `assignment` is empty unless it is a consumer group."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: frozenset[TopicPartition]


class GroupDescription(NamedTuple):
    """A group; `type` is "classic", "consumer" or "share", and `protocol` the assignor's name.

    `session_timeout_ms` is as in `GroupListing`.
    """

    group_id: str
    type: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: tuple[MemberDescription, ...]
    session_timeout_ms: int | None = None


class ShareGroupOffset(NamedTuple):
    """Start offset of a share group in a partition (KIP-932): earlier records are acknowledged.

    `lag` is the number of later records that the group has not acknowledged yet (KIP-1226); None if
    it is unknown, or brokers are too old to report it.
    """

    offset: int
    leader_epoch: int
    lag: int | None


class TransactionListing(NamedTuple):
    """A transactional id with its producer id and its state, such as "Ongoing"."""

    transactional_id: str
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """A transactional id; `start_time` is in milliseconds since the epoch, None if none began."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time: int | None
    partitions: frozenset[TopicPartition]


class OffsetSpec(enum.IntEnum):
    """Offsets that `Admin.list_offsets` can look up without a timestamp."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3


class ResourceType(enum.IntEnum):
    """Types of resources that have a configuration."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(enum.IntEnum):
    """Sources of an option's value."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8

    @classmethod
    def _missing_(cls, value: object) -> ConfigSource:
        return cls.UNKNOWN


class ConfigResource(NamedTuple):
    """A resource with a configuration; the name of a broker is its id as a string."""

    type: ResourceType
    name: str


class ConfigEntry(NamedTuple):
    """An option's value; None if it is not set or is a secret (`sensitive`)."""

    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool


OffsetTarget: TypeAlias = "OffsetSpec | float | datetime"
"""An `OffsetSpec`, or a time whose first offset at or after it is meant: seconds since the epoch,
or a datetime, which without a time zone is local time.
"""
