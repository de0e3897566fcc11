"""A share group, whose members may share partitions (KIP-932). Pure.

The group has an epoch, which changes with its members, their subscriptions and the partitions of
its topics. For each epoch the coordinator computes a target assignment, which a member gets with
its next heartbeat. It need not revoke partitions first, since members may share them. A partition
is assigned once its share state has been initialized. Methods that depend on the time take `now`,
in seconds.

state    meaning
------   --------------------------------------------------
Empty    no members; its share partitions keep their states
Stable   has members
Dead     deleted
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.groups.consumer_group_members import JOIN_EPOCH, HeartbeatResult
from kafka_async.embedded.groups.server_assignors import AssignedMember, assign_simple
from kafka_async.errors import (
    CoordinatorLoadInProgressError,
    FencedMemberEpochError,
    GroupMaxSizeReachedError,
    UnknownMemberIdError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from uuid import UUID

    from kafka_async.embedded.groups.consumer_group import Topics
    from kafka_async.embedded.groups.server_assignors import TopicIdPartition

ASSIGNOR: Final = "simple"
"""The only assignor."""


class ShareGroupState(enum.Enum):
    """States of a group, with their names in responses."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class ShareGroupConfig:
    """Holds the options of a group; times in seconds."""

    session_timeout: float = 45.0
    heartbeat_interval: float = 5.0
    assignment_interval: float = 0.0
    max_size: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeat:
    """Represents a ShareGroupHeartbeat request; None is an unchanged field."""

    member_id: str
    epoch: int
    rack_id: str | None = None
    topics: frozenset[str] | None = None
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupMember:
    """Holds a member."""

    id: str
    epoch: int = 0
    previous_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    assigned: frozenset[TopicIdPartition] = frozenset()

    def updated(self, request: ShareHeartbeat) -> ShareGroupMember:
        """Return the member with the fields of a heartbeat."""
        return replace(
            self,
            rack_id=self.rack_id if request.rack_id is None else request.rack_id,
            topics=self.topics if request.topics is None else request.topics,
            client_id=request.client_id,
            client_host=request.client_host,
        )


