"""500 members share 5,000 partitions out: a new group, and then one member leaves.

What is timed is the leader's work between the members' subscriptions, decoded, and everybody's
share. CPU time, all clients in one process in turn. The strategies are compared by kind: those that
share out afresh, and the sticky ones, which also know who had what.
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

Shares: TypeAlias = Mapping[str, Sequence[tuple[str, int]]]


@dataclass(frozen=True)
class Strategy:
    """One client's assignor.

    Attributes:
        name: whose it is, and its own name.
        sticky: whether it knows who had what, and balances.
        prepare: what `assign` needs, made of the members and of what each had.
        assign: what is timed.
        shares: everybody's share, read from what `assign` gave.
    """

    name: str
    sticky: bool
    prepare: Callable[[Sequence[str], Shares], Any]
    assign: Callable[[Any], Any]
    shares: Callable[[Any], Shares]


def strategies(shape: metadata.Shape) -> list[Strategy]:
    """All of them; ours first of each kind."""
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

    def prepare(members: Sequence[str], had: Shares) -> dict[str, MemberSubscription]:
        return {
            member: MemberSubscription(
                frozenset(counts),
                frozenset(TopicPartition(*each) for each in had.get(member, ())),
                GENERATION if had else -1,
            )
            for member in members
        }

    return Strategy(
        f"kafka_async {assignor.name}",
        sticky,
        prepare,
        lambda members: assignor.assign(counts, members),
        lambda shares: shares,
    )


def _kafka_python(shape: metadata.Shape, *, sticky: bool) -> list[Strategy]:
    from kafka.protocol.consumer.metadata import (  # pyright: ignore[reportMissingTypeStubs]
        ConsumerProtocolSubscription,
    )

    subscription: Any = ConsumerProtocolSubscription
    cluster = _table("kafka-python", shape)

    def prepare(members: Sequence[str], had: Shares) -> list[Any]:
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
                        for topic, numbers in _by_topic(had.get(member, ())).items()
                    ],
                    generation_id=GENERATION if had else -1,
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
        Strategy(f"kafka-python {each.name}", sticky, prepare, _call(each, cluster), _peer_shares)
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

    def prepare(members: Sequence[str], had: Shares) -> dict[str, Any]:
        return {
            member: subscription(
                0,
                shape.names,
                user_data(list(_by_topic(had[member]).items()), GENERATION).encode()
                if member in had
                else b"",
            )
            for member in members
        }

    afresh = [RangePartitionAssignor, RoundRobinPartitionAssignor]
    assignors: list[Any] = [StickyPartitionAssignor] if sticky else afresh
    return [
        Strategy(f"aiokafka {each.name}", sticky, prepare, _call(each, cluster), _peer_shares)
        for each in assignors
    ]


def _table(client: str, shape: metadata.Shape) -> Any:
    [found] = [each for each in metadata.clients() if each.name == client]
    return found.take(metadata.answer(shape, found.version), None)


def _call(assignor: Any, cluster: Any) -> Callable[[Any], Any]:
    return lambda members: assignor.assign(cluster, members)


def _peer_shares(assignments: Mapping[str, Any]) -> Shares:
    return {
        member: [(topic, number) for topic, numbers in each.assignment for number in numbers]
        for member, each in assignments.items()
    }


def _by_topic(share: Sequence[tuple[str, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in share:
        found.setdefault(topic, []).append(number)
    return found


def right(shares: Shares, shape: metadata.Shape, members: Sequence[str], *, even: bool) -> bool:
    """Whether each partition has exactly one owner, and nobody two more than another if `even`."""
    given = Counter(each for share in shares.values() for each in share)
    sizes = [len(share) for share in shares.values()]
    return (
        sorted(shares) == sorted(members)
        and given == Counter(shape.leaders().keys())
        and (not even or max(sizes) - min(sizes) <= 1)
    )


def cases(shape: metadata.Shape, count: int) -> list[Case]:
    """A new group and a member that leaves, of each kind."""
    members = [f"billing-{number:04}" for number in range(count)]
    found: list[Case] = []
    for kind, sticky in (("afresh", False), ("sticky", True)):
        mine = [each for each in strategies(shape) if each.sticky == sticky]
        shares = mine[0].shares(mine[0].assign(mine[0].prepare(members, {})))
        for title, present, had in (
            ("new group", members, {}),
            ("one leaves", members[1:], {name: shares[name] for name in members[1:]}),
        ):
            contenders = tuple(_contender(each, shape, present, had) for each in mine)
            found.append(Case(f"{kind}, {title}", contenders))
    return found


def _contender(
    each: Strategy, shape: metadata.Shape, members: Sequence[str], had: Shares
) -> Contender:
    prepared = each.prepare(members, had if each.sticky else {})
    return Contender(
        each.name,
        lambda: each.assign(prepared),
        lambda made: right(each.shares(made), shape, members, even=each.sticky),
    )


def measure(bootstrap: str | None, rounds: int) -> dict[str, Any]:
    """CPU milliseconds an assignment; needs no broker.

    Raises:
        WrongResultError: a partition has no owner or two, or sticky shares are not even.
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
