"""Validation of the offsets in OffsetCommit and TxnOffsetCommit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.groups.offset_metadata_manager import CommittedOffset
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from kafka_async.embedded.cluster import EmbeddedCluster


class CommittedTopic(Protocol):
    """Types a topic of a request."""

    name: str
    topic_id: UUID


class CommittedPartition(Protocol):
    """Types a partition of a request."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class OffsetCommit:
    """Collects the valid offsets of one request.

    Args:
        cluster: The cluster.
        code: Error code of the whole request.
        uses_topic_ids: The request has topic ids instead of names.

    Attributes:
        offsets: The offsets to commit.
    """

    def __init__(self, cluster: EmbeddedCluster, code: ErrorCode, *, uses_topic_ids: bool) -> None:
        self.offsets: dict[TopicPartition, CommittedOffset] = {}
        self._cluster = cluster
        self._code = code
        self._uses_topic_ids = uses_topic_ids

    def add(self, topic: CommittedTopic, partition: CommittedPartition) -> ErrorCode:
        """Validate one partition's offset; return its error code."""
        if self._code is not ErrorCode.NONE:
            return self._code
        name = self._topic_name(topic)
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        tp = TopicPartition(name, partition.partition_index)
        metadata = partition.committed_metadata or ""
        if self._cluster.topics.partition(tp) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if len(metadata) > self._cluster.settings.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        self.offsets[tp] = CommittedOffset(
            partition.committed_offset, partition.committed_leader_epoch, metadata
        )
        return ErrorCode.NONE

    def _topic_name(self, topic: CommittedTopic) -> str | None:
        if not self._uses_topic_ids:
            return topic.name
        topic_of_id = self._cluster.topics.by_id(topic.topic_id)
        return None if topic_of_id is None else topic_of_id.name
