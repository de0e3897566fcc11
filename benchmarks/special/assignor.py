"""Assigns 5,000 partitions to 500 members: of a new group, and after a member has left.

Measures the CPU time of the leader, from the decoded subscriptions to the assignments of all
members, with all clients in one process in turn. Assignors are compared by kind: those that ignore
the previous assignment, and sticky ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

from benchmarks.special import metadata
from benchmarks.special.metadata import Shape
from benchmarks.special.results import Result, timed_result
from benchmarks.wire.timing import Case, Contender, measure_all
from kafka_async.group.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    MemberSubscription,
    RangeAssignor,
)
from kafka_async.types import TopicPartition

MEMBERS = 500
SHAPE = Shape(500, 10)
GENERATION: Final = 7

Partitions: TypeAlias = Mapping[str, Sequence[tuple[str, int]]]
Prepare: TypeAlias = Callable[[Sequence[str], Partitions], Any]


@dataclass(frozen=True)
class Strategy:
    """Assignor of a client; `assign` is measured, `prepare` makes its argument before."""

    name: str
    sticky: bool
    prepare: Prepare
    assign: Callable[[Any], Any]
    partitions: Callable[[Any], Partitions]


def strategies(shape: Shape) -> list[Strategy]:
    """Return all assignors, ours first of each kind."""
    return [
        _ours(shape, RangeAssignor(), sticky=False),
        _ours(shape, CooperativeStickyAssignor(), sticky=True),
        *_kafka_python(shape),
        *_aiokafka(shape),
    ]


def _ours(shape: Shape, assignor: Assignor, *, sticky: bool) -> Strategy:
    counts = dict.fromkeys(shape.names, shape.partitions)

    def prepare(members: Sequence[str], previous: Partitions) -> dict[str, MemberSubscription]:
        return {
            member: MemberSubscription(
                frozenset(counts),
                frozenset(TopicPartition(*each) for each in previous.get(member, ())),
                GENERATION if previous else -1,
            )
            for member in members
        }

    return Strategy(
        f"kafka_async {assignor.name}",
        sticky,
        prepare,
        lambda members: assignor.assign(counts, members),
        lambda made: made,
    )


def _kafka_python(shape: Shape) -> list[Strategy]:
    protocol = import_module("kafka.protocol.consumer.metadata")
    subscription: Any = protocol.ConsumerProtocolSubscription

    def prepare(members: Sequence[str], previous: Partitions) -> list[Any]:
        return [
            SimpleNamespace(
                member_id=member,
                group_instance_id=None,
                metadata=subscription(
                    version=2,
                    topics=shape.names,
                    user_data=b"",
                    owned_partitions=[
                        subscription.TopicPartition(topic=topic, partitions=numbers)
                        for topic, numbers in _by_topic(previous.get(member, ()))
                    ],
                    generation_id=GENERATION if previous else -1,
                ),
            )
            for member in members
        ]

    sticky = "cooperative_sticky.CooperativeStickyAssignor"
    return _peers(metadata.kafka_python(), "kafka", sticky, shape, prepare)


def _aiokafka(shape: Shape) -> list[Strategy]:
    assignor = import_module("aiokafka.coordinator.assignors.sticky.sticky_assignor")
    user_data: Any = assignor.StickyAssignorUserDataV1
    protocol = import_module("aiokafka.coordinator.protocol")
    subscription: Any = protocol.ConsumerProtocolMemberMetadata

    def prepare(members: Sequence[str], previous: Partitions) -> dict[str, Any]:
        return {
            member: subscription(
                0,
                shape.names,
                user_data(_by_topic(previous[member]), GENERATION).encode()
                if member in previous
                else b"",
            )
            for member in members
        }

    sticky = "sticky.sticky_assignor.StickyPartitionAssignor"
    return _peers(metadata.aiokafka(), "aiokafka", sticky, shape, prepare)


def _peers(
    client: metadata.Client, package: str, sticky: str, shape: Shape, prepare: Prepare
) -> list[Strategy]:
    """Return the assignors of a client; the last one is sticky."""
    table = client.table(shape)
    found: list[Strategy] = []
    for path in ("range.RangePartitionAssignor", "roundrobin.RoundRobinPartitionAssignor", sticky):
        module, _, name = path.rpartition(".")
        assignor: Any = getattr(import_module(f"{package}.coordinator.assignors.{module}"), name)()
        found.append(
            Strategy(
                f"{client.name} {assignor.name}",
                path == sticky,
                prepare,
                partial(assignor.assign, table),
                _peer_partitions,
            )
        )
    return found


def _peer_partitions(assignments: Mapping[str, Any]) -> Partitions:
    return {
        member: [(topic, number) for topic, numbers in each.assignment for number in numbers]
        for member, each in assignments.items()
    }


def _by_topic(partitions: Sequence[tuple[str, int]]) -> list[tuple[str, list[int]]]:
    found: dict[str, list[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, []).append(number)
    return list(found.items())


def is_valid(assignment: Partitions, shape: Shape, members: Sequence[str], *, even: bool) -> bool:
    """Return True if each partition has one owner, and, if `even`, the assignment is balanced."""
    owners = Counter(each for share in assignment.values() for each in share)
    sizes = [len(share) for share in assignment.values()]
    return (
        sorted(assignment) == sorted(members)
        and owners == Counter(shape.leaders().keys())
        and (not even or max(sizes) - min(sizes) <= 1)
    )


def cases(shape: Shape, count: int) -> list[Case]:
    """Return the cases for each kind: a new group, and a member that has left."""
    members = [f"billing-{number:04}" for number in range(count)]
    found: list[Case] = []
    for kind, sticky in (("afresh", False), ("sticky", True)):
        mine = [each for each in strategies(shape) if each.sticky == sticky]
        assignment = mine[0].partitions(mine[0].assign(mine[0].prepare(members, {})))
        for title, present, previous in (
            ("new group", members, {}),
            ("one leaves", members[1:], {name: assignment[name] for name in members[1:]}),
        ):
            contenders = tuple(_contender(each, shape, present, previous) for each in mine)
            found.append(Case(f"{kind}, {title}", contenders))
    return found


def _contender(
    each: Strategy, shape: Shape, members: Sequence[str], previous: Partitions
) -> Contender:
    prepared = each.prepare(members, previous if each.sticky else {})
    return Contender(
        each.name,
        lambda: each.assign(prepared),
        lambda made: is_valid(each.partitions(made), shape, members, even=each.sticky),
    )


def measure(bootstrap: str, rounds: int) -> Result:
    """Measure the CPU milliseconds of an assignment; needs no broker."""
    return timed_result(
        "assignor",
        f"{MEMBERS} members share {SHAPE} out, CPU time",
        " of the same kind, of the same round; median of the rounds",
        measure_all(cases(SHAPE, MEMBERS), rounds),
        limit=1,
    )
