"""Members of a group of the consumer protocol, and the next assignment of each (KIP-848). Pure.

state                   meaning
---------------------   ---------------------------------------------------------------
STABLE                  has its target assignment, as of its last heartbeat
UNREVOKED_PARTITIONS    must revoke partitions before its epoch moves on
UNRELEASED_PARTITIONS   waits for partitions that other members have not revoked yet
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from kafka_async.embedded.groups.members import GroupProtocol, JoinRequest
    from kafka_async.embedded.groups.server_assignors import TopicIdPartition
    from kafka_async.protocol.messages.consumer_protocol_subscription import (
        ConsumerProtocolSubscription,
    )

T = TypeVar("T")
JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
Owned: TypeAlias = "Mapping[TopicIdPartition, int]"
"""Partitions, with the member epoch of each partition's assignment."""


class MemberState(enum.Enum):
    """States of a member at the coordinator."""

    STABLE = "stable"
    UNREVOKED_PARTITIONS = "unrevoked partitions"
    UNRELEASED_PARTITIONS = "unreleased partitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """Represents a ConsumerGroupHeartbeat request; None is an unchanged field.

    Times are seconds. The coordinator chooses an id for a member that joins with an empty one.
    """

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout: float | None = None
    topics: frozenset[str] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: frozenset[TopicIdPartition] | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_full(self) -> bool:
        """True if all fields are set, which requests the current assignment."""
        has_subscription = self.topics is not None or self.pattern is not None
        return self.rebalance_timeout is not None and has_subscription and self.owned is not None


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """Represents a ConsumerGroupHeartbeat response; None is an unchanged assignment."""

    member_id: str
    epoch: int
    assignment: frozenset[TopicIdPartition] | None = None


@dataclass(frozen=True, slots=True)
class ClassicProtocolMember:
    """Holds the JoinGroup fields of a member that uses the classic protocol; time in seconds."""

    session_timeout: float
    protocols: tuple[GroupProtocol, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMember:
    """Holds a member; `classic` is None unless it uses the classic protocol."""

    id: str
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout: float = -1.0
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    assignor: str | None = None
    assigned: Owned = field(default_factory=dict["TopicIdPartition", int])
    pending_revocation: Owned = field(default_factory=dict["TopicIdPartition", int])
    classic: ClassicProtocolMember | None = None

    def updated(self, request: ConsumerHeartbeat) -> ConsumerGroupMember:
        """Return the member with the fields of a heartbeat."""
        return replace(
            self,
            instance_id=_or(request.instance_id, self.instance_id),
            rack_id=_or(request.rack_id, self.rack_id),
            rebalance_timeout=_or(request.rebalance_timeout, self.rebalance_timeout),
            topics=_or(request.topics, self.topics),
            pattern=_or(request.pattern, self.pattern),
            assignor=_or(request.assignor, self.assignor),
            client_id=request.client_id,
            client_host=request.client_host,
            classic=None,
        )

    def joined(
        self, request: JoinRequest, subscription: ConsumerProtocolSubscription
    ) -> ConsumerGroupMember:
        """Return the member with the fields of a JoinGroup request of the classic protocol."""
        return replace(
            self,
            instance_id=_or(request.instance_id, self.instance_id),
            rack_id=_or(subscription.rack_id, self.rack_id),
            rebalance_timeout=request.rebalance_timeout,
            topics=frozenset(subscription.topics),
            client_id=request.client_id,
            client_host=request.client_host,
            classic=ClassicProtocolMember(request.session_timeout, request.protocols),
        )

    def replaced_by(self, member_id: str, epoch: int = JOIN_EPOCH) -> ConsumerGroupMember:
        """Return the member with a new id: a static member that joins again."""
        return replace(self, id=member_id, epoch=epoch, previous_epoch=0)

    def left_for_a_while(self) -> ConsumerGroupMember:
        """Return the static member as left, with its partitions reserved until it joins again."""
        kept = dict.fromkeys(self.assigned, 0)
        return replace(self, epoch=STATIC_LEAVE_EPOCH, assigned=kept, pending_revocation={})

    def is_reconciled(self, target_epoch: int) -> bool:
        """Return True if the member has the target assignment of an epoch."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def owns(self, partition: TopicIdPartition) -> bool:
        """Return True if a partition is assigned to the member, or still to be revoked by it."""
        return partition in self.assigned or partition in self.pending_revocation

    def assignment_epoch(self, partition: TopicIdPartition) -> int | None:
        """Return the epoch in which the member got a partition, or None if it does not own it."""
        return self.assigned.get(partition, self.pending_revocation.get(partition))


def _or(value: T | None, default: T) -> T:
    return default if value is None else value


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Computes the next assignment of a member on the way to its target.

    Attributes:
        target_epoch: Epoch of the target assignment.
        target: Target assignment of the member.
        subscribed: Returns True if the member subscribes to the topic of a partition.
        is_free: Returns True if no other member owns a partition.
        owned: Partitions that the member has reported, or None without a report.
    """

    target_epoch: int
    target: Collection[TopicIdPartition]
    subscribed: Callable[[TopicIdPartition], bool]
    is_free: Callable[[TopicIdPartition], bool]
    owned: frozenset[TopicIdPartition] | None

    def next(
        self, member: ConsumerGroupMember, *, subscription_changed: bool
    ) -> ConsumerGroupMember:
        """Return the member with its next assignment, epoch and state."""
        if member.state is MemberState.STABLE:
            if member.epoch != self.target_epoch:
                return self._advance(member)
            return self._drop_unsubscribed(member) if subscription_changed else member
        if member.state is MemberState.UNREVOKED_PARTITIONS and self._still_owns(
            member.pending_revocation
        ):
            return self._drop_unsubscribed(member) if subscription_changed else member
        return self._advance(member)

    def _still_owns(self, revoked: Owned) -> bool:
        return self.owned is None or not self.owned.isdisjoint(revoked)

    def _drop_unsubscribed(self, member: ConsumerGroupMember) -> ConsumerGroupMember:
        """Revoke partitions of topics that the member no longer subscribes to."""
        kept = {it: epoch for it, epoch in member.assigned.items() if self.subscribed(it)}
        if len(kept) == len(member.assigned):
            return member
        dropped = {it: epoch for it, epoch in member.assigned.items() if it not in kept}
        pending = {**member.pending_revocation, **dropped}
        if self._still_owns(pending):
            return replace(
                member,
                state=MemberState.UNREVOKED_PARTITIONS,
                previous_epoch=member.epoch,
                assigned=kept,
                pending_revocation=pending,
            )
        return replace(member, previous_epoch=member.epoch, assigned=kept)

    def _advance(self, member: ConsumerGroupMember) -> ConsumerGroupMember:
        """Revoke first; once that is complete, assign the free partitions."""
        target = {it for it in self.target if self.subscribed(it)}
        kept = {it: epoch for it, epoch in member.assigned.items() if it in target}
        revoked = {it: epoch for it, epoch in member.assigned.items() if it not in target}
        if revoked and self._still_owns(revoked):
            return replace(
                member,
                state=MemberState.UNREVOKED_PARTITIONS,
                previous_epoch=member.epoch,
                assigned=kept,
                pending_revocation=revoked,
            )
        missing = target - kept.keys()
        free = {
            partition: self.target_epoch for partition in sorted(missing) if self.is_free(partition)
        }
        unreleased = len(free) < len(missing)
        return replace(
            member,
            state=MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE,
            epoch=self.target_epoch,
            previous_epoch=member.epoch,
            assigned={**kept, **free},
            pending_revocation={},
        )
