"""All topics of the cluster: creation, deletion, configurations, replica assignment, leaders."""

from __future__ import annotations

import itertools
import uuid
from typing import TYPE_CHECKING, Final

from kafka_async.embedded.request_validation import TOPIC_NAME_PATTERN
from kafka_async.embedded.state.configs import check_configs, effective_configs
from kafka_async.embedded.state.log import PartitionLog
from kafka_async.embedded.state.partition import Partition, Topic
from kafka_async.errors import (
    FencedLeaderEpochError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    NotLeaderOrFollowerError,
    TopicExistsError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from uuid import UUID

    from kafka_async.embedded.settings import Settings
    from kafka_async.embedded.state.brokers import Brokers
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
"""Configurations of the coordinators' topics.

These topics stay empty: the coordinators' state is in memory.
"""


def validate_topic_name(name: str) -> None:
    """Raise InvalidTopicError for an invalid topic name."""
    if not TOPIC_NAME_PATTERN.fullmatch(name) or name in {".", ".."}:
        raise InvalidTopicError(
            f"{name!r} is not a topic name: 1 to 249 letters, digits, '.', '_', '-', "
            "but not '.' or '..'"
        )


def is_internal(name: str) -> bool:
    """Return True for the topics of the coordinators."""
    return name in INTERNAL_TOPICS


class TopicTable:
    """Holds the topics by name and id; `on_delete` is called with each deleted topic."""

    def __init__(
        self, settings: Settings, brokers: Brokers, on_delete: Callable[[Topic], None]
    ) -> None:
        self._settings = settings
        self._brokers = brokers
        self._on_delete = on_delete
        self._ids = itertools.count(1)
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self._next_replica = 0

    def __iter__(self) -> Iterator[Topic]:
        return iter(tuple(self._by_name.values()))

    def get(self, name: str) -> Topic | None:
        """Return a topic by name, or None."""
        return self._by_name.get(name)

    def by_id(self, topic_id: UUID) -> Topic | None:
        """Return a topic by id, or None."""
        return self._by_id.get(topic_id)

    def partition(self, tp: TopicPartition) -> Partition | None:
        """Return a partition, or None."""
        topic = self._by_name.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        return topic.partitions[tp.partition]

    def resolve_name(self, name: str, topic_id: UUID, *, by_id: bool) -> str:
        """Return the name of a topic that a request contains by name or id (KIP-516)."""
        if not by_id:
            return name
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise UnknownTopicIdError("This server does not host this topic ID.")
        return topic.name

    def replica_partition(
        self, broker_id: int, tp: TopicPartition, leader_epoch: int = -1
    ) -> Partition:
        """Return a partition that has a replica on a broker.

        `leader_epoch` is the client's; -1 skips the comparison (KIP-320).
        """
        partition = self.partition(tp)
        if partition is None:
            raise UnknownTopicOrPartitionError("This server does not host this topic-partition.")
        if broker_id not in partition.replicas:
            raise NotLeaderOrFollowerError(f"broker {broker_id} does not host {tp}")
        if leader_epoch != -1 and leader_epoch < partition.leader_epoch:
            raise FencedLeaderEpochError(
                "The leader epoch in the request is older than the replica's."
            )
        if leader_epoch > partition.leader_epoch:
            raise UnknownLeaderEpochError(
                "The leader epoch in the request is newer than the replica's."
            )
        return partition

    def leader_partition(
        self, broker_id: int, tp: TopicPartition, leader_epoch: int = -1
    ) -> Partition:
        """Return a partition that a broker leads; `leader_epoch` as in `replica_partition`."""
        partition = self.replica_partition(broker_id, tp, leader_epoch)
        if partition.leader != broker_id:
            raise NotLeaderOrFollowerError(f"broker {broker_id} does not lead {tp}")
        return partition

    def partitions(self) -> Iterator[Partition]:
        """Return every partition of every topic."""
        return (partition for topic in self for partition in topic.partitions)

    def new_id(self) -> UUID:
        """Return a new topic id."""
        return uuid.uuid5(uuid.NAMESPACE_OID, f"{self._settings.cluster_id}/{next(self._ids)}")

    def plan_assignment(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        assignments: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> list[tuple[int, ...]]:
        """Return the replicas of a new topic by partition; raise as `create` does."""
        validate_topic_name(name)
        if name in self._by_name:
            raise TopicExistsError(f"Topic '{name}' already exists.")
        check_configs(configs or {})
        if assignments:
            return self._validate_assignment(assignments)
        count = self._settings.default_partitions if partitions is None else partitions
        if count < 1:
            raise InvalidPartitionsError(
                "Number of partitions was set to an invalid non-positive value."
            )
        return self._assign_replicas(count, replication_factor)

    def create(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        *,
        assignments: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> Topic:
        """Create a topic; arguments and errors as in `EmbeddedCluster.create_topic`."""
        assignment = self.plan_assignment(
            name, partitions, replication_factor, assignments, configs
        )
        topic = Topic(name, self.new_id(), [], dict(configs or {}))
        self._by_name[name] = self._by_id[topic.id] = topic
        self._append_partitions(topic, assignment)
        return topic

    def create_internal_topic(self, name: str) -> None:
        """Create a coordinator's topic unless it exists."""
        if name in self._by_name:
            return
        partitions = {
            OFFSETS_TOPIC: self._settings.offsets_topic_num_partitions,
            TRANSACTIONS_TOPIC: self._settings.transaction_state_log_num_partitions,
        }[name]
        factor = self._settings.replication_factor(len(self._brokers.alive_ids()))
        self.create(name, partitions, factor, configs=INTERNAL_TOPICS[name])

    def add_partitions(
        self,
        name: str,
        total: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        dry_run: bool = False,
    ) -> None:
        """Add partitions to a topic that has fewer than `total`."""
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
            assignment = self._validate_assignment(dict(enumerate(assignments)))
            if any(len(it) != len(topic.partitions[0].replicas) for it in assignment):
                raise InvalidReplicaAssignmentError(
                    "the topic's partitions have another number of replicas"
                )
            if len(assignment) != more:
                raise InvalidReplicaAssignmentError(
                    f"{more} new partitions, {len(assignment)} assignments"
                )
        else:
            assignment = self._assign_replicas(more, len(topic.partitions[0].replicas))
        if not dry_run:
            self._append_partitions(topic, assignment)

    def delete(self, name: str) -> Topic:
        """Delete a topic with its data."""
        topic = self._by_name.pop(name, None)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"Topic '{name}' does not exist.")
        del self._by_id[topic.id]
        for partition in topic.partitions:
            partition.notify_listeners()
        self._on_delete(topic)
        return topic

    def configs(self, topic: Topic) -> dict[str, str]:
        """Return all configurations of a topic."""
        return effective_configs(self._settings, topic.configs)

    def configure(self, topic: Topic, configs: Mapping[str, str]) -> None:
        """Replace the configurations of a topic that differ from the defaults."""
        topic.configs = dict(configs)
        for partition in topic.partitions:
            partition.log.configure(self.configs(topic))

    def delete_old_segments(self, now: int) -> None:
        """Apply the retention of all topics at `now`, milliseconds since the epoch."""
        for partition in self.partitions():
            if partition.log.delete_old_segments(now):
                partition.notify_listeners()

    def update_leaders(self) -> None:
        """Update leaders and ISRs after a broker started or stopped."""
        alive = set(self._brokers.alive_ids())
        for partition in self.partitions():
            partition.update_leader(alive)

    def _append_partitions(self, topic: Topic, assignment: Sequence[tuple[int, ...]]) -> None:
        configs, alive = self.configs(topic), set(self._brokers.alive_ids())
        for replicas in assignment:
            log = PartitionLog(self._settings.producer_id_expiration_ms)
            log.configure(configs)
            partition = Partition(topic.name, len(topic.partitions), replicas, log)
            topic.partitions.append(partition)
            partition.update_leader(alive)

    def _assign_replicas(self, count: int, replication_factor: int | None) -> list[tuple[int, ...]]:
        alive = self._brokers.alive_ids_across_racks()
        factor = replication_factor
        if factor is None or factor == -1:
            factor = self._settings.replication_factor(len(alive))
        if not 1 <= factor <= len(alive):
            raise InvalidReplicationFactorError(
                f"Unable to replicate the partition {factor} time(s): {len(alive)} brokers."
            )
        start, self._next_replica = self._next_replica, self._next_replica + count
        return [
            tuple(alive[(start + index + replica) % len(alive)] for replica in range(factor))
            for index in range(count)
        ]

    def _validate_assignment(
        self, assignments: Mapping[int, Sequence[int]]
    ) -> list[tuple[int, ...]]:
        alive: Collection[int] = self._brokers.alive_ids()
        if sorted(assignments) != list(range(len(assignments))):
            raise InvalidReplicaAssignmentError(
                "partitions should be a consecutive 0-based sequence"
            )
        assignment = [tuple(assignments[index]) for index in range(len(assignments))]
        if any(len(replicas) != len(assignment[0]) for replicas in assignment):
            raise InvalidReplicaAssignmentError("partitions have different numbers of replicas")
        for replicas in assignment:
            if not replicas or len(set(replicas)) != len(replicas):
                raise InvalidReplicaAssignmentError(f"replicas {replicas} are empty or repeated")
            if unknown := set(replicas).difference(alive):
                raise InvalidReplicaAssignmentError(f"no such brokers: {sorted(unknown)}")
        return assignment
