"""Committing what a consumer was handed, and going back to what was committed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from kafka_async.arguments import (
    by_partition,
    offset_and_metadata,
    topic_partition,
    topic_partitions,
)
from kafka_async.consumer.consumer_base import Handle, Partitions
from kafka_async.consumer.subscription import UNKNOWN
from kafka_async.errors import CommitFailedError, IllegalStateError
from kafka_async.foreign_names import unknown_keyword
from kafka_async.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from typing import Never

    from kafka_async.types import GroupMetadata

Offsets: TypeAlias = Mapping[TopicPartition, int | OffsetAndMetadata]


class Committing(Handle):
    """The calls about committed offsets."""

    async def commit(
        self,
        what: str | TopicPartition | Offsets | None = None,
        *,
        timeout: float | None = None,
        **unknown: Never,
    ) -> None:
        """Commit all that was handed out, the record in hand included.

        `what` narrows it to a topic or a partition, or says what to commit: the offset of the next
        record to read, by partition. During a rebalance it waits until that is over. Offsets of a
        topic that was deleted are left out, with a warning in the log.

        Raises:
            UnknownTopicOrPartitionError: `what` gives an offset of a topic that does not exist.
            CommitFailedError: the group has given a partition to somebody else.
            KafkaTimeoutError: not committed within `timeout` seconds (default:
                default_api_timeout_ms).
        """
        if unknown:
            raise unknown_keyword(self.commit, unknown)
        engine = self._engine
        engine.settle()
        named = isinstance(what, Mapping)
        await engine.commit(self._to_commit(what), self._limit(timeout), named=named)

    def _to_commit(
        self, what: str | TopicPartition | Offsets | None
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        if isinstance(what, Mapping):
            return by_partition(what, "what", offset_and_metadata)
        due = self._subscription.to_commit(in_hand=True)
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
        """Return the committed offsets of these partitions, or of the assigned; None if none.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
            KafkaTimeoutError: no response within `timeout` seconds (default:
                default_api_timeout_ms).
        """
        if unknown:
            raise unknown_keyword(self.committed, unknown)
        commits = self._engine.commits
        if commits is None:
            raise IllegalStateError("committed offsets need a group_id")
        return await commits.fetch(self._chosen(partitions), self._limit(timeout))

    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group (KIP-447)."""
        commits = self._engine.commits
        if commits is None:
            raise IllegalStateError("a consumer without group_id has no group")
        return commits.group_metadata()

    def uncommitted(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Positions of what was handed out and not committed: what a transaction has to commit.

        Raises:
            CommitFailedError: some of it was of partitions that this consumer has lost since:
                abort, then `seek_to_committed`.
        """
        self._engine.settle()
        if self._subscription.forfeited:
            lost = ", ".join(map(str, sorted(self._subscription.forfeited)))
            raise CommitFailedError(
                f"records of partitions were handed out that are somebody else's by now: {lost}; "
                "abort the transaction and seek_to_committed()"
            )
        due = self._subscription.to_commit(in_hand=True)
        return {p: due[p] for p in due if self._subscription.states[p].moved}

    async def next_generation(self, former: GroupMetadata, timeout: float) -> GroupMetadata | None:
        """Wait for the generation after `former`'s, as a transaction does that commits offsets.

        In a cooperative rebalance a member keeps its partitions while it joins, so a transaction
        that is open meanwhile commits with the next generation.

        Args:
            former: The metadata whose generation the coordinator refused.
            timeout: Maximum time in seconds.

        Returns:
            The new metadata; None if the consumer lost partitions or did not join in time.
        """
        commits = self._engine.commits
        joined = None if commits is None else await commits.next_generation(former, timeout)
        return None if self._subscription.forfeited else joined

    def mark_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Note that these offsets were committed by somebody else, as a transaction."""
        self._engine.committed(offsets)

    async def seek_to_committed(
        self, partitions: Partitions = (), *, timeout: float | None = None, **unknown: Never
    ) -> None:
        """Go on at what the group has committed, as after an aborted transaction.

        A partition without a committed offset follows auto_offset_reset, or if it is new
        auto_offset_reset_new_partitions.
        """
        if unknown:
            raise unknown_keyword(self.seek_to_committed, unknown)
        engine = self._engine
        if engine.commits is None:
            raise IllegalStateError("committed offsets need a group_id")
        versions = {
            state.partition: state.version
            for state in self._subscription.select(topic_partitions(partitions))
        }
        found = await engine.commits.fetch(versions, self._limit(timeout))
        newer = await engine.positions.newer_than_group(found)
        for partition, offset in found.items():
            state = self._subscription.states.get(partition)
            if state is None or state.version != versions[partition]:
                continue  # taken away, or sought, meanwhile
            engine.cut(state)
            if offset is None:
                engine.positions.reset_uncommitted(state, newer=partition in newer)
            else:
                epoch = UNKNOWN if offset.leader_epoch is None else offset.leader_epoch
                state.found_committed(offset.offset, epoch)
        self._subscription.forfeited.clear()
        engine.changed()
