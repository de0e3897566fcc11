"""Assignment of named resources: complete, balanced, sticky, and never to two members."""

from __future__ import annotations

import random

import pytest

from kafka_async.app.resource_assignment import (
    ResourceState,
    assign_resources,
    decode_resources,
    decode_state,
    encode_resources,
    encode_state,
)
from kafka_async.errors import DecodeError

Members = dict[str, ResourceState]


def state(resources: str, held: str = "", generation: int = 1) -> ResourceState:
    return ResourceState(frozenset(resources), frozenset(held), generation)


def settle(members: Members, rounds: int = 3) -> tuple[Members, int]:
    """Apply assignments until nothing changes; return the members and the moved resources."""
    moved = 0
    for generation in range(2, 2 + rounds):
        assigned = assign_resources(members)
        running = {name: row.held & assigned[name] for name, row in members.items()}
        moved += sum(len(row.held - running[name]) for name, row in members.items())
        started = {name: running[name] | assigned[name] for name in members}
        everyone = [r for held in started.values() for r in held]
        assert len(everyone) == len(set(everyone)), "two workers of a resource"
        members = {
            name: ResourceState(row.resources, started[name], generation)
            for name, row in members.items()
        }
    return members, moved


def test_first_assignment_is_complete_and_balanced() -> None:
    assigned = assign_resources({name: state("abcdefg") for name in ("m1", "m2", "m3")})
    assert sorted(len(row) for row in assigned.values()) == [2, 2, 3]
    assert frozenset().union(*assigned.values()) == frozenset("abcdefg")


def test_resource_moves_only_after_its_holder_has_released_it() -> None:
    members = {"m1": state("abcd", "abcd"), "m2": state("abcd")}
    first = assign_resources(members)
    assert first == {"m1": frozenset("cd"), "m2": frozenset()}
    released = {"m1": state("abcd", "cd", 2), "m2": state("abcd", "", 2)}
    assert assign_resources(released) == {"m1": frozenset("cd"), "m2": frozenset("ab")}


def test_dead_holders_resources_are_assigned_at_once() -> None:
    assigned = assign_resources({"m2": state("abcd", "cd")})
    assert assigned == {"m2": frozenset("abcd")}


def test_latest_generation_wins_between_two_holders() -> None:
    members = {"frozen": state("a", "a", 3), "new": state("a", "a", 4)}
    assert assign_resources(members) == {"frozen": frozenset(), "new": frozenset("a")}


def test_lost_resource_stays_with_member_whose_worker_has_not_ended() -> None:
    members = {"ending": state("a", "a", -1), "other": state("a")}
    assert assign_resources(members)["other"] == frozenset()


def test_resources_go_only_to_members_that_name_them() -> None:
    members = {"m1": state("ab"), "m2": state("bcde")}
    assert assign_resources(members) == {"m1": frozenset("ab"), "m2": frozenset("cde")}


def test_resource_that_holder_no_longer_names_is_released_first() -> None:
    members = {"m1": state("b", "ab"), "m2": state("a")}
    assert assign_resources(members) == {"m1": frozenset("b"), "m2": frozenset()}


@pytest.mark.one_kernel
def test_random_groups_end_balanced_with_fewest_moves() -> None:
    rng = random.Random(1)
    for _ in range(200):
        resources = [str(n) for n in range(rng.randrange(30))]
        names = [f"m{n}" for n in range(rng.randrange(1, 6))]
        members, _ = settle({name: ResourceState(frozenset(resources)) for name in names})
        joined = {**members, "new": ResourceState(frozenset(resources))}
        after, moved = settle(joined)
        sizes = [len(row.held) for row in after.values()]
        assert sum(sizes) == len(resources)
        assert max(sizes) - min(sizes) <= 1
        assert moved == len(after["new"].held)


def test_states_and_assignments_survive_encoding() -> None:
    row = state("abc", "b", 7)
    assert decode_state(encode_state(row)) == row
    assert decode_resources(encode_resources(row.held)) == row.held
    assert decode_resources(b"") == frozenset()


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b'{"resources":5}'])
def test_invalid_state_raises_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError, match="the state of a member is invalid"):
        decode_state(data)
