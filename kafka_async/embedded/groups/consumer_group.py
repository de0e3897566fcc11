"""A group of the consumer protocol: the coordinator computes the assignment (KIP-848). Pure.

The group has an epoch, which changes with its members, their subscriptions and the partitions of
its topics. For each epoch the coordinator computes a target assignment. Each member moves to its
target independently, by heartbeats: it revokes partitions, then advances its epoch, then gets the
partitions that other members have released. Methods that depend on the time take `now`, in seconds.

state          meaning
------------   ---------------------------------------------------------------
Empty          no members; may have committed offsets
Assigning      the target assignment is older than the group's epoch
Reconciling    members are on the way to their target
Stable         all members have their target
Dead           deleted
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from uuid import UUID

from kafka_async.embedded.error_codes import ErrorCode, error_code_of
from kafka_async.embedded.groups.consumer_group_members import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    ClassicProtocolMember,
    ConsumerGroupMember,
    ConsumerHeartbeat,
    HeartbeatResult,
    MemberState,
    Reconciliation,
)
from kafka_async.embedded.groups.members import JoinResult, SyncResult
from kafka_async.embedded.groups.server_assignors import (
    SERVER_ASSIGNORS,
    AssignedMember,
    TopicIdPartition,
)
from kafka_async.embedded.groups.subscriptions import (
    decode_subscription,
    encode_assignment,
    owned_partitions,
)
from kafka_async.embedded.groups.topic_patterns import compile_pattern
from kafka_async.errors import (
    CoordinatorLoadInProgressError,
    DecodeError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    KafkaError,
    RebalanceInProgressError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedVersionError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kafka_async.embedded.groups.members import JoinRequest, SyncRequest

REGEX_REFRESH_MIN_INTERVAL: Final = 10.0
"""Seconds between two searches for the topics that regular expressions match."""
COMMIT_MEMBER_EPOCH_MIN_VERSION: Final = 9


class ConsumerGroupState(enum.Enum):
    """States of a group, with their names in responses."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class TopicPartitions(NamedTuple):
    """Describes a topic to the coordinator."""

    id: UUID
    partitions: int


Topics: TypeAlias = "Mapping[str, TopicPartitions]"


@dataclass(frozen=True, slots=True)
class ConsumerGroupConfig:
    """Holds the options of a group; times in seconds."""

    session_timeout: float = 45.0
    heartbeat_interval: float = 5.0
    assignment_interval: float = 0.0
    max_size: int = 2_147_483_647


