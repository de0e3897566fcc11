"""Assigns 5,000 partitions to 500 members: of a new group, and after a member has left.

Measures the CPU time of the leader, from the decoded subscriptions to the assignments of all
members, with all clients in one process in turn. Assignors are compared by kind: those that ignore
the previous assignment, and sticky ones.
"""

from __future__ import annotations

import importlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeAlias

from benchmarks.special import metadata
from benchmarks.special.results import Result, milliseconds, ratio_goal
from benchmarks.wire_cases import Case, Contender
from benchmarks.wire_cases import measure as measure_case
from kafka_async.group.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    MemberSubscription,
    RangeAssignor,
)
from kafka_async.types import TopicPartition

NEEDS_BROKERS = 0
MEMBERS = 500
SHAPE = metadata.Shape(500, 10)
GENERATION = 7
_KAFKA_PYTHON = {"range": "RangePartitionAssignor", "roundrobin": "RoundRobinPartitionAssignor"}

Partitions: TypeAlias = Mapping[str, Sequence[tuple[str, int]]]


@dataclass(frozen=True)
class Strategy:
    """Assignor of a client.

    Attributes:
        name: the client and the name of the assignor.
        sticky: uses the previous assignment, and balances.
        prepare: makes the argument of `assign` from the members and their previous partitions.
        assign: the function to measure.
        partitions: converts the result of `assign` to the partitions of each member.
    """

    name: str
    sticky: bool
    prepare: Callable[[Sequence[str], Partitions], Any]
    assign: Callable[[Any], Any]
    partitions: Callable[[Any], Partitions]


def strategies(shape: metadata.Shape) -> list[Strategy]:
    """Return all assignors, ours first of each kind."""
    return [
        _ours(RangeAssignor(), shape, sticky=False),
        *_kafka_python(shape, sticky=False),
        *_aiokafka(shape, sticky=False),
        _ours(CooperativeStickyAssignor(), shape, sticky=True),
        *_kafka_python(shape, sticky=True),
        *_aiokafka(shape, sticky=True),
    ]


def _ours(assignor: Assignor, shape: metadata.Shape, *, sticky: bool) -> Strategy:
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
        lambda assignment: assignment,
    )


def _kafka_python(shape: metadata.Shape, *, sticky: bool) -> list[Strategy]:
    from kafka.protocol.consumer.metadata import (  # pyright: ignore[reportMissingTypeStubs]
        ConsumerProtocolSubscription,
    )

    subscription: Any = ConsumerProtocolSubscription
    cluster = _table("kafka-python", shape)

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
                        for topic, numbers in _by_topic(previous.get(member, ())).items()
                    ],
                    generation_id=GENERATION if previous else -1,
                ),
            )
            for member in members
        ]

    names = {"cooperative_sticky": "CooperativeStickyAssignor"} if sticky else _KAFKA_PYTHON
    home = "kafka.coordinator.assignors"
    assignors: list[Any] = [
        getattr(importlib.import_module(f"{home}.{module}"), name)()
        for module, name in names.items()
    ]
    return [
        Strategy(
            f"kafka-python {each.name}", sticky, prepare, _call(each, cluster), _peer_partitions
        )
        for each in assignors
    ]


def _aiokafka(shape: metadata.Shape, *, sticky: bool) -> list[Strategy]:
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import (
        StickyAssignorUserDataV1,
        StickyPartitionAssignor,
    )
    from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata

    subscription: Any = ConsumerProtocolMemberMetadata
    user_data: Any = StickyAssignorUserDataV1
    cluster = _table("aiokafka", shape)

    def prepare(members: Sequence[str], previous: Partitions) -> dict[str, Any]:
        return {
            member: subscription(
                0,
                shape.names,
                user_data(list(_by_topic(previous[member]).items()), GENERATION).encode()
                if member in previous
                else b"",
            )
            for member in members
        }

    eager = [RangePartitionAssignor, RoundRobinPartitionAssignor]
    assignors: list[Any] = [StickyPartitionAssignor] if sticky else eager
    return [
        Strategy(f"aiokafka {each.name}", sticky, prepare, _call(each, cluster), _peer_partitions)
        for each in assignors
    ]


def _table(client: str, shape: metadata.Shape) -> Any:
    [found] = [each for each in metadata.clients() if each.name == client]
    return found.update(metadata.encode_response(shape, found.version), None)


def _call(assignor: Any, cluster: Any) -> Callable[[Any], Any]:
    return lambda members: assignor.assign(cluster, members)


def _peer_partitions(assignments: Mapping[str, Any]) -> Partitions:
    return {
        member: [(topic, number) for topic, numbers in each.assignment for number in numbers]
        for member, each in assignments.items()
    }


def _by_topic(share: Sequence[tuple[str, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in share:
        found.setdefault(topic, []).append(number)
    return found


def is_valid(
    assignment: Partitions, shape: metadata.Shape, members: Sequence[str], *, even: bool
) -> bool:
    """Return True if each partition has one owner, and, if `even`, the assignment is balanced."""
    owners = Counter(each for share in assignment.values() for each in share)
    sizes = [len(share) for share in assignment.values()]
    return (
        sorted(assignment) == sorted(members)
        and owners == Counter(shape.leaders().keys())
        and (not even or max(sizes) - min(sizes) <= 1)
    )


def cases(shape: metadata.Shape, count: int) -> list[Case]:
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
    each: Strategy, shape: metadata.Shape, members: Sequence[str], previous: Partitions
) -> Contender:
    prepared = each.prepare(members, previous if each.sticky else {})
    return Contender(
        each.name,
        lambda: each.assign(prepared),
        lambda made: is_valid(each.partitions(made), shape, members, even=each.sticky),
    )


def measure(bootstrap: str | None, rounds: int) -> dict[str, Any]:
    """Measure the CPU milliseconds of an assignment; needs no broker.

    Raises:
        WrongResultError: a partition does not have one owner, or a sticky assignment is unbalanced.
    """
    rows = [
        row
        for case in cases(SHAPE, MEMBERS)
        for row in measure_case(case, rounds, time.process_time)
    ]
    return Result(
        "assignor",
        f"{MEMBERS} members share {SHAPE} out, CPU time",
        "the client's time in ours of the same kind, of the same round; median of the rounds",
        milliseconds(rows),
        (ratio_goal(rows, 1),),
    ).plain()
