"""Cooperative-sticky assignor: balanced, and moving as few partitions as possible (KIP-429).

Three steps. Members keep the partitions they own. Unowned partitions go to the member with the
fewest. Then partitions move, one chain at a time, from a member to one that has at least two fewer:
directly if their subscriptions allow it, else through other members (a passes one to b, which
passes another to c). When no such chain is left, the assignment is as balanced as the subscriptions
allow: it is a semi-matching without a cost-reducing path.

If members and replicas have racks (KIP-881), a member keeps and gets partitions with a replica in
its rack first, as far as the balance allows.

A partition that moves is left out of its new owner's assignment until the previous owner has
revoked it and the group has rebalanced again, so that two members never read it at once.
"""

from __future__ import annotations

import heapq
import struct
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Final

from kafka_async.group.assignors.abc import (
    Assignments,
    Assignor,
    Members,
    RebalanceProtocol,
    racks_of,
    sorted_member_ids,
    subscribers_of,
    uses_racks,
)
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MAX_IMPROVED_SIZE: Final = 20_000
"""Members times partitions up to which exchanges between members are searched.

A search compares each partition with each member, and takes up to about 10 ms. In larger groups
members keep partitions that are outside their rack.
"""
_GENERATION = struct.Struct(">i")


class CooperativeStickyAssignor(Assignor):
    """Balances partitions, moves as few as possible and does not interrupt the others."""

    name = "cooperative-sticky"
    rebalance_protocols = frozenset({RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE})

    def __init__(self) -> None:
        self._generation = -1

    def user_data(self, topics: Iterable[str]) -> bytes:
        """Return the generation of the last assignment, as Java's assignor does."""
        return _GENERATION.pack(self._generation)

    def on_assignment(
        self, partitions: frozenset[TopicPartition], user_data: bytes | None, generation: int
    ) -> None:
        """Keep the generation."""
        self._generation = generation

    def assign(self, partitions: Mapping[str, int], members: Members) -> Assignments:
        """Return balanced assignments without partitions that must first be revoked."""
        assignments = balanced(partitions, members)
        claims = _claims(members)
        # A partition that another member claims is assigned to no member in this rebalance.
        return {
            member_id: [p for p in sorted(assigned) if claims[p] <= {member_id}]
            for member_id, assigned in assignments.items()
        }


