"""Whatever the topics and the members: each wanted partition once, fairly, and where it was."""

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
    choose,
    rebalance_protocol,
)
from kafka_async.group.assignors.abc import subscribers_of
from kafka_async.group.assignors.cooperative_sticky import balanced
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafka_async.group.assignors.abc import Members, Shares

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
    members: Members, shares: Mapping[str, Iterable[TopicPartition]], generation: int = 1
) -> dict[str, MemberSubscription]:
    """The members as they join again, owning what they were given."""
    return {
        m: MemberSubscription(
            member.topics,
            frozenset(shares[m]),
            generation,
        )
        for m, member in members.items()
    }


def moved(
    before: Mapping[str, set[TopicPartition]], after: Mapping[str, set[TopicPartition]]
) -> int:
    return sum(len(share - after.get(m, set())) for m, share in before.items())


def settle(assignor: Assignor, partitions: Mapping[str, int], members: Members) -> Shares:
    """Rebalance until nobody has to give anything up, as a cooperative group does."""
    for generation in range(1, 10):
        shares = assignor.assign(partitions, members)
        if all(set(shares[m]) >= member.owned for m, member in members.items()):
            return shares
        members = owning(members, shares, generation)
    raise AssertionError("the group does not come to rest")


@pytest.mark.parametrize("assignor", [RangeAssignor(), CooperativeStickyAssignor()])
@given(partitions=counts, members=differing)
def test_every_wanted_partition_goes_to_one_who_wants_it(
    assignor: Assignor, partitions: dict[str, int], members: dict[str, MemberSubscription]
) -> None:
    shares = assignor.assign(partitions, members)
    assert shares.keys() == members.keys()
    given_out = [p for share in shares.values() for p in share]
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == wanted(partitions, members)
    assert all(p.topic in members[m].topics for m, share in shares.items() for p in share)


@given(partitions=counts, members=differing)
def test_range_gives_runs_that_differ_by_one_in_each_topic(
    partitions: dict[str, int], members: dict[str, MemberSubscription]
) -> None:
    shares = RangeAssignor().assign(partitions, members)
    for topic in partitions:
        runs = [
            [p.partition for p in shares[m] if p.topic == topic]
            for m in sorted(members)
            if topic in members[m].topics
        ]
        assert all(run == list(range(run[0], run[0] + len(run))) for run in runs if run)
        assert not runs or max(map(len, runs)) - min(map(len, runs)) <= 1
        assert [n for run in runs for n in run] == sorted(n for run in runs for n in run)


def test_topics_of_the_same_members_share_the_list_of_them() -> None:
    subscribed = {"a": ("x", "y"), "b": ("y", "x"), "c": ("y", "z")}
    members = {name: MemberSubscription(frozenset(topics)) for name, topics in subscribed.items()}
    found = subscribers_of(["x", "y", "z", "w", "v"], members)
    assert found == {"x": ["a", "b"], "y": ["a", "b", "c"], "z": ["c"], "w": [], "v": []}
    assert found["w"] is found["v"]