class ShareGroup:
    """Implements one group.

    Args:
        group_id: Id of the group.
        config: Returns the options, which may change.
        topics: Returns all topics by name.

    Attributes:
        epoch: Epoch of the group.
        assignment_epoch: Epoch of the target assignment.
        members: Members by id.
        targets: Target assignments by member id.
        initialized: Partitions whose share state has been initialized.
        loading: A new coordinator loads the group.
    """

    protocol_type: Final = "share"

    def __init__(
        self, group_id: str, config: Callable[[], ShareGroupConfig], topics: Callable[[], Topics]
    ) -> None:
        self.id = group_id
        self.epoch = self.assignment_epoch = 1
        self.members: dict[str, ShareGroupMember] = {}
        self.targets: dict[str, frozenset[TopicIdPartition]] = {}
        self.initialized: set[TopicIdPartition] = set()
        self.loading = False
        self.deleted = False
        self._config = config
        self._topics = topics
        self._assigned_at: float | None = None
        # The subscribed topics of the current epoch: a difference begins a new epoch.
        self._subscribed: Topics = {}
        self._load_deadline = math.inf
        self._session_deadlines: dict[str, float] = {}

    @property
    def state(self) -> ShareGroupState:
        """The state, derived from the members."""
        if self.deleted:
            return ShareGroupState.DEAD
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """Names of all topics that members subscribe to."""
        return frozenset[str]().union(*(it.topics for it in self.members.values()))

    # -- requests ---------------------------------------------------------------------------------

    def heartbeat(self, request: ShareHeartbeat, now: float) -> HeartbeatResult:
        """Handle a heartbeat that joins or stays; raises the broker's error."""
        self._require_loaded()
        full = len(self.members) >= self._config().max_size
        if full and request.member_id not in self.members:
            raise GroupMaxSizeReachedError(
                f"The share group has reached its maximum capacity of {self._config().max_size} "
                "members."
            )
        member = self.members.get(request.member_id)
        if member is None and request.epoch == JOIN_EPOCH:
            member = ShareGroupMember(id=request.member_id)
        if member is None:
            raise self._unknown(request.member_id)
        _check_epoch(member, request.epoch)
        updated = member.updated(request)
        changed = updated.topics != member.topics or self._has_unassigned_partitions()
        self.members[updated.id] = updated
        changed = self._begin_epoch_if_changed(changed)
        self._compute_targets(now)
        reconciled = self._reconcile(updated, changed)
        self.members[reconciled.id] = reconciled
        self._session_deadlines[reconciled.id] = now + self._config().session_timeout
        shows = (
            request.epoch == JOIN_EPOCH
            or request.topics is not None
            or reconciled.assigned != member.assigned
        )
        return HeartbeatResult(
            reconciled.id, reconciled.epoch, reconciled.assigned if shows else None
        )

    def leave(self, request: ShareHeartbeat) -> HeartbeatResult:
        """Handle a heartbeat that leaves; raises the broker's error."""
        self._require_loaded()
        if request.member_id not in self.members:
            raise self._unknown(request.member_id)
        self._remove(request.member_id)
        return HeartbeatResult(request.member_id, request.epoch)

    def delete(self) -> ErrorCode:
        """Delete the group if it has no members."""
        if self.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if self.members:
            return ErrorCode.NON_EMPTY_GROUP
        self.deleted = True
        return ErrorCode.NONE

    def uninitialized_partitions(self) -> list[TopicIdPartition]:
        """Return the partitions of subscribed topics without a share state."""
        return [
            (topic.id, partition)
            for topic in self._subscribed.values()
            for partition in range(topic.partitions)
            if (topic.id, partition) not in self.initialized
        ]

    # -- time -------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float:
        """The time of the next `expire` in seconds, or infinity."""
        if self.loading:
            return self._load_deadline
        return min(self._session_deadlines.values(), default=math.inf)

    def expire(self, now: float) -> None:
        """Remove members with expired sessions, and end loading."""
        if self.loading:
            if now >= self._load_deadline:
                self.loading, self._load_deadline = False, math.inf
                timeout = self._config().session_timeout
                self._session_deadlines = dict.fromkeys(self.members, now + timeout)
            return
        late = sorted(id_ for id_, deadline in self._session_deadlines.items() if now >= deadline)
        for member_id in late:
            self._remove(member_id)

    def reload(self, now: float, load_time: float = 0.0) -> None:
        """Load the group after a change of coordinator; sessions restart."""
        self.loading, self._load_deadline = True, now + load_time
        self.expire(now)

    # -- members and assignments ------------------------------------------------------------------

    def _require_loaded(self) -> None:
        if self.loading:
            raise CoordinatorLoadInProgressError("the coordinator loads the group")

    def _unknown(self, member_id: str) -> UnknownMemberIdError:
        return UnknownMemberIdError(f"Member {member_id} is not a member of group {self.id}.")

    def _remove(self, member_id: str) -> None:
        for held in (self.members, self.targets, self._session_deadlines):
            held.pop(member_id, None)
        self._subscribed = self._described(self.subscribed_topics)
        self.epoch += 1
        if not self.members:
            self.assignment_epoch, self._assigned_at = self.epoch, None

    def _described(self, names: Iterable[str]) -> Topics:
        topics = self._topics()
        return {name: topics[name] for name in sorted(names) if name in topics}

    def _has_unassigned_partitions(self) -> bool:
        """Return True if a subscribed topic has initialized partitions outside all targets."""
        if self.assignment_epoch < self.epoch or not self.members:
            return False
        assigned = frozenset[tuple["UUID", int]]().union(*self.targets.values())
        subscribed = {it.id for it in self._described(self.subscribed_topics).values()}
        return any(it[0] in subscribed for it in self.initialized - assigned)

    def _begin_epoch_if_changed(self, changed: bool) -> bool:
        subscribed = self._described(self.subscribed_topics)
        changed = changed or subscribed != self._subscribed
        if changed:
            self.epoch += 1
            self._subscribed = subscribed
        return changed

    def _compute_targets(self, now: float) -> None:
        interval = self._config().assignment_interval
        too_early = self._assigned_at is not None and now < self._assigned_at + interval
        if self.assignment_epoch >= self.epoch or too_early:
            return
        topics = self._topics()
        members = {
            member.id: AssignedMember(
                None,
                frozenset(topics[name].id for name in member.topics if name in topics),
                self.targets.get(member.id, frozenset()),
            )
            for member in self.members.values()
        }
        self.targets = assign_simple(members, self.initialized)
        self.assignment_epoch, self._assigned_at = self.epoch, now

    def _reconcile(self, member: ShareGroupMember, changed: bool) -> ShareGroupMember:
        """Return the member with its target assignment."""
        moves = member.epoch != self.assignment_epoch
        if not moves and not changed:
            return member
        topics = self._topics()
        subscribed = {topics[name].id for name in member.topics if name in topics}
        target = self.targets.get(member.id, frozenset())
        assigned = frozenset(it for it in target if it[0] in subscribed)
        if not moves:
            return replace(member, assigned=assigned)
        return replace(
            member,
            epoch=self.assignment_epoch,
            previous_epoch=member.epoch,
            assigned=assigned,
        )


def _check_epoch(member: ShareGroupMember, epoch: int) -> None:
    """Raise FencedMemberEpochError unless a heartbeat has the member's epoch.

    The previous epoch is valid too: the response to the last heartbeat may have been lost.
    """
    if epoch not in (JOIN_EPOCH, member.epoch, member.previous_epoch) or epoch > member.epoch:
        raise FencedMemberEpochError(
            f"The share group member has another member epoch ({epoch}) than the one known by the "
            f"group coordinator ({member.epoch}). The member must abandon all its partitions and "
            "rejoin."
        )
