"""What the admin client takes and gives: small values, no behaviour.

They are apart from the subjects so that naming them loads no message module.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from uuid import UUID

    from kafka_async.types import Node, TopicPartition


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    `partitions` and `replication_factor` of -1 take the cluster's defaults; `configs` are Kafka's
    topic options under their own names ("retention.ms"). `assignments` names the replicas of each
    partition instead, the preferred leader first.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict[int, "Sequence[int]"])


class TopicListing(NamedTuple):
    """A topic that exists; `topic_id` is the zero UUID on clusters without ids."""

    name: str
    topic_id: UUID
    partitions: int
    is_internal: bool


class PartitionDescription(NamedTuple):
    """One partition: ids of brokers; `leader` is None while it has none."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]


class TopicDescription(NamedTuple):
    """A topic and its partitions, in their order."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


class ClusterDescription(NamedTuple):
    """A cluster: its id, its brokers, and which of them the controller is (None: unknown)."""

    cluster_id: str
    controller_id: int | None
    brokers: tuple[Node, ...]


class GroupListing(NamedTuple):
    """A group that exists; `state` and `type` are empty on clusters too old to say."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class MemberDescription(NamedTuple):
    """A member of a group; `assignment` is empty for groups that are no consumers."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: frozenset[TopicPartition]


class GroupDescription(NamedTuple):
    """A group; `type` is "classic" or "consumer" (KIP-848), `protocol` the assignor's name."""

    group_id: str
    type: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: tuple[MemberDescription, ...]


class OffsetSpec(enum.IntEnum):
    """Which offset is asked for, where it is none by time (milliseconds since the epoch)."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3


class ResourceType(enum.IntEnum):
    """What a configuration belongs to."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(enum.IntEnum):
    """Where an option's value comes from."""

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
    """Whose configuration: a topic's by its name, a broker's by its id as text."""

    type: ResourceType
    name: str


class ConfigEntry(NamedTuple):
    """An option's value; None if it is not set or is a secret (`sensitive`)."""

    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool


At: TypeAlias = "OffsetSpec | int"
"""Which offset: one of `OffsetSpec`, or the first at or after a time in milliseconds."""
