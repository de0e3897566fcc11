"""The coordinator's assignors on random groups: complete, balanced, sticky."""

from __future__ import annotations

import random
import uuid

import pytest

from kafka_async.embedded.groups.server_assignors import (
    SERVER_ASSIGNORS,
    AssignedMember,
    Targets,
    assign_range,
    assign_simple,
    assign_uniform,
)
from tests.rows import row

Topic = uuid.UUID
Counts = dict[Topic, int]
Members = dict[str, AssignedMember]
TOPICS = [uuid.UUID(int=number) for number in range(1, 7)]


def random_group(rng: random.Random, *, same_topics: bool) -> tuple[Members, Counts]:
    counts = {topic: rng.randint(1, 12) for topic in TOPICS[: rng.randint(1, len(TOPICS))]}
    everything = frozenset(counts)
    members = {
        f"m{number}": AssignedMember(
            None,
            everything
            if same_topics
            else frozenset(rng.sample(sorted(everything), rng.randint(1, len(everything)))),
            frozenset(),
        )
        for number in range(rng.randint(1, 8))
    }
    return members, counts


def check_complete(members: Members, counts: Counts, targets: Targets) -> None:
    """Each partition of a topic with a subscriber belongs to one of its subscribers."""
    given = sorted(partition for partitions in targets.values() for partition in partitions)
    wanted = sorted(
        (topic, partition)
        for topic, count in counts.items()
        if any(topic in member.topics for member in members.values())
        for partition in range(count)
    )
    assert given == wanted
    for member_id, partitions in targets.items():
        assert {topic for topic, _ in partitions} <= members[member_id].topics


@pytest.mark.parametrize("name", SERVER_ASSIGNORS)
def test_assigns_each_partition_once(name: str, seeded: int) -> None:
    rng = random.Random(seeded)
    for _ in range(200):
        members, counts = random_group(rng, same_topics=rng.random() < 0.5)
        check_complete(members, counts, SERVER_ASSIGNORS[name](members, counts))


def test_uniform_is_even_and_keeps_what_it_can(seeded: int) -> None:
    rng = random.Random(seeded)
    for _ in range(200):
        members, counts = random_group(rng, same_topics=True)
        former = assign_uniform(members, counts)
        members["new"] = AssignedMember(None, frozenset(counts), frozenset())
        members = {
            id_: member._replace(former=former.get(id_, frozenset()))
            for id_, member in members.items()
        }
        targets = assign_uniform(members, counts)
        check_complete(members, counts, targets)
        sizes = [len(partitions) for partitions in targets.values()]
        assert max(sizes) - min(sizes) <= 1
        moved = sum(len(former[id_] - targets[id_]) for id_ in former)
        assert moved == len(targets["new"])


def test_uniform_balances_members_with_different_topics(seeded: int) -> None:
    rng = random.Random(seeded)
    for _ in range(200):
        members, counts = random_group(rng, same_topics=False)
        targets = assign_uniform(members, counts)
        for owner, partitions in targets.items():
            for topic, _ in partitions:
                others = [id_ for id_, it in members.items() if topic in it.topics]
                assert len(partitions) - min(len(targets[id_]) for id_ in others) <= 1, owner


def test_uniform_keeps_a_balanced_assignment(seeded: int) -> None:
    rng = random.Random(seeded)
    for _ in range(200):
        members, counts = random_group(rng, same_topics=rng.random() < 0.5)
        former = assign_uniform(members, counts)
        again = {id_: it._replace(former=former[id_]) for id_, it in members.items()}
        assert assign_uniform(again, counts) == former


def test_range_gives_static_members_the_first_ranges() -> None:
    topic = TOPICS[0]
    members = {
        "a": AssignedMember(None, frozenset({topic}), frozenset()),
        "b": AssignedMember("z", frozenset({topic}), frozenset()),
        "c": AssignedMember("y", frozenset({topic}), frozenset()),
    }
    targets = assign_range(members, {topic: 4})
    assert sorted(index for _, index in targets["c"]) == [0, 1]
    assert sorted(index for _, index in targets["b"]) == [2]
    assert sorted(index for _, index in targets["a"]) == [3]


@pytest.mark.parametrize("name", SERVER_ASSIGNORS)
def test_group_without_topics_or_members_has_no_assignment(name: str) -> None:
    assert SERVER_ASSIGNORS[name]({}, {}) == {}
    member = AssignedMember(None, frozenset(), frozenset())
    assert SERVER_ASSIGNORS[name]({"m": member}, {}) == {"m": frozenset()}


def test_simple_assigns_all_partitions_and_all_members() -> None:
    for number in range(50):
        for same_topics in [True, False]:
            with row(number, same_topics):
                check_simple_assigns_all_partitions_and_all_members(number, same_topics)


def check_simple_assigns_all_partitions_and_all_members(number: int, same_topics: bool) -> None:
    members, counts = random_group(random.Random(number), same_topics=same_topics)
    partitions = [(topic, index) for topic, count in counts.items() for index in range(count)]
    targets = assign_simple(members, partitions)
    subscribed = {topic for member in members.values() for topic in member.topics}
    given = {partition for found in targets.values() for partition in found}
    assert given == {it for it in partitions if it[0] in subscribed}
    for member_id, found in targets.items():
        assert {topic for topic, _ in found} <= members[member_id].topics
        assert found
    if same_topics:
        sizes = [len(found) for found in targets.values()]
        assert max(sizes) - min(sizes) <= 1
    former = {
        member_id: member._replace(former=targets[member_id])
        for member_id, member in members.items()
    }
    assert assign_simple(former, partitions) == targets


def test_simple_shares_partitions_among_more_members() -> None:
    topic = TOPICS[0]
    member = AssignedMember(None, frozenset((topic,)), frozenset())
    members: Members = dict.fromkeys(("a", "b", "c"), member)
    targets = assign_simple(members, [(topic, 0), (topic, 1)])
    owners = [sum((topic, index) in found for found in targets.values()) for index in (0, 1)]
    assert sorted(owners) == [2, 2]
    assert assign_simple({"a": member}, []) == {"a": frozenset()}
