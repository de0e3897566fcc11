"""Conformance check of assignors: random groups, found and shrunk by hypothesis."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from kafka_async.foundation.arguments import missing_extra
from kafka_async.group.assignors import (
    Assignor,
    GroupAssignment,
    MemberSubscription,
    RebalanceProtocol,
    TopicPartitions,
)
from kafka_async.group.consumer_protocol import decode_assignment, encode_assignment
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from hypothesis import strategies as st

MAX_REBALANCES: Final = 10
"""Rebalances after which a cooperative group must come to rest."""

_TOPICS: Final = ("a", "b", "c")
_RACKS: Final = ("rack-1", "rack-2")
_NAMES: Final = tuple(f"member-{letter}" for letter in "uvwxyz")


def check_assignor(
    assignor: Assignor | type[Assignor] | Callable[[], Assignor],
    examples: int = 1000,
    *,
    owners: int = 1,
) -> None:
    """Check that an assignor keeps the rules of groups, with random groups.

    The groups have up to 6 members with equal or different subscriptions, static members, racks,
    topics that do not exist, and up to 3 topics with up to 6 partitions. Members join and leave and
    partitions are added between rebalances. Rules:

    - Each existing subscribed partition is assigned to `owners` subscribers, or to all if there are
    fewer, and to no other member. - One of the owners commits the partition's offset.
    - A cooperative assignor assigns no partition that another member owns, and its
      group comes to rest.
    - The same group gets the same assignment again, and the arguments of `assign` are not changed.
    - User data are bytes or None.

    Needs hypothesis, which the extra `testing` installs.

    Args:
        assignor: An assignor class, a function that returns an assignor, or an assignor, which is
            copied (`copy.deepcopy`) for each member.
        examples: Number of random groups.
        owners: Number of members per partition (default: 1).

    Raises:
        AssertionError: A rule is broken; the message contains the smallest group found.
        ImportError: hypothesis is not installed.
    """
    try:
        import hypothesis
    except ImportError as error:
        raise ImportError(missing_extra("check_assignor", "testing")) from error

    def make() -> Assignor:
        if isinstance(assignor, Assignor) and not isinstance(assignor, type):
            return copy.deepcopy(assignor)
        return assignor()

    def check(history: list[_Change]) -> None:
        group = _Group(make, owners)
        for change in history:
            group.apply(change)
            group.settle()

    # Without the phase "explain": it traces each line, which takes ten times as long, and its
    # result is not in the message.
    phases = [phase for phase in hypothesis.Phase if phase is not hypothesis.Phase.explain]
    hypothesis.settings(
        max_examples=examples,
        phases=phases,
        deadline=None,
        database=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )(hypothesis.given(_histories())(check))()


@dataclass(frozen=True)
class _Change:
    """The topics and the members of a group after a change."""

    counts: Mapping[str, int]
    racks: tuple[frozenset[str], ...]
    members: Mapping[str, MemberSubscription]

    def topics(self) -> TopicPartitions:
        """Return the topics; a partition's racks depend on its number."""
        racks = {
            TopicPartition(topic, n): self.racks[n % len(self.racks)]
            for topic, count in self.counts.items()
            for n in range(count if self.racks else 0)
        }
        return TopicPartitions(dict(self.counts), racks)


def _histories() -> st.SearchStrategy[list[_Change]]:
    from hypothesis import strategies as st

    topics = st.sampled_from(_TOPICS)
    subscribed = st.frozensets(topics) | st.just(frozenset(_TOPICS))
    member = st.builds(MemberSubscription, subscribed, rack_id=st.sampled_from((None, *_RACKS)))
    members = st.dictionaries(st.sampled_from(_NAMES), member, min_size=1)
    static = members.map(
        lambda rows: {
            m: replace(row, group_instance_id=f"static-{m}" if m < _NAMES[2] else None)
            for m, row in rows.items()
        }
    )
    racks = st.lists(st.frozensets(st.sampled_from(_RACKS), min_size=1), max_size=3).map(tuple)
    change = st.builds(_Change, st.dictionaries(topics, st.integers(1, 6)), racks, members | static)
    return st.lists(change, min_size=1, max_size=3)


