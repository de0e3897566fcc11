"""Round robin assignor: assigns all partitions in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.group.assignors.abc import Assignments, Assignor, Members, sorted_member_ids
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping


class RoundRobinAssignor(Assignor):
    """Assigns the partitions of all topics in turn, each to the next member that subscribes to it.

    With equal subscriptions the members' numbers of partitions differ by at most one.
    """

    name = "roundrobin"

    def assign(self, partitions: Mapping[str, int], members: Members) -> Assignments:
        """Return the partitions in the order of topics, one member after another."""
        assignments: Assignments = {member_id: [] for member_id in members}
        ordered = sorted_member_ids(members)
        subscribed = frozenset[str]().union(*(member.topics for member in members.values()))
        place = 0
        for topic in sorted(subscribed.intersection(partitions)):
            for number in range(partitions[topic]):
                # Every topic here has a subscriber, so this ends.
                while topic not in members[ordered[place]].topics:
                    place = (place + 1) % len(ordered)
                assignments[ordered[place]].append(TopicPartition(topic, number))
                place = (place + 1) % len(ordered)
        return assignments
