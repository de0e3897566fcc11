"""Assigns named resources to the members of a group. Pure.

A member's state lists the resources that it can work on and the resources that it holds. The
assignment is balanced, moves as few resources as possible, and gives no resource to two members: a
resource that has to move stays unassigned until its holder has released it and joined again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from kafka_async.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

PROTOCOL = "resources-v0"


class ResourceState(NamedTuple):
    """State of a member.

    Attributes:
        resources: The resources that the member can work on.
        held: The resources whose workers run or have returned.
        generation: The generation in which they were assigned; -1 if the assignment was lost.
    """

    resources: frozenset[str]
    held: frozenset[str] = frozenset()
    generation: int = -1


def encode_state(state: ResourceState) -> bytes:
    """Return a state as JSON."""
    row = {
        "resources": sorted(state.resources),
        "held": sorted(state.held),
        "generation": state.generation,
    }
    return json.dumps(row, separators=(",", ":")).encode()


def decode_state(data: bytes) -> ResourceState:
    """Return a decoded state; raise DecodeError if it is malformed."""
    try:
        row = json.loads(data)
        return ResourceState(
            frozenset(row["resources"]), frozenset(row["held"]), int(row["generation"])
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DecodeError(f"the state of a member is invalid: {error!r}: {data[:100]!r}") from error


def encode_resources(resources: Iterable[str]) -> bytes:
    """Return the assignment of a member as JSON."""
    return json.dumps(sorted(resources), separators=(",", ":")).encode()


def decode_resources(data: bytes) -> frozenset[str]:
    """Return the resources of an assignment; empty bytes mean no resources."""
    return frozenset(json.loads(data)) if data else frozenset()


def assign_resources(members: Mapping[str, ResourceState]) -> dict[str, frozenset[str]]:
    """Return the resources of each member, by member id."""
    holders = _holders(members)
    targets: dict[str, set[str]] = {member: set() for member in members}
    for resource, holder in holders.items():
        if resource in members[holder].resources:
            targets[holder].add(resource)
    candidates = _candidates(members)
    for resource in sorted(candidates.keys() - holders.keys()):
        targets[_least_loaded(candidates[resource], targets)].add(resource)
    _balance(targets, candidates)
    return {
        member: frozenset(r for r in resources if holders.get(r, member) == member)
        for member, resources in targets.items()
    }


def _holders(members: Mapping[str, ResourceState]) -> dict[str, str]:
    """Return the holder of each resource; the latest generation wins."""
    holders: dict[str, str] = {}
    for member in sorted(members, key=lambda each: (members[each].generation, each)):
        holders.update(dict.fromkeys(members[member].held, member))
    return holders


def _candidates(members: Mapping[str, ResourceState]) -> dict[str, list[str]]:
    """Return the members that can work on each resource, sorted."""
    candidates: defaultdict[str, list[str]] = defaultdict(list)
    for member in sorted(members):
        for resource in members[member].resources:
            candidates[resource].append(member)
    return candidates


def _least_loaded(members: Sequence[str], targets: Mapping[str, Collection[str]]) -> str:
    return min(members, key=lambda member: (len(targets[member]), member))


def _balance(targets: Mapping[str, set[str]], candidates: Mapping[str, Sequence[str]]) -> None:
    """Move resources until no move improves the balance of two members."""
    while (move := _next_move(targets, candidates)) is not None:
        resource, member, other = move
        targets[member].remove(resource)
        targets[other].add(resource)


def _next_move(
    targets: Mapping[str, set[str]], candidates: Mapping[str, Sequence[str]]
) -> tuple[str, str, str] | None:
    """Return a resource, its member and a member with at least two fewer, or None."""
    for member in sorted(targets, key=lambda each: (-len(targets[each]), each)):
        for resource in sorted(targets[member]):
            other = _least_loaded(candidates[resource], targets)
            if len(targets[other]) + 1 < len(targets[member]):
                return resource, member, other
    return None