class ConsumerGroup:
    """Implements one group.

    Args:
        group_id: Id of the group.
        config: Returns the options, which may change.
        topics: Returns all topics by name.
        new_id: Returns a new member id.

    Attributes:
        epoch: Epoch of the group.
        assignment_epoch: Epoch of the target assignment.
        members: Members by id.
        targets: Target assignments by member id.
        loading: A new coordinator loads the group.
    """

    protocol_type: Final = "consumer"

    def __init__(
        self,
        group_id: str,
        config: Callable[[], ConsumerGroupConfig],
        topics: Callable[[], Topics],
        new_id: Callable[[], str],
    ) -> None:
        self.id = group_id
        self.epoch = 1
        self.assignment_epoch = 0
        self.members: dict[str, ConsumerGroupMember] = {}
        self.targets: dict[str, frozenset[TopicIdPartition]] = {}
        self.loading = False
        self.deleted = False
        self._config = config
        self._topics = topics
        self._new_id = new_id
        self._assigned_at: float | None = None
        self._subscribed: Topics = {}
        self._pattern_topics: dict[str, frozenset[str]] = {}
        self._patterns_resolved_at = -math.inf
        self._load_deadline = math.inf
        self._session_deadlines: dict[str, float] = {}
        self._revocation_deadlines: dict[str, float] = {}
        # Deadlines of classic members, by which they must join again or send SyncGroup.
        self._join_deadlines: dict[str, float] = {}
        self._sync_deadlines: dict[str, float] = {}

    @property
    def state(self) -> ConsumerGroupState:
        """The state, derived from epochs and members."""
        if self.deleted:
            return ConsumerGroupState.DEAD
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(it.is_reconciled(self.assignment_epoch) for it in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def assignor(self) -> str:
        """Name of the assignor that most members with a preference prefer."""
        return _preferred_assignor(self.members.values())

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """Names of all topics that members subscribe to, by name or regular expression."""
        return frozenset[str]().union(*(self._topics_of(it) for it in self.members.values()))

    @property
    def is_classic(self) -> bool:
        """True if there are members, and all use the classic protocol."""
        return bool(self.members) and all(it.classic for it in self.members.values())

    def take_over(self, epoch: int, members: Iterable[ConsumerGroupMember], now: float) -> None:
        """Begin with the members and the generation of a former classic group."""
        self.epoch = self.assignment_epoch = epoch
        for member in members:
            self.members[member.id] = member
            self.targets[member.id] = frozenset(member.assigned)
            self._extend_session(member, now)
        self._subscribed = self._described(self.subscribed_topics)

    # -- requests ---------------------------------------------------------------------------------

    def heartbeat(
        self, request: ConsumerHeartbeat, now: float, may_describe: Callable[[str], bool]
    ) -> HeartbeatResult:
        """Handle a heartbeat that joins or stays.

        `may_describe` returns True for topics that regular expressions may match. Raises the
        broker's error; the group is then unchanged.
        """
        self._require_loaded()
        self._require_space(request.member_id, request.instance_id)
        member_id = request.member_id or self._new_id()
        replaced, member = self._find_or_create(request, member_id)
        updated = member.updated(request)
        self._check_pattern(member, updated)
        if replaced is not None:
            self._replace(replaced, member)
        self._change_subscription(member, updated, now)
        reconciled = self._reconcile(member, updated, request.owned, now)
        self._extend_session(reconciled, now)
        self._refresh_patterns(now, may_describe)
        changed = member.assigned != reconciled.assigned
        shows = request.epoch == JOIN_EPOCH or request.is_full or changed
        assignment = frozenset(reconciled.assigned) if shows else None
        return HeartbeatResult(member_id, reconciled.epoch, assignment)

    def leave(self, request: ConsumerHeartbeat, now: float) -> HeartbeatResult:
        """Handle a heartbeat that leaves permanently or temporarily. Raises the broker's error."""
        self._require_loaded()
        member = self.find_member(request.member_id, request.instance_id)
        if request.instance_id is not None and request.epoch == STATIC_LEAVE_EPOCH:
            self.members[member.id] = member.left_for_a_while()
        else:
            self.remove([member.id], now)
        return HeartbeatResult(member.id, request.epoch)

    def find_member(self, member_id: str, instance_id: str | None) -> ConsumerGroupMember:
        """Return a member; raises UnknownMemberIdError and FencedInstanceIdError."""
        if instance_id is None:
            member = self.members.get(member_id)
            if member is None:
                raise UnknownMemberIdError(
                    f"Member {member_id} is not a member of group {self.id}."
                )
            return member
        member = self.static_member(instance_id)
        if member is None:
            raise UnknownMemberIdError(f"Instance id {instance_id} is unknown.")
        if member.id != member_id:
            raise FencedInstanceIdError(
                f"Static member {member_id} with instance id {instance_id} was fenced by member "
                f"{member.id}."
            )
        return member

    def static_member(self, instance_id: str | None) -> ConsumerGroupMember | None:
        """Return a static member by instance id, or None."""
        if instance_id is None:
            return None
        return next((it for it in self.members.values() if it.instance_id == instance_id), None)

    def remove(self, member_ids: Iterable[str], now: float) -> None:
        """Remove members; a new epoch begins."""
        for member_id in member_ids:
            self._forget(member_id)
        self._drop_unused_patterns()
        self._subscribed = self._described(self.subscribed_topics)
        self.epoch += 1
        if not self.members:
            self.assignment_epoch, self._assigned_at = self.epoch, None

    def delete(self) -> ErrorCode:
        """Delete the group if it has no members."""
        if self.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if self.members:
            return ErrorCode.NON_EMPTY_GROUP
        self.deleted = True
        return ErrorCode.NONE

    # -- requests of members of the classic protocol ----------------------------------------------

    def join_classic(self, request: JoinRequest, now: float) -> JoinResult:
        """Handle JoinGroup without waiting for other members. Raises the broker's error."""
        self._require_loaded()
        member_id = request.member_id or self._new_id()
        self._require_space(member_id, request.instance_id)
        self._require_protocols(request)
        is_new = not request.member_id and request.instance_id is None
        if is_new and request.requires_known_member_id:
            return JoinResult(code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        replaced, member = self._find_or_create_classic(request, member_id)
        try:
            subscription = decode_subscription(request.protocols[0].metadata)
        except DecodeError as error:
            raise InconsistentGroupProtocolError(error.message) from error
        updated = member.joined(request, subscription)
        if replaced is not None:
            self._replace(replaced, member)
        self._change_subscription(member, updated, now)
        ids = {name: topic.id for name, topic in self._topics().items()}
        owned = owned_partitions(subscription, ids)
        reconciled = self._reconcile(member, updated, owned, now)
        self._join_deadlines.pop(member_id, None)
        self._sync_deadlines[member_id] = now + updated.rebalance_timeout
        self._extend_session(reconciled, now)
        return JoinResult(
            member_id=member_id,
            generation=reconciled.epoch,
            protocol_type=self.protocol_type,
            protocol=request.protocols[0].name,
        )

    def sync_classic(self, request: SyncRequest, now: float) -> SyncResult:
        """Handle SyncGroup; return the member's assignment. Raises the broker's error."""
        member, classic = self._find_classic(
            request.member_id, request.instance_id, request.generation
        )
        protocol = classic.protocols[0]
        if request.protocol_type not in (None, self.protocol_type) or request.protocol not in (
            None,
            protocol.name,
        ):
            raise InconsistentGroupProtocolError("The protocol is not that of the member.")
        # A member that has to revoke partitions does that first, then joins again.
        if self.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._join_deadlines.setdefault(member.id, now + member.rebalance_timeout)
            raise RebalanceInProgressError(f"The group has epoch {self.epoch} by now.")
        self._sync_deadlines.pop(member.id, None)
        self._extend_session(member, now)
        names = {topic.id: name for name, topic in self._topics().items()}
        return SyncResult(
            protocol_type=request.protocol_type,
            protocol=request.protocol,
            assignment=encode_assignment(member.assigned, protocol.metadata, names),
        )

    def heartbeat_classic(
        self, member_id: str, instance_id: str | None, generation: int, now: float
    ) -> None:
        """Handle Heartbeat. Raises RebalanceInProgressError if the member must join again."""
        member, _ = self._find_classic(member_id, instance_id, generation)
        self._extend_session(member, now)
        if (
            member.epoch < self.epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (
                member.state is MemberState.UNRELEASED_PARTITIONS
                and not self._waits_for_others(member)
            )
        ):
            self._join_deadlines.setdefault(member.id, now + member.rebalance_timeout)
            raise RebalanceInProgressError("The member has to join again.")

    def leave_classic(
        self, members: Sequence[tuple[str, str | None]], now: float
    ) -> list[ErrorCode]:
        """Handle LeaveGroup for members of both protocols; return their error codes."""
        codes: list[ErrorCode] = []
        leaving: dict[str, None] = {}
        for member_id, instance_id in members:
            try:
                self._require_loaded()
                leaving[self._find_leaving(member_id, instance_id).id] = None
            except KafkaError as error:
                codes.append(ErrorCode(error_code_of(error)))
            else:
                codes.append(ErrorCode.NONE)
        if leaving:
            self.remove(leaving, now)
        return codes

    def _find_leaving(self, member_id: str, instance_id: str | None) -> ConsumerGroupMember:
        """Return a member; for a static member, the id may be empty."""
        static = None if member_id else self.static_member(instance_id)
        return static or self.find_member(member_id, instance_id)

    def _find_classic(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> tuple[ConsumerGroupMember, ClassicProtocolMember]:
        self._require_loaded()
        member = self.find_member(member_id, instance_id)
        if member.classic is None:
            raise UnknownMemberIdError(f"Member {member_id} does not use the classic protocol.")
        if generation != member.epoch:
            raise IllegalGenerationError(
                f"The generation is {member.epoch} for member {member_id}, not {generation}."
            )
        return member, member.classic

    def _find_or_create_classic(
        self, request: JoinRequest, member_id: str
    ) -> tuple[str | None, ConsumerGroupMember]:
        """Return the id of a static member to replace, and the member of a JoinGroup request."""
        if request.instance_id is None:
            return None, self.members.get(member_id) or ConsumerGroupMember(id=member_id)
        if request.member_id:
            return None, self.find_member(member_id, request.instance_id)
        existing = self.static_member(request.instance_id)
        if existing is None:
            return None, ConsumerGroupMember(id=member_id)
        return existing.id, existing.replaced_by(member_id, self.assignment_epoch)

    def _require_protocols(self, request: JoinRequest) -> None:
        """Raise InconsistentGroupProtocolError unless all classic members share a protocol."""
        others = [it.classic for it in self.members.values() if it.classic is not None]
        votes = Counter(protocol.name for it in others for protocol in it.protocols)
        names = {protocol.name for protocol in request.protocols}
        common = any(votes[name] == len(others) for name in names)
        if request.protocol_type != self.protocol_type or not common:
            raise InconsistentGroupProtocolError(
                f"Member {request.member_id}'s protocols are not supported."
            )

    def _waits_for_others(self, member: ConsumerGroupMember) -> bool:
        """Return True if another member owns a partition of a member's target."""
        missing = self.targets.get(member.id, frozenset()) - member.assigned.keys()
        return any(
            it.owns(partition)
            for it in self.members.values()
            if it.id != member.id
            for partition in missing
        )

    # -- offsets ----------------------------------------------------------------------------------

    def validate_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        partitions: Iterable[TopicIdPartition],
        *,
        transactional: bool,
        version: int,
    ) -> None:
        """Raise the broker's error unless these partitions may be committed with this epoch."""
        self._require_loaded()
        if epoch < 0 and not self.members:
            return
        if transactional and epoch == -1 and not member_id and instance_id is None:
            return
        member = self.find_member(member_id, None)
        if (
            not transactional
            and member.classic is None
            and version < COMMIT_MEMBER_EPOCH_MIN_VERSION
        ):
            raise UnsupportedVersionError(
                "OffsetCommit version 9 or above must be used by members using the consumer group "
                "protocol"
            )
        if epoch == member.epoch:
            return
        stale = StaleMemberEpochError if member.classic is None else IllegalGenerationError
        if epoch > member.epoch:
            raise stale(
                f"Received member epoch {epoch} is newer than current member epoch {member.epoch}."
            )
        # With an older epoch, a member may still commit partitions that it has owned since then.
        for partition in partitions:
            assigned_in = member.assignment_epoch(partition)
            if assigned_in is None or epoch < assigned_in:
                raise stale(
                    f"Received member epoch {epoch} is older than the assignment of {partition[1]}."
                )

    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise the broker's error unless a member may fetch offsets with this epoch."""
        if member_id is None and epoch < 0:
            return
        member = self.find_member(member_id or "", None)
        if epoch != member.epoch:
            stale = StaleMemberEpochError if member.classic is None else IllegalGenerationError
            raise stale(
                f"The received member epoch {epoch} does not match the expected member epoch "
                f"{member.epoch}."
            )

    # -- time -------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float:
        """The time of the next `expire` in seconds, or infinity."""
        if self.loading:
            return self._load_deadline
        deadlines = (deadline for timer in self._timers for deadline in timer.values())
        return min(deadlines, default=math.inf)

    @property
    def _timers(self) -> tuple[dict[str, float], ...]:
        return (
            *(self._session_deadlines, self._revocation_deadlines),
            *(self._join_deadlines, self._sync_deadlines),
        )

    def expire(self, now: float) -> None:
        """Remove members whose session or revocation has timed out, and end loading."""
        if self.loading:
            if now >= self._load_deadline:
                self._load(now)
            return
        late = {id_ for timer in self._timers for id_, at in timer.items() if now >= at}
        for member_id in sorted(late):
            self.remove([member_id], now)

    def reload(self, now: float, load_time: float = 0.0) -> None:
        """Load the group after a change of coordinator; sessions restart."""
        self.loading, self._load_deadline = True, now + load_time
        self.expire(now)

    def _load(self, now: float) -> None:
        self.loading, self._load_deadline = False, math.inf
        self._join_deadlines.clear()
        self._sync_deadlines.clear()
        for member in self.members.values():
            self._session_deadlines[member.id] = now + self._config().session_timeout
            if member.id in self._revocation_deadlines:
                self._revocation_deadlines[member.id] = now + member.rebalance_timeout

    # -- members ----------------------------------------------------------------------------------

    def _require_loaded(self) -> None:
        if self.loading:
            raise CoordinatorLoadInProgressError("The coordinator is loading the group.")

    def _require_space(self, member_id: str, instance_id: str | None) -> None:
        known = member_id in self.members or self.static_member(instance_id) is not None
        limit = self._config().max_size
        if not known and len(self.members) >= limit:
            raise GroupMaxSizeReachedError(
                f"The consumer group has reached its maximum capacity of {limit} members."
            )

    def _find_or_create(
        self, request: ConsumerHeartbeat, member_id: str
    ) -> tuple[str | None, ConsumerGroupMember]:
        """Return the id of a static member to replace, and the member of a heartbeat."""
        joins = request.epoch == JOIN_EPOCH
        existing = self.static_member(request.instance_id)
        if request.instance_id is not None and joins:
            if existing is None:
                return None, self.members.get(member_id) or ConsumerGroupMember(id=member_id)
            if existing.classic is None and existing.epoch != STATIC_LEAVE_EPOCH:
                raise UnreleasedInstanceIdError(
                    f"Static member {member_id} with instance id {request.instance_id} cannot join "
                    f"the group because the instance id is owned by {existing.id} member."
                )
            return existing.id, existing.replaced_by(member_id)
        if joins and member_id not in self.members:
            return None, ConsumerGroupMember(id=member_id)
        member = self.find_member(member_id, request.instance_id)
        _check_epoch(member, request)
        return None, member

    def _replace(self, old_id: str, member: ConsumerGroupMember) -> None:
        target = self.targets.get(old_id, frozenset())
        self._forget(old_id)
        self.members[member.id], self.targets[member.id] = member, target

    def _forget(self, member_id: str) -> None:
        self.members.pop(member_id, None)
        self.targets.pop(member_id, None)
        for timer in self._timers:
            timer.pop(member_id, None)

    def _extend_session(self, member: ConsumerGroupMember, now: float) -> None:
        classic = member.classic
        timeout = self._config().session_timeout if classic is None else classic.session_timeout
        self._session_deadlines[member.id] = now + timeout

    # -- subscriptions ----------------------------------------------------------------------------

    def _topics_of(self, member: ConsumerGroupMember) -> frozenset[str]:
        return member.topics | self._pattern_topics.get(member.pattern or "", frozenset())

    def _described(self, names: Iterable[str]) -> Topics:
        topics = self._topics()
        return {name: topics[name] for name in sorted(names) if name in topics}

    def _check_pattern(self, member: ConsumerGroupMember, updated: ConsumerGroupMember) -> None:
        """Raise InvalidRegularExpressionError for a regular expression new to the group."""
        pattern = updated.pattern
        used = {it.pattern for it in self.members.values()}
        if pattern and pattern != member.pattern and pattern not in used:
            compile_pattern(pattern)

    def _change_subscription(
        self, member: ConsumerGroupMember, updated: ConsumerGroupMember, now: float
    ) -> None:
        """Store a member; begin an epoch if an input of the assignment has changed."""
        assignor = self.assignor
        self.members[updated.id] = updated
        self._drop_unused_patterns()
        changed = (
            member.topics != updated.topics
            or assignor != self.assignor
            or (
                (member.pattern or "") != (updated.pattern or "")
                and (not updated.pattern or updated.pattern in self._pattern_topics)
            )
        )
        subscribed = self._described(self.subscribed_topics)
        if changed or subscribed != self._subscribed:
            self.epoch += 1
            self._subscribed = subscribed
        self._compute_targets(now)

    def _drop_unused_patterns(self) -> None:
        used = {it.pattern for it in self.members.values()}
        self._pattern_topics = {
            pattern: topics for pattern, topics in self._pattern_topics.items() if pattern in used
        }

    def _refresh_patterns(self, now: float, may_describe: Callable[[str], bool]) -> None:
        """Resolve regular expressions to topics; the next heartbeat uses them."""
        used = {it.pattern for it in self.members.values() if it.pattern}
        resolved_recently = now <= self._patterns_resolved_at + REGEX_REFRESH_MIN_INTERVAL
        if not used or (self._pattern_topics and resolved_recently):
            return
        names = [name for name in self._topics() if may_describe(name)]
        resolved = {
            pattern: frozenset(filter(compile_pattern(pattern).fullmatch, names))
            for pattern in used
        }
        self._patterns_resolved_at = now
        before, self._pattern_topics = self._pattern_topics, resolved
        changed = any(topics != before.get(it, frozenset()) for it, topics in resolved.items())
        subscribed = self._described(self.subscribed_topics)
        if changed or subscribed != self._subscribed:
            self.epoch += 1
            self._subscribed = subscribed

    # -- assignments ------------------------------------------------------------------------------

    def _compute_targets(self, now: float) -> None:
        if self.assignment_epoch >= self.epoch:
            return
        interval = self._config().assignment_interval
        if self._assigned_at is not None and now < self._assigned_at + interval:
            return  # A later heartbeat computes the targets.
        counts = {topic.id: topic.partitions for topic in self._subscribed.values()}
        ids = {name: topic.id for name, topic in self._subscribed.items()}
        members = {
            member.id: AssignedMember(
                member.instance_id,
                frozenset(ids[name] for name in self._topics_of(member) if name in ids),
                self.targets.get(member.id, frozenset()),
            )
            for member in self.members.values()
        }
        self.targets = SERVER_ASSIGNORS[self.assignor](members, counts)
        self.assignment_epoch, self._assigned_at = self.epoch, now

    def _reconcile(
        self,
        member: ConsumerGroupMember,
        updated: ConsumerGroupMember,
        owned: frozenset[TopicIdPartition] | None,
        now: float,
    ) -> ConsumerGroupMember:
        """Store and return the member with its next assignment."""
        subscription = (member.topics, member.pattern or "")
        subscription_changed = subscription != (updated.topics, updated.pattern or "")
        if not subscription_changed and updated.is_reconciled(self.assignment_epoch):
            return updated
        topics = self._topics()
        subscribed = {topics[name].id for name in self._topics_of(updated) if name in topics}
        others = [it for it in self.members.values() if it.id != updated.id]
        reconciled = Reconciliation(
            self.assignment_epoch,
            self.targets.get(updated.id, frozenset()),
            lambda partition: partition[0] in subscribed,
            lambda partition: not any(it.owns(partition) for it in others),
            owned,
        ).next(updated, subscription_changed=subscription_changed)
        if reconciled != updated:
            self.members[updated.id] = reconciled
            # Classic members must join again in time instead.
            unrevoked = reconciled.state is MemberState.UNREVOKED_PARTITIONS
            if unrevoked and reconciled.classic is None:
                deadline = now + reconciled.rebalance_timeout
                self._revocation_deadlines[updated.id] = deadline
            else:
                self._revocation_deadlines.pop(updated.id, None)
        return reconciled


def _preferred_assignor(members: Iterable[ConsumerGroupMember]) -> str:
    votes = Counter(it.assignor for it in members if it.assignor is not None)
    return max(SERVER_ASSIGNORS, key=lambda name: votes[name])


def _check_epoch(member: ConsumerGroupMember, request: ConsumerHeartbeat) -> None:
    """Raise FencedMemberEpochError unless a heartbeat has the member's epoch.

    The previous epoch is valid too: the response to the last heartbeat may have been lost.
    """
    if request.epoch in (JOIN_EPOCH, member.epoch):
        return
    lost_response = request.epoch == member.previous_epoch and (
        request.owned is not None and request.owned <= member.assigned.keys()
    )
    if request.epoch > member.epoch or not lost_response:
        kind = "greater" if request.epoch > member.epoch else "smaller"
        raise FencedMemberEpochError(
            f"The consumer group member has a {kind} member epoch ({request.epoch}) than the one "
            f"known by the group coordinator ({member.epoch}). The member must abandon all its "
            "partitions and rejoin."
        )
