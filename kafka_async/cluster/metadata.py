"""What the client knows of a cluster: immutable snapshots, and how an answer changes one. Pure.

A snapshot is replaced, never changed, so whoever holds one sees a consistent cluster. Merging keeps
two promises. A partition's leader epoch never goes back while the topic stays the same one
(KIP-320: a broker that lags would send us to a former leader); a topic id that differs is another
topic of the same name, and starts afresh (KIP-516). And an answer about some topics leaves the
others alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from kafka_async.errors import InvalidMetadataError, KafkaError, error_for, for_code
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


class LeaderAndEpoch(NamedTuple):
    """Who leads a partition; `epoch` is -1 if the cluster is too old to say."""

    leader_id: int
    epoch: int


class LeaderHint(NamedTuple):
    """What a broker says unasked of a partition's leader; `endpoint` is that leader's address."""

    partition: TopicPartition
    leader_id: int
    epoch: int
    endpoint: Node | None = None


class PartitionMetadata(NamedTuple):
    """One partition: `leader_id` is -1 while it has no leader, `error_code` says why."""

    partition: int
    leader_id: int = NO_NODE
    leader_epoch: int = NO_EPOCH
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    error_code: int = 0


class TopicMetadata(NamedTuple):
    """One topic; `topic_id` is the zero UUID if the cluster is too old to have ids."""

    name: str
    topic_id: UUID = NO_ID
    partitions: Mapping[int, PartitionMetadata] = MappingProxyType({})
    is_internal: bool = False


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """What was known at one moment.

    Attributes:
        brokers: by id, with the address that the cluster advertises.
        controller_id: None if unknown.
        topics: those that were asked for and exist.
        errors: broker error codes of topics that were asked for and cannot be used.
        version: counts the snapshots; 0 is the empty one a client starts from.
    """

    brokers: Mapping[int, Node] = field(default_factory=dict[int, Node])
    cluster_id: str | None = None
    controller_id: int | None = None
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict[str, TopicMetadata])
    errors: Mapping[str, int] = field(default_factory=dict[str, int])
    version: int = 0
    _names: Mapping[UUID, str] = field(default_factory=dict[UUID, str], repr=False, compare=False)
    _news: tuple[int, Collection[str]] = field(default=(-1, ()), repr=False, compare=False)
    # A version, and the topics of which it may say something else than the one before.

    def topic(self, name: str) -> TopicMetadata | None:
        """What is known of a topic; None if it was not asked for or cannot be used."""
        return self.topics.get(name)

    def topic_name(self, topic_id: UUID) -> str | None:
        """The name of the topic that has this id, if known."""
        return self._names.get(topic_id)

    def topic_id(self, name: str) -> UUID:
        """The id of a topic; the zero UUID if unknown."""
        found = self.topics.get(name)
        return NO_ID if found is None else found.topic_id

    def error(self, topic: str) -> KafkaError | None:
        """Why a topic that was asked for cannot be used; None if it can, or was not asked for."""
        code = self.errors.get(topic)
        return None if code is None else error_for(code, topic=topic)

    def partitions(self, topic: str) -> int | None:
        """How many partitions a topic has; None if unknown."""
        found = self.topics.get(topic)
        return None if found is None else len(found.partitions)

    def leader(self, partition: TopicPartition) -> LeaderAndEpoch | None:
        """The partition's leader; None while it has none, or while its address is unknown."""
        row = self._partition(partition)
        if row is None or row.leader_id not in self.brokers:
            return None
        return LeaderAndEpoch(row.leader_id, row.leader_epoch)

    def leaders(self, topic: str) -> tuple[int | None, ...]:
        """The id of each partition's leader, by number, None where `leader` gives None; empty if
        the topic is unknown.
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
        """The newest leader epoch known of a partition, leader or not; -1 if none is."""
        row = self._partition(partition)
        return NO_EPOCH if row is None else row.leader_epoch

    def changed(self, before: ClusterMetadata, topics: Collection[str]) -> list[str]:
        """Those of some topics of which this may say something else than an earlier snapshot, or
        of where their leaders are; cheap.
        """
        if self.brokers is not before.brokers:
            return list(topics)
        version, among = self._news
        if version == self.version == before.version + 1:
            among = [name for name in among if name in topics]
        else:
            among = topics
        now, then = self.topics.get, before.topics.get
        code, former = self.errors.get, before.errors.get
        return [n for n in among if now(n) is not then(n) or code(n) != former(n)]

    def lacks_leaders(self, topic: str) -> bool:
        """Whether a topic that is known, or a leader in it, will be there soon: elections end."""
        found = self.topics.get(topic)
        if found is not None:
            return any(row.leader_id < 0 for row in found.partitions.values())
        code = self.errors.get(topic)
        return code is not None and issubclass(for_code(code), InvalidMetadataError)

    def replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        """Ids of the brokers that hold the partition."""
        row = self._partition(partition)
        return () if row is None else row.replicas

    def _partition(self, partition: TopicPartition) -> PartitionMetadata | None:
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.partitions.get(partition.partition)

    # -- how snapshots follow one another ---------------------------------------------------------

    def merged(self, answer: MetadataResponse, *, whole: bool = False) -> ClusterMetadata:
        """The snapshot after an answer.

        `whole` says that the answer is about all topics, so one that it lacks is gone. Else those
        that it is not about stay.
        """
        topics, errors, names = ({}, {}, {}) if whole else self._copied()
        news = {*self.topics, *self.errors} if whole else set[str]()
        for row in answer.topics:
            name = row.name if row.name is not None else self._names.get(row.topic_id)
            if name is None:
                continue  # asked for by an id that nobody has
            news.add(name)
            before = self.topics.get(name)
            topic = None if row.error_code else _merged_topic(name, before, row)
            if before is not None and topic is not before:
                topics.pop(name, None)
                names.pop(before.topic_id, None)
            if topic is None:
                errors[name] = row.error_code
                continue
            errors.pop(name, None)
            topics[name] = topic
            if topic.topic_id.int and (whole or topic is not before):
                names[topic.topic_id] = name
        brokers = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in answer.brokers}
        return ClusterMetadata(
            brokers=self.brokers if brokers == self.brokers else brokers,
            cluster_id=answer.cluster_id or self.cluster_id,
            controller_id=None if answer.controller_id < 0 else answer.controller_id,
            topics=topics,
            errors=errors,
            version=self.version + 1,
            _names=names,
            _news=(self.version + 1, news),
        )

    def _copied(self) -> tuple[dict[str, TopicMetadata], dict[str, int], dict[UUID, str]]:
        return dict(self.topics), dict(self.errors), dict(self._names)

    def without(self, unwanted: Collection[str]) -> ClusterMetadata:
        """The snapshot without some topics."""
        topics, errors, names = self._copied()
        for name in unwanted:
            topic = topics.pop(name, None)
            errors.pop(name, None)
            if topic is not None:
                names.pop(topic.topic_id, None)
        version = self.version + 1
        news = (version, unwanted)
        return replace(
            self, topics=topics, errors=errors, _names=names, version=version, _news=news
        )

    def with_leaders(self, hints: Iterable[LeaderHint]) -> ClusterMetadata:
        """The snapshot after brokers' hints at newer leaders (KIP-951); itself if none is newer."""
        topics, nodes, news = dict(self.topics), list[Node](), set[str]()
        for (name, number), leader_id, epoch, endpoint in hints:
            topic = topics.get(name)
            row = None if topic is None else topic.partitions.get(number)
            if topic is None or row is None or leader_id < 0 or epoch <= row.leader_epoch:
                continue
            row = row._replace(leader_id=leader_id, leader_epoch=epoch, error_code=0)
            topics[name] = topic._replace(partitions={**topic.partitions, number: row})
            news.add(name)
            if endpoint is not None:
                nodes.append(endpoint)
        if not news:
            return self
        after = self._with(nodes)
        return replace(after, topics=topics, _news=(after.version, news))

    def with_broker(self, node: Node) -> ClusterMetadata:
        """The snapshot after a broker's address was learnt elsewhere (FindCoordinator)."""
        return self if self.brokers.get(node.id) == node else self._with([node])

    def _with(self, nodes: Iterable[Node]) -> ClusterMetadata:
        brokers = {**self.brokers, **{node.id: node for node in nodes}}
        if brokers == self.brokers:
            brokers = self.brokers
        return replace(self, brokers=brokers, version=self.version + 1)

    def rebootstrapped(self) -> ClusterMetadata:
        """The snapshot with no broker and no leader in it, which only bootstrap servers can renew.

        Topics stay with their partition counts, so that producers go on queueing; their epochs
        don't, because what answers next may be another cluster (KIP-1102).
        """
        topics = {
            name: topic._replace(
                partitions={index: PartitionMetadata(index) for index in topic.partitions}
            )
            for name, topic in self.topics.items()
        }
        return replace(
            self, brokers={}, controller_id=None, topics=topics, version=self.version + 1
        )


def _merged_topic(
    name: str, before: TopicMetadata | None, row: MetadataResponseTopic
) -> TopicMetadata:
    """A topic after an answer; what it was before, the same object, if nothing is new."""
    known: Mapping[int, PartitionMetadata] = {}
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
    if (
        before is not None
        and partitions == before.partitions
        and before.topic_id == row.topic_id
        and before.is_internal == row.is_internal
    ):
        return before
    return TopicMetadata(name, row.topic_id, partitions, row.is_internal)


def _merged_partition(
    before: PartitionMetadata | None, row: MetadataResponsePartition
) -> PartitionMetadata:
    if before is not None and (
        NO_EPOCH < row.leader_epoch < before.leader_epoch or _same(before, row)
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


def _same(before: PartitionMetadata, row: MetadataResponsePartition) -> bool:
    """Whether a row surely says what was known; its arrays are tuples as they were decoded."""
    return (
        before.leader_id == row.leader_id
        and before.leader_epoch == row.leader_epoch
        and before.isr == row.isr_nodes
        and before.replicas == row.replica_nodes
        and before.offline_replicas == row.offline_replicas
        and before.error_code == row.error_code
    )


_index = attrgetter("partition_index")
