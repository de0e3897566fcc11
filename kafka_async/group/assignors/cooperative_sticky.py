"""Cooperative-sticky: as balanced as subscriptions allow, moving as little as that takes (KIP-429).

Three steps. Members keep what they own and may keep. What nobody owns goes to whoever has least.
Then partitions move, one chain at a time, from a member to one that has at least two fewer:
straight if their subscriptions allow, else through members in between (a gives one to b, which
gives another to c). When no such chain is left, nobody's share can come nearer to the others'
without one below it getting worse: a semi-matching without a cost-reducing path is the best there
is.

A partition that moves is left out of its new owner's share until its old owner has given it up and
everybody has joined again; until then nobody else reads it.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from typing import TYPE_CHECKING

from kafka_async.group.assignors.abc import (
    Assignor,
    Members,
    RebalanceProtocol,
    Shares,
    in_order,
    subscribers_of,
)
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class CooperativeStickyAssignor(Assignor):
    """Balanced shares that move as few partitions as possible, without stopping the others."""

    name = "cooperative-sticky"
    rebalance_protocols = frozenset({RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE})

    def assign(self, partitions: Mapping[str, int], members: Members) -> Shares:
        """Everybody's share, without what somebody else has to give up first."""
        shares = balanced(partitions, members)
        claims = _claims(members)
        return {
            member_id: [p for p in sorted(share) if claims[p] <= {member_id}]
            for member_id, share in shares.items()
        }


def balanced(partitions: Mapping[str, int], members: Members) -> dict[str, set[TopicPartition]]:
    """Everybody's share once every move is done: each wanted partition exactly once."""
    sharing = _Sharing(partitions, members)
    sharing.keep_owned()
    sharing.share_unowned()
    while sharing.move_one():
        pass
    return sharing.shares


def _claims(members: Members) -> defaultdict[TopicPartition, set[str]]:
    """Who says that it owns a partition."""
    claims: defaultdict[TopicPartition, set[str]] = defaultdict(set)
    for member_id, member in members.items():
        for partition in member.owned:
            claims[partition].add(member_id)
    return claims


class _Sharing:
    """Shares while they are being made."""

    def __init__(self, partitions: Mapping[str, int], members: Members) -> None:
        self.members = members
        self.order = {member_id: place for place, member_id in enumerate(in_order(members))}
        self.takers = subscribers_of(partitions, members)
        self.partitions = partitions
        self.shares: dict[str, set[TopicPartition]] = {member_id: set() for member_id in self.order}
        # How many partitions of a topic each member has: a chain needs one to pass on.
        self.held: dict[str, defaultdict[str, set[TopicPartition]]] = {
            member_id: defaultdict(set) for member_id in self.order
        }

    def give(self, partition: TopicPartition, member_id: str) -> None:
        """Put a partition into a share."""
        self.shares[member_id].add(partition)
        self.held[member_id][partition.topic].add(partition)

    def take(self, partition: TopicPartition, member_id: str) -> None:
        """Take a partition out of a share."""
        self.shares[member_id].remove(partition)
        self.held[member_id][partition.topic].remove(partition)

    def keep_owned(self) -> None:
        """Leave partitions with who owns them by the newest generation that anyone claims them in.

        Two claims of one generation cannot both be true, so neither counts.
        """
        for partition, claimants in _claims(self.members).items():
            if not 0 <= partition.partition < self.partitions.get(partition.topic, 0):
                continue
            newest = max(self.members[member_id].generation for member_id in claimants)
            owners = [m for m in claimants if self.members[m].generation == newest]
            if len(owners) == 1 and partition.topic in self.members[owners[0]].topics:
                self.give(partition, owners[0])

    def share_unowned(self) -> None:
        """Give what nobody has to whoever has least, topics that few want first."""
        owned = set[TopicPartition]().union(*self.shares.values())
        heaps: dict[tuple[str, ...], list[tuple[int, int, str]]] = {}
        for topic in sorted(self.takers, key=lambda name: (len(self.takers[name]), name)):
            takers = self.takers[topic]
            if not takers:
                continue
            heap = heaps.get(key := tuple(takers))
            if heap is None:
                heap = heaps[key] = [self._rank(member_id) for member_id in takers]
                heapq.heapify(heap)
            for number in range(self.partitions[topic]):
                partition = TopicPartition(topic, number)
                if partition not in owned:
                    self.give(partition, self._least(heap))

    def _rank(self, member_id: str) -> tuple[int, int, str]:
        return len(self.shares[member_id]), self.order[member_id], member_id

    def _least(self, heap: list[tuple[int, int, str]]) -> str:
        """Who has least of a heap; its ranks may be out of date, but never too high."""
        while True:
            size, place, member_id = heap[0]
            if size == len(self.shares[member_id]):
                heapq.heapreplace(heap, (size + 1, place, member_id))
                return member_id
            heapq.heapreplace(heap, self._rank(member_id))

    def move_one(self) -> bool:
        """Shift partitions along a chain that evens two shares out; False if there is none."""
        sizes = [len(share) for share in self.shares.values()]
        if max(sizes, default=0) - min(sizes, default=0) < 2:
            return False
        hopeless = set[str]()
        for giver in sorted(self.order, key=lambda m: (-len(self.shares[m]), self.order[m])):
            # What another's search could not reach from here, this one's cannot either, as long as
            # shares only get smaller down the list.
            chain = self._chain(giver, hopeless)
            if chain:
                for (partition, source), target in chain:
                    self.take(partition, source)
                    self.give(partition, target)
                return True
        return False

    def _chain(
        self, giver: str, hopeless: set[str]
    ) -> list[tuple[tuple[TopicPartition, str], str]]:
        """The shortest chain from `giver` to the smallest share that is smaller by two or more."""
        goal = len(self.shares[giver]) - 2
        came: dict[str, str] = {giver: giver}
        queue = deque([giver])
        while queue:
            member_id = queue.popleft()
            near = [m for m in self._neighbours(member_id) if m not in came and m not in hopeless]
            came.update(dict.fromkeys(near, member_id))
            ends = [m for m in near if len(self.shares[m]) <= goal]
            if ends:
                return self._steps(came, giver, min(ends, key=self._rank))
            queue.extend(near)
        hopeless.update(came)
        return []

    def _neighbours(self, member_id: str) -> Iterable[str]:
        """Who could take something of this member's share, the smallest shares first."""
        topics = [topic for topic, held in self.held[member_id].items() if held]
        takers = {taker for topic in topics for taker in self.takers[topic]}
        return sorted(takers, key=self._rank)

    def _steps(
        self, came: Mapping[str, str], giver: str, end: str
    ) -> list[tuple[tuple[TopicPartition, str], str]]:
        steps: list[tuple[tuple[TopicPartition, str], str]] = []
        target = end
        while target != giver:
            source = came[target]
            steps.append(((self._movable(source, target), source), target))
            target = source
        return steps

    def _movable(self, source: str, target: str) -> TopicPartition:
        """Which partition to pass on: rather one that moves already than one its owner keeps."""
        wanted, owned = self.members[target].topics, self.members[source].owned
        back = self.members[target].owned
        return max(
            (p for topic in wanted for p in self.held[source][topic]),
            key=lambda p: (p in back, p not in owned, p),
        )
