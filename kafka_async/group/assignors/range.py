"""Range: each topic by itself, its partitions in runs, so that equal numbers go together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.group.assignors.abc import Assignor, Members, Shares, subscribers_of
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping


class RangeAssignor(Assignor):
    """Partition n of every topic goes to the same member, if subscriptions and counts are alike.

    That is what a join of two topics needs. The members that come first get the partitions that are
    left over, of every topic; the shares of a member may differ by as many as there are topics.
    """

    name = "range"

    def assign(self, partitions: Mapping[str, int], members: Members) -> Shares:
        """Everybody's share: runs of each topic, the first members' one longer."""
        shares: Shares = {member_id: [] for member_id in members}
        subscribers = subscribers_of(partitions, members)
        for topic, count in sorted(partitions.items()):
            takers = subscribers[topic]
            if not takers:
                continue
            size, left_over = divmod(count, len(takers))
            start = 0
            for place, member_id in enumerate(takers if size else takers[:left_over]):
                end = start + size + (place < left_over)
                shares[member_id] += [TopicPartition(topic, n) for n in range(start, end)]
                start = end
        return shares
