"""One classic group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, decided and never waited for.

Every call takes `now`, in seconds. What must wait gets a ticket from its caller, and is answered by
a pair (ticket, result) that `answers()` hands out, after this call or a later one. `deadline` says
when `expire(now)` has something to do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from kafka_async.embedded.codes import Code
from kafka_async.embedded.groups.members import JoinResult, Member, Roster, SyncResult
from kafka_async.embedded.groups.state import (
    TRANSITIONS,
    Event,
    GroupState,
    Reaction,
    reaction,
    refusal,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.embedded.groups.members import JoinCall, SyncCall

Answer: TypeAlias = "tuple[int, JoinResult | SyncResult]"

NEW_MEMBER_PATIENCE: Final = 300.0
"""Seconds that a member's first JoinGroup may wait: without its id it cannot heartbeat."""


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """What the cluster allows a group. Seconds."""

    initial_delay: float = 0.0
    max_size: int = 2_147_483_647


@dataclass(frozen=True, slots=True)
class _Saved:
    """What a new coordinator finds of a group: its last complete generation."""

    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: tuple[Member, ...] = ()


class ClassicGroup:
    """The state machine of one group; `new_id(prefix)` makes member ids."""

    def __init__(self, group_id: str, limits: GroupLimits, new_id: Callable[[str], str]) -> None:
        self.id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.roster = Roster()
        self._limits = limits
        self._new_id = new_id
        self._pending: dict[str, float] = {}  # told their id, not joined yet (KIP-394): deadlines
        self._unsynced: set[str] = set()
        self._join_due = math.inf
        self._sync_due = math.inf
        self._load_due = math.inf
        self._patience: float | None = None  # left for an initial rebalance; None in any other
        self._grew = False
        self._saved = _Saved()
        self._answers: list[Answer] = []

    # -- requests ------------------------------------------------------------------------------

    def join(self, call: JoinCall, ticket: int, now: float) -> None:
        """A JoinGroup: answered at once, or when the rebalance has all it waits for."""
        if self.state in (GroupState.DOWN, GroupState.INITIALIZE):
            self._refuse(ticket, refusal(Event.JOIN_NEW, self.state), call.member_id)
        elif not self._has_room(call.member_id):
            self._refuse(ticket, Code.GROUP_MAX_SIZE_REACHED, "")
        elif not self._understands(call):
            self._refuse(ticket, Code.INCONSISTENT_GROUP_PROTOCOL, call.member_id)
        elif call.member_id:
            self._join_again(call, ticket, now)
        elif call.instance_id is not None and (old_id := self.roster.static_id(call.instance_id)):
            self._replace_static(call, old_id, ticket, now)
        else:
            self._join_first(call, ticket, now)

    def sync(self, call: SyncCall, ticket: int, now: float) -> None:
        """A SyncGroup: answered when the leader's is there."""
        code = self._check(call.member_id, call.instance_id, call.generation, Event.SYNC)
        if code is Code.NONE and not (
            call.protocol_type in (None, self.protocol_type)
            and call.protocol in (None, self.protocol)
        ):
            code = Code.INCONSISTENT_GROUP_PROTOCOL
        member = self.roster.get(call.member_id)
        if code is not Code.NONE or member is None:
            self._answers.append((ticket, SyncResult(code=code)))
            return
        leads = self.roster.leader == member.id
        what = reaction(Event.SYNC_LEADER if leads else Event.SYNC, self.state)
        if isinstance(what, Code):
            self._answers.append((ticket, SyncResult(code=what)))
            return
        self._synced(member)
        member.syncing = ticket
        if what is Reaction.DISTRIBUTE:
            self._distribute(call.assignments, now)
        elif what is Reaction.ASSIGNMENT:
            self._answer_sync(member, Code.NONE, now)

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now: float
    ) -> Code:
        """A Heartbeat: keeps the session, and says whether to join again."""
        code = self._check(member_id, instance_id, generation)
        if code is not Code.NONE:
            return code
        self._touch(member_id, now)
        return refusal(Event.HEARTBEAT, self.state)

    def leave(self, member_id: str, instance_id: str | None, now: float) -> Code:
        """One member of a LeaveGroup; without a member id the static member of that name goes."""
        if self.state in (GroupState.DOWN, GroupState.INITIALIZE):
            return self._check(member_id, instance_id, self.generation)
        if self._pending.pop(member_id, None) is not None:
            self._gone(now)
            return Code.NONE
        if not member_id:
            member_id = self.roster.static_id(instance_id) or ""
        code = self.roster.check(member_id, instance_id)
        if code is Code.NONE:
            self._drop(member_id)
            self._gone(now)
        return code

    def commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now: float,
        *,
        transactional: bool = False,
    ) -> Code:
        """Whether a commit is from a member of this generation, or from outside to an empty group.

        A transactional one need not name a member (KIP-447 came later), whatever the state.
        """
        refused = refusal(Event.COMMIT, self.state)
        if self.state in (GroupState.DOWN, GroupState.INITIALIZE):
            return refused
        if generation < 0 and self.state is GroupState.EMPTY:
            return Code.NONE
        if generation >= 0 or member_id or instance_id is not None:
            code = self._check(member_id, instance_id, generation)
            if code is not Code.NONE:
                return code
        elif not transactional:
            return Code.UNKNOWN_MEMBER_ID
        if transactional:
            return Code.NONE
        if refused is not Code.NONE:
            return refused
        self._touch(member_id, now)
        return Code.NONE

    def delete(self) -> Code:
        """Make the group go, if it has no members."""
        what = reaction(Event.DELETE, self.state)
        if isinstance(what, Code):
            return what
        self._become(GroupState.DOWN)
        return Code.NONE

    # -- time ----------------------------------------------------------------------------------

    @property
    def deadline(self) -> float:
        """When something is due next, in seconds; infinity if nothing is."""
        if self.state is GroupState.INITIALIZE:
            return self._load_due
        sessions = (member.expires for member in self.roster)
        return min(self._join_due, self._sync_due, *self._pending.values(), *sessions)

    def expire(self, now: float) -> None:
        """Do what is due: end sessions, go on with a rebalance, drop members that are silent."""
        if self.state is GroupState.INITIALIZE:
            if now >= self._load_due:
                self._load(now)
            return
        late = [id_ for id_, deadline in self._pending.items() if now >= deadline]
        for member_id in late:
            del self._pending[member_id]
        expired = [member.id for member in self.roster if now >= member.expires]
        for member_id in expired:
            self._drop(member_id)
        if late or expired:
            self._gone(now)
        if now >= self._join_due:
            self._join_is_due(now)
        if now >= self._sync_due:
            self._sync_is_due(now)

    def answers(self) -> list[Answer]:
        """The answers that are ready; each is handed out once."""
        ready, self._answers = self._answers, []
        return ready

    def move(self, now: float, load_time: float = 0.0) -> None:
        """Another broker coordinates now: what waits fails, the last generation is read again."""
        for member in self.roster:
            self._fail_parked(member, Code.NOT_COORDINATOR)
        self._pending.clear()
        self._settle_timers()
        self._become(GroupState.INITIALIZE)
        self._load_due = now + load_time
        self.expire(now)

    # -- joining -------------------------------------------------------------------------------

    def _join_first(self, call: JoinCall, ticket: int, now: float) -> None:
        member_id = self._new_id(call.client_id if call.instance_id is None else call.instance_id)
        if call.must_know_id and call.instance_id is None:
            self._pending[member_id] = now + call.session_timeout
            self._refuse(ticket, Code.MEMBER_ID_REQUIRED, member_id)
        else:
            self._add(call, member_id, ticket, now)

    def _join_again(self, call: JoinCall, ticket: int, now: float) -> None:
        if call.member_id in self._pending:
            del self._pending[call.member_id]
            self._add(call, call.member_id, ticket, now)
            return
        code = self.roster.check(call.member_id, call.instance_id)
        member = self.roster.get(call.member_id)
        if code is not Code.NONE or member is None:
            self._refuse(ticket, code, call.member_id)
            return
        event = Event.JOIN_CHANGED
        if member.protocols == call.protocols:
            event = Event.JOIN_LEADER if self.roster.leader == member.id else Event.JOIN_SAME
        what = reaction(event, self.state)
        if what is Reaction.GENERATION:
            self._answers.append((ticket, self._generation_for(member)))
        elif isinstance(what, Code):
            self._refuse(ticket, what, call.member_id)
        else:
            member.update(call)
            member.joining = ticket
            self._react(what, now)

    def _add(self, call: JoinCall, member_id: str, ticket: int, now: float) -> None:
        member = Member.of(call, member_id)
        member.deadline = now + NEW_MEMBER_PATIENCE
        if self.state is GroupState.EMPTY:
            self.protocol_type = call.protocol_type
        self.roster.add(member)
        member.joining = ticket
        self._grew = True
        self._react(reaction(Event.JOIN_NEW, self.state), now)

    def _replace_static(self, call: JoinCall, old_id: str, ticket: int, now: float) -> None:
        leader = self.roster.leader
        if (old := self.roster.get(old_id)) is not None:
            self._fail_parked(old, Code.FENCED_INSTANCE_ID)
        member = self.roster.rename(old_id, self._new_id(call.instance_id or ""))
        self._unsynced.discard(old_id)
        member.update(call)
        member.deadline = now + member.session_timeout
        changes = self.roster.vote() != self.protocol
        what = reaction(Event.STATIC_CHANGES if changes else Event.STATIC_RETURNS, self.state)
        if what is Reaction.GENERATION:
            self._answers.append(
                (ticket, self._welcome_back(member, leader, call.may_skip_assignment))
            )
            self._save()
        else:
            member.joining = ticket
            self._react(what, now)

    def _welcome_back(self, member: Member, leader: str | None, may_skip: bool) -> JoinResult:
        """A static leader gets its group back without assigning again (KIP-814).

        Clients before that would assign: they are told that the old id leads.
        """
        result = self._generation_for(member)
        if may_skip:
            return replace(result, skip_assignment=self.roster.leader == member.id)
        return replace(result, leader=leader or "", members=())

    def _has_room(self, member_id: str) -> bool:
        known = self.roster.get(member_id)
        if self.state is GroupState.JOINING:
            waiting = sum(member.joining is not None for member in self.roster)
            return (
                known is not None and known.joining is not None
            ) or waiting < self._limits.max_size
        return known is not None or len(self.roster) < self._limits.max_size

    def _understands(self, call: JoinCall) -> bool:
        same_type = not len(self.roster) or call.protocol_type == self.protocol_type
        return bool(call.protocol_type) and same_type and self.roster.speaks(call.protocols)

    # -- rebalancing ---------------------------------------------------------------------------

    def _react(self, what: Reaction | Code, now: float) -> None:
        """Go on after members came, changed or went."""
        if what is Reaction.REBALANCE:
            self._rebalance(now)
        elif what is Reaction.PARK:
            self._go_on(now)

    def _gone(self, now: float) -> None:
        self._react(reaction(Event.MEMBER_GONE, self.state), now)

    def _rebalance(self, now: float) -> None:
        initial = self.state is GroupState.EMPTY
        if self.state is GroupState.AWAIT_SYNC:
            for member in self.roster:
                member.assignment = b""
                self._answer_sync(member, Code.REBALANCE_IN_PROGRESS, now)
        self._settle_timers()
        self._become(GroupState.JOINING)
        if initial:
            delay = self._limits.initial_delay
            self._patience = max(self.roster.rebalance_timeout - delay, 0.0)
            self._join_due = now + delay
            self._grew = False
        else:
            self._join_due = now + self.roster.rebalance_timeout
            self._go_on(now)

    def _go_on(self, now: float) -> None:
        """End the joining phase if everybody is here; an initial rebalance waits for its delay."""
        everybody = all(member.joining is not None for member in self.roster) and not self._pending
        if everybody and self._patience is None:
            self._next_generation(now)

    def _join_is_due(self, now: float) -> None:
        if reaction(Event.JOIN_DUE, self.state) is not Reaction.NEXT_GENERATION:
            self._join_due = math.inf
        elif self._patience and self._grew:
            delay = min(self._limits.initial_delay, self._patience)
            self._patience = max(self._patience - delay, 0.0)
            self._join_due, self._grew = now + delay, False
        else:
            self._next_generation(now)

    def _next_generation(self, now: float) -> None:
        for member in self.roster:
            if member.joining is None and member.instance_id is None:
                self._drop(member.id)
        if len(self.roster) and not self.roster.lead_by_present():
            # Only static members are left, and none is back: their sessions decide.
            self._join_due = now + self.roster.rebalance_timeout
            return
        self._settle_timers()
        self.generation += 1
        self.protocol = self.roster.vote()
        if not len(self.roster):
            self._become(GroupState.EMPTY)
            self._save()
            return
        self._become(GroupState.AWAIT_SYNC)
        for member in self.roster:
            self._answer_join(member, self._generation_for(member))
            member.deadline = now + member.session_timeout
            member.is_new = False
            self._unsynced.add(member.id)
        self._sync_due = now + self.roster.rebalance_timeout

    def _distribute(self, assignments: dict[str, bytes], now: float) -> None:
        for member in self.roster:
            member.assignment = assignments.get(member.id, b"")
        self._become(GroupState.STABLE)
        self._save()
        for member in self.roster:
            self._answer_sync(member, Code.NONE, now)

    def _sync_is_due(self, now: float) -> None:
        silent, self._sync_due = set(self._unsynced), math.inf
        if silent and reaction(Event.SYNC_DUE, self.state) is Reaction.DROP_SILENT:
            for member_id in silent:
                if self.roster.get(member_id) is not None:
                    self._drop(member_id)
            self._rebalance(now)

    # -- members -------------------------------------------------------------------------------

    def _check(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        event: Event = Event.HEARTBEAT,
    ) -> Code:
        if self.state in (GroupState.DOWN, GroupState.INITIALIZE, GroupState.EMPTY):
            return refusal(event, self.state)
        code = self.roster.check(member_id, instance_id)
        if code is Code.NONE and generation != self.generation:
            return Code.ILLEGAL_GENERATION
        return code

    def _drop(self, member_id: str) -> None:
        """Remove a member; one that still waits for its JoinGroup may come again."""
        member = self.roster.get(member_id)
        if member is not None:
            self._fail_parked(member, Code.UNKNOWN_MEMBER_ID)
            self._unsynced.discard(member_id)
            self.roster.remove(member_id)

    def _touch(self, member_id: str, now: float) -> None:
        member = self.roster.get(member_id)
        if member is not None:
            member.deadline = now + member.session_timeout

    def _synced(self, member: Member) -> None:
        self._unsynced.discard(member.id)
        if not self._unsynced:
            self._sync_due = math.inf

    def _fail_parked(self, member: Member, code: Code) -> None:
        member_id = "" if code is Code.UNKNOWN_MEMBER_ID else member.id
        self._answer_join(member, JoinResult(code=code, member_id=member_id))
        if member.syncing is not None:
            self._answers.append((member.syncing, SyncResult(code=code)))
            member.syncing = None

    # -- answers -------------------------------------------------------------------------------

    def _refuse(self, ticket: int, code: Code, member_id: str) -> None:
        self._answers.append((ticket, JoinResult(code=code, member_id=member_id)))

    def _generation_for(self, member: Member) -> JoinResult:
        leads = self.roster.leader == member.id
        return JoinResult(
            member_id=member.id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.roster.leader or "",
            members=self.roster.entries(self.protocol) if leads else (),
        )

    def _answer_join(self, member: Member, result: JoinResult) -> None:
        if member.joining is not None:
            self._answers.append((member.joining, result))
            member.joining = None

    def _answer_sync(self, member: Member, code: Code, now: float) -> None:
        if member.syncing is None:
            return
        if code is Code.NONE:
            result = SyncResult(
                protocol_type=self.protocol_type,
                protocol=self.protocol,
                assignment=member.assignment,
            )
        else:
            result = SyncResult(code=code)
        self._answers.append((member.syncing, result))
        member.syncing = None
        member.deadline = now + member.session_timeout

    # -- state ---------------------------------------------------------------------------------

    def _become(self, state: GroupState) -> None:
        assert state is self.state or state in TRANSITIONS[self.state], (self.state, state)
        self.state = state

    def _settle_timers(self) -> None:
        """No phase of a rebalance is under way any more."""
        self._join_due = self._sync_due = math.inf
        self._patience = None
        self._unsynced.clear()

    def _save(self) -> None:
        self._saved = _Saved(
            self.generation,
            self.protocol_type,
            self.protocol,
            self.roster.leader,
            self.roster.copies(),
        )

    def _load(self, now: float) -> None:
        saved, self._load_due = self._saved, math.inf
        self.generation, self.protocol = saved.generation, saved.protocol
        self.protocol_type = saved.protocol_type
        self.roster = Roster()
        for kept in saved.members:
            member = replace(kept)
            member.deadline = now + member.session_timeout
            self.roster.add(member)
        self.roster.leader = saved.leader
        self._become(GroupState.STABLE if len(self.roster) else GroupState.EMPTY)
