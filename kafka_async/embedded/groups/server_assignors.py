"""The assignors of the coordinator for groups of the consumer protocol (KIP-848). Pure.

The assignments equal Apache Kafka's up to the order of members and topics, which Kafka does not
define: each member gets the same number of partitions, and the same number of partitions move.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

TopicIdPartition: TypeAlias = tuple[UUID, int]
Targets: TypeAlias = "dict[str, frozenset[TopicIdPartition]]"


class AssignedMember(NamedTuple):
    """Describes a member to an assignor: its topics by id, and its former target assignment."""

    instance_id: str | None
    topics: frozenset[UUID]
    former: frozenset[TopicIdPartition]


def assign_range(members: Mapping[str, AssignedMember], counts: Mapping[UUID, int]) -> Targets:
    """Give each member a range of each topic's partitions: static members first, by instance id."""
    found: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in members}
    ordered = sorted(
        members,
        key=lambda id_: (members[id_].instance_id is None, members[id_].instance_id or id_),
    )
    for topic, count in counts.items():
        subscribers = [id_ for id_ in ordered if topic in members[id_].topics]
        start = 0
        for index, member_id in enumerate(subscribers):
            more, extra = divmod(count, len(subscribers))
            end = start + more + (index < extra)
            found[member_id].update((topic, partition) for partition in range(start, end))
            start = end
    return {member_id: frozenset(partitions) for member_id, partitions in found.items()}


def assign_uniform(members: Mapping[str, AssignedMember], counts: Mapping[UUID, int]) -> Targets:
    """Spread all partitions evenly, and move as few as possible."""
    balance = _Balance(members, counts)
    if len({member.topics for member in members.values()}) <= 1:
        balance.give_back_excess()
    balance.assign_remaining()
    balance.move_excess()
    return {member_id: frozenset(partitions) for member_id, partitions in balance.targets.items()}


class _Balance:
    """Collects the targets of all members while partitions are assigned and moved."""

    def __init__(self, members: Mapping[str, AssignedMember], counts: Mapping[UUID, int]) -> None:
        self._counts = counts
        self._subscribers = {
            topic: [id_ for id_ in sorted(members) if topic in members[id_].topics]
            for topic in counts
        }
        self.targets: dict[str, set[TopicIdPartition]] = {
            member_id: {
                (topic, partition)
                for topic, partition in member.former
                if topic in member.topics and partition < counts.get(topic, 0)
            }
            for member_id, member in sorted(members.items())
        }

    def give_back_excess(self) -> None:
        """Revoke from each member the partitions above an even share; all have the same topics."""
        if not self.targets:
            return
        quota, extra = divmod(sum(self._counts.values()), len(self.targets))
        # The members with the most partitions keep one more.
        for member_id in sorted(self.targets, key=lambda id_: -len(self.targets[id_])):
            partitions = self.targets[member_id]
            limit = quota + (extra > 0)
            extra -= len(partitions) >= limit > quota
            for excess in sorted(partitions)[limit:]:
                partitions.discard(excess)

    def assign_remaining(self) -> None:
        """Give each unassigned partition to the subscriber with the fewest partitions."""
        taken = {partition for partitions in self.targets.values() for partition in partitions}
        # Topics with few subscribers per partition first: they leave the least choice.
        for topic in sorted(self._counts, key=self._load_of):
            subscribers = self._subscribers[topic]
            for partition in range(self._counts[topic]):
                if subscribers and (topic, partition) not in taken:
                    least = min(subscribers, key=self._size)
                    self.targets[least].add((topic, partition))

    def move_excess(self) -> None:
        """Move partitions from members with more to members with fewer, as far as topics allow."""
        moved = True
        while moved:
            moved = False
            for topic in sorted(self._counts, key=self._load_of):
                moved |= self._move_excess_of(topic)

    def _move_excess_of(self, topic: UUID) -> bool:
        moved = False
        subscribers = self._subscribers[topic]
        while subscribers:
            owned: defaultdict[str, list[TopicIdPartition]] = defaultdict(list)
            for member_id in subscribers:
                owned[member_id] += [it for it in self.targets[member_id] if it[0] == topic]
            least = min(subscribers, key=self._size)
            most = max((id_ for id_ in subscribers if owned[id_]), key=self._size, default=least)
            if self._size(most) - self._size(least) <= 1:
                break
            partition = max(owned[most])
            self.targets[most].discard(partition)
            self.targets[least].add(partition)
            moved = True
        return moved

    def _size(self, member_id: str) -> int:
        return len(self.targets[member_id])

    def _load_of(self, topic: UUID) -> tuple[float, int, UUID]:
        subscribers = len(self._subscribers[topic])
        return -self._counts[topic] / max(subscribers, 1), subscribers, topic


def assign_simple(
    members: Mapping[str, AssignedMember], partitions: Collection[TopicIdPartition]
) -> Targets:
    """Assign each partition to enough members of a share group to balance the members (KIP-932).

    Members keep their partitions. With different subscriptions, each topic is assigned separately.
    """
    targets: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in members}
    subscriptions = {member.topics for member in members.values()}
    topics = sorted(frozenset[UUID]().union(*subscriptions))
    rounds = (
        [subscriptions.pop()] if len(subscriptions) == 1 else [frozenset((it,)) for it in topics]
    )
    for topics_of_round in rounds:
        shared = sorted(it for it in partitions if it[0] in topics_of_round)
        subscribers = [it for it in sorted(members) if topics_of_round <= members[it].topics]
        for member_id, found in _share_out(shared, subscribers, members).items():
            targets[member_id] |= found
    return {member_id: frozenset(found) for member_id, found in targets.items()}


def _share_out(
    partitions: Collection[TopicIdPartition],
    subscribers: Sequence[str],
    members: Mapping[str, AssignedMember],
) -> dict[str, set[TopicIdPartition]]:
    """Assign partitions to members that subscribe to all of them."""
    count = len(subscribers)
    if not partitions or not count:
        return {}
    sharing = -(-count // len(partitions))
    total = sharing * len(partitions)
    owners: dict[TopicIdPartition, set[str]] = {it: set() for it in partitions}
    found: dict[str, set[TopicIdPartition]] = {}
    quotas: dict[str, int] = {}
    for index, member_id in enumerate(subscribers):
        quotas[member_id] = -(-total * (index + 1) // count) + (-total * index // count)
        kept = [
            it
            for it in sorted(members[member_id].former)
            if it in owners and len(owners[it]) < sharing
        ][: quotas[member_id]]
        found[member_id] = set(kept)
        for partition in kept:
            owners[partition].add(member_id)
    for partition, owning in owners.items():
        while len(owning) < sharing:
            others = [it for it in subscribers if it not in owning]
            unfilled = [it for it in others if len(found[it]) < quotas[it]]
            if not unfilled and owning:
                break
            chosen = min(unfilled or others, key=lambda it: len(found[it]))
            found[chosen].add(partition)
            owning.add(chosen)
    return found


SERVER_ASSIGNORS: Final[
    Mapping[str, Callable[[Mapping[str, AssignedMember], Mapping[UUID, int]], Targets]]
] = {"uniform": assign_uniform, "range": assign_range}
"""Assignors by name; the first is the default."""
