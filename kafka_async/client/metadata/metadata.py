"""Immutable snapshots of a cluster's metadata, and how a response changes them. Pure.

A snapshot is replaced, never changed, so its users see a consistent cluster. Merging a response
keeps two promises. First, a partition's leader epoch never decreases while the topic id stays the
same (KIP-320): a broker that lags would direct the client to a former leader. A different topic id
means a new topic of the same name, which starts afresh (KIP-516), and a broker that lags cannot
bring the former topic back. Second, a response about some topics leaves the others unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kafka_async.errors import (
    InvalidMetadataError,
    KafkaError,
    UnknownTopicOrPartitionError,
    error_for,
    for_code,
)
from kafka_async.types import Node, TopicPartition

if TYPE_CHECKING:
    from kafka_async.protocol.messages.metadata import (
        MetadataResponse,
        MetadataResponsePartition,
        MetadataResponseTopic,
    )

NO_ID = UUID(int=0)
NO_NODE = -1
NO_EPOCH = -1


MAX_FORMER_IDS: Final = 8
"""Remembered ids of deleted topics per name: brokers may lag by several topics."""
LEADER_NOT_AVAILABLE: Final = 5
"""Error code of a topic or partition whose metadata is incomplete: it is requested again."""
TOPIC_OPERATION: Final = "DESCRIBE (or CREATE, if it does not exist)"
"""Operation that the metadata of a topic needs, for error messages."""


class LeaderAndEpoch(NamedTuple):
    """The leader of a partition; `epoch` is -1 if the cluster is too old to report it."""

    leader_id: int
    epoch: int


class LeaderHint(NamedTuple):
    """A partition's leader in another response (KIP-951), with its address if known.

    `topic_id` is the zero UUID if the request contained the topic's name.
    """

    partition: TopicPartition
    leader_id: int
    epoch: int
    endpoint: Node | None = None
    topic_id: UUID = NO_ID


class PartitionMetadata(NamedTuple):
    """One partition; `leader_id` is -1 while it has no leader, with the cause in `error_code`."""

    partition: int
    leader_id: int = NO_NODE
    leader_epoch: int = NO_EPOCH
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    error_code: int = 0


class TopicMetadata(NamedTuple):
    """One topic; `topic_id` is the zero UUID if the cluster is too old for topic ids."""

    name: str
    topic_id: UUID = NO_ID
    partitions: Mapping[int, PartitionMetadata] = MappingProxyType({})
    is_internal: bool = False


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """The metadata of a cluster at one point in time.

    Attributes:
        brokers: Brokers by id, with the addresses that the cluster advertises.
        cluster_id: Id of the cluster, or None.
        controller_id: Id of the controller, or None.
        topics: Requested topics that exist, by name.
        errors: Error codes of requested topics that cannot be used, by name.
        version: Number of the snapshot; 0 is the empty one that a client starts with.
    """

    brokers: Mapping[int, Node] = field(default_factory=dict[int, Node])
    cluster_id: str | None = None
    controller_id: int | None = None
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict[str, TopicMetadata])
    errors: Mapping[str, int] = field(default_factory=dict[str, int])
    version: int = 0
    # Names by id, for responses and assignments that have ids alone.
    _names: Mapping[UUID, str] = field(default_factory=dict[UUID, str], repr=False, compare=False)
    # Ids of deleted topics by name, the oldest first. Without a current topic of that name, the
    # last id may be the topic's again: the broker that did not know it may lag.
    _former_ids: Mapping[str, tuple[UUID, ...]] = field(
        default_factory=dict[str, tuple["UUID", ...]], repr=False, compare=False
    )
    # A version, and the topics that may differ between it and the version before.
    _changed: tuple[int, Collection[str]] = field(default=(-1, ()), repr=False, compare=False)

    def topic(self, name: str) -> TopicMetadata | None:
        """Return a topic, or None if it was not requested or cannot be used."""
        return self.topics.get(name)

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this id, or None."""
        return self._names.get(topic_id)

    def topic_id(self, name: str) -> UUID:
        """Return the id of a topic; the zero UUID if unknown."""
        found = self.topics.get(name)
        return NO_ID if found is None else found.topic_id

    def error(self, topic: str) -> KafkaError | None:
        """Return the error of a topic that cannot be used, or None."""
        code = self.errors.get(topic)
        return None if code is None else error_for(code, topic=topic, needs=TOPIC_OPERATION)

    def partitions(self, topic: str) -> int | None:
        """Return the number of partitions of a topic, or None."""
        found = self.topics.get(topic)
        return None if found is None else len(found.partitions)

    def leader(self, partition: TopicPartition) -> LeaderAndEpoch | None:
        """Return the partition's leader, or None if it has none or its address is unknown."""
        row = self._partition(partition)
        if row is None or row.leader_id not in self.brokers:
            return None
        return LeaderAndEpoch(row.leader_id, row.leader_epoch)

    def leaders(self, topic: str) -> tuple[int | None, ...]:
        """Return the id of each partition's leader, in the order of partitions.

        It is None where `leader` returns None. The result is empty if the topic is unknown.
        """
        found = self.topics.get(topic)
        if found is None:
            return ()
        brokers, row_of = self.brokers, found.partitions.get
        rows = map(row_of, range(len(found.partitions)))
        return tuple(
            [None if r is None or r.leader_id not in brokers else r.leader_id for r in rows]
        )

    def leader_epoch(self, partition: TopicPartition) -> int:
        """Return the newest known leader epoch of a partition; -1 if none is known."""
        row = self._partition(partition)
        return NO_EPOCH if row is None else row.leader_epoch

    def changed(self, before: ClusterMetadata, topics: Collection[str]) -> list[str]:
        """Return the topics, of the given ones, that may differ from an earlier snapshot.

        A topic differs if its metadata, its error or the address of a broker has changed.
        """
        # A changed address concerns every topic.
        if self.brokers is not before.brokers:
            return list(topics)
        # Successive snapshots record what they changed, so that not all topics are compared.
        version, candidates = self._changed
        if version == self.version == before.version + 1:
            candidates = [name for name in candidates if name in topics]
        else:
            candidates = topics
        topic, topic_before = self.topics.get, before.topics.get
        code, code_before = self.errors.get, before.errors.get
        return [
            name
            for name in candidates
            # An unchanged topic is the same object.
            if topic(name) is not topic_before(name) or code(name) != code_before(name)
        ]

    def lacks_leaders(self, topic: str) -> bool:
        """Return True if a partition has no known leader, or the topic's error may end."""
        found = self.topics.get(topic)
        if found is not None:
            return any(row.leader_id not in self.brokers for row in found.partitions.values())
        code = self.errors.get(topic)
        return code is not None and issubclass(for_code(code), InvalidMetadataError)

    def replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        """Return the ids of the brokers that hold replicas of a partition."""
        row = self._partition(partition)
        return () if row is None else row.replicas

    def replica_racks(self, topics: Iterable[str]) -> dict[TopicPartition, frozenset[str]]:
        """Return the racks of the replicas of all partitions of known topics."""
        racks = {node_id: node.rack for node_id, node in self.brokers.items() if node.rack}
        return {
            TopicPartition(topic, row.partition): frozenset(
                [racks[node_id] for node_id in row.replicas if node_id in racks]
            )
            for topic in topics
            if topic in self.topics
            for row in self.topics[topic].partitions.values()
        }

    def unknown_partition(self, partition: TopicPartition) -> UnknownTopicOrPartitionError | None:
        """Return the error of a partition that does not exist, or None if it may exist.

        Its topic must have been requested before.
        """
        name, number = partition
        error, count = self.error(name), self.partitions(name)
        if error is not None and not isinstance(error, UnknownTopicOrPartitionError):
            return None
        if self._partition(partition) is not None:
            return None
        reason = "there is no such topic"
        if count is not None:
            reason = f"the topic has {count} partition{'s' * (count != 1)}"
        return UnknownTopicOrPartitionError(
            f"no such partition: {reason}", topic=name, partition=number
        )

    def _partition(self, partition: TopicPartition) -> PartitionMetadata | None:
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.partitions.get(partition.partition)

    # -- successors -------------------------------------------------------------------------------

    def merged(self, response: MetadataResponse, *, all_topics: bool = False) -> ClusterMetadata:
        """Return the snapshot after a response.

        With `all_topics` the response covers all topics, and a topic that it lacks was deleted;
        otherwise topics that it lacks stay.
        """
        topics, errors, names = ({}, {}, {}) if all_topics else self._copied()
        changed = {*self.topics, *self.errors} if all_topics else set[str]()
        former = dict(self._former_ids)
        # Each row ends in one of three ways: dropped (a broker that lags), an error, or the new
        # topic.
        for row in response.topics:
            name = row.name if row.name is not None else self._names.get(row.topic_id)
            if name is None:
                continue  # requested by an id that no topic has
            before = self.topics.get(name)
            if self._is_former(name, row.topic_id):
                # Otherwise a complete response would delete it.
                if all_topics and before is not None:
                    topics[name], names[before.topic_id] = before, name
                continue  # the broker lags
            changed.add(name)
            code: int = row.error_code
            topic = None if code else _merged_topic(name, before, row)
            # The broker does not have all partitions yet: requested again, as if there were no
            # leader.
            if topic is not None and topic is not before and lacks_partitions(topic):
                topic, code = None, LEADER_NOT_AVAILABLE
            if before is not None and topic is not before:
                topics.pop(name, None)
                names.pop(before.topic_id, None)
            _note_former_id(former, name, before, topic)
            if topic is None:
                errors[name] = code
                continue
            errors.pop(name, None)
            topics[name] = topic
            if topic.topic_id.int and (all_topics or topic is not before):
                names[topic.topic_id] = name
        if all_topics:
            for name in self.topics.keys() - topics.keys() - errors.keys():
                _note_former_id(former, name, self.topics[name], None)
            # Names that no topic has any more need no protection from late responses.
            former = {n: ids for n, ids in former.items() if n in changed or n in topics}
        brokers = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        return ClusterMetadata(
            brokers=self.brokers if brokers == self.brokers else brokers,
            cluster_id=response.cluster_id or self.cluster_id,
            controller_id=None if response.controller_id < 0 else response.controller_id,
            topics=topics,
            errors=errors,
            version=self.version + 1,
            _names=names,
            _former_ids=former,
            _changed=(self.version + 1, changed),
        )

    def _is_former(self, name: str, topic_id: UUID) -> bool:
        """Return True if the topic of this name and id was replaced by another one."""
        # Without a current topic the last id may be its id again, see `_former_ids`.
        ids = self._former_ids.get(name, ())
        return topic_id in (ids if name in self.topics else ids[:-1])

    def _copied(self) -> tuple[dict[str, TopicMetadata], dict[str, int], dict[UUID, str]]:
        return dict(self.topics), dict(self.errors), dict(self._names)

    def without(self, removed: Collection[str]) -> ClusterMetadata:
        """Return the snapshot without some topics."""
        topics, errors, names = self._copied()
        for name in removed:
            topic = topics.pop(name, None)
            errors.pop(name, None)
            if topic is not None:
                names.pop(topic.topic_id, None)
        version = self.version + 1
        return replace(
            self,
            topics=topics,
            errors=errors,
            version=version,
            _names=names,
            _former_ids={n: ids for n, ids in self._former_ids.items() if n not in removed},
            _changed=(version, removed),
        )

    def with_leaders(self, hints: Iterable[LeaderHint]) -> ClusterMetadata:
        """Return the snapshot with newer leaders (KIP-951), or this one if none is newer."""
        topics, nodes, changed = dict(self.topics), list[Node](), set[str]()
        for (name, number), leader_id, epoch, endpoint, topic_id in hints:
            topic = topics.get(name)
            row = None if topic is None else topic.partitions.get(number)
            # An equal epoch is the same leader.
            if topic is None or row is None or leader_id < 0 or epoch <= row.leader_epoch:
                continue
            if topic_id not in (NO_ID, topic.topic_id):
                continue  # of a former topic of this name
            row = row._replace(leader_id=leader_id, leader_epoch=epoch, error_code=0)
            topics[name] = topic._replace(partitions={**topic.partitions, number: row})
            changed.add(name)
            if endpoint is not None:
                nodes.append(endpoint)
        if not changed:
            return self
        after = self._with(nodes)
        return replace(after, topics=topics, _changed=(after.version, changed))

    def with_broker(self, node: Node) -> ClusterMetadata:
        """Return the snapshot with a broker's address from another response (FindCoordinator)."""
        return self if self.brokers.get(node.id) == node else self._with([node])

    def _with(self, nodes: Iterable[Node]) -> ClusterMetadata:
        brokers = {**self.brokers, **{node.id: node for node in nodes}}
        # The same object, so that `changed` need not compare all topics.
        if brokers == self.brokers:
            brokers = self.brokers
        return replace(self, brokers=brokers, version=self.version + 1)

    def rebootstrapped(self, *, keep_ids: bool = True) -> ClusterMetadata:
        """Return the snapshot without brokers and leaders, for a rebootstrap (KIP-1102).

        Topics keep their partition counts, so that producers can continue to append. Leader epochs
        are dropped, because the next response may come from another cluster. With `keep_ids=False`,
        if it does, topic ids are dropped too.
        """
        topics = {
            name: topic._replace(
                topic_id=topic.topic_id if keep_ids else NO_ID,
                partitions={index: PartitionMetadata(index) for index in topic.partitions},
            )
            for name, topic in self.topics.items()
        }
        return replace(
            self,
            brokers={},
            controller_id=None,
            topics=topics,
            version=self.version + 1,
            _names=self._names if keep_ids else {},
            _former_ids=self._former_ids if keep_ids else {},
        )


