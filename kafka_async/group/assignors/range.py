"""Range assignor: assigns each topic's partitions in contiguous ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.group.assignors.abc import Assignments, Assignor, Members, subscribers_of
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping


class RangeAssignor(Assignor):
    """Assigns partition n of every topic to the same member if subscriptions and counts are equal.

    Joins of co-partitioned topics need this. The first members get one partition more of every
    topic that does not divide evenly, so their totals may exceed the others' by the number of
    topics.
    """

    name = "range"

    def assign(self, partitions: Mapping[str, int], members: Members) -> Assignments:
        """Return contiguous ranges of each topic; the first are one partition longer."""
        assignments: Assignments = {member_id: [] for member_id in members}
        by_topic = subscribers_of(partitions, members)
        for topic, count in sorted(partitions.items()):
            subscribers = by_topic[topic]
            if not subscribers:
                continue
            size, left_over = divmod(count, len(subscribers))
            start = 0
            for place, member_id in enumerate(subscribers if size else subscribers[:left_over]):
                end = start + size + (place < left_over)
                assignments[member_id] += [TopicPartition(topic, n) for n in range(start, end)]
                start = end
        return assignments