def balanced(partitions: Mapping[str, int], members: Members) -> dict[str, set[TopicPartition]]:
    """Return the final assignments, after every move: each subscribed partition exactly once."""
    balancer = _Balancer(partitions, members)
    # In this order: what is kept limits what moves.
    balancer.keep_owned()
    balancer.assign_in_racks()
    balancer.assign_unowned()
    while balancer.move_one():
        pass
    if balancer.improves and not balancer.is_best():
        while balancer.exchange():
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
        self.owners: dict[TopicPartition, str] = {}
        self.racks = self._distinguishing_racks()
        self.improves = len(members) * sum(partitions.values()) <= MAX_IMPROVED_SIZE

    def _distinguishing_racks(self) -> dict[TopicPartition, frozenset[str]]:
        """Return the racks of all partitions, or an empty dict if they make no difference."""
        member_racks = {member.rack_id for member in self.members.values() if member.rack_id}
        if not member_racks:
            return {}
        racks = {
            partition: racks_of(self.partitions, partition)
            for topic, subscribers in self.subscribers.items()
            if subscribers
            for partition in (TopicPartition(topic, n) for n in range(self.partitions[topic]))
        }
        return racks if uses_racks(list(racks.values()), member_racks) else {}

    def in_rack(self, partition: TopicPartition, member_id: str) -> bool:
        """Return True if a replica is in the member's rack, or if racks make no difference."""
        rack = self.members[member_id].rack_id
        return not self.racks or not rack or rack in self.racks[partition]

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

        Two claims in one generation contradict each other, so neither is accepted (KIP-792).
        """
        for partition, claimants in _claims(self.members).items():
            # The topic was deleted or created again with fewer partitions.
            if not 0 <= partition.partition < self.partitions.get(partition.topic, 0):
                continue
            newest = max(self.members[member_id].generation for member_id in claimants)
            owners = [m for m in claimants if self.members[m].generation == newest]
            if len(owners) == 1 and partition.topic in self.members[owners[0]].topics:
                self.owners[partition] = owners[0]
                if not self.improves or self.in_rack(partition, owners[0]):
                    self.add(partition, owners[0])

    def assign_in_racks(self) -> None:
        """Assign unassigned partitions within racks, those with the fewest candidates first.

        No member receives more than its part of all partitions here. Partitions left over return to
        owners that have room.
        """
        if not self.racks:
            return
        assigned = set[TopicPartition]().union(*self.assignments.values())
        candidates = {
            partition: [
                m for m in self.subscribers[partition.topic] if self.members[m].rack_id in racks
            ]
            for partition, racks in self.racks.items()
            if partition not in assigned
        }
        # Members with one partition more than the others, while some are left over.
        size, longer = divmod(len(self.racks), len(self.order))
        counts = [len(each) for each in self.assignments.values()]
        longer -= sum(count > size for count in counts)

        def assign(partition: TopicPartition, member_ids: Iterable[str]) -> None:
            nonlocal longer
            member_id = min(member_ids, key=self._rank, default=None)
            if member_id is None or len(self.assignments[member_id]) >= size + (longer > 0):
                return
            longer -= len(self.assignments[member_id]) == size
            self.add(partition, member_id)
            assigned.add(partition)

        for partition in sorted(candidates, key=lambda p: (len(candidates[p]), p)):
            owner = self.owners.get(partition)
            assign(partition, candidates[partition])
            if owner is not None and partition not in assigned:
                assign(partition, [owner])

    def assign_unowned(self) -> None:
        """Assign unowned partitions to the least loaded members, rare topics first."""
        owned = set[TopicPartition]().union(*self.assignments.values())
        heaps: dict[tuple[str, ...], list[tuple[int, int, str]]] = {}
        # Topics with few subscribers first: their partitions have the least choice.
        for topic in sorted(self.subscribers, key=lambda name: (len(self.subscribers[name]), name)):
            subscribers = self.subscribers[topic]
            if not subscribers:
                continue
            # One heap for all topics with the same subscribers.
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
        """Return the member with the fewest partitions; counts in the heap may be too low."""
        while True:
            # Counts grow through other heaps, so a stale one is corrected and the heap asked again.
            size, place, member_id = heap[0]
            if size == len(self.assignments[member_id]):
                heapq.heapreplace(heap, (size + 1, place, member_id))
                return member_id
            heapq.heapreplace(heap, self._rank(member_id))

    def move_one(self) -> bool:
        """Move partitions along a chain that evens out two members; return False without one."""
        sizes = [len(assigned) for assigned in self.assignments.values()]
        # A difference of one cannot be improved.
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
        # Breadth-first: the shortest chain moves the fewest partitions.
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
        """Return the partition to pass on, preferably one that moves in any case."""
        wanted, owned = self.members[target].topics, self.members[source].owned
        back = self.members[target].owned
        return max(
            (p for topic in wanted for p in self.held[source][topic]),
            key=lambda p: (
                self.in_rack(p, target) - self.in_rack(p, source),
                p in back,
                p not in owned,
                p,
            ),
        )

    def is_best(self) -> bool:
        """Return True if no exchange can help: no partition has moved or is outside a rack."""
        return all(
            self._cost(p, m) == 0 for m, assigned in self.assignments.items() for p in assigned
        )

    def exchange(self) -> bool:
        """Exchange partitions between members, so that fewer have moved or are outside racks.

        The exchange is a cycle of members, each of which passes a partition to the next, or a chain
        from a member to one with one partition less, which swaps their sizes. Returns False if none
        is left: the assignment is then the best one with these sizes.
        """
        edges = self._edges()
        cycle = _negative_cycle(list(self.order), edges)
        moves = [(edges[edge][1], *edge) for edge in cycle]
        for partition, source, target in moves:
            if partition is not None:
                self.remove(partition, source)
                self.add(partition, target)
        return bool(moves)

    def _edges(self) -> dict[tuple[str, str], tuple[int, TopicPartition | None]]:
        """Return the cheapest partition that one member can pass to another, with its cost.

        None as a partition stands for the difference in size between the ends of a chain.
        """
        edges: dict[tuple[str, str], tuple[int, TopicPartition | None]] = {}
        for source, assigned in self.assignments.items():
            for partition in sorted(assigned):
                cost = self._cost(partition, source)
                for target in self.subscribers[partition.topic]:
                    change = self._cost(partition, target) - cost
                    found = edges.get((source, target))
                    if target != source and (found is None or change < found[0]):
                        edges[source, target] = (change, partition)
        # An edge without a partition closes a chain between members whose sizes differ by one.
        for giver in self.order:
            for taker in self.order:
                found = edges.get((taker, giver))
                larger = len(self.assignments[giver]) == len(self.assignments[taker]) + 1
                if larger and (found is None or found[0] > 0):
                    edges[taker, giver] = (0, None)
        return edges

    def _cost(self, partition: TopicPartition, member_id: str) -> int:
        """Return the cost of an assignment; a partition outside its racks outweighs all moves."""
        moved = self.owners.get(partition, member_id) != member_id
        return moved + (0 if self.in_rack(partition, member_id) else len(self.racks) + 1)


def _negative_cycle(
    nodes: Sequence[str], edges: Mapping[tuple[str, str], tuple[int, object]]
) -> list[tuple[str, str]]:
    """Return the edges of a cycle with a negative sum, or an empty list (Bellman-Ford)."""
    distance = dict.fromkeys(nodes, 0)
    previous: dict[str, str] = {}
    changed: str | None = None
    for _ in nodes:
        changed = None
        for (source, target), (cost, _partition) in edges.items():
            if distance[source] + cost < distance[target]:
                distance[target] = distance[source] + cost
                previous[target] = source
                changed = target
        # No change in a round: there is no negative cycle.
        if changed is None:
            return []
    assert changed is not None
    node = changed
    # Following `previous` once per node ends inside the cycle.
    for _ in nodes:
        node = previous[node]
    cycle: list[tuple[str, str]] = []
    end = node
    while not cycle or node != end:
        cycle.append((previous[node], node))
        node = previous[node]
    return cycle
