"""Assignors: how a group's leader assigns partitions to the members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafka_async.config.spelling import option_error
from kafka_async.errors import InvalidConfigurationError
from kafka_async.group.assignors.abc import (
    Assignor,
    GroupAssignment,
    MemberSubscription,
    RebalanceProtocol,
    TopicPartitions,
)
from kafka_async.group.assignors.co_partitioned import CoPartitionedAssignor
from kafka_async.group.assignors.composite import CompositeAssignor
from kafka_async.group.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka_async.group.assignors.metadata import MetadataAssignor, newest_version, same_rack
from kafka_async.group.assignors.range import RangeAssignor
from kafka_async.group.assignors.redundant import RedundantAssignor
from kafka_async.group.assignors.roundrobin import RoundRobinAssignor
from kafka_async.group.assignors.sticky import StickyAssignor

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Assignor",
    "CoPartitionedAssignor",
    "CompositeAssignor",
    "CooperativeStickyAssignor",
    "GroupAssignment",
    "MemberSubscription",
    "MetadataAssignor",
    "RangeAssignor",
    "RebalanceProtocol",
    "RedundantAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "TopicPartitions",
    "create_assignors",
    "newest_version",
    "rebalance_protocol",
    "same_rack",
]

_BUILT_IN: Final[dict[str, type[Assignor]]] = {
    RangeAssignor.name: RangeAssignor,
    RoundRobinAssignor.name: RoundRobinAssignor,
    StickyAssignor.name: StickyAssignor,
    CoPartitionedAssignor.name: CoPartitionedAssignor,
    RedundantAssignor.name: RedundantAssignor,
    MetadataAssignor.name: MetadataAssignor,
    CooperativeStickyAssignor.name: CooperativeStickyAssignor,
}

_OPTION: Final = "partition_assignment_strategy"
MAX_VERSION: Final = 32_767
"""Highest version of an assignor's user data."""


def create_assignors(strategy: Sequence[Any]) -> tuple[Assignor, ...]:
    """Return the assignors of partition_assignment_strategy.

    Raises InvalidConfigurationError for an unknown name, a duplicate, or an entry that is neither a
    name nor an Assignor class or object.
    """
    chosen = tuple(_assignor(entry) for entry in strategy)
    names = [assignor.name for assignor in chosen]
    for assignor, name in zip(chosen, names, strict=True):
        if names.count(name) > 1:
            raise option_error(_OPTION, f" has {name!r} twice")
        if not 0 <= assignor.version <= MAX_VERSION:
            raise InvalidConfigurationError(
                f"the assignor {name} has version {assignor.version}, not 0 to {MAX_VERSION}",
                option=_OPTION,
            )
    # Raises if they have no protocol in common.
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
        raise option_error(_OPTION, f": {names} share no rebalance protocol")
    return max(common)


def _assignor(entry: Any) -> Assignor:
    if isinstance(entry, str):
        entry = _BUILT_IN.get(entry, entry)
    # A class is instantiated, since an instance belongs to one consumer.
    made = (
        entry() if isinstance(entry, type) and callable(getattr(entry, "assign", None)) else entry
    )
    if not isinstance(made, Assignor):
        names = ", ".join(map(repr, _BUILT_IN))
        raise option_error(_OPTION, f": {entry!r} is neither an Assignor nor one of {names}")
    return made
