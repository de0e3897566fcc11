"""Which offsets of a request can be taken, for OffsetCommit and TxnOffsetCommit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kafka_async.embedded.codes import Code
from kafka_async.embedded.groups.offsets import CommittedOffset
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from kafka_async.embedded.cluster import EmbeddedCluster


class CommittedTopic(Protocol):
    """A topic in a request."""

    name: str
    topic_id: UUID


class CommittedPartition(Protocol):
    """An offset in a request."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class Commit:
    """The offsets of one request: `take` each, then `offsets` are those to be committed.

    `code` is what is wrong with the request as a whole; `by_id` says that topics are named by id.
    """

    def __init__(self, cluster: EmbeddedCluster, code: Code, *, by_id: bool) -> None:
        self.offsets: dict[TopicPartition, CommittedOffset] = {}
        self._cluster = cluster
        self._code = code
        self._by_id = by_id

    def take(self, topic: CommittedTopic, partition: CommittedPartition) -> Code:
        """The answer for one partition."""
        if self._code is not Code.NONE:
            return self._code
        name = self._name(topic)
        if name is None:
            return Code.UNKNOWN_TOPIC_ID
        tp = TopicPartition(name, partition.partition_index)
        metadata = partition.committed_metadata or ""
        if self._cluster.topics.partition(tp) is None:
            return Code.UNKNOWN_TOPIC_OR_PARTITION
        if len(metadata) > self._cluster.settings.offset_metadata_max_bytes:
            return Code.OFFSET_METADATA_TOO_LARGE
        self.offsets[tp] = CommittedOffset(
            partition.committed_offset, partition.committed_leader_epoch, metadata
        )
        return Code.NONE

    def _name(self, topic: CommittedTopic) -> str | None:
        if not self._by_id:
            return topic.name
        known = self._cluster.topics.by_id(topic.topic_id)
        return None if known is None else known.name
