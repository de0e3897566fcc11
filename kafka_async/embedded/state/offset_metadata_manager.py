"""Committed offsets of all groups, and pending offsets of ongoing transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafka_async.embedded.state.topics import OFFSETS_TOPIC
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping


class CommittedOffset(NamedTuple):
    """Holds a committed offset; the leader epoch is -1 if the commit had none."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class OffsetMetadataManager:
    """Stores offsets by group and partition.

    Offsets of a transaction are pending, by producer id, until its marker is written.
    `num_partitions` is the number of partitions of the offsets topic.
    """

    def __init__(self, num_partitions: int) -> None:
        self._num_partitions = num_partitions
        self._committed: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._pending_transactional: dict[
            int, dict[str, dict[TopicPartition, CommittedOffset]]
        ] = {}

    def partition_for(self, group_id: str) -> TopicPartition:
        """Return the partition of the offsets topic for a group.

        DescribeTransactions returns the partition, so it is computed as in Kafka, from the hash
        code of Java's String.
        """
        digest = 0
        for unit in memoryview(group_id.encode("utf-16-le")).cast("H"):
            digest = (31 * digest + unit) & 0xFFFFFFFF
        # Kafka's Utils.abs: the smallest int becomes zero
        value = digest - (1 << 32) if digest >= 1 << 31 else digest
        index = (0 if value == -(1 << 31) else abs(value)) % self._num_partitions
        return TopicPartition(OFFSETS_TOPIC, index)

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Store committed offsets."""
        if offsets:
            self._committed.setdefault(group_id, {}).update(offsets)

    def commit_transactional(
        self, group_id: str, producer_id: int, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        """Store pending offsets of a transaction."""
        if offsets:
            groups = self._pending_transactional.setdefault(producer_id, {})
            groups.setdefault(group_id, {}).update(offsets)

    def end_transaction(
        self, producer_id: int, partition: TopicPartition, *, committed: bool
    ) -> None:
        """Commit or drop pending offsets after a marker for a partition of the offsets topic."""
        groups = self._pending_transactional.get(producer_id, {})
        for group_id in [id_ for id_ in groups if self.partition_for(id_) == partition]:
            offsets = groups.pop(group_id)
            if committed:
                self.commit(group_id, offsets)
        if not groups:
            self._pending_transactional.pop(producer_id, None)

    def committed(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """Return a group's committed offsets."""
        return self._committed.get(group_id, {})

    def is_pending(self, group_id: str, tp: TopicPartition) -> bool:
        """Return True if an ongoing transaction has an offset for this partition."""
        return any(
            tp in groups.get(group_id, ()) for groups in self._pending_transactional.values()
        )

    def delete(self, group_id: str, tp: TopicPartition) -> None:
        """Delete a partition's pending and committed offset."""
        self._committed.get(group_id, {}).pop(tp, None)
        for groups in self._pending_transactional.values():
            groups.get(group_id, {}).pop(tp, None)

    def delete_group(self, group_id: str) -> None:
        """Delete all offsets of a group."""
        self._committed.pop(group_id, None)
        for groups in self._pending_transactional.values():
            groups.pop(group_id, None)

    def delete_topic(self, topic: str) -> None:
        """Delete the pending and committed offsets of a topic in all groups."""
        pending = self._pending_transactional.values()
        for groups in (self._committed, *pending):
            for offsets in groups.values():
                for tp in [tp for tp in offsets if tp.topic == topic]:
                    del offsets[tp]
