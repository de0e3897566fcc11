"""A group of the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup. Pure.

Methods that depend on the time take `now`, in seconds. The caller chooses a request id for a
request that may have to wait; `pop_responses()` returns its response after this or a later call.
`expire(now)` must be called at `deadline`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.groups.classic_group_state import (
    TRANSITIONS,
    ClassicGroupState,
    GroupAction,
    GroupEvent,
    action_for,
    error_code_for,
)
from kafka_async.embedded.groups.members import (
    ClassicGroupMember,
    GroupMembers,
    JoinResult,
    SyncResult,
)
from kafka_async.embedded.groups.subscriptions import CONSUMER, reports_assignor_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafka_async.embedded.groups.members import JoinRequest, SyncRequest

GroupResponse: TypeAlias = "tuple[int, JoinResult | SyncResult]"

NEW_MEMBER_JOIN_TIMEOUT: Final = 300.0
"""Seconds for a member's first JoinGroup: until its response, a member cannot send heartbeats."""


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Holds the options of groups; the delay is in seconds."""

    initial_delay: float = 0.0
    max_size: int = 2_147_483_647
    forward_assignor_errors: bool = False
    random_leader: bool = False
    persistent_members: bool = True


@dataclass(frozen=True, slots=True)
class _PersistedGroup:
    """The last complete generation, which a new coordinator loads."""

    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: tuple[ClassicGroupMember, ...] = ()


class ClassicGroup:
    """Implements the state machine of one group; `new_id(prefix)` returns member ids."""

    def __init__(self, group_id: str, config: GroupConfig, new_id: Callable[[str], str]) -> None:
        self.id = group_id
        self.state = ClassicGroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.members = GroupMembers()
        self._config = config
        self._new_id = new_id
        # Deadlines of members that got an id and have not joined with it yet (KIP-394).
        self._pending_join_members: dict[str, float] = {}
        self._pending_sync_members: set[str] = set()
        self._join_deadline = math.inf
        self._sync_deadline = math.inf
        self._load_deadline = math.inf
        self._initial_delay_left: float | None = None  # seconds; None outside an initial rebalance
        self._new_member_added = False
        self._persisted = _PersistedGroup()
        self._responses: list[GroupResponse] = []

    @classmethod
    def restored(
        cls,
        group_id: str,
        config: GroupConfig,
        new_id: Callable[[str], str],
        generation: int,
        members: Iterable[ClassicGroupMember],
        now: float,
    ) -> ClassicGroup:
        """Return a stable group with the members and the epoch of a former consumer group."""
        group = cls(group_id, config, new_id)
        for member in members:
            group.members.add(member)
        group.generation, group.protocol_type = generation, CONSUMER
        group.protocol = group.members.select_protocol()
        group._persist()
        group._transition_to(ClassicGroupState.LOADING)
        group._load(now)
        return group

    def rebalance(self, now: float) -> None:
        """Let all members join again."""
        self._prepare_rebalance(now)

    def end(self) -> None:
        """Fail pending requests with REBALANCE_IN_PROGRESS: a consumer group takes over."""
        for member in self.members:
            self._fail_pending_requests(member, ErrorCode.REBALANCE_IN_PROGRESS)

    @property
    def loading(self) -> bool:
        """True while a new coordinator loads the group."""
        return self.state is ClassicGroupState.LOADING

    # -- requests ---------------------------------------------------------------------------------

    def join(self, request: JoinRequest, request_id: int, now: float) -> None:
        """Handle JoinGroup; the response may have to wait for the rebalance."""
        if self.state in (ClassicGroupState.DEAD, ClassicGroupState.LOADING):
            self._fail_join(
                request_id, error_code_for(GroupEvent.JOIN_NEW, self.state), request.member_id
            )
        elif not self._accepts_joining_member(request.member_id):
            self._fail_join(request_id, ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        elif not self._supports_protocols(request):
            self._fail_join(request_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        elif request.member_id:
            self._join_existing_member(request, request_id, now)
        elif request.instance_id is not None and (
            old_id := self.members.static_member_id(request.instance_id)
        ):
            self._replace_static_member(request, old_id, request_id, now)
        else:
            self._join_new_member(request, request_id, now)

    def sync(self, request: SyncRequest, request_id: int, now: float) -> None:
        """Handle SyncGroup; the response may have to wait for the leader's assignment."""
        code = self._validate_member(
            request.member_id, request.instance_id, request.generation, GroupEvent.SYNC
        )
        if code is ErrorCode.NONE and not (
            request.protocol_type in (None, self.protocol_type)
            and request.protocol in (None, self.protocol)
        ):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        member = self.members.get(request.member_id)
        if code is not ErrorCode.NONE or member is None:
            self._responses.append((request_id, SyncResult(code=code)))
            return
        leads = self.members.leader == member.id
        action = action_for(GroupEvent.SYNC_FROM_LEADER if leads else GroupEvent.SYNC, self.state)
        if isinstance(action, ErrorCode):
            self._responses.append((request_id, SyncResult(code=action)))
            return
        self._on_synced(member)
        member.awaiting_sync = request_id
        if action is GroupAction.PROPAGATE_ASSIGNMENT:
            if self._config.forward_assignor_errors and any(
                map(reports_assignor_error, request.assignments.values())
            ):
                self._forward_assignor_error(now)
            else:
                self._propagate_assignment(request.assignments, now)
        elif action is GroupAction.RETURN_ASSIGNMENT:
            self._respond_to_sync(member, ErrorCode.NONE, now)

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now: float
    ) -> ErrorCode:
        """Handle Heartbeat: extend the session; return REBALANCE_IN_PROGRESS during a rebalance."""
        code = self._validate_member(member_id, instance_id, generation)
        if code is not ErrorCode.NONE:
            return code
        self._extend_session(member_id, now)
        return error_code_for(GroupEvent.HEARTBEAT, self.state)

    def leave(self, member_id: str, instance_id: str | None, now: float) -> ErrorCode:
        """Handle one member of LeaveGroup, identified by its member id or instance id."""
        if self.state in (ClassicGroupState.DEAD, ClassicGroupState.LOADING):
            return self._validate_member(member_id, instance_id, self.generation)
        if self._pending_join_members.pop(member_id, None) is not None:
            self._on_member_removed(now)
            return ErrorCode.NONE
        if not member_id:
            member_id = self.members.static_member_id(instance_id) or ""
        code = self.members.validate_member(member_id, instance_id)
        if code is ErrorCode.NONE:
            self._remove_member(member_id)
            self._on_member_removed(now)
        return code

    def validate_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now: float,
        *,
        transactional: bool = False,
    ) -> ErrorCode:
        """Return NONE for a commit of the current generation, or of none if the group is empty.

        A transactional commit may lack the member in any state (before KIP-447).
        """
        state_error = error_code_for(GroupEvent.COMMIT, self.state)
        if self.state in (ClassicGroupState.DEAD, ClassicGroupState.LOADING):
            return state_error
        if generation < 0 and self.state is ClassicGroupState.EMPTY:
            return ErrorCode.NONE
        if generation >= 0 or member_id or instance_id is not None:
            code = self._validate_member(member_id, instance_id, generation)
            if code is not ErrorCode.NONE:
                return code
        elif not transactional:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if transactional:
            return ErrorCode.NONE
        if state_error is not ErrorCode.NONE:
            return state_error
        self._extend_session(member_id, now)
        return ErrorCode.NONE

    def delete(self) -> ErrorCode:
        """Delete the group if it has no members."""
        action = action_for(GroupEvent.DELETE, self.state)
        if isinstance(action, ErrorCode):
            return action
        self._transition_to(ClassicGroupState.DEAD)
        return ErrorCode.NONE

    # -- time -------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float:
        """The time of the next `expire` in seconds, or infinity."""
        if self.state is ClassicGroupState.LOADING:
            return self._load_deadline
        sessions = (member.session_deadline for member in self.members)
        return min(
            self._join_deadline,
            self._sync_deadline,
            *self._pending_join_members.values(),
            *sessions,
        )

    def expire(self, now: float) -> None:
        """Handle the timeouts that have passed: sessions, joins, syncs and the load time."""
        if self.state is ClassicGroupState.LOADING:
            if now >= self._load_deadline:
                self._load(now)
            return
        late = [id_ for id_, deadline in self._pending_join_members.items() if now >= deadline]
        for member_id in late:
            del self._pending_join_members[member_id]
        expired = [member.id for member in self.members if now >= member.session_deadline]
        for member_id in expired:
            self._remove_member(member_id)
        if late or expired:
            self._on_member_removed(now)
        if now >= self._join_deadline:
            self._on_join_timeout(now)
        if now >= self._sync_deadline:
            self._on_sync_timeout(now)

    def pop_responses(self) -> list[GroupResponse]:
        """Return the responses that are ready, and remove them."""
        ready, self._responses = self._responses, []
        return ready

    def reload(self, now: float, load_time: float = 0.0) -> None:
        """Fail pending requests with NOT_COORDINATOR, and load the last complete generation.

        Called when the coordinator has changed.
        """
        for member in self.members:
            self._fail_pending_requests(member, ErrorCode.NOT_COORDINATOR)
        self._pending_join_members.clear()
        self._reset_rebalance()
        if not self._config.persistent_members:
            self._persisted = _PersistedGroup()
        self._transition_to(ClassicGroupState.LOADING)
        self._load_deadline = now + load_time
        self.expire(now)

    # -- joining ----------------------------------------------------------------------------------

    def _join_new_member(self, request: JoinRequest, request_id: int, now: float) -> None:
        member_id = self._new_id(
            request.client_id if request.instance_id is None else request.instance_id
        )
        if request.requires_known_member_id and request.instance_id is None:
            self._pending_join_members[member_id] = now + request.session_timeout
            self._fail_join(request_id, ErrorCode.MEMBER_ID_REQUIRED, member_id)
        else:
            self._add_member(request, member_id, request_id, now)

    def _join_existing_member(self, request: JoinRequest, request_id: int, now: float) -> None:
        if request.member_id in self._pending_join_members:
            del self._pending_join_members[request.member_id]
            self._add_member(request, request.member_id, request_id, now)
            return
        code = self.members.validate_member(request.member_id, request.instance_id)
        member = self.members.get(request.member_id)
        if code is not ErrorCode.NONE or member is None:
            self._fail_join(request_id, code, request.member_id)
            return
        event = GroupEvent.REJOIN_CHANGED
        if member.protocols == request.protocols:
            event = (
                GroupEvent.REJOIN_LEADER if self.members.leader == member.id else GroupEvent.REJOIN
            )
        action = action_for(event, self.state)
        if action is GroupAction.RETURN_GENERATION:
            self._responses.append((request_id, self._generation_for(member)))
        elif isinstance(action, ErrorCode):
            self._fail_join(request_id, action, request.member_id)
        else:
            member.update(request)
            member.awaiting_join = request_id
            self._apply_action(action, now)

    def _add_member(
        self, request: JoinRequest, member_id: str, request_id: int, now: float
    ) -> None:
        member = ClassicGroupMember.of(request, member_id)
        member.deadline = now + NEW_MEMBER_JOIN_TIMEOUT
        if self.state is ClassicGroupState.EMPTY:
            self.protocol_type = request.protocol_type
        self.members.add(member)
        member.awaiting_join = request_id
        self._new_member_added = True
        self._apply_action(action_for(GroupEvent.JOIN_NEW, self.state), now)

    def _replace_static_member(
        self, request: JoinRequest, old_id: str, request_id: int, now: float
    ) -> None:
        leader = self.members.leader
        if (old := self.members.get(old_id)) is not None:
            self._fail_pending_requests(old, ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.replace_static_member(old_id, self._new_id(request.instance_id or ""))
        self._pending_sync_members.discard(old_id)
        member.update(request)
        member.deadline = now + member.session_timeout
        protocol_changes = self.members.select_protocol() != self.protocol
        action = action_for(
            GroupEvent.REPLACE_STATIC_CHANGED if protocol_changes else GroupEvent.REPLACE_STATIC,
            self.state,
        )
        if action is GroupAction.RETURN_GENERATION:
            self._responses.append(
                (
                    request_id,
                    self._join_result_of_replaced_static(
                        member, leader, request.supports_skipping_assignment
                    ),
                )
            )
            self._persist()
        else:
            member.awaiting_join = request_id
            self._apply_action(action, now)

    def _join_result_of_replaced_static(
        self, member: ClassicGroupMember, leader: str | None, supports_skipping: bool
    ) -> JoinResult:
        """Return the response that lets a static leader return without an assignment (KIP-814).

        Clients before KIP-814 get the old member id as the leader, so that they do not assign.
        """
        result = self._generation_for(member)
        if supports_skipping:
            return replace(result, skip_assignment=self.members.leader == member.id)
        return replace(result, leader=leader or "", members=())

    def _accepts_joining_member(self, member_id: str) -> bool:
        member = self.members.get(member_id)
        if self.state is ClassicGroupState.PREPARING_REBALANCE:
            joined = sum(it.awaiting_join is not None for it in self.members)
            return (
                member is not None and member.awaiting_join is not None
            ) or joined < self._config.max_size
        return member is not None or len(self.members) < self._config.max_size

    def _supports_protocols(self, request: JoinRequest) -> bool:
        same_type = not len(self.members) or request.protocol_type == self.protocol_type
        return (
            bool(request.protocol_type)
            and same_type
            and self.members.supports_protocols(request.protocols)
        )

    # -- rebalancing ------------------------------------------------------------------------------

    def _apply_action(self, action: GroupAction | ErrorCode, now: float) -> None:
        """Start or continue a rebalance after a change of members."""
        if action is GroupAction.REBALANCE:
            self._prepare_rebalance(now)
        elif action is GroupAction.WAIT:
            self._maybe_complete_join(now)

    def _on_member_removed(self, now: float) -> None:
        self._apply_action(action_for(GroupEvent.MEMBER_REMOVED, self.state), now)

    def _prepare_rebalance(self, now: float) -> None:
        initial = self.state is ClassicGroupState.EMPTY
        if self.state is ClassicGroupState.COMPLETING_REBALANCE:
            for member in self.members:
                member.assignment = b""
                self._respond_to_sync(member, ErrorCode.REBALANCE_IN_PROGRESS, now)
        self._reset_rebalance()
        self._transition_to(ClassicGroupState.PREPARING_REBALANCE)
        if initial:
            delay = self._config.initial_delay
            self._initial_delay_left = max(self.members.rebalance_timeout - delay, 0.0)
            self._join_deadline = now + delay
            self._new_member_added = False
        else:
            self._join_deadline = now + self.members.rebalance_timeout
            self._maybe_complete_join(now)

    def _maybe_complete_join(self, now: float) -> None:
        """End the joining phase if all members have joined and no initial delay is left."""
        all_joined = (
            all(member.awaiting_join is not None for member in self.members)
            and not self._pending_join_members
        )
        if all_joined and self._initial_delay_left is None:
            self._complete_join(now)

    def _on_join_timeout(self, now: float) -> None:
        if action_for(GroupEvent.JOIN_TIMEOUT, self.state) is not GroupAction.COMPLETE_JOIN:
            self._join_deadline = math.inf
        elif self._initial_delay_left and self._new_member_added:
            delay = min(self._config.initial_delay, self._initial_delay_left)
            self._initial_delay_left = max(self._initial_delay_left - delay, 0.0)
            self._join_deadline, self._new_member_added = now + delay, False
        else:
            self._complete_join(now)

    def _complete_join(self, now: float) -> None:
        for member in self.members:
            if member.awaiting_join is None and member.instance_id is None:
                self._remove_member(member.id)
        if len(self.members) and not self.members.elect_joined_leader(
            at_random=self._config.random_leader
        ):
            # Only static members are left, and no member has rejoined: wait for their sessions to
            # end.
            self._join_deadline = now + self.members.rebalance_timeout
            return
        self._reset_rebalance()
        self.generation += 1
        self.protocol = self.members.select_protocol()
        if not len(self.members):
            self._transition_to(ClassicGroupState.EMPTY)
            self._persist()
            return
        self._transition_to(ClassicGroupState.COMPLETING_REBALANCE)
        for member in self.members:
            self._respond_to_join(member, self._generation_for(member))
            member.deadline = now + member.session_timeout
            member.is_new = False
            self._pending_sync_members.add(member.id)
        self._sync_deadline = now + self.members.rebalance_timeout

    def _propagate_assignment(self, assignments: dict[str, bytes], now: float) -> None:
        for member in self.members:
            member.assignment = assignments.get(member.id, b"")
        self._transition_to(ClassicGroupState.STABLE)
        self._persist()
        for member in self.members:
            self._respond_to_sync(member, ErrorCode.NONE, now)

    def _forward_assignor_error(self, now: float) -> None:
        """Fail the pending SyncGroup requests, and end the generation without an assignment."""
        for member in self.members:
            self._respond_to_sync(member, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, now)
        self._prepare_rebalance(now)

    def _on_sync_timeout(self, now: float) -> None:
        unsynced, self._sync_deadline = set(self._pending_sync_members), math.inf
        if (
            unsynced
            and action_for(GroupEvent.SYNC_TIMEOUT, self.state)
            is GroupAction.REMOVE_UNSYNCED_MEMBERS
        ):
            for member_id in unsynced:
                if self.members.get(member_id) is not None:
                    self._remove_member(member_id)
            self._prepare_rebalance(now)

    # -- members ----------------------------------------------------------------------------------

    def _validate_member(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        event: GroupEvent = GroupEvent.HEARTBEAT,
    ) -> ErrorCode:
        if self.state in (
            ClassicGroupState.DEAD,
            ClassicGroupState.LOADING,
            ClassicGroupState.EMPTY,
        ):
            return error_code_for(event, self.state)
        code = self.members.validate_member(member_id, instance_id)
        if code is ErrorCode.NONE and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return code

    def _remove_member(self, member_id: str) -> None:
        """Remove a member and fail its pending requests."""
        member = self.members.get(member_id)
        if member is not None:
            self._fail_pending_requests(member, ErrorCode.UNKNOWN_MEMBER_ID)
            self._pending_sync_members.discard(member_id)
            self.members.remove(member_id)

    def _extend_session(self, member_id: str, now: float) -> None:
        member = self.members.get(member_id)
        if member is not None:
            member.deadline = now + member.session_timeout

    def _on_synced(self, member: ClassicGroupMember) -> None:
        self._pending_sync_members.discard(member.id)
        if not self._pending_sync_members:
            self._sync_deadline = math.inf

    def _fail_pending_requests(self, member: ClassicGroupMember, code: ErrorCode) -> None:
        member_id = "" if code is ErrorCode.UNKNOWN_MEMBER_ID else member.id
        self._respond_to_join(member, JoinResult(code=code, member_id=member_id))
        if member.awaiting_sync is not None:
            self._responses.append((member.awaiting_sync, SyncResult(code=code)))
            member.awaiting_sync = None

    # -- responses --------------------------------------------------------------------------------

    def _fail_join(self, request_id: int, code: ErrorCode, member_id: str) -> None:
        self._responses.append((request_id, JoinResult(code=code, member_id=member_id)))

    def _generation_for(self, member: ClassicGroupMember) -> JoinResult:
        leads = self.members.leader == member.id
        return JoinResult(
            member_id=member.id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.members.leader or "",
            members=self.members.joined_members(self.protocol) if leads else (),
        )

    def _respond_to_join(self, member: ClassicGroupMember, result: JoinResult) -> None:
        if member.awaiting_join is not None:
            self._responses.append((member.awaiting_join, result))
            member.awaiting_join = None

    def _respond_to_sync(self, member: ClassicGroupMember, code: ErrorCode, now: float) -> None:
        if member.awaiting_sync is None:
            return
        if code is ErrorCode.NONE:
            result = SyncResult(
                protocol_type=self.protocol_type,
                protocol=self.protocol,
                assignment=member.assignment,
            )
        else:
            result = SyncResult(code=code)
        self._responses.append((member.awaiting_sync, result))
        member.awaiting_sync = None
        member.deadline = now + member.session_timeout

    # -- state ------------------------------------------------------------------------------------

    def _transition_to(self, state: ClassicGroupState) -> None:
        assert state is self.state or state in TRANSITIONS[self.state], (self.state, state)
        self.state = state

    def _reset_rebalance(self) -> None:
        """Clear the timers and members of a rebalance that has ended or restarts."""
        self._join_deadline = self._sync_deadline = math.inf
        self._initial_delay_left = None
        self._pending_sync_members.clear()

    def _persist(self) -> None:
        self._persisted = _PersistedGroup(
            self.generation,
            self.protocol_type,
            self.protocol,
            self.members.leader,
            self.members.persistent_copies(),
        )

    def _load(self, now: float) -> None:
        saved, self._load_deadline = self._persisted, math.inf
        self.generation, self.protocol = saved.generation, saved.protocol
        self.protocol_type = saved.protocol_type
        self.members = GroupMembers()
        for kept in saved.members:
            member = replace(kept)
            member.deadline = now + member.session_timeout
            self.members.add(member)
        self.members.leader = saved.leader
        self._transition_to(
            ClassicGroupState.STABLE if len(self.members) else ClassicGroupState.EMPTY
        )
