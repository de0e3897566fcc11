"""Range assignor: assigns each topic's partitions in contiguous ranges, by rack (KIP-881)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafka_async.group.assignors.abc import (
    Assignments,
    Assignor,
    Members,
    racks_of,
    subscribers_of,
    uses_racks,
)
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class RangeAssignor(Assignor):
    """Assigns partition n of every topic to the same member if subscriptions and counts are equal.

    Joins of co-partitioned topics need this. The first members get one more partition of every
    topic that does not divide evenly, so their totals may exceed the others' by the number of
    topics. If members and replicas have racks, a member first gets partitions with a replica in its
    rack, without changing these numbers (KIP-881).
    """

    name = "range"

    def assign(self, partitions: Mapping[str, int], members: Members) -> Assignments:
        """Return contiguous ranges of each topic; the first are one partition longer."""
        by_topic = subscribers_of(partitions, members)
        topics = [t for t, count in sorted(partitions.items()) if count and by_topic[t]]
        assignments: Assignments = {member_id: [] for member_id in members}
        if any(member.rack_id for member in members.values()):
            states = [_Topic(t, partitions, by_topic[t], members) for t in topics]
            if any(state.uses_racks for state in states):
                _assign_by_rack(states)
                for state in states:
                    for member_id, numbers in state.assigned.items():
                        assignments[member_id] += [TopicPartition(state.name, n) for n in numbers]
                return assignments
        for topic in topics:
            subscribers = by_topic[topic]
            size, left_over = divmod(partitions[topic], len(subscribers))
            start = 0
            for place, member_id in enumerate(subscribers if size else subscribers[:left_over]):
                end = start + size + (place < left_over)
                assignments[member_id] += [TopicPartition(topic, n) for n in range(start, end)]
                start = end
        return assignments


def _assign_by_rack(topics: Sequence[_Topic]) -> None:
    """Assign all partitions, first those with a replica in the member's rack.

    Topics with the same subscribers and counts are assigned together, so that partition n of each
    goes to one member.
    """
    families: defaultdict[tuple[tuple[str, ...], int], list[_Topic]] = defaultdict(list)
    for topic in topics:
        # Java compares the number of partitions with known racks: none if no subscriber has one.
        families[tuple(topic.members), topic.count if topic.has_member_racks else 0].append(topic)
    for (_, count), family in families.items():
        # Partition n of all these topics must go to one member, so it is assigned for all at once.
        if len(family) > 1:
            _assign_together(family, count)
        elif family[0].uses_racks:
            family[0].assign_ranges(family[0].matches)
    # The rest goes to any member with room, so racks do not change the sizes.
    for topic in topics:
        topic.assign_ranges(lambda _member_id, _number: True)
        for numbers in topic.assigned.values():
            numbers.sort()


def _assign_together(family: Sequence[_Topic], count: int) -> None:
    remaining = dict.fromkeys(family[0].members)
    for number in range(count):
        for member_id in remaining:
            if all(t.matches(member_id, number) and t.room(member_id) for t in family):
                for topic in family:
                    topic.add(member_id, [number])
                if not any(topic.room(member_id) for topic in family):
                    # The loop over the members ends right after, so changing it is safe.
                    del remaining[member_id]
                break


class _Topic:
    """One topic while its partitions are assigned."""

    def __init__(
        self,
        name: str,
        partitions: Mapping[str, int],
        subscribers: Sequence[str],
        members: Members,
    ) -> None:
        self.name = name
        self.count = count = partitions[name]
        self.members = subscribers
        self.assigned: dict[str, list[int]] = {member_id: [] for member_id in subscribers}
        # A dictionary, as an ordered set.
        self._unassigned = dict.fromkeys(range(count))
        self._size, self._longer = divmod(count, len(subscribers))
        self._member_racks = {
            member_id: members[member_id].rack_id or None for member_id in subscribers
        }
        racks = frozenset(filter(None, self._member_racks.values()))
        self.has_member_racks = bool(racks)
        self._racks = [
            racks_of(partitions, TopicPartition(name, n)) for n in range(count if racks else 0)
        ]
        self.uses_racks = uses_racks(self._racks, racks)

    def matches(self, member_id: str, number: int) -> bool:
        """Return True if a replica is in the member's rack, or if the member has none."""
        rack = self._member_racks[member_id]
        return rack is None or (bool(self._racks) and rack in self._racks[number])

    def room(self, member_id: str) -> int:
        """Return the number of partitions that the member may still get."""
        return max(0, self._size + (self._longer > 0) - len(self.assigned[member_id]))

    def add(self, member_id: str, numbers: Sequence[int]) -> None:
        """Assign partitions to a member."""
        self.assigned[member_id] += numbers
        if len(self.assigned[member_id]) > self._size:
            self._longer -= 1
        for number in numbers:
            del self._unassigned[number]

    def assign_ranges(self, allows: Callable[[str, int], bool]) -> None:
        """Assign unassigned partitions that `allows` permits, in the order of members."""
        for member_id in self.members:
            if not self._unassigned:
                return
            room = self.room(member_id)
            numbers: list[int] = []
            for number in self._unassigned:
                if len(numbers) == room:
                    break
                if allows(member_id, number):
                    numbers.append(number)
            if numbers:
                self.add(member_id, numbers)
