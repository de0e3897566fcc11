"""Co-partitioned assignor: partitions with one number, of several topics, to one member."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from kafka_async.group.assignors.abc import Assignments, Assignor, Members, subscribers_of
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping


class CoPartitionedAssignor(Assignor):
    """Assigns partition n of all topics to one member, for joins of topics with the same keys.

    This holds for topics with the same subscribers, even if their numbers of partitions differ;
    `range` does not guarantee it then. Each number goes to the member with the fewest partitions.
    """

    name = "co-partitioned"

    def assign(self, partitions: Mapping[str, int], members: Members) -> Assignments:
        """Return the partitions of each member, the same numbers of topics read together."""
        assignments: Assignments = {member_id: [] for member_id in members}
        families: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
        for topic, subscribers in sorted(subscribers_of(partitions, members).items()):
            if subscribers:
                families[tuple(subscribers)].append(topic)
        for subscribers, topics in families.items():
            for number in range(max(partitions[topic] for topic in topics)):
                member_id = min(subscribers, key=lambda m: len(assignments[m]))
                assignments[member_id] += [
                    TopicPartition(topic, number) for topic in topics if number < partitions[topic]
                ]
        return assignments
