"""Compares assignments with Kafka's assignors, for random groups.

Each assignor gets 5 groups per count with racks and 5 without. `range` and `roundrobin` must assign
the same partitions as Java's. `sticky` and `cooperative-sticky` start from a former assignment
of a group that has changed since. They must be at least as balanced as Java's: members with equal
subscriptions have the same numbers of partitions, and for others the numbers are equal or closer
together. With the same numbers, at most as many partitions are outside their member's rack, and
with as many outside, at most as many move. With racks, Java's cooperative group may revoke
partitions in every rebalance without an end; such groups are counted.

The user data of both sticky assignors have the same bytes.
"""

from __future__ import annotations

import random
from base64 import b64decode
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from kafka_async.group.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    MemberSubscription,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    TopicPartitions,
)
from kafka_async.group.assignors.abc import uses_racks
from kafka_async.group.assignors.cooperative_sticky import balanced
from kafka_async.group.assignors.sticky import encode_owned
from kafka_async.types import TopicPartition
from tools.conformance.java import JavaProcess
from tools.conformance.parts import PartResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tools.conformance.java import Query
    from tools.conformance.parts import Options

GROUPS_PER_COUNT: Final = 5
TOPICS: Final = ("a", "b", "c", "d", "e")
RACKS: Final = ("r1", "r2", "r3")

