"""`check_assignor`: accepts the assignors of this package, and finds broken rules."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from kafka_async.group.assignors import (
    Assignor,
    CompositeAssignor,
    CooperativeStickyAssignor,
    CoPartitionedAssignor,
    GroupAssignment,
    MetadataAssignor,
    RangeAssignor,
    RebalanceProtocol,
    RedundantAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    same_rack,
)
from kafka_async.testing import check_assignor
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafka_async.group.assignors.abc import Assignments, Members

EXAMPLES = 15


def composite() -> CompositeAssignor:
    """Return a composite of strategies with user data in both directions."""
    return CompositeAssignor(
        [(CoPartitionedAssignor(), {"a", "b"}), (RedundantAssignor(1), {"d"})], StickyAssignor()
    )


def cooperative_composite() -> CompositeAssignor:
    """Return a composite of strategies that revoke only what moves."""
    return CompositeAssignor([(CooperativeStickyAssignor(), {"a"})], CooperativeStickyAssignor())


@pytest.mark.parametrize(
    "assignor",
    [
        RangeAssignor,
        RoundRobinAssignor,
        StickyAssignor(),
        CooperativeStickyAssignor,
        CoPartitionedAssignor,
        MetadataAssignor({"weight": 2}, preference=same_rack),
        composite,
        lambda: CompositeAssignor(
            [(CooperativeStickyAssignor(), {"a"})], CooperativeStickyAssignor()
        ),
    ],
)
def test_assignors_of_the_package_keep_the_rules(
    assignor: Assignor | type[Assignor] | Callable[[], Assignor],
) -> None:
    check_assignor(assignor, EXAMPLES)


@pytest.mark.parametrize("owners", [1, 2, 3])
def test_redundant_assignor_keeps_the_rules(owners: int) -> None:
    check_assignor(RedundantAssignor(owners), EXAMPLES, owners=owners)


class Broken(RangeAssignor):
    """Breaks one rule."""

    def __init__(self, change: Callable[[Assignments, Members], object]) -> None:
        self._change = change

    def assign(self, partitions: Mapping[str, int], members: Members) -> Assignments:
        assignments = super().assign(partitions, members)
        self._change(assignments, members)
        return assignments


def lose_one(assignments: Assignments, members: Members) -> None:
    for assigned in assignments.values():
        if assigned:
            assigned.pop()


def assign_twice(assignments: Assignments, members: Members) -> None:
    for assigned in assignments.values():
        assigned += assigned[:1]


def assign_to_all(assignments: Assignments, members: Members) -> None:
    everything = {p for assigned in assignments.values() for p in assigned}
    for member_id, member in members.items():
        assignments[member_id] = [p for p in everything if p.topic in member.topics]


def assign_missing(assignments: Assignments, members: Members) -> None:
    for member_id, member in members.items():
        assignments[member_id] += [TopicPartition(topic, 99) for topic in member.topics]


def assign_unsubscribed(assignments: Assignments, members: Members) -> None:
    everything = [p for assigned in assignments.values() for p in assigned]
    for assigned in assignments.values():
        assigned.clear()
    assignments[min(members)] = everything


def assign_to_stranger(assignments: Assignments, members: Members) -> None:
    assignments["stranger"] = []


def change_members(assignments: Assignments, members: Members) -> None:
    assert isinstance(members, dict)
    members.clear()


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lose_one, "0 owners, not 1"),
        (assign_twice, "twice to"),
        (assign_to_all, "2 owners, not 1"),
        (assign_missing, "does not exist"),
        (assign_unsubscribed, "does not subscribe"),
        (assign_to_stranger, r"\['stranger'\] are no members"),
        (change_members, "changes its arguments"),
    ],
)
def test_broken_rule_is_found(change: Callable[[Assignments, Members], object], rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        check_assignor(lambda: Broken(change), EXAMPLES)


class Random(RangeAssignor):
    """Returns another assignment at each call."""

    calls = 0

    def assign(self, partitions: Mapping[str, int], members: Members) -> Assignments:
        Random.calls += 1
        assignments = super().assign(partitions, members)
        rows = [assignments[member_id] for member_id in members]
        turn = Random.calls % len(rows)
        return dict(zip(members, rows[turn:] + rows[:turn], strict=True))


class Hasty(CoPartitionedAssignor):
    """Is called cooperative, but does not wait until partitions are revoked."""

    rebalance_protocols = frozenset({RebalanceProtocol.COOPERATIVE})


class Restless(CooperativeStickyAssignor):
    """Takes a partition from its owner in each rebalance."""

    def assign(self, partitions: Mapping[str, int], members: Members) -> Assignments:
        assignments = super().assign(partitions, members)
        for member_id, member in members.items():
            assignments[member_id] = [p for p in assignments[member_id] if p not in member.owned]
        return assignments


class AllCommit(RedundantAssignor):
    """Lets all owners commit."""

    def commits(self, partition: TopicPartition) -> bool:
        return True


class Text(RangeAssignor):
    """Sends text, which cannot be encoded."""

    def user_data(self, topics: Iterable[str]) -> bytes | None:
        return "text"  # type: ignore[return-value]  # pyright: ignore[reportReturnType]  # the mistake


class AnswersText(RangeAssignor):
    """Answers with user data for a member that does not exist."""

    def assign(self, partitions: Mapping[str, int], members: Members) -> GroupAssignment:  # pyright: ignore[reportIncompatibleMethodOverride]
        return GroupAssignment(super().assign(partitions, members), {"stranger": b""})


@pytest.mark.parametrize(
    ("assignor", "owners", "rule"),
    [
        (Random, 1, "and then"),
        (Hasty, 1, "has not revoked the partition yet"),
        (Restless, 1, "still revoke partitions after 10 rebalances"),
        (AllCommit, 2, r"\] commit "),
        (Text, 1, "user data are 'text', not bytes or None"),
        (AnswersText, 1, r"\['stranger'\] are no members"),
    ],
)
def test_broken_protocol_is_found(assignor: type[Assignor], owners: int, rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        check_assignor(assignor, EXAMPLES * 8, owners=owners)


def test_error_names_the_extra_without_hypothesis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(ImportError, match=r"check_assignor needs the extra testing: pip install"):
        check_assignor(RangeAssignor, 1)
