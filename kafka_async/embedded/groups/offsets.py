"""Committed offsets of all groups, and those that wait for the end of a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kafka_async.types import TopicPartition

OFFSETS_PARTITIONS: Final = 50


class CommittedOffset(NamedTuple):
    """What was committed for a partition; leader epoch -1 if the committer did not know it."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


def offsets_partition(group_id: str) -> int:
    """The partition of `__consumer_offsets` that a group's offsets lie in.

    It is what a transaction lists, so it is chosen as Kafka does: by the hash of Java's String.
    """
    digest = 0
    for unit in memoryview(group_id.encode("utf-16-le")).cast("H"):
        digest = (31 * digest + unit) & 0xFFFFFFFF
    # abs() of a Java int, where the most negative one counts as zero
    value = digest - (1 << 32) if digest >= 1 << 31 else digest
    return (0 if value == -(1 << 31) else abs(value)) % OFFSETS_PARTITIONS


class OffsetStore:
    """Offsets by group and partition.

    Offsets of a transaction are pending, by producer id, until its marker commits or drops them.
    """

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._pending: dict[int, dict[str, dict[TopicPartition, CommittedOffset]]] = {}

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Take offsets as committed."""
        if offsets:
            self._committed.setdefault(group_id, {}).update(offsets)

    def stage(
        self, group_id: str, producer_id: int, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        """Keep a transaction's offsets until it ends."""
        if offsets:
            groups = self._pending.setdefault(producer_id, {})
            groups.setdefault(group_id, {}).update(offsets)

    def end(self, producer_id: int, partition: int, *, committed: bool) -> None:
        """A transaction's marker for this partition: keep or drop what is pending there."""
        groups = self._pending.get(producer_id, {})
        for group_id in [id_ for id_ in groups if offsets_partition(id_) == partition]:
            offsets = groups.pop(group_id)
            if committed:
                self.commit(group_id, offsets)
        if not groups:
            self._pending.pop(producer_id, None)

    def committed(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """A group's committed offsets."""
        return self._committed.get(group_id, {})

    def unstable(self, group_id: str, tp: TopicPartition) -> bool:
        """Whether a transaction that has not ended holds an offset of this partition."""
        return tp in self.pending(group_id)

    def pending(self, group_id: str) -> set[TopicPartition]:
        """The partitions whose offsets wait for the end of a transaction."""
        return {tp for groups in self._pending.values() for tp in groups.get(group_id, ())}

    def forget(self, group_id: str, tp: TopicPartition) -> None:
        """Drop a partition's offset, pending or committed."""
        self._committed.get(group_id, {}).pop(tp, None)
        for groups in self._pending.values():
            groups.get(group_id, {}).pop(tp, None)

    def forget_group(self, group_id: str) -> None:
        """Drop all offsets of a group."""
        self._committed.pop(group_id, None)
        for groups in self._pending.values():
            groups.pop(group_id, None)

    def forget_topic(self, topic: str) -> None:
        """Drop the offsets of a deleted topic in all groups."""
        for group_id, offsets in self._committed.items():
            for tp in [tp for tp in offsets if tp.topic == topic]:
                self.forget(group_id, tp)

    def groups(self) -> Iterator[str]:
        """The groups that have committed offsets."""
        return (group_id for group_id, offsets in self._committed.items() if offsets)
