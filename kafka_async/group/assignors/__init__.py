"""Assignors: how a group's leader assigns partitions to the members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafka_async.errors import InvalidConfigurationError
from kafka_async.group.assignors.abc import Assignor, MemberSubscription, RebalanceProtocol
from kafka_async.group.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka_async.group.assignors.range import RangeAssignor

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Assignor",
    "CooperativeStickyAssignor",
    "MemberSubscription",
    "RangeAssignor",
    "RebalanceProtocol",
    "create_assignors",
    "rebalance_protocol",
]

_BUILT_IN: Final[dict[str, type[Assignor]]] = {
    RangeAssignor.name: RangeAssignor,
    CooperativeStickyAssignor.name: CooperativeStickyAssignor,
}


def create_assignors(strategy: Sequence[Any]) -> tuple[Assignor, ...]:
    """Return the assignors of partition_assignment_strategy.

    Raises InvalidConfigurationError for an unknown name, a duplicate, or an entry that is neither a
    name nor an Assignor class or object.
    """
    chosen = tuple(_assignor(entry) for entry in strategy)
    names = [assignor.name for assignor in chosen]
    for name in names:
        if names.count(name) > 1:
            raise InvalidConfigurationError(f"partition_assignment_strategy has {name!r} twice")
    rebalance_protocol(chosen)
    return chosen


def rebalance_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """Return the preferred rebalance protocol that all of a member's assignors support.

    Raises InvalidConfigurationError if they have no protocol in common.
    """
    common = frozenset(RebalanceProtocol).intersection(
        *(assignor.rebalance_protocols for assignor in assignors)
    )
    if not common:
        names = ", ".join(assignor.name for assignor in assignors)
        raise InvalidConfigurationError(
            f"partition_assignment_strategy: {names} share no rebalance protocol"
        )
    return max(common)


def _assignor(entry: Any) -> Assignor:
    if isinstance(entry, Assignor):
        return entry
    if isinstance(entry, type) and issubclass(entry, Assignor):
        return entry()
    found = _BUILT_IN.get(entry) if isinstance(entry, str) else None
    if found is None:
        names = ", ".join(map(repr, _BUILT_IN))
        raise InvalidConfigurationError(
            f"partition_assignment_strategy: {entry!r} is neither an Assignor nor one of {names}"
        )
    return found()