def test_range_puts_equal_numbers_of_topics_together() -> None:
    members = {m: MemberSubscription(frozenset({"a", "b"})) for m in ("m1", "m2")}
    shares = RangeAssignor().assign({"a": 3, "b": 3}, members)
    assert shares == {
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
    shares = RangeAssignor().assign({"a": 3}, members)
    assert [shares[m][0].partition for m in members] == [2, 1, 0]


@given(partitions=counts, members=uniform)
def test_sticky_shares_of_members_alike_differ_by_one(
    partitions: dict[str, int], members: dict[str, MemberSubscription]
) -> None:
    sizes = [len(s) for s in CooperativeStickyAssignor().assign(partitions, members).values()]
    assert max(sizes) - min(sizes) <= 1


@given(partitions=counts, members=differing)
def test_sticky_leaves_nobody_two_behind_somebody_whose_partition_it_could_have(
    partitions: dict[str, int], members: dict[str, MemberSubscription]
) -> None:
    shares = balanced(partitions, members)
    for giver, share in shares.items():
        for taker, member in members.items():
            if any(p.topic in member.topics for p in share):
                assert len(shares[giver]) - len(shares[taker]) <= 1


@given(partitions=counts, members=differing)
def test_sticky_moves_nothing_when_nothing_has_changed(
    partitions: dict[str, int], members: dict[str, MemberSubscription]
) -> None:
    shares = balanced(partitions, members)
    assert balanced(partitions, owning(members, shares)) == shares


@given(partitions=counts, members=uniform, data=st.data())
def test_sticky_moves_no_more_than_a_leaver_had(
    partitions: dict[str, int], members: dict[str, MemberSubscription], data: st.DataObject
) -> None:
    before = balanced(partitions, members)
    gone = data.draw(st.sampled_from(sorted(members)))
    left = {m: member for m, member in owning(members, before).items() if m != gone}
    after = balanced(partitions, left)
    assert moved({m: before[m] for m in left}, after) == 0


@given(partitions=counts, members=uniform)
def test_sticky_moves_to_a_newcomer_just_its_share(
    partitions: dict[str, int], members: dict[str, MemberSubscription]
) -> None:
    before = balanced(partitions, members)
    after = balanced(
        partitions,
        {**owning(members, before), "newcomer": MemberSubscription(frozenset(TOPICS))},
    )
    assert moved(before, after) == len(after["newcomer"])


@given(partitions=counts, members=differing, newcomers=differing)
def test_cooperatively_no_partition_ever_has_two_owners_and_the_group_comes_to_rest(
    partitions: dict[str, int],
    members: dict[str, MemberSubscription],
    newcomers: dict[str, MemberSubscription],
) -> None:
    assignor = CooperativeStickyAssignor()
    before = assignor.assign(partitions, members)
    group = {**newcomers, **owning(members, before)}
    first = assignor.assign(partitions, group)
    owned = {p: m for m, share in before.items() for p in share}
    assert all(owned.get(p, m) == m for m, share in first.items() for p in share)
    final = settle(assignor, partitions, group)
    assert {p for share in final.values() for p in share} == wanted(partitions, group)


def test_a_claim_of_an_older_generation_yields_to_a_newer_one() -> None:
    topics, p0 = frozenset({"a"}), TopicPartition("a", 0)
    members = {
        "old": MemberSubscription(topics, frozenset({p0}), generation=3),
        "new": MemberSubscription(topics, frozenset({p0}), generation=4),
    }
    assert balanced({"a": 1}, members) == {"old": set(), "new": {p0}}
    # ... but nobody is given it until the one with the old claim has let go of it.
    assert CooperativeStickyAssignor().assign({"a": 1}, members) == {"old": [], "new": []}


def test_chains_even_out_what_no_single_move_can() -> None:
    """m1 takes a only, m2 a and b, m3 b only: m1 must pass on to m2 for m2 to pass on to m3."""
    a, b = frozenset({"a"}), frozenset({"b"})
    first = {TopicPartition("a", n) for n in range(4)}
    second = {TopicPartition("b", n) for n in range(2)}
    members = {
        "m1": MemberSubscription(a, frozenset(first), 1),
        "m2": MemberSubscription(a | b, frozenset(second), 1),
        "m3": MemberSubscription(b, frozenset(), 1),
    }
    sizes = {m: len(share) for m, share in balanced({"a": 4, "b": 2}, members).items()}
    assert sizes == {"m1": 2, "m2": 2, "m3": 2}


# -- choosing -------------------------------------------------------------------------------------


class Mine(Assignor):
    name = "mine"

    def assign(self, partitions: Mapping[str, int], members: Members) -> Shares:
        return {m: [] for m in members}


def test_assignors_are_chosen_by_name_class_or_object() -> None:
    mine = Mine()
    assert [a.name for a in choose(["range", CooperativeStickyAssignor, mine])] == [
        "range",
        "cooperative-sticky",
        "mine",
    ]


@pytest.mark.parametrize(
    ("strategy", "words"),
    [(["round"], "'round' is neither"), (["range", RangeAssignor], "'range' twice"), ([3], "3 is")],
)
def test_what_is_no_assignor_is_refused(strategy: list[object], words: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=words):
        choose(strategy)


def test_a_group_rebalances_as_all_its_assignors_can() -> None:
    eager, cooperative = RangeAssignor(), CooperativeStickyAssignor()
    assert rebalance_protocol([cooperative]) is RebalanceProtocol.COOPERATIVE
    assert rebalance_protocol([eager, cooperative]) is RebalanceProtocol.EAGER
    assert rebalance_protocol([cooperative, eager]) is RebalanceProtocol.EAGER