def lacks_partitions(topic: TopicMetadata) -> bool:
    """Return True if all partitions are missing, or one below the highest: the broker lags."""
    return max(topic.partitions, default=0) >= len(topic.partitions)


def _merged_topic(
    name: str, before: TopicMetadata | None, row: MetadataResponseTopic
) -> TopicMetadata:
    """Return the topic after a response; `before`, the same object, if nothing has changed."""
    known: Mapping[int, PartitionMetadata] = {}
    # Epochs of a former topic of this name mean nothing for the new one.
    if before is not None and (
        before.topic_id == row.topic_id or NO_ID in (before.topic_id, row.topic_id)
    ):
        known = before.partitions
    partitions = {
        partition.partition_index: _merged_partition(
            known.get(partition.partition_index), partition
        )
        for partition in sorted(row.partitions, key=_index)
    }
    # The same object shows that nothing has changed.
    if (
        before is not None
        and partitions == before.partitions
        and before.topic_id == row.topic_id
        and before.is_internal == row.is_internal
    ):
        return before
    return TopicMetadata(name, row.topic_id, partitions, row.is_internal)


def _note_former_id(
    former: dict[str, tuple[UUID, ...]],
    name: str,
    before: TopicMetadata | None,
    topic: TopicMetadata | None,
) -> None:
    """Record the id of a topic that another one, or none, has replaced."""
    ids = former.get(name, ())
    if before is not None and before.topic_id.int:
        if topic is None or topic.topic_id != before.topic_id:
            former[name] = (*ids, before.topic_id)[-MAX_FORMER_IDS:]
    # The topic is back under its old id: the broker that reported its deletion lagged.
    elif topic is not None and ids and ids[-1] == topic.topic_id:
        former[name] = ids[:-1]


def _merged_partition(
    before: PartitionMetadata | None, row: MetadataResponsePartition
) -> PartitionMetadata:
    # An older epoch: the broker lags. Unchanged rows stay the same object.
    if before is not None and (
        NO_EPOCH < row.leader_epoch < before.leader_epoch or _is_unchanged(before, row)
    ):
        return before
    return PartitionMetadata(
        row.partition_index,
        row.leader_id,
        row.leader_epoch,
        tuple(row.replica_nodes),
        tuple(row.isr_nodes),
        tuple(row.offline_replicas),
        row.error_code,
    )


def _is_unchanged(before: PartitionMetadata, row: MetadataResponsePartition) -> bool:
    """Return True if a row equals the known partition; decoded arrays are tuples already."""
    return (
        before.leader_id == row.leader_id
        and before.leader_epoch == row.leader_epoch
        and before.isr == row.isr_nodes
        and before.replicas == row.replica_nodes
        and before.offline_replicas == row.offline_replicas
        and before.error_code == row.error_code
    )


_index = attrgetter("partition_index")
