"""The consumer's methods for committed offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from kafka_async.arguments import (
    by_partition,
    offset_and_metadata,
    topic_partition,
    topic_partitions,
)
from kafka_async.consumer.consumer_base import ConsumerBase, Partitions
from kafka_async.consumer.subscription import UNKNOWN
from kafka_async.errors import CommitFailedError, IllegalStateError
from kafka_async.foreign_names import unknown_keyword
from kafka_async.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from typing import Never

    from kafka_async.types import GroupMetadata

Offsets: TypeAlias = Mapping[TopicPartition, int | OffsetAndMetadata]


class CommitMethods(ConsumerBase):
    """Commits offsets and fetches committed ones."""

    async def commit(
        self,
        what: str | TopicPartition | Offsets | None = None,
        *,
        timeout: float | None = None,
        **unknown: Never,
    ) -> None:
        """Commit the positions, which include the records returned last.

        A commit that the coordinator rejects because of a rebalance is retried after the rebalance.
        Offsets of deleted topics are dropped with a warning in the log.

        Args:
            what: A topic or a partition to commit alone, or the offsets to commit: the offset of
                the next record to read, by partition (default: all partitions).
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            UnknownTopicOrPartitionError: `what` has an offset of a topic that does not exist.
            CommitFailedError: The group has assigned a partition to another member.
            RebalanceInProgressError: A rebalance has not ended in time. Raised at once while this
                member revokes, loses or takes over partitions, as in a listener's callback.
            KafkaTimeoutError: Not committed in time.
        """
        if unknown:
            raise unknown_keyword(self.commit, unknown)
        runtime = self._active_runtime
        runtime.update_positions()
        named = isinstance(what, Mapping)
        await runtime.commit(self._to_commit(what), self._limit(timeout), named=named)

    def _to_commit(
        self, what: str | TopicPartition | Offsets | None
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        if isinstance(what, Mapping):
            return by_partition(what, "what", offset_and_metadata)
        due = self._subscription.to_commit(include_unprocessed=True)
        if what is None:
            return due
        if not isinstance(what, str):
            what = topic_partition(what, "what")
            self._subscription.state(what)
            return {what: due[what]} if what in due else {}
        return {partition: offset for partition, offset in due.items() if partition.topic == what}

    async def committed(
        self, partitions: Partitions = (), *, timeout: float | None = None, **unknown: Never
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets; None where there is none.

        Args:
            partitions: The partitions (default: all assigned).
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            UnknownTopicOrPartitionError: A topic does not exist.
            KafkaTimeoutError: No response in time.
        """
        if unknown:
            raise unknown_keyword(self.committed, unknown)
        offset_committer = self._active_runtime.offset_committer
        if offset_committer is None:
            raise IllegalStateError("committed offsets need a group_id")
        return await offset_committer.fetch_committed(
            self._chosen(partitions), self._limit(timeout)
        )

    def group_metadata(self) -> GroupMetadata:
        """Return this consumer's identity in its group (KIP-447).

        Raises:
            IllegalStateError: The consumer has no group_id.
        """
        offset_committer = self._active_runtime.offset_committer
        if offset_committer is None:
            raise IllegalStateError("a consumer without group_id has no group")
        return offset_committer.group_metadata()

    def uncommitted(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions of returned and uncommitted records, for a transaction to commit.

        Raises:
            CommitFailedError: Some of the records are of partitions that this consumer has lost
                since: abort, then call `seek_to_committed`.
        """
        self._active_runtime.update_positions()
        if self._subscription.lost_uncommitted:
            lost = ", ".join(map(str, sorted(self._subscription.lost_uncommitted)))
            raise CommitFailedError(
                f"records were returned of partitions that this consumer has lost since: {lost}; "
                "abort the transaction and seek_to_committed()"
            )
        due = self._subscription.to_commit(include_unprocessed=True)
        return {p: due[p] for p in due if self._subscription.states[p].has_uncommitted}

    async def next_generation(self, former: GroupMetadata, timeout: float) -> GroupMetadata | None:
        """Wait for a generation after `former`'s, for a transaction that commits offsets.

        In a cooperative rebalance a member keeps its partitions while it joins, so a transaction
        that is open meanwhile commits with the next generation.

        Args:
            former: The metadata whose generation the coordinator rejected.
            timeout: Maximum time in seconds.

        Returns:
            The new metadata; None if the consumer lost partitions or did not join in time.
        """
        offset_committer = self._active_runtime.offset_committer
        joined = (
            None
            if offset_committer is None
            else await offset_committer.next_generation(former, timeout)
        )
        return None if self._subscription.lost_uncommitted else joined

    def mark_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Record offsets that were committed by other means, such as a transaction.

        Args:
            offsets: The offsets, by partition.
        """
        self._active_runtime.on_committed(offsets)

    async def seek_to_committed(
        self, partitions: Partitions = (), *, timeout: float | None = None, **unknown: Never
    ) -> None:
        """Seek to the committed offsets, as after an aborted transaction.

        A partition without a committed offset follows auto_offset_reset or, if it is new,
        auto_offset_reset_new_partitions.

        Args:
            partitions: The partitions (default: all assigned).
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            KafkaTimeoutError: No response in time.
        """
        if unknown:
            raise unknown_keyword(self.seek_to_committed, unknown)
        runtime = self._active_runtime
        if runtime.offset_committer is None:
            raise IllegalStateError("committed offsets need a group_id")
        versions = {
            state.partition: state.version
            for state in self._subscription.select(topic_partitions(partitions))
        }
        found = await runtime.offset_committer.fetch_committed(versions, self._limit(timeout))
        newer = await runtime.positions.partitions_newer_than_group(found)
        for partition, offset in found.items():
            state = self._subscription.states.get(partition)
            if state is None or state.version != versions[partition]:
                continue  # revoked or sought meanwhile
            runtime.take_back(state)
            if offset is None:
                runtime.positions.reset_uncommitted(state, newer=partition in newer)
            else:
                epoch = UNKNOWN if offset.leader_epoch is None else offset.leader_epoch
                state.start_at_committed(offset.offset, epoch)
        self._subscription.lost_uncommitted.clear()
        runtime.on_partitions_changed()
