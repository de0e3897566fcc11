"""Assignors, for any topics and members: complete, balanced and sticky assignments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.errors import InvalidConfigurationError
from kafka_async.group.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    MemberSubscription,
    RangeAssignor,
    RebalanceProtocol,
    create_assignors,
    rebalance_protocol,
)
from kafka_async.group.assignors.abc import subscribers_of
from kafka_async.group.assignors.cooperative_sticky import balanced
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafka_async.group.assignors.abc import Assignments, Members

TOPICS = ["a", "b", "c", "d"]
counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), min_size=1)
names = st.lists(st.text("mnopqr", min_size=1, max_size=4), min_size=1, max_size=6, unique=True)


def subscriptions(
    members: list[str], topics: st.SearchStrategy[frozenset[str]]
) -> st.SearchStrategy[dict[str, MemberSubscription]]:
    return st.fixed_dictionaries({m: st.builds(MemberSubscription, topics) for m in members})


differing = names.flatmap(
    lambda members: subscriptions(members, st.frozensets(st.sampled_from(TOPICS)))
)
uniform = names.map(lambda ms: {m: MemberSubscription(frozenset(TOPICS)) for m in ms})


def all_partitions(partitions: Mapping[str, int]) -> set[TopicPartition]:
    return {TopicPartition(t, n) for t, count in partitions.items() for n in range(count)}


def wanted(partitions: Mapping[str, int], members: Members) -> set[TopicPartition]:
    topics = frozenset[str]().union(*(member.topics for member in members.values()))
    return {p for p in all_partitions(partitions) if p.topic in topics}


def owning(
    members: Members, assignments: Mapping[str, Iterable[TopicPartition]], generation: int = 1
) -> dict[str, MemberSubscription]:
    """Return the members as they join again, owning what they were assigned."""
    return {
        m: MemberSubscription(
            member.topics,
            frozenset(assignments[m]),
            generation,
        )
        for m, member in members.items()
    }


def moved(
    before: Mapping[str, set[TopicPartition]], after: Mapping[str, set[TopicPartition]]
) -> int:
    return sum(len(assigned - after.get(m, set())) for m, assigned in before.items())


def rebalance_until_stable(
    assignor: Assignor, partitions: Mapping[str, int], members: Members
) -> Assignments:
    """Rebalance until no member has to revoke anything, as a cooperative group does."""
    for generation in range(1, 10):
        assignments = assignor.assign(partitions, members)
        if all(set(assignments[m]) >= member.owned for m, member in members.items()):
            return assignments
        members = owning(members, assignments, generation)
    raise AssertionError("the group does not come to rest")


@pytest.mark.parametrize("assignor", [RangeAssignor(), CooperativeStickyAssignor()])
@given(partitions=counts, members=differing)
def test_assigns_each_partition_to_one_subscriber(
    assignor: Assignor, partitions: dict[str, int], members: dict[str, MemberSubscription]
) -> None:
    assignments = assignor.assign(partitions, members)
    assert assignments.keys() == members.keys()
    all_assigned = [p for assigned in assignments.values() for p in assigned]
    assert len(all_assigned) == len(set(all_assigned))
    assert set(all_assigned) == wanted(partitions, members)
    assert all(
        p.topic in members[m].topics for m, assigned in assignments.items() for p in assigned
    )


@given(partitions=counts, members=differing)
def test_range_sizes_differ_by_one_per_topic(
    partitions: dict[str, int], members: dict[str, MemberSubscription]
) -> None:
    assignments = RangeAssignor().assign(partitions, members)
    for topic in partitions:
        runs = [
            [p.partition for p in assignments[m] if p.topic == topic]
            for m in sorted(members)
            if topic in members[m].topics
        ]
        assert all(run == list(range(run[0], run[0] + len(run))) for run in runs if run)
        assert not runs or max(map(len, runs)) - min(map(len, runs)) <= 1
        assert [n for run in runs for n in run] == sorted(n for run in runs for n in run)


def test_topics_with_same_subscribers_share_one_list() -> None:
    subscribed = {"a": ("x", "y"), "b": ("y", "x"), "c": ("y", "z")}
    members = {name: MemberSubscription(frozenset(topics)) for name, topics in subscribed.items()}
    found = subscribers_of(["x", "y", "z", "w", "v"], members)
    assert found == {"x": ["a", "b"], "y": ["a", "b", "c"], "z": ["c"], "w": [], "v": []}
    assert found["w"] is found["v"]


def test_range_assigns_equal_partition_numbers_together() -> None:
    members = {m: MemberSubscription(frozenset({"a", "b"})) for m in ("m1", "m2")}
    assignments = RangeAssignor().assign({"a": 3, "b": 3}, members)
    assert assignments == {
        "m1": [TopicPartition(t, n) for t in "ab" for n in (0, 1)],
        "m2": [TopicPartition("a", 2), TopicPartition("b", 2)],
    }


def test_range_orders_static_members_by_name_before_dynamic_ones() -> None:
    topics = frozenset({"a"})
    members = {
        "1-dynamic": MemberSubscription(topics),
        "2-static": MemberSubscription(topics, group_instance_id="z"),
        "3-static": MemberSubscription(topics, group_instance_id="y"),
    }
    assignments = RangeAssignor().assign({"a": 3}, members)
    assert [assignments[m][0].partition for m in members] == [2, 1, 0]


@given(partitions=counts, members=uniform)
def test_sticky_counts_of_equal_members_differ_by_one(
    partitions: dict[str, int], members: dict[str, MemberSubscription]
) -> None:
    sizes = [len(s) for s in CooperativeStickyAssignor().assign(partitions, members).values()]
    assert max(sizes) - min(sizes) <= 1


@given(partitions=counts, members=differing)
def test_sticky_leaves_no_improving_move(
    partitions: dict[str, int], members: dict[str, MemberSubscription]
) -> None:
    assignments = balanced(partitions, members)
    for giver, assigned in assignments.items():
        for receiver, member in members.items():
            if any(p.topic in member.topics for p in assigned):
                assert len(assignments[giver]) - len(assignments[receiver]) <= 1


@given(partitions=counts, members=differing)
def test_sticky_moves_nothing_without_changes(
    partitions: dict[str, int], members: dict[str, MemberSubscription]
) -> None:
    assignments = balanced(partitions, members)
    assert balanced(partitions, owning(members, assignments)) == assignments


@given(partitions=counts, members=uniform, data=st.data())
def test_sticky_moves_only_partitions_of_leaving_member(
    partitions: dict[str, int], members: dict[str, MemberSubscription], data: st.DataObject
) -> None:
    before = balanced(partitions, members)
    gone = data.draw(st.sampled_from(sorted(members)))
    left = {m: member for m, member in owning(members, before).items() if m != gone}
    after = balanced(partitions, left)
    assert moved({m: before[m] for m in left}, after) == 0


@given(partitions=counts, members=uniform)
def test_sticky_moves_minimum_to_new_member(
    partitions: dict[str, int], members: dict[str, MemberSubscription]
) -> None:
    before = balanced(partitions, members)
    after = balanced(
        partitions,
        {**owning(members, before), "newcomer": MemberSubscription(frozenset(TOPICS))},
    )
    assert moved(before, after) == len(after["newcomer"])


@given(partitions=counts, members=differing, newcomers=differing)
def test_cooperative_rebalances_converge_without_double_ownership(
    partitions: dict[str, int],
    members: dict[str, MemberSubscription],
    newcomers: dict[str, MemberSubscription],
) -> None:
    assignor = CooperativeStickyAssignor()
    before = assignor.assign(partitions, members)
    group = {**newcomers, **owning(members, before)}
    first = assignor.assign(partitions, group)
    owned = {p: m for m, assigned in before.items() for p in assigned}
    assert all(owned.get(p, m) == m for m, assigned in first.items() for p in assigned)
    final = rebalance_until_stable(assignor, partitions, group)
    assert {p for assigned in final.values() for p in assigned} == wanted(partitions, group)


def test_newer_generation_claim_wins() -> None:
    topics, p0 = frozenset({"a"}), TopicPartition("a", 0)
    members = {
        "old": MemberSubscription(topics, frozenset({p0}), generation=3),
        "new": MemberSubscription(topics, frozenset({p0}), generation=4),
    }
    assert balanced({"a": 1}, members) == {"old": set(), "new": {p0}}
    # ... but no member is assigned it until the one with the older claim has revoked it.
    assert CooperativeStickyAssignor().assign({"a": 1}, members) == {"old": [], "new": []}


def test_chains_balance_where_single_moves_cannot() -> None:
    """m1 subscribes to a, m2 to a and b, m3 to b: m1 passes one to m2, and m2 one to m3."""
    a, b = frozenset({"a"}), frozenset({"b"})
    first = {TopicPartition("a", n) for n in range(4)}
    second = {TopicPartition("b", n) for n in range(2)}
    members = {
        "m1": MemberSubscription(a, frozenset(first), 1),
        "m2": MemberSubscription(a | b, frozenset(second), 1),
        "m3": MemberSubscription(b, frozenset(), 1),
    }
    sizes = {m: len(assigned) for m, assigned in balanced({"a": 4, "b": 2}, members).items()}
    assert sizes == {"m1": 2, "m2": 2, "m3": 2}


# -- configuration --------------------------------------------------------------------------------


class CustomAssignor(Assignor):
    name = "mine"

    def assign(self, partitions: Mapping[str, int], members: Members) -> Assignments:
        return {m: [] for m in members}


def test_creates_assignors_by_name_class_or_object() -> None:
    mine = CustomAssignor()
    assert [a.name for a in create_assignors(["range", CooperativeStickyAssignor, mine])] == [
        "range",
        "cooperative-sticky",
        "mine",
    ]


@pytest.mark.parametrize(
    ("strategy", "words"),
    [(["round"], "'round' is neither"), (["range", RangeAssignor], "'range' twice"), ([3], "3 is")],
)
def test_rejects_invalid_assignors(strategy: list[object], words: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=words):
        create_assignors(strategy)


def test_rebalance_protocol_is_best_common_one() -> None:
    eager, cooperative = RangeAssignor(), CooperativeStickyAssignor()
    assert rebalance_protocol([cooperative]) is RebalanceProtocol.COOPERATIVE
    assert rebalance_protocol([eager, cooperative]) is RebalanceProtocol.EAGER
    assert rebalance_protocol([cooperative, eager]) is RebalanceProtocol.EAGER
