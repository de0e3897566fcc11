"""Assignors, for any topics and members: complete, balanced and sticky assignments."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.errors import InvalidConfigurationError
from kafka_async.group.assignors import (
    Assignor,
    CompositeAssignor,
    CooperativeStickyAssignor,
    CoPartitionedAssignor,
    GroupAssignment,
    MemberSubscription,
    MetadataAssignor,
    RangeAssignor,
    RebalanceProtocol,
    RedundantAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    TopicPartitions,
    create_assignors,
    newest_version,
    rebalance_protocol,
    same_rack,
)
from kafka_async.group.assignors.abc import subscribers_of
from kafka_async.group.assignors.cooperative_sticky import balanced
from kafka_async.group.assignors.sticky import decode_owned, encode_owned
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

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
        m: replace(member, owned=frozenset(assignments[m]), generation=generation)
        for m, member in members.items()
    }


def moved(
    before: Mapping[str, set[TopicPartition]], after: Mapping[str, set[TopicPartition]]
) -> int:
    return sum(len(assigned - after.get(m, set())) for m, assigned in before.items())


def assign(assignor: Assignor, partitions: Mapping[str, int], members: Members) -> Assignments:
    """Return the partitions of each member."""
    found = GroupAssignment.of(assignor.assign(partitions, members))
    return {member_id: list(assigned) for member_id, assigned in found.partitions.items()}


def rebalance_until_stable(
    assignor: Assignor, partitions: Mapping[str, int], members: Members
) -> Assignments:
    """Rebalance until no member has to revoke anything, as a cooperative group does."""
    for generation in range(1, 10):
        assignments = assign(assignor, partitions, members)
        if all(set(assignments[m]) >= member.owned for m, member in members.items()):
            return assignments
        members = owning(members, assignments, generation)
    raise AssertionError("the group does not come to rest")


@pytest.mark.parametrize("assignor", [RangeAssignor(), CooperativeStickyAssignor()])
@given(partitions=counts, members=differing)
def test_assigns_each_partition_to_one_subscriber(
    assignor: Assignor, partitions: dict[str, int], members: dict[str, MemberSubscription]
) -> None:
    assignments = assign(assignor, partitions, members)
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


def numbers(assigned: Iterable[TopicPartition], topic: str) -> list[int]:
    return [p.partition for p in assigned if p.topic == topic]


def test_round_robin_skips_members_that_do_not_subscribe() -> None:
    members = {
        "m1": MemberSubscription(frozenset({"a"})),
        "m2": MemberSubscription(frozenset({"a", "b"})),
    }
    assert RoundRobinAssignor().assign({"a": 3, "b": 2}, members) == {
        "m1": [TopicPartition("a", 0), TopicPartition("a", 2)],
        "m2": [TopicPartition("a", 1), TopicPartition("b", 0), TopicPartition("b", 1)],
    }


# -- racks ----------------------------------------------------------------------------------------

IN_RACKS = TopicPartitions(
    {"a": 4}, {TopicPartition("a", n): frozenset({"r1" if n % 2 else "r2"}) for n in range(4)}
)
RACK_MEMBERS = {f"m{n}": MemberSubscription(frozenset({"a"}), rack_id=f"r{n}") for n in (1, 2)}


@pytest.mark.parametrize("assignor", [RangeAssignor(), CooperativeStickyAssignor()])
def test_members_get_partitions_of_their_rack(assignor: Assignor) -> None:
    found = assign(assignor, IN_RACKS, RACK_MEMBERS)
    assert {m: numbers(assigned, "a") for m, assigned in found.items()} == {
        "m1": [1, 3],
        "m2": [0, 2],
    }


@pytest.mark.parametrize("limit", [0, 20_000])
def test_rack_does_not_prevail_over_balance(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """In large groups, above the limit, members keep partitions outside of their racks."""
    module = "kafka_async.group.assignors.cooperative_sticky.MAX_IMPROVED_SIZE"
    monkeypatch.setattr(module, limit)
    members = dict(RACK_MEMBERS)
    members["m2"] = MemberSubscription(frozenset({"a"}), rack_id="r1")
    assert {len(assigned) for assigned in balanced(IN_RACKS, members).values()} == {2}
    wrong = {"m1": {TopicPartition("a", 0)}, "m2": {TopicPartition("a", 1)}}
    after = balanced(IN_RACKS, owning(RACK_MEMBERS, wrong))
    kept = sum(len(wrong[m] & after[m]) for m in wrong)
    assert kept == (2 if limit == 0 else 0)


def test_sticky_exchanges_partitions_instead_of_moving_three() -> None:
    """The greedy steps would move more partitions than the exchange along a cycle of members."""
    racks = {TopicPartition("a", 0): frozenset({"r1"}), TopicPartition("a", 1): frozenset({"r2"})}
    owned = {"m1": {TopicPartition("a", 1)}, "m2": {TopicPartition("a", 0)}}
    after = balanced(TopicPartitions({"a": 2}, racks), owning(RACK_MEMBERS, owned))
    assert after == {"m1": {TopicPartition("a", 0)}, "m2": {TopicPartition("a", 1)}}


# -- user data of sticky assignors ----------------------------------------------------------------


def test_sticky_keeps_partitions_of_user_data() -> None:
    members = {m: MemberSubscription(frozenset({"a"})) for m in ("m1", "m2")}
    first = StickyAssignor().assign({"a": 4}, members)
    swapped = {"m1": first["m2"], "m2": first["m1"]}
    again = {
        m: MemberSubscription(frozenset({"a"}), user_data=encode_owned(owned, 3))
        for m, owned in swapped.items()
    }
    assert StickyAssignor().assign({"a": 4}, again) == swapped


def test_sticky_sends_its_last_assignment() -> None:
    assignor, owned = StickyAssignor(), frozenset({TopicPartition("a", 1)})
    assert decode_owned(assignor.user_data(())) == (frozenset(), -1)
    assignor.on_assignment(owned, None, 7)
    assert decode_owned(assignor.user_data(())) == (owned, 7)


def test_sticky_reads_user_data_without_generation() -> None:
    owned = frozenset({TopicPartition("a", 1), TopicPartition("b", 0)})
    assert decode_owned(encode_owned(owned, 7)[:-4]) == (owned, -1)


@given(st.binary(max_size=40))
def test_sticky_ignores_user_data_that_it_cannot_read(data: bytes) -> None:
    owned, generation = decode_owned(data)
    assert not owned or generation >= -(2**31)


def test_sticky_ignores_truncated_user_data() -> None:
    data = encode_owned([TopicPartition("a", 1)], 7)
    assert decode_owned(data[:10]) == (frozenset(), -1)


# -- co-partitioned, redundant, metadata, composite -----------------------------------------------


@given(partitions=counts, members=uniform)
def test_co_partitioned_assigns_a_number_of_all_topics_to_one_member(
    partitions: dict[str, int], members: dict[str, MemberSubscription]
) -> None:
    found = CoPartitionedAssignor().assign(partitions, members)
    for number in range(max(partitions.values())):
        having = {m for m, of in found.items() if any(p.partition == number for p in of)}
        assert len(having) == 1


@given(partitions=counts, members=uniform, owners=st.integers(1, 4))
def test_redundant_assigns_each_partition_to_several_members_with_one_committer(
    partitions: dict[str, int], members: dict[str, MemberSubscription], owners: int
) -> None:
    found = RedundantAssignor(owners).assign(partitions, members)
    sizes = [len(assigned) for assigned in found.partitions.values()]
    assert max(sizes) - min(sizes) <= 1
    committed: list[TopicPartition] = []
    for member_id, assigned in found.partitions.items():
        assignor = RedundantAssignor(owners)
        assignor.on_assignment(frozenset(assigned), found.user_data[member_id], 1)
        committed += [p for p in assigned if assignor.commits(p)]
    assert sorted(committed) == sorted(all_partitions(partitions))
    for partition in committed:
        having = [m for m, assigned in found.partitions.items() if partition in assigned]
        assert len(having) == min(owners, len(members))


def test_redundant_keeps_owners_and_committers() -> None:
    members = {m: MemberSubscription(frozenset({"a"})) for m in ("m1", "m2", "m3")}
    first = RedundantAssignor(2).assign({"a": 3}, members)
    again = {
        m: MemberSubscription(frozenset({"a"}), user_data=encode_owned(first.partitions[m], 1))
        for m in members
    }
    assert RedundantAssignor(2).assign({"a": 3}, again) == first


def attributes(**given: str | float) -> MemberSubscription:
    user_data = MetadataAssignor(given).user_data(())
    return MemberSubscription(frozenset({"a"}), user_data=user_data)


def test_metadata_divides_partitions_by_weight() -> None:
    members = {"m1": attributes(weight=1), "m2": attributes(weight=2), "m3": attributes(weight=0)}
    found = MetadataAssignor().assign({"a": 9}, members)
    assert {m: len(assigned) for m, assigned in found.items()} == {"m1": 3, "m2": 6, "m3": 0}


def test_metadata_prefers_rack_of_attributes_and_newest_version() -> None:
    members = {"m1": attributes(rack="r1", version=3), "m2": attributes(rack="r2", version=2)}
    by_rack = MetadataAssignor(preference=same_rack).assign(IN_RACKS, members)
    assert {m: numbers(of, "a") for m, of in by_rack.items()} == {"m1": [1, 3], "m2": [0, 2]}
    by_version = MetadataAssignor(preference=newest_version).assign(IN_RACKS, members)
    assert {m: numbers(of, "a") for m, of in by_version.items()} == {
        "m1": [0, 1, 2, 3],
        "m2": [],
    }


def test_metadata_ignores_user_data_that_it_cannot_read() -> None:
    members = {"m1": MemberSubscription(frozenset({"a"}), user_data=b"\xff", rack_id="r1")}
    found = MetadataAssignor(preference=same_rack).assign(IN_RACKS, members)
    assert numbers(found["m1"], "a") == [0, 1, 2, 3]


def test_composite_assigns_each_topic_by_its_strategy() -> None:
    members = {m: MemberSubscription(frozenset("abcd")) for m in ("m1", "m2")}
    assignor = CompositeAssignor(
        [(CoPartitionedAssignor(), {"a", "b"}), (RedundantAssignor(2), {"d"})],
        RoundRobinAssignor(),
    )
    joined = {
        m: MemberSubscription(member.topics, user_data=assignor.user_data(member.topics))
        for m, member in members.items()
    }
    found = assignor.assign({"a": 2, "b": 2, "c": 2, "d": 1}, joined)
    assert {m: sorted(assigned) for m, assigned in found.partitions.items()} == {
        "m1": [TopicPartition(t, 0) for t in "abcd"],
        "m2": [*(TopicPartition(t, 1) for t in "abc"), TopicPartition("d", 0)],
    }
    committers: list[str] = []
    for member_id in members:
        assignor.on_assignment(
            frozenset(found.partitions[member_id]), found.user_data[member_id], 1
        )
        if assignor.commits(TopicPartition("d", 0)):
            committers.append(member_id)
        assert assignor.commits(TopicPartition("a", 0))
    assert len(committers) == 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RedundantAssignor(0), "owners is 0"),
        (lambda: MetadataAssignor({"weight": -1}), "weight must not be negative"),
        (lambda: MetadataAssignor({"x": float("nan")}), "cannot be sent as JSON"),
        (
            lambda: CompositeAssignor(
                [(RangeAssignor(), {"a"}), (StickyAssignor(), {"a"})], RangeAssignor()
            ),
            "two strategies have the topic a",
        ),
        (
            lambda: CompositeAssignor([(CooperativeOnly(), {"a"})], RangeAssignor()),
            "share no rebalance protocol: cooperative-only, range",
        ),
    ],
)
def test_invalid_arguments_of_assignors_are_refused(
    make: Callable[[], Assignor], words: str
) -> None:
    with pytest.raises(InvalidConfigurationError, match=words):
        make()


class CooperativeOnly(CooperativeStickyAssignor):
    name = "cooperative-only"
    rebalance_protocols = frozenset({RebalanceProtocol.COOPERATIVE})


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


class DuckAssignor:
    """Follows the protocol without deriving from it."""

    name = "duck"
    version = 2
    rebalance_protocols = frozenset({RebalanceProtocol.EAGER})
    reads_errors = False

    def user_data(self, topics: Iterable[str]) -> bytes | None:
        return b"quack"

    def assign(self, partitions: Mapping[str, int], members: Members) -> Assignments:
        return {m: [] for m in members}

    def on_assignment(
        self, partitions: frozenset[TopicPartition], user_data: bytes | None, generation: int
    ) -> None:
        pass

    def commits(self, partition: TopicPartition) -> bool:
        return True


def test_protocol_needs_no_base_class() -> None:
    assert [a.name for a in create_assignors([DuckAssignor, "sticky"])] == ["duck", "sticky"]


class FarVersion(CustomAssignor):
    version = 40_000


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        ([FarVersion], "version 40000, not 0 to 32767"),
        (["round"], "'round' is neither"),
        (["range", RangeAssignor], "'range' twice"),
        ([3], "3 is"),
    ],
)
def test_rejects_invalid_assignors(strategy: list[object], words: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=words):
        create_assignors(strategy)


def test_rebalance_protocol_is_best_common_one() -> None:
    eager, cooperative = RangeAssignor(), CooperativeStickyAssignor()
    assert rebalance_protocol([cooperative]) is RebalanceProtocol.COOPERATIVE
    assert rebalance_protocol([eager, cooperative]) is RebalanceProtocol.EAGER
    assert rebalance_protocol([cooperative, eager]) is RebalanceProtocol.EAGER
