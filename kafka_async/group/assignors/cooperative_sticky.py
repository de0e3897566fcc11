"""Cooperative-sticky assignor: balanced, and moving as few partitions as possible (KIP-429).

Three steps. Members keep the partitions they own. Unowned partitions go to the member with the
fewest. Then partitions move, one chain at a time, from a member to one that has at least two fewer:
directly if their subscriptions allow it, else through other members (a passes one to b, which
passes another to c). When there is no such chain left, the assignment is as balanced as the
subscriptions allow: it is a semi-matching without a cost-reducing path.

A partition that moves is left out of its new owner's assignment until the previous owner has
revoked it and the group has rebalanced again, so that two members never read it at once.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from typing import TYPE_CHECKING

from kafka_async.group.assignors.abc import (
    Assignments,
    Assignor,
    Members,
    RebalanceProtocol,
    sorted_member_ids,
    subscribers_of,
)
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class CooperativeStickyAssignor(Assignor):
    """Balances partitions, moves as few as possible and does not interrupt the others."""

    name = "cooperative-sticky"
    rebalance_protocols = frozenset({RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE})

    def assign(self, partitions: Mapping[str, int], members: Members) -> Assignments:
        """Return balanced assignments without partitions that must first be revoked."""
        assignments = balanced(partitions, members)
        claims = _claims(members)
        return {
            member_id: [p for p in sorted(assigned) if claims[p] <= {member_id}]
            for member_id, assigned in assignments.items()
        }


def balanced(partitions: Mapping[str, int], members: Members) -> dict[str, set[TopicPartition]]:
    """Return the final assignments, after every move: each subscribed partition exactly once."""
    balancer = _Balancer(partitions, members)
    balancer.keep_owned()
    balancer.assign_unowned()
    while balancer.move_one():
        pass
    return balancer.assignments


def _claims(members: Members) -> defaultdict[TopicPartition, set[str]]:
    """Return the members that claim to own each partition."""
    claims: defaultdict[TopicPartition, set[str]] = defaultdict(set)
    for member_id, member in members.items():
        for partition in member.owned:
            claims[partition].add(member_id)
    return claims


class _Balancer:
    """Assignments while they are computed."""

    def __init__(self, partitions: Mapping[str, int], members: Members) -> None:
        self.members = members
        self.order = {
            member_id: place for place, member_id in enumerate(sorted_member_ids(members))
        }
        self.subscribers = subscribers_of(partitions, members)
        self.partitions = partitions
        self.assignments: dict[str, set[TopicPartition]] = {
            member_id: set() for member_id in self.order
        }
        # Partitions by member and topic: a chain needs a partition to pass on.
        self.held: dict[str, defaultdict[str, set[TopicPartition]]] = {
            member_id: defaultdict(set) for member_id in self.order
        }

    def add(self, partition: TopicPartition, member_id: str) -> None:
        """Assign a partition to a member."""
        self.assignments[member_id].add(partition)
        self.held[member_id][partition.topic].add(partition)

    def remove(self, partition: TopicPartition, member_id: str) -> None:
        """Unassign a partition from a member."""
        self.assignments[member_id].remove(partition)
        self.held[member_id][partition.topic].remove(partition)

    def keep_owned(self) -> None:
        """Assign partitions to the members that claimed them in the newest generation.

        Two claims in one generation contradict each other, so neither counts.
        """
        for partition, claimants in _claims(self.members).items():
            if not 0 <= partition.partition < self.partitions.get(partition.topic, 0):
                continue
            newest = max(self.members[member_id].generation for member_id in claimants)
            owners = [m for m in claimants if self.members[m].generation == newest]
            if len(owners) == 1 and partition.topic in self.members[owners[0]].topics:
                self.add(partition, owners[0])

    def assign_unowned(self) -> None:
        """Assign unowned partitions to the least loaded members, rare topics first."""
        owned = set[TopicPartition]().union(*self.assignments.values())
        heaps: dict[tuple[str, ...], list[tuple[int, int, str]]] = {}
        for topic in sorted(self.subscribers, key=lambda name: (len(self.subscribers[name]), name)):
            subscribers = self.subscribers[topic]
            if not subscribers:
                continue
            heap = heaps.get(key := tuple(subscribers))
            if heap is None:
                heap = heaps[key] = [self._rank(member_id) for member_id in subscribers]
                heapq.heapify(heap)
            for number in range(self.partitions[topic]):
                partition = TopicPartition(topic, number)
                if partition not in owned:
                    self.add(partition, self._fewest(heap))

    def _rank(self, member_id: str) -> tuple[int, int, str]:
        return len(self.assignments[member_id]), self.order[member_id], member_id

    def _fewest(self, heap: list[tuple[int, int, str]]) -> str:
        """Return the member with the fewest partitions; the heap's counts may be too low."""
        while True:
            size, place, member_id = heap[0]
            if size == len(self.assignments[member_id]):
                heapq.heapreplace(heap, (size + 1, place, member_id))
                return member_id
            heapq.heapreplace(heap, self._rank(member_id))

    def move_one(self) -> bool:
        """Move partitions along a chain that evens out two members; False if there is none."""
        sizes = [len(assigned) for assigned in self.assignments.values()]
        if max(sizes, default=0) - min(sizes, default=0) < 2:
            return False
        unreachable = set[str]()
        for giver in sorted(self.order, key=lambda m: (-len(self.assignments[m]), self.order[m])):
            # Members found unreachable from a larger assignment stay unreachable from a smaller
            # one, so later searches skip them.
            chain = self._chain(giver, unreachable)
            if chain:
                for (partition, source), target in chain:
                    self.remove(partition, source)
                    self.add(partition, target)
                return True
        return False

    def _chain(
        self, giver: str, unreachable: set[str]
    ) -> list[tuple[tuple[TopicPartition, str], str]]:
        """Return the shortest chain from `giver` to a member at least two partitions below."""
        goal = len(self.assignments[giver]) - 2
        previous: dict[str, str] = {giver: giver}
        queue = deque([giver])
        while queue:
            member_id = queue.popleft()
            near = [
                m for m in self._neighbours(member_id) if m not in previous and m not in unreachable
            ]
            previous.update(dict.fromkeys(near, member_id))
            ends = [m for m in near if len(self.assignments[m]) <= goal]
            if ends:
                return self._steps(previous, giver, min(ends, key=self._rank))
            queue.extend(near)
        unreachable.update(previous)
        return []

    def _neighbours(self, member_id: str) -> Iterable[str]:
        """Return the members that could take a partition of this member, least loaded first."""
        topics = [topic for topic, held in self.held[member_id].items() if held]
        subscribers = {subscriber for topic in topics for subscriber in self.subscribers[topic]}
        return sorted(subscribers, key=self._rank)

    def _steps(
        self, previous: Mapping[str, str], giver: str, end: str
    ) -> list[tuple[tuple[TopicPartition, str], str]]:
        steps: list[tuple[tuple[TopicPartition, str], str]] = []
        target = end
        while target != giver:
            source = previous[target]
            steps.append(((self._movable(source, target), source), target))
            target = source
        return steps

    def _movable(self, source: str, target: str) -> TopicPartition:
        """Return the partition to pass on, preferably one that is moved anyway."""
        wanted, owned = self.members[target].topics, self.members[source].owned
        back = self.members[target].owned
        return max(
            (p for topic in wanted for p in self.held[source][topic]),
            key=lambda p: (p in back, p not in owned, p),
        )
