"""All topics of the cluster: made, dropped, and led by others as brokers come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

from kafka_async.embedded.configs import check_configs, effective_configs
from kafka_async.embedded.log import PartitionLog
from kafka_async.embedded.partition import Partition, Topic
from kafka_async.embedded.request_validation import TOPIC_NAME_PATTERN
from kafka_async.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from kafka_async.embedded.settings import Settings
    from kafka_async.types import TopicPartition

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final[dict[str, dict[str, str]]] = {
    OFFSETS_TOPIC: {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    },
    TRANSACTIONS_TOPIC: {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    },
}
"""The coordinators' topics with their configurations; they are empty, since coordinators keep
their state in memory.
"""


def check_name(name: str) -> None:
    """Raise InvalidTopicError unless a topic may be called this."""
    if not TOPIC_NAME_PATTERN.fullmatch(name) or name in {".", ".."}:
        raise InvalidTopicError(
            f"{name!r} is no topic name: 1 to 249 letters, digits, '.', '_', '-'; not '.' or '..'"
        )


def is_internal(name: str) -> bool:
    """Return whether a topic is one of the coordinators' own."""
    return name in INTERNAL_TOPICS


class TopicTable:
    """Topics by name and by id.

    `alive` tells which brokers live, in the order of their ids; `new_id` makes topic ids;
    `on_delete` is told the name of each topic that is dropped.
    """

    def __init__(
        self,
        settings: Settings,
        alive: Callable[[], Sequence[int]],
        new_id: Callable[[], UUID],
        on_delete: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._alive = alive
        self.new_id = new_id
        self._on_delete = on_delete
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self._placed = 0

    def __iter__(self) -> Iterator[Topic]:
        return iter(tuple(self._by_name.values()))

    def get(self, name: str) -> Topic | None:
        """The topic of a name."""
        return self._by_name.get(name)

    def by_id(self, topic_id: UUID) -> Topic | None:
        """The topic of an id."""
        return self._by_id.get(topic_id)

    def partition(self, tp: TopicPartition) -> Partition | None:
        """A partition, None if there is no such."""
        topic = self._by_name.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        return topic.partitions[tp.partition]

    def partitions(self) -> Iterator[Partition]:
        """Every partition of every topic."""
        return (partition for topic in self for partition in topic.partitions)

    def plan(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        assignments: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> list[tuple[int, ...]]:
        """Where a new topic's replicas would go, by partition; raises what forbids the topic."""
        check_name(name)
        if name in self._by_name:
            raise TopicExistsError(f"Topic '{name}' already exists.")
        check_configs(configs or {})
        if assignments:
            return self._assigned(assignments)
        count = self._settings.default_partitions if partitions is None else partitions
        if count < 1:
            raise InvalidPartitionsError(
                "Number of partitions was set to an invalid non-positive value."
            )
        return self._place(count, replication_factor)

    def create(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        *,
        assignments: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> Topic:
        """Make a topic; numbers default to the settings; `assignments`: replicas by partition."""
        placement = self.plan(name, partitions, replication_factor, assignments, configs)
        topic = Topic(name, self.new_id(), [], dict(configs or {}))
        self._by_name[name] = self._by_id[topic.id] = topic
        self._extend(topic, placement)
        return topic

    def create_internal(self, name: str) -> None:
        """Make a coordinator's topic unless it exists; raises InvalidReplicationFactorError."""
        if name in self._by_name:
            return
        partitions = {
            OFFSETS_TOPIC: self._settings.offsets_topic_num_partitions,
            TRANSACTIONS_TOPIC: self._settings.transaction_state_log_num_partitions,
        }[name]
        factor = self._settings.replication_factor(len(self._alive()))
        self.create(name, partitions, factor, configs=INTERNAL_TOPICS[name])

    def grow(
        self,
        name: str,
        total: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        dry_run: bool = False,
    ) -> None:
        """Give a topic more partitions, `total` in all."""
        topic = self._by_name.get(name)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"Topic '{name}' does not exist.")
        more = total - len(topic.partitions)
        if more <= 0:
            raise InvalidPartitionsError(
                f"The topic {name} currently has {len(topic.partitions)} partition(s); "
                f"{total} would not be an increase."
            )
        if assignments is not None:
            placement = self._assigned(dict(enumerate(assignments)))
            if any(len(it) != len(topic.partitions[0].replicas) for it in placement):
                raise InvalidReplicaAssignmentError(
                    "the topic's partitions have another number of replicas"
                )
            if len(placement) != more:
                raise InvalidReplicaAssignmentError(
                    f"{more} new partitions, {len(placement)} assignments"
                )
        else:
            placement = self._place(more, len(topic.partitions[0].replicas))
        if not dry_run:
            self._extend(topic, placement)

    def delete(self, name: str) -> Topic:
        """Drop a topic with its data."""
        topic = self._by_name.pop(name, None)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"Topic '{name}' does not exist.")
        del self._by_id[topic.id]
        for partition in topic.partitions:
            partition.deleted = True
            partition.changed()
        self._on_delete(name)
        return topic

    def configs(self, topic: Topic) -> dict[str, str]:
        """Return all configurations of a topic."""
        return effective_configs(self._settings, topic.configs)

    def configure(self, topic: Topic, configs: Mapping[str, str]) -> None:
        """Replace the settings of a topic that differ from the defaults."""
        topic.configs = dict(configs)
        for partition in topic.partitions:
            partition.log.configure(self.configs(topic))

    def retain(self, now: int) -> None:
        """Delete what every topic's retention does not keep at `now` (epoch milliseconds)."""
        for partition in self.partitions():
            if partition.log.retain(now):
                partition.changed()

    def settle(self) -> None:
        """Brokers came or went: move leaders, shrink and grow ISRs."""
        alive = set(self._alive())
        for partition in self.partitions():
            partition.settle(alive)

    def _extend(self, topic: Topic, placement: Sequence[tuple[int, ...]]) -> None:
        configs, alive = self.configs(topic), set(self._alive())
        for replicas in placement:
            log = PartitionLog(self._settings.producer_id_expiration_ms)
            log.configure(configs)
            partition = Partition(topic.name, len(topic.partitions), replicas, log)
            topic.partitions.append(partition)
            partition.settle(alive)

    def _place(self, count: int, replication_factor: int | None) -> list[tuple[int, ...]]:
        alive = list(self._alive())
        factor = replication_factor
        if factor is None or factor == -1:
            factor = self._settings.replication_factor(len(alive))
        if not 1 <= factor <= len(alive):
            raise InvalidReplicationFactorError(
                f"Unable to replicate the partition {factor} time(s): {len(alive)} brokers."
            )
        start, self._placed = self._placed, self._placed + count
        return [
            tuple(alive[(start + index + replica) % len(alive)] for replica in range(factor))
            for index in range(count)
        ]

    def _assigned(self, assignments: Mapping[int, Sequence[int]]) -> list[tuple[int, ...]]:
        known: Collection[int] = self._alive()
        if sorted(assignments) != list(range(len(assignments))):
            raise InvalidReplicaAssignmentError(
                "partitions should be a consecutive 0-based sequence"
            )
        placement = [tuple(assignments[index]) for index in range(len(assignments))]
        if any(len(replicas) != len(placement[0]) for replicas in placement):
            raise InvalidReplicaAssignmentError("partitions have different numbers of replicas")
        for replicas in placement:
            if not replicas or len(set(replicas)) != len(replicas):
                raise InvalidReplicaAssignmentError(f"replicas {replicas} are empty or repeated")
            if unknown := set(replicas).difference(known):
                raise InvalidReplicaAssignmentError(f"no such brokers: {sorted(unknown)}")
        return placement