class _Group:
    """A group of members, each with its own assignor, that follows the rebalance protocol."""

    def __init__(self, make: Callable[[], Assignor], owners: int) -> None:
        self._make = make
        self._owners = owners
        self._generation = 0
        self._assignors: dict[str, Assignor] = {}
        self._members: dict[str, MemberSubscription] = {}
        self._topics = TopicPartitions({})

    def apply(self, change: _Change) -> None:
        """Change topics and members; partitions are only added."""
        counts = {
            topic: max(self._topics.get(topic, 0), change.counts.get(topic, 0))
            for topic in {*self._topics, *change.counts}
        }
        self._topics = replace(change, counts=counts).topics()
        self._assignors = {m: self._assignors.get(m) or self._make() for m in change.members}
        members: dict[str, MemberSubscription] = {}
        for member_id, member in change.members.items():
            before = self._members.get(member_id)
            owned = () if before is None else before.owned
            members[member_id] = replace(
                member,
                owned=frozenset(p for p in owned if p.topic in member.topics),
                generation=-1 if before is None else before.generation,
            )
        self._members = members

    def settle(self) -> None:
        """Rebalance until no member has to revoke a partition."""
        for _ in range(MAX_REBALANCES):
            if self._rebalance():
                return
        raise AssertionError(
            f"members still revoke partitions after {MAX_REBALANCES} rebalances of "
            f"{self._members} with {self._topics}"
        )

    def _rebalance(self) -> bool:
        """Rebalance once and check the result; return True if no member revoked a partition."""
        any_assignor = next(iter(self._assignors.values()))
        cooperative = RebalanceProtocol.COOPERATIVE in any_assignor.rebalance_protocols
        joined = {
            m: replace(
                member,
                owned=member.owned if cooperative else frozenset(),
                user_data=_bytes(self._assignors[m].user_data(sorted(member.topics))),
                version=self._assignors[m].version,
                reads_errors=self._assignors[m].reads_errors,
            )
            for m, member in self._members.items()
        }
        leader = self._assignors[min(self._assignors)]
        found = self._assign(leader, joined)
        assigned = self._read(found, joined)
        self._check(assigned, joined)
        self._generation += 1
        for member_id, partitions in assigned.items():
            user_data = found.user_data.get(member_id)
            self._assignors[member_id].on_assignment(partitions, user_data, self._generation)
        complete = all(assigned[m] >= member.owned for m, member in joined.items())
        if complete:
            self._check_complete(assigned, joined)
        self._members = {
            m: replace(member, owned=assigned[m], generation=self._generation)
            for m, member in self._members.items()
        }
        return complete

    def _assign(
        self, leader: Assignor, joined: Mapping[str, MemberSubscription]
    ) -> GroupAssignment:
        again = copy.deepcopy(leader)
        arguments = (self._topics, dict(joined))
        found = GroupAssignment.of(leader.assign(*arguments))
        assert arguments == (self._topics, joined), "assign changes its arguments"
        second = GroupAssignment.of(again.assign(self._topics, dict(joined)))
        rows = {m: sorted(partitions) for m, partitions in found.partitions.items()}
        same = {m: sorted(partitions) for m, partitions in second.partitions.items()}
        assert rows == same, f"{joined} with {self._topics} gets {rows}, and then {same}"
        return found

    def _read(
        self, found: GroupAssignment, joined: Mapping[str, MemberSubscription]
    ) -> dict[str, frozenset[TopicPartition]]:
        """Return each member's partitions as it decodes them."""
        strangers = {*found.partitions, *found.user_data} - joined.keys()
        assert not strangers, f"{sorted(strangers)} are no members: {joined}"
        assigned: dict[str, frozenset[TopicPartition]] = {}
        for member_id in joined:
            partitions = list(found.partitions.get(member_id, ()))
            assert len(partitions) == len(set(partitions)), f"twice to {member_id}: {partitions}"
            data = _bytes(found.user_data.get(member_id))
            received = decode_assignment(encode_assignment(partitions, data))
            assert received == (frozenset(partitions), data, None, None)
            assigned[member_id] = received.partitions
        return assigned

    def _check(
        self,
        assigned: Mapping[str, frozenset[TopicPartition]],
        joined: Mapping[str, MemberSubscription],
    ) -> None:
        claims: defaultdict[TopicPartition, set[str]] = defaultdict(set)
        for member_id, member in joined.items():
            for partition in member.owned:
                claims[partition].add(member_id)
        for member_id, partitions in assigned.items():
            for partition in partitions:
                problem = None
                if not 0 <= partition.partition < self._topics.get(partition.topic, 0):
                    problem = "the partition does not exist"
                elif partition.topic not in joined[member_id].topics:
                    problem = "the member does not subscribe to the topic"
                elif self._owners == 1 and not claims[partition] <= {member_id}:
                    problem = "another member has not revoked the partition yet"
                if problem is not None:
                    raise AssertionError(
                        f"{problem}: {partition} to {member_id} of {joined} with {self._topics}"
                    )

    def _check_complete(
        self,
        assigned: Mapping[str, frozenset[TopicPartition]],
        joined: Mapping[str, MemberSubscription],
    ) -> None:
        for topic, count in self._topics.items():
            subscribers = [m for m, member in joined.items() if topic in member.topics]
            wanted = min(self._owners, len(subscribers))
            for partition in (TopicPartition(topic, number) for number in range(count)):
                having = [m for m, partitions in assigned.items() if partition in partitions]
                assert len(having) == wanted, (
                    f"{len(having)} owners, not {wanted}: {partition} of {joined} with "
                    f"{self._topics}"
                )
                committers = [m for m in having if self._assignors[m].commits(partition)]
                assert len(committers) == min(1, wanted), (
                    f"{committers} commit {partition} of {joined} with {self._topics}"
                )


def _bytes(data: Any) -> bytes | None:
    assert data is None or isinstance(data, bytes), f"user data are {data!r}, not bytes or None"
    return data