ASSIGNORS: Final[dict[str, type[Assignor]]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
Owned = dict[str, frozenset[TopicPartition]]


@dataclass(frozen=True)
class Group:
    """A group with the topics that it reads."""

    topics: TopicPartitions
    members: dict[str, MemberSubscription]

    def owning(self, owned: Mapping[str, Iterable[TopicPartition]], generation: int) -> Group:
        """Return the group whose members own partitions."""
        return Group(
            self.topics,
            {
                m: replace(member, owned=frozenset(owned.get(m, ())), generation=generation)
                for m, member in self.members.items()
            },
        )

    def query(self, assignor: str) -> Query:
        """Return the query that lets Java assign."""
        return {
            "operation": "assign_group",
            "assignor": assignor,
            "topics": {
                topic: [sorted(self.topics.racks(TopicPartition(topic, n))) for n in range(count)]
                for topic, count in self.topics.items()
            },
            "members": {
                member_id: {
                    "topics": sorted(member.topics),
                    "owned": sorted(member.owned),
                    "generation": member.generation,
                    "rack": member.rack_id,
                    "instance": member.group_instance_id,
                    "user_data": member.user_data,
                }
                for member_id, member in self.members.items()
            },
        }


def run(options: Options) -> PartResult:
    """Compare the assignments of random groups, and the user data of sticky assignors."""
    result = PartResult()
    summaries: list[str] = []
    with JavaProcess() as java:
        for name in ASSIGNORS:
            if not options.selects(name, 0):
                continue
            chosen = random.Random(f"{options.seed} {name}")
            if name in {"range", "roundrobin"}:
                summaries.append(_compare_equal(java, options, result, name, chosen))
            else:
                summaries.append(_compare_sticky(java, options, result, name, chosen))
                _compare_user_data(java, options, result, name, chosen)
    result.summary = ", ".join(summaries)
    return result


def _groups(options: Options, chosen: random.Random) -> Iterator[Group]:
    for number in range(2 * GROUPS_PER_COUNT * options.count):
        yield random_group(chosen, racks=number % 2 == 1)


def random_group(chosen: random.Random, *, racks: bool) -> Group:
    """Return a group with up to 5 topics and 8 members; half of all groups have equal members."""
    topics: list[str] = chosen.sample(TOPICS, chosen.randint(1, len(TOPICS)))
    most = chosen.choice((3, 12))
    counts = {t: chosen.randint(1, most) for t in topics if chosen.random() < 0.95}
    if chosen.random() < 0.3:
        counts = dict.fromkeys(counts, chosen.randint(1, most))
    by_partition = {
        TopicPartition(t, n): frozenset(chosen.sample(RACKS, chosen.choice((1, 1, 2, 3))))
        for t, count in counts.items()
        for n in range(count if racks else 0)
    }
    return Group(
        TopicPartitions(counts, by_partition),
        random_members(chosen, topics, chosen.randint(1, 8), racks=racks),
    )


def random_members(
    chosen: random.Random, topics: list[str], count: int, *, racks: bool
) -> dict[str, MemberSubscription]:
    """Return members that subscribe to the same topics, or to some of them."""
    equal, static = chosen.random() < 0.5, chosen.random() < 0.3
    members: dict[str, MemberSubscription] = {}
    for number in chosen.sample(range(100), count):
        subscribed = topics if equal else chosen.sample(topics, chosen.randint(1, len(topics)))
        members[f"member-{number:02}"] = MemberSubscription(
            frozenset(subscribed),
            rack_id=chosen.choice((*RACKS, None, "r4")) if racks else None,
            group_instance_id=f"static-{99 - number:02}"
            if static and chosen.random() < 0.7
            else None,
        )
    return members


def _compare_equal(
    java: JavaProcess, options: Options, result: PartResult, name: str, chosen: random.Random
) -> str:
    groups = ((group, group.query(name)) for group in _groups(options, chosen))
    count = 0
    for group, theirs in java.results(groups):
        count += 1
        ours = ASSIGNORS[name]().assign(group.topics, group.members)
        assert isinstance(ours, dict)
        if {m: frozenset(assigned) for m, assigned in ours.items()} != _read(theirs):
            what = f"of {group}: {ours}, Java has {theirs}"
            result.add_difference(options, name, what)
    return f"{count:,} groups by {name}"


def _read(rows: Mapping[str, list[list[Any]]]) -> Owned:
    return {m: frozenset(TopicPartition(*row) for row in of) for m, of in rows.items()}


# -- sticky assignors -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Quality:
    """Properties of an assignment: numbers of partitions, outside their racks, and moved."""

    sizes: tuple[int, ...]
    outside: int
    moved: int


def quality(group: Group, assigned: Owned) -> Quality:
    """Return the properties of an assignment of a group whose members own partitions."""
    racks = [group.topics.racks(p) for assigned_to in assigned.values() for p in assigned_to]
    in_racks = uses_racks(racks, [m.rack_id for m in group.members.values() if m.rack_id])
    outside = in_racks * sum(
        member.rack_id not in group.topics.racks(partition)
        for m, member in group.members.items()
        if member.rack_id
        for partition in assigned[m]
    )
    moved = sum(
        len({p for p in member.owned if _may_keep(group, member, p)} - assigned[m])
        for m, member in group.members.items()
    )
    return Quality(tuple(sorted(map(len, assigned.values()))), outside, moved)


def _may_keep(group: Group, member: MemberSubscription, partition: TopicPartition) -> bool:
    exists = partition.partition < group.topics.get(partition.topic, 0)
    return exists and partition.topic in member.topics


def problem(group: Group, ours: Quality, theirs: Quality) -> str | None:
    """Return in which respect our assignment is worse than Java's; None if in none."""
    if ours.sizes != theirs.sizes:
        equal = len({member.topics for member in group.members.values()}) == 1
        closer = sum(n * n for n in ours.sizes) < sum(n * n for n in theirs.sizes)
        return "the numbers of partitions differ" if equal or not closer else None
    if ours.outside != theirs.outside:
        return "more partitions are outside" if ours.outside > theirs.outside else None
    return "more partitions move" if ours.moved > theirs.moved else None


def changed_group(chosen: random.Random, *, racks: bool) -> Group:
    """Return a group that has changed since its former assignment, which its members own."""
    before = random_group(chosen, racks=racks)
    owned = balanced(before.topics, before.members)
    topics = list(before.topics) or [TOPICS[0]]
    stay = [m for m in before.members if chosen.random() < 0.8]
    members = {m: before.members[m] for m in stay}
    if chosen.random() < 0.3:
        members = {
            m: replace(
                member, topics=frozenset(chosen.sample(topics, chosen.randint(1, len(topics))))
            )
            for m, member in members.items()
        }
    newcomers = random_members(chosen, topics, chosen.randint(0 if stay else 1, 3), racks=racks)
    if chosen.random() < 0.5 and members:
        kind = next(iter(members.values())).topics
        newcomers = {m: replace(member, topics=kind) for m, member in newcomers.items()}
    members = {**newcomers, **members}
    counts = {
        t: max(1, count + chosen.choice((0, 0, 0, 1, 5))) for t, count in before.topics.items()
    }
    by_partition = {
        partition: before.topics.racks(partition)
        or frozenset(chosen.sample(RACKS, chosen.choice((1, 2, 3))))
        for t, count in counts.items()
        for partition in (TopicPartition(t, n) for n in range(count if racks else 0))
    }
    return Group(TopicPartitions(counts, by_partition), members).owning(owned, 5)


def _compare_sticky(
    java: JavaProcess, options: Options, result: PartResult, name: str, chosen: random.Random
) -> str:
    count, unsettled = 2 * GROUPS_PER_COUNT * options.count, 0
    for number in range(count):
        group = changed_group(chosen, racks=number % 2 == 1)
        ours, theirs = _settle_ours(group, name), _settle_java(java, group, name)
        if theirs is None:
            unsettled += 1
            continue
        what = problem(group, quality(group, ours), quality(group, theirs))
        if what is not None:
            text = f"of {group}: {what}: {ours}, Java has {theirs}"
            result.add_difference(options, name, text)
    settled = f", {unsettled:,} of which do not come to rest in Java" if unsettled else ""
    return f"{count:,} groups by {name}{settled}"


def _with_user_data(group: Group, name: str) -> Group:
    """Return the members as they join: eager ones own nothing but what their user data say."""
    if name != StickyAssignor.name:
        return group
    return Group(
        group.topics,
        {
            m: replace(
                member,
                owned=frozenset(),
                generation=-1,
                user_data=encode_owned(member.owned, member.generation),
            )
            for m, member in group.members.items()
        },
    )


def _settle_ours(group: Group, name: str) -> Owned:
    """Return the assignment after the rebalances that moves need."""
    for generation in range(6, 12):
        joined = _with_user_data(group, name)
        assignments = ASSIGNORS[name]().assign(joined.topics, joined.members)
        assert isinstance(assignments, dict)
        assigned = {m: frozenset(partitions) for m, partitions in assignments.items()}
        if _is_settled(group, assigned, name):
            return assigned
        group = group.owning(assigned, generation)
    raise AssertionError(f"{name} does not settle: {group}")


def _settle_java(java: JavaProcess, group: Group, name: str) -> Owned | None:
    """Return Java's assignment; None if its members revoke partitions in every rebalance."""
    for generation in range(6, 12):
        joined = _with_user_data(group, name)
        query = joined.query(name)
        assigned = _read(java.call(query.pop("operation"), **query))
        if _is_settled(group, assigned, name):
            return assigned
        group = group.owning(assigned, generation)
    return None


def _is_settled(group: Group, assigned: Owned, name: str) -> bool:
    if name == StickyAssignor.name:
        return True
    return all(assigned[m] >= member.owned for m, member in group.members.items())


def _compare_user_data(
    java: JavaProcess, options: Options, result: PartResult, name: str, chosen: random.Random
) -> None:
    for _ in range(options.count):
        owned = sorted(
            {TopicPartition(chosen.choice(TOPICS), chosen.randrange(9)) for _ in range(6)}
        )
        generation = chosen.randrange(2**31)
        theirs = java.call("user_data", assignor=name, owned=owned, generation=generation)
        assignor = ASSIGNORS[name]()
        assignor.on_assignment(frozenset(owned), None, generation)
        ours = assignor.user_data(())
        if ours != b64decode(theirs):
            result.add_difference(options, name, f"of {owned}: user data {ours!r}, not {theirs}")
