"""Metadata-based assignor: by attributes of the members, such as rack, weight or version."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from kafka_async.errors import InvalidConfigurationError
from kafka_async.group.assignors.abc import (
    Assignments,
    Assignor,
    Members,
    MemberSubscription,
    racks_of,
    subscribers_of,
)
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

Attributes: TypeAlias = Mapping[str, str | int | float | bool | None]
Preference: TypeAlias = Callable[[Attributes, TopicPartition, frozenset[str]], float]
"""Returns how well a member suits a partition, from the member's attributes, the partition, and the
racks of its replicas."""


def same_rack(attributes: Attributes, partition: TopicPartition, racks: frozenset[str]) -> float:
    """Prefer members whose attribute `rack` is the rack of a replica."""
    return float(attributes.get("rack") in racks)


def newest_version(
    attributes: Attributes, partition: TopicPartition, racks: frozenset[str]
) -> float:
    """Prefer members with the highest attribute `version`, a number (default: 0)."""
    return _number(attributes, "version", 0)


class MetadataAssignor(Assignor):
    """Assigns partitions by attributes of the members, which send them in their user data.

    A partition goes to one of the members that `preference` rates highest. Among these, partitions
    are divided in proportion to the attribute `weight`: a member with weight 2 gets
    twice as many as one with weight 1, the default. A member with weight 0 gets partitions only if
    all others have weight 0 too. The attribute `rack` is `client_rack` unless it is given.

    Args:
        attributes: Attributes of this member, of types that JSON has.
        preference: Function by which the leader rates members: `same_rack`, `newest_version`, or
            your own (default: all members are equal). All members need the same one.
    """

    name = "metadata"

    def __init__(
        self,
        attributes: Attributes = MappingProxyType({}),
        *,
        preference: Preference | None = None,
    ) -> None:
        try:
            self._data = json.dumps(dict(attributes), allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise InvalidConfigurationError(f"attributes cannot be sent as JSON: {error}") from None
        if _number(attributes, "weight", 1) < 0:
            raise InvalidConfigurationError("the attribute weight must not be negative")
        self._preference = preference

    def user_data(self, topics: Iterable[str]) -> bytes:
        """Return the attributes as JSON."""
        return self._data

    def assign(self, partitions: Mapping[str, int], members: Members) -> Assignments:
        """Return the partitions of each member, by preference and then by weight."""
        assignments: Assignments = {member_id: [] for member_id in members}
        attributes = {member_id: read_attributes(member) for member_id, member in members.items()}
        weights = {m: max(0.0, _number(attributes[m], "weight", 1)) for m in members}

        def load(member_id: str) -> tuple[bool, float]:
            count, weight = len(assignments[member_id]) + 1, weights[member_id]
            # Weight 0 comes last: such a member gets partitions only if no other is left.
            return weight == 0, count / (weight or 1)

        for topic, subscribers in sorted(subscribers_of(partitions, members).items()):
            for number in range(partitions[topic] if subscribers else 0):
                partition = TopicPartition(topic, number)
                candidates = subscribers
                if self._preference is not None:
                    racks = racks_of(partitions, partition)
                    rates = [self._preference(attributes[m], partition, racks) for m in subscribers]
                    highest = max(rates)
                    candidates = [
                        m for m, rate in zip(subscribers, rates, strict=True) if rate == highest
                    ]
                assignments[min(candidates, key=load)].append(partition)
        return assignments


def read_attributes(member: MemberSubscription) -> Attributes:
    """Return the attributes that a member has sent, or only its rack if they cannot be read."""
    found: Any = None
    try:
        found = json.loads(member.user_data or b"{}")
    except ValueError:
        pass
    if not isinstance(found, dict):
        return {"rack": member.rack_id}
    attributes = cast("Attributes", found)
    return {"rack": member.rack_id, **attributes}


def _number(attributes: Attributes, name: str, default: float) -> float:
    value = attributes.get(name, default)
    return float(value) if isinstance(value, int | float) else default
