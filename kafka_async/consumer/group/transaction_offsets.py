"""The offsets of a consumer that a transaction commits (KIP-447)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafka_async.client.metadata.metadata import NO_ID
from kafka_async.consumer.deleted_topics import deleted_topics
from kafka_async.errors import CommitFailedError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from kafka_async.client.services import ClientServices
    from kafka_async.consumer.group.group_session import GroupSession, NoGroup
    from kafka_async.consumer.subscription import PartitionState, Subscription
    from kafka_async.types import GroupMetadata, OffsetAndMetadata, TopicPartition


class TransactionOffsets:
    """Provides the offsets of a consumer to a transaction (`OffsetSource`)."""

    def __init__(
        self,
        services: ClientServices,
        subscription: Subscription,
        group: GroupSession | NoGroup,
    ) -> None:
        self._services = services
        self._subscription = subscription
        self._group = group
        self._given: dict[TopicPartition, PartitionState] = {}  # from the last `uncommitted`

    def uncommitted(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions of returned and uncommitted records.

        Raises CommitFailedError if this consumer has lost partitions of such records since.
        """
        if self._subscription.lost_uncommitted:
            lost = ", ".join(map(str, sorted(self._subscription.lost_uncommitted)))
            raise CommitFailedError(
                f"records were returned of partitions that this consumer has lost since: {lost}; "
                "abort the transaction and seek_to_committed()"
            )
        due = self._subscription.to_commit(include_unprocessed=True)
        states = self._subscription.states
        # The states are kept, since a partition may be revoked and assigned again before the
        # commit.
        self._given = {p: states[p] for p in due if states[p].has_uncommitted}
        return {p: due[p] for p in self._given}

    def group_metadata(self) -> GroupMetadata:
        """Return the consumer's identity in its group. Raises IllegalStateError without a group."""
        return self._group.metadata

    async def next_generation(self, former: GroupMetadata, timeout: float) -> GroupMetadata | None:
        """Wait for the generation after `former`; None on timeout or if partitions were lost.

        In a cooperative rebalance a member keeps its partitions while it joins, so a transaction
        that is open during the rebalance commits with the next generation.
        """
        try:
            async with asyncio.timeout(timeout):
                joined = await self._group.next_generation(former)
        except TimeoutError:
            return None
        return None if self._subscription.lost_uncommitted else joined

    def mark_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Record offsets that a transaction has committed.

        Partitions of former topics, and partitions that were lost since, are left out.
        """
        states, given = self._subscription.states, self._given
        same = [p for p in offsets if p in given and states.get(p) is given[p]]
        self._group.on_committed({p: offsets[p] for p in same})

    def topic_ids(self, topics: Collection[str]) -> dict[str, UUID]:
        """Return the ids of topics that this consumer reads, where known."""
        return {
            state.partition.topic: state.topic_id
            for state in self._subscription
            if state.partition.topic in topics and state.topic_id.int
        }

    async def find_ended(self, topic_ids: Mapping[str, UUID], timeout: float) -> frozenset[str]:
        """Return the topics that were deleted, even if created again with another id."""
        deadline = asyncio.get_running_loop().time() + timeout
        deleted = await deleted_topics(self._services, topic_ids, deadline)
        metadata = self._services.metadata.snapshot
        return deleted | {
            t for t, id_ in topic_ids.items() if metadata.topic_id(t) not in (id_, NO_ID)
        }
