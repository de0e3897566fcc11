"""Group membership: joins, rebalances, sends heartbeats and leaves.

One task owns the membership. It runs the work of the current state until an event ends it
(`member_states.py`); a broker's error is looked up in the table of its request. Other tasks only
post events (`join`, `rejoin`, `leave`, `close`, `on_poll`, heartbeats) and wake the owner. A
JoinGroup or SyncGroup in flight is abandoned when the member must leave; the application's
listeners run to their end.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, ClassVar, Final

from anyio import CancelScope, move_on_after

from kafka_async import hooks
from kafka_async.errors import (
    AuthenticationError,
    CoordinatorLoadInProgressError,
    KafkaError,
    RetriableError,
)
from kafka_async.foundation.backoff import Backoff
from kafka_async.group import classic_protocol
from kafka_async.group.coordinator_connection import CoordinatorConnection
from kafka_async.group.loop_watchdog import watch_loop
from kafka_async.group.member import (
    AssignorFailedError,
    LocalMember,
    PollTimeoutError,
    RebalanceHandler,
    explain_duplicate,
)
from kafka_async.group.member_states import (
    HEARTBEAT_ERRORS,
    HEARTBEAT_STATES,
    JOIN_ERRORS,
    POSTED_EVENTS,
    SYNC_ERRORS,
    Invalidation,
    MembershipErrorAction,
    MembershipErrorTable,
    MembershipEvent,
    MemberState,
    PendingEvents,
    membership_error_action,
    next_state,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from kafka_async.client.services import ClientServices
    from kafka_async.foundation.supervisor import Supervisor
    from kafka_async.group.member import GroupSettings
    from kafka_async.types import GroupMetadata

logger = logging.getLogger("kafka_async.group")

_DEFAULT_REASON = "the group rebalances"
MAX_ASSIGNOR_FAILURES: Final = 3
"""Failures of the assignor in a row after which the leader raises the error.

Members that read the error raise it at the first failure. As long as there are others, the leader
only leaves and joins again, since another leader may succeed.
"""
_REBALANCE_STATES = frozenset(
    {
        MemberState.PREPARING_REBALANCE,
        MemberState.JOINING,
        MemberState.SYNCING,
        MemberState.ASSIGNING,
    }
)
_UNSETTLED_STATES = _REBALANCE_STATES | {MemberState.LOST, MemberState.LEAVING}
_OUTSIDE_STATES = frozenset({MemberState.UNJOINED, MemberState.FATAL, MemberState.CLOSED})
_ERROR_STATES = frozenset({MemberState.JOIN_DENIED, MemberState.FAILED, MemberState.FATAL})
_FAILURES = frozenset(
    {MembershipEvent.FAILED, MembershipEvent.REJECTED, MembershipEvent.ACCESS_DENIED}
)


class GroupMembership:
    """Keeps a member in its group.

    Args:
        on_error: Called when polls have to raise `error`: in the states JOIN_DENIED, FAILED and
            FATAL, and when a heartbeat was denied.

    Attributes:
        error: The error of a request to the coordinator, or an exception of the assignor or from
            applying the assignment. None once the member continues or starts again.
        rebalances: Number of completed rebalances.
    """

    has_epochs: ClassVar[bool] = False
    """True in the consumer protocol, where the generation is the epoch of this member alone."""
    _heartbeat_errors: MembershipErrorTable = HEARTBEAT_ERRORS

    def __init__(
        self,
        services: ClientServices,
        supervisor: Supervisor,
        settings: GroupSettings,
        handler: RebalanceHandler,
        on_error: Callable[[], None],
    ) -> None:
        self.error: Exception | None = None
        self.rebalances = 0
        # `take_error` has returned the present error.
        self._error_raised = False
        # Parts of the client.
        self._hooks = services.hooks
        self._client_id = services.config.client_id
        self._metadata = services.metadata
        self._supervisor = supervisor
        self._settings = settings
        self._handler = handler
        self._on_error = on_error
        self._now = asyncio.get_running_loop().time
        # The member as the coordinator has it, and the connection to the coordinator.
        self._coordinator = CoordinatorConnection(services, settings)
        self._member = LocalMember(settings)
        # The state, and events for tasks that wait for a kind of state.
        self._state = MemberState.UNJOINED
        self._state_changed = asyncio.Event()
        self._outside = asyncio.Event()  # set while the member is outside the group
        self._settled = asyncio.Event()  # set while no rebalance is in progress
        # What other tasks post, and the event that wakes the owner.
        self._pending = PendingEvents()
        self._posted = asyncio.Event()
        # For logs, hooks and the request: why the next and the current rebalance happen.
        self._rejoin_reason = _DEFAULT_REASON
        self._rebalance_reason = ""
        self._rebalance_started_at = 0.0
        # The current rebalance: the response to JoinGroup, the assignment, and failures of the
        # assignor.
        self._joined: classic_protocol.Joined | None = None
        self._joined_over = 0  # number of the connection; 0: the coordinator may have changed since
        self._assignment = b""
        self._assignor_failures = 0
        # Leaving: when a closing member gives up, and the request that `leave` abandons.
        self._close_deadline: float | None = None
        self._request_scope: CancelScope | None = None
        self._backoff = Backoff(settings.retry_backoff, settings.retry_backoff_max)
        # A denied heartbeat is raised while the membership lasts, and logged as a warning once.
        self._heartbeat_denied = False
        self._warned_of_denial = False
        self._state_handlers: Mapping[MemberState, Callable[[], Awaitable[MembershipEvent]]] = {
            MemberState.UNJOINED: self._wait_for_event,
            MemberState.PREPARING_REBALANCE: self._run_preparing_rebalance,
            MemberState.JOINING: self._run_joining,
            MemberState.SYNCING: self._run_syncing,
            MemberState.ASSIGNING: self._run_assigning,
            MemberState.STABLE: self._run_stable,
            MemberState.LOST: self._run_lost,
            MemberState.POLL_TIMEOUT: self._run_poll_timeout,
            MemberState.JOIN_DENIED: self._run_join_denied,
            MemberState.FAILED: self._run_failed,
            MemberState.FATAL: self._run_fatal,
            MemberState.LEAVING: self._run_leaving,
        }
        # Sets the events for the first state.
        self._note_state()

    # -- for other tasks --------------------------------------------------------------------------

    @property
    def state(self) -> MemberState:
        """Current state."""
        return self._state

    @property
    def metadata(self) -> GroupMetadata:
        """Identity of the member in its current generation."""
        return self._member.metadata()

    @property
    def member_id(self) -> str:
        """Member id; empty outside the group."""
        return self._member.member_id

    @property
    def rebalance_reason(self) -> str:
        """Reason of the last rebalance, if this member has it."""
        return self._rebalance_reason

    @property
    def in_flight(self) -> int:
        """Number of requests to the coordinator without a response."""
        return self._coordinator.in_flight

    @property
    def heartbeat_at(self) -> float | None:
        """Event loop time of the last successful heartbeat, or None."""
        return self._coordinator.heartbeat_at

    @property
    def session_ends_at(self) -> float | None:
        """Event loop time until which the coordinator keeps the member; None before it joins."""
        acknowledged_at = self._coordinator.acknowledged_at
        return None if acknowledged_at is None else acknowledged_at + self._settings.session_timeout

    @property
    def failed_permanently(self) -> bool:
        """True if joining again cannot resolve `error`."""
        return self._state is MemberState.FATAL

    def start(self) -> None:
        """Start the tasks; the member joins after a call of `join`."""
        # Tasks that wait for the membership must not outlive it.
        self._supervisor.on_failure(lambda _: self._release_waiters())
        self._supervisor.spawn(self._run, name=f"group {self._settings.group_id}")
        self._supervisor.spawn(
            self._send_heartbeats, name=f"heartbeats of {self._settings.group_id}"
        )

    def join(self, reason: str) -> None:
        """Join the group, or rejoin it. A pending request to leave is withdrawn."""
        leaving = MembershipEvent.LEAVE_REQUESTED in self._pending
        if self._pending.post(MembershipEvent.JOIN_REQUESTED) and leaving:
            # `leave` returns: its request is void.
            self._outside.set()
            self._note_state()
        self.rejoin(reason)

    def rejoin(self, reason: str) -> None:
        """Rebalance the group: the subscription or the partitions to assign have changed."""
        self._rejoin_reason = reason
        self._post(MembershipEvent.REBALANCE_NEEDED)

    def on_poll(self) -> None:
        """Continue, or join again, after a poll timeout or an error: the application polled."""
        # In other states a poll has no meaning for the membership.
        if MembershipEvent.POLLED in POSTED_EVENTS.get(self._state, ()):
            self._post(MembershipEvent.POLLED)

    def take_error(self) -> Exception | None:
        """Return the error that a poll must raise: each error once, but a FATAL one always.

        An error is raised only in the state that it leads to, from which the next poll continues.
        """
        if self._state not in _ERROR_STATES and not self._heartbeat_denied:
            return None
        if self._error_raised and not self.failed_permanently:
            return None
        self._error_raised = True
        return self.error

    def drop_error(self) -> None:
        """Do not raise the current error: its cause was removed. The next poll continues."""
        self._error_raised = True

    async def leave(self) -> None:
        """Revoke all partitions, leave the group and return when that is done.

        Returns at once if `join` withdraws the request, and even if the member has joined again
        before the caller runs.
        """
        self._post(MembershipEvent.LEAVE_REQUESTED)
        # JoinGroup may take as long as the slowest other member.
        if self._request_scope is not None:
            self._request_scope.cancel()
        await self._wait_for(self._outside)

    async def close(self, deadline: float) -> None:
        """Leave the group for good; see `CoordinatorConnection.leave` for `deadline`."""
        self._close_deadline = deadline
        self._pending.post(MembershipEvent.CLOSE_REQUESTED)
        await self.leave()
        await asyncio.sleep(0)  # a member outside the group has not handled the request yet

    async def next_generation(self, former: GroupMetadata) -> GroupMetadata | None:
        """Wait for the generation after `former`. Return None if this member has lost its place."""

        def lost() -> bool:
            if self._member.member_id != former.member_id:
                return True
            return self._state not in _REBALANCE_STATES | {MemberState.STABLE}

        await self._wait_until(lambda: lost() or self._member.generation > former.generation_id)
        return None if lost() else self.metadata

    async def wait_for_rebalance(self, owned: Callable[[], bool]) -> None:
        """Wait until no rebalance is in progress, or until one ends and the next one begins.

        Returns earlier once the member has its assignment, if `owned` returns True: the handler may
        wait for the caller before it revokes partitions.
        """
        rebalances = self.rebalances
        # Checked before and after, since a failed task sets the events too.
        self._supervisor.check()
        await self._wait_until(
            lambda: (
                self._settled.is_set()
                or self.rebalances > rebalances
                or (self._state is MemberState.ASSIGNING and owned())
            )
        )
        self._supervisor.check()

    async def _wait_for(self, event: asyncio.Event) -> None:
        self._supervisor.check()
        await event.wait()
        self._supervisor.check()

    async def _wait_until(self, reached: Callable[[], bool]) -> None:
        # The event covers all changes; each waiter checks its own condition.
        while not reached():
            self._supervisor.check()
            self._state_changed.clear()
            await self._state_changed.wait()

    def _post(self, event: MembershipEvent) -> bool:
        accepted = self._pending.post(event)
        self._posted.set()
        return accepted

    # -- the state machine ------------------------------------------------------------------------

    async def _run(self) -> None:
        settings, end_watch = self._settings, _nothing
        detach = self._metadata.cluster_listeners.add(self._on_cluster_changed)
        if settings.loop_watchdog:
            # Half of the session: the application is warned while it can still react.
            end_watch = watch_loop(f"group {settings.group_id}", settings.session_timeout / 2)
        try:
            # Each state's work ends with an event; the table has the next state.
            while self._state is not MemberState.CLOSED:
                event = await self._state_handlers[self._state]()
                self._enter(next_state(self._state, event))
            await self._coordinator.close()
        finally:
            end_watch()
            detach()
            self._coordinator.end()

    def _enter(self, state: MemberState) -> None:
        if state is not self._state:
            logger.info("group %s: %s", self._settings.group_id, state.value)
        self._state = state
        self._note_state()

    def _note_state(self) -> None:
        """Release the waiters for the current state, even if the next one follows immediately."""
        self._state_changed.set()
        # A member id means that the coordinator may still have the member.
        outside = self._state in _OUTSIDE_STATES and not self._member.member_id
        _set(self._outside, outside)
        _set(self._settled, self._state not in _UNSETTLED_STATES)

    def _release_waiters(self) -> None:
        for event in (self._state_changed, self._outside, self._settled):
            event.set()

    async def _wait_for_event(self) -> MembershipEvent:
        """Wait until another task posts an event that ends the state."""
        while (event := self._pending.take(self._state)) is None:
            await self._wait_for_post()
        return event

    async def _wait_for_post(self, timeout: float | None = None) -> None:
        # Cleared after the wait: the caller checks all pending events next.
        with move_on_after(timeout):
            await self._posted.wait()
        self._posted.clear()

    async def _run_preparing_rebalance(self) -> MembershipEvent:
        # This rebalance covers what was requested before.
        self._pending.discard(MembershipEvent.REBALANCE_NEEDED)
        self._begin_rebalance()
        try:
            await self._handler.on_join_prepare()
        except PollTimeoutError:
            return MembershipEvent.POLL_TIMED_OUT
        # Leaving, or a lost membership, takes precedence over joining.
        return self._pending.take(self._state) or MembershipEvent.PREPARED

    async def _run_joining(self) -> MembershipEvent:
        return await self._repeat(JOIN_ERRORS, self._join)

    async def _join(self) -> MembershipEvent:
        protocol_type, protocols = self._handler.protocol_type, self._handler.protocols()
        self._joined = joined = await self._coordinator.exchange_held(
            classic_protocol.join(self._member, protocol_type, protocols, self._rebalance_reason)
        )
        self._joined_over = self._coordinator.connection_number
        # Stored at once: if SyncGroup fails, the member leaves or rejoins with this identity.
        self._member.member_id = joined.member_id
        self._member.generation = joined.generation
        self._member.protocol_name = joined.protocol_name
        return MembershipEvent.JOINED

    async def _run_syncing(self) -> MembershipEvent:
        event = await self._repeat(SYNC_ERRORS, self._sync)
        if event is MembershipEvent.FAILED and self._member.invalid is Invalidation.NONE:
            await self._leave_group("SyncGroup has failed")  # else the others wait for its session
        return event

    async def _sync(self) -> MembershipEvent:
        joined = self._joined
        assert joined is not None
        assignments: Mapping[str, bytes] = {}
        # Three cases: the group keeps its assignment (KIP-814), this member assigns, or another one
        # does.
        if joined.leads and joined.skip_assignment:
            if await self._handler.on_assignment_kept(joined.members):
                self.rejoin("the assignment is outdated since the leader was away")
        elif joined.leads:
            found = await self._assign(joined)
            if isinstance(found, MembershipEvent):
                return found
            assignments = found
        self._assignment = await self._coordinator.exchange_held(
            classic_protocol.sync(self._member, self._handler.protocol_type, assignments)
        )
        return MembershipEvent.SYNCED

    async def _assign(
        self, joined: classic_protocol.Joined
    ) -> Mapping[str, bytes] | MembershipEvent:
        """Compute the assignments; on failure leave, since the other members wait for them."""
        error: Exception
        try:
            return await self._handler.assign(joined.protocol_name, joined.members)
        except (RetriableError, AuthenticationError):
            raise  # a row of SYNC_ERRORS: the group rebalances again, or the member is denied
        except AssignorFailedError as failure:
            error = failure.error
            self._assignor_failures += 1
            failed_for_good = failure.read_by_all or (
                self._assignor_failures >= MAX_ASSIGNOR_FAILURES
            )
            await self._send_assignor_error(failure.assignments)
        except Exception as raised:  # noqa: BLE001  # raised by an application's handler
            error, failed_for_good = raised, True
        logger.warning(
            "group %s: the assignor %s raised %r, so this member, the leader, leaves%s",
            self._settings.group_id,
            joined.protocol_name,
            error.__cause__ or error,
            "" if failed_for_good else " and joins again",
        )
        # Also a static member: the others wait for the assignment of this leader.
        await self._leave_group("the assignor has failed", static=True)
        self._member.invalidate(Invalidation.MEMBER_ID)
        if failed_for_good:
            self._assignor_failures = 0
            self._set_error(error)
            return MembershipEvent.FAILED
        self._rejoin_reason = "the assignor has failed"
        # Another leader may be chosen in that time.
        await asyncio.sleep(self._backoff.next())
        return MembershipEvent.MEMBERSHIP_LOST

    async def _send_assignor_error(self, assignments: Mapping[str, bytes]) -> None:
        """Send the error to the members that read it. If that fails, they only join again."""
        if not assignments:
            return
        try:
            await self._coordinator.exchange_held(
                classic_protocol.sync(self._member, self._handler.protocol_type, assignments)
            )
        except KafkaError as error:
            logger.debug("group %s: sending an error: %s", self._settings.group_id, error)

    async def _run_assigning(self) -> MembershipEvent:
        assert self._joined is not None
        name, generation = self._joined.protocol_name, self._joined.generation
        try:
            rejoin = await self._handler.on_join_complete(name, self._assignment, generation)
        except PollTimeoutError:
            return MembershipEvent.POLL_TIMED_OUT
        except KafkaError as error:
            # Otherwise the coordinator would count on a member that has no partitions.
            await self._leave_group("the assignment cannot be applied")
            self._set_error(error)
            return MembershipEvent.FAILED
        # KIP-429: revoked partitions are assigned in a second rebalance.
        if rejoin and MembershipEvent.REBALANCE_NEEDED not in self._pending:
            self.rejoin("partitions were revoked for other members")
        self._end_rebalance()
        return MembershipEvent.ASSIGNED

    async def _run_stable(self) -> MembershipEvent:
        self._backoff.reset()
        # Ends with an event of another task, or when the application has not polled in time.
        while (event := self._pending.take(self._state)) is None:
            left = self._handler.last_poll_time() + self._settings.rebalance_timeout - self._now()
            if left <= 0:
                return MembershipEvent.POLL_TIMED_OUT
            await self._wait_for_post(left)
        return event

    async def _run_lost(self) -> MembershipEvent:
        await self._handler.on_partitions_lost()
        # At least the generation is lost; the error may have invalidated the member id too.
        self._end_membership(Invalidation.GENERATION)
        return self._pending.take(self._state) or MembershipEvent.PARTITIONS_DROPPED

    async def _run_poll_timeout(self) -> MembershipEvent:
        logger.warning(
            "group %s: the consumer was not polled for max_poll_interval_ms (%.0f s), or the task "
            "of a stream has not requested its next record for as long, so it leaves the group; it "
            "joins again at the next poll",
            self._settings.group_id,
            self._settings.rebalance_timeout,
        )
        # Before LeaveGroup: from its response on, other members may have the partitions.
        self._handler.on_membership_ended()
        self._member.invalidate(Invalidation.MEMBER_ID)
        await self._leave_group("max.poll.interval.ms has passed without a poll")
        return await self._wait_for_event()

    async def _run_join_denied(self) -> MembershipEvent:
        member_id = "the same" if self._member.member_id else "a new"
        self._warn_of_denial(
            f"the consumer joins again at the next poll, with {member_id} member id"
        )
        self._on_error()
        event = await self._wait_for_event()
        # The next attempt may succeed, so polls no longer raise the error.
        self._clear_error()
        return event

    async def _run_failed(self) -> MembershipEvent:
        self._handler.on_membership_ended()
        self._on_error()
        self._member.invalidate(Invalidation.MEMBER_ID)
        return await self._wait_for_event()

    async def _run_fatal(self) -> MembershipEvent:
        self._on_error()
        # Listeners still run, since the application must release what belongs to the partitions.
        await self._handler.on_partitions_lost()
        self._member.invalidate(Invalidation.MEMBER_ID)
        self._member.discard_invalid()
        self._note_state()
        return await self._wait_for_event()

    async def _run_leaving(self) -> MembershipEvent:
        # After the coordinator has removed the member, there is nothing to revoke in order.
        if self._member.invalid is Invalidation.NONE:
            await self._handler.on_leave_prepare()
            await self._leave_group("the member is being closed or unsubscribed")
        else:
            await self._handler.on_partitions_lost()
        self._end_membership(Invalidation.MEMBER_ID)
        return MembershipEvent.LEFT

    def _end_membership(self, invalid: Invalidation) -> None:
        """Discard the identity, at least its part `invalid`, and the events of that member."""
        self._member.invalidate(invalid)
        self._member.discard_invalid()
        self._pending.end_membership()
        self._clear_error()

    # -- requests and their errors ----------------------------------------------------------------

    async def _repeat(
        self, table: MembershipErrorTable, request: Callable[[], Awaitable[MembershipEvent]]
    ) -> MembershipEvent:
        """Send a request until it, or an event of another task, ends the state."""
        # Ends with a posted event (only leaving ends these states), with an event of the request,
        # or of its error. `leave` cancels the scope, after which the posted event is found.
        while (posted := self._pending.take(self._state)) is None:
            with CancelScope() as self._request_scope:
                event = await self._attempt(table, request)
                if event is not None:
                    return event
        return posted

    async def _attempt(
        self, table: MembershipErrorTable, request: Callable[[], Awaitable[MembershipEvent]]
    ) -> MembershipEvent | None:
        """Send a request and return the resulting event, or None to retry."""
        try:
            return await request()
        except KafkaError as error:
            action = self._action_for(table, error)
            self._member.invalidate(action.invalidates)
            if action.event in _FAILURES:
                self._set_error(error)
            else:
                # Errors that are raised to the application wait for a poll instead.
                await asyncio.sleep(self._backoff.next())
            return action.event
        except Exception as error:  # noqa: BLE001  # raised by the application's assignor
            self._set_error(error)
            return MembershipEvent.FAILED

    def _set_error(self, error: Exception, *, heartbeat_denied: bool = False) -> None:
        if isinstance(error, KafkaError):
            settings = self._settings
            error = explain_duplicate(error, settings.group_id, settings.group_instance_id)
        self.error, self._error_raised = error, False
        self._heartbeat_denied = heartbeat_denied

    def _clear_error(self) -> None:
        self.error, self._heartbeat_denied = None, False

    def _warn_of_denial(self, consequence: str) -> None:
        """Log the current error, as a warning only if it is the first in a row."""
        level = logging.DEBUG if self._warned_of_denial else logging.WARNING
        self._warned_of_denial = True
        name = type(self.error).__name__
        logger.log(
            level, "group %s: %s: %s; %s", self._settings.group_id, name, self.error, consequence
        )

    def _on_accepted(self) -> None:
        """End what a denial has begun, after the coordinator has accepted a request."""
        if self._heartbeat_denied:
            self._clear_error()
        if self._warned_of_denial:
            self._warned_of_denial = False
            logger.info("group %s: the coordinator accepts requests again", self._settings.group_id)

    def _action_for(self, table: MembershipErrorTable, error: KafkaError) -> MembershipErrorAction:
        logger.debug("group %s: %s", self._settings.group_id, error)
        action = membership_error_action(table, error)
        if action.find_coordinator:
            self._coordinator.forget()
        # A coordinator that was loaded again may lack a rebalance, see `_rejoin_mixed_group`.
        if action.find_coordinator or isinstance(error, CoordinatorLoadInProgressError):
            self._joined_over = 0
        return action

    async def _leave_group(self, reason: str, *, static: bool = False) -> None:
        """Send LeaveGroup; a static member sends it only if `static`."""
        if not self._member.member_id:
            return
        # A static member keeps its place until its session ends (KIP-345), so that a restart needs
        # no rebalance.
        if static or self._settings.group_instance_id is None:
            await self._coordinator.leave(self._member, reason, self._close_deadline)

    async def _send_heartbeats(self) -> None:
        settings = self._settings
        backoff = Backoff(settings.retry_backoff, settings.retry_backoff_max)
        delay = settings.heartbeat_interval
        # A task apart from the membership's, so that a slow listener does not end the session.
        while self._state is not MemberState.CLOSED:
            await asyncio.sleep(delay)
            delay = settings.heartbeat_interval
            # Compared afterwards: the error of a former generation is no longer relevant.
            generation = self._member.generation
            # The coordinator reads no heartbeat behind a JoinGroup that it holds back.
            if self._coordinator.held:
                await self._coordinator.probe()
                continue
            if self._state not in HEARTBEAT_STATES or generation < 0:
                continue
            try:
                await self._coordinator.heartbeat(classic_protocol.heartbeat(self._member))
                backoff.reset()
                self._on_accepted()
                self._rejoin_mixed_group()
            except KafkaError as error:
                if self._state in HEARTBEAT_STATES and generation == self._member.generation:
                    self._on_heartbeat_error(error)
                # Errors without an event are retried sooner than the interval.
                if membership_error_action(HEARTBEAT_ERRORS, error).event is None:
                    delay = min(delay, backoff.next())

    def _rejoin_mixed_group(self) -> None:
        """Join again, in a group with members of both protocols, if its coordinator may be new.

        Once the last member of the consumer protocol has left, Kafka stores a stable classic group,
        and then starts a rebalance. A coordinator that loads the group does not have that
        rebalance: the partitions of that member would have no owner. The broker of a new connection
        may have been restarted.
        """
        joined, connection = self._joined, self._coordinator.connection_number
        if joined is None or joined.has_leader or connection == self._joined_over:
            return
        if self._state is MemberState.STABLE:
            self._joined_over = connection
            self.rejoin("the coordinator may be new while the group moves to another protocol")

    def _on_heartbeat_error(self, error: KafkaError) -> None:
        action = self._action_for(self._heartbeat_errors, error)
        event, rejoins = action.event, self._state is MemberState.PREPARING_REBALANCE
        # A denied heartbeat does not end the membership: the session may outlive the cause.
        if action.raised:
            self._set_error(error, heartbeat_denied=True)
            self._warn_of_denial(
                "the consumer keeps its partitions and its member id, and retries until its "
                f"session ends, {self._settings.session_timeout:g} s (session_timeout_ms) after "
                "the last successful heartbeat"
            )
            self._on_error()
        # The member rejoins anyway.
        if event is None or (rejoins and event is MembershipEvent.REBALANCE_NEEDED):
            return
        # False if an earlier event has ended the membership already.
        if self._post(event):
            self._member.invalidate(action.invalidates)
            if event is MembershipEvent.MEMBERSHIP_LOST:
                self._handler.on_membership_ended()
            if event in _FAILURES:
                self._set_error(error)

    def _on_cluster_changed(self) -> None:
        """End the membership, which another cluster does not have, and join the group there."""
        self._coordinator.forget()
        if self._state in HEARTBEAT_STATES and self._post(MembershipEvent.MEMBERSHIP_LOST):
            self._rejoin_reason = "the client follows another cluster"
            self._member.invalidate(Invalidation.MEMBER_ID)

    # -- events for hooks -------------------------------------------------------------------------

    def _begin_rebalance(self) -> None:
        # A reason that comes from now on belongs to the next rebalance.
        self._rebalance_reason, self._rejoin_reason = self._rejoin_reason, _DEFAULT_REASON
        self._rebalance_started_at = self._now()
        if self._hooks.active:
            group_id = self._settings.group_id
            self._hooks.emit(
                hooks.RebalanceBegun(self._client_id, group_id, self._rebalance_reason)
            )

    def _end_rebalance(self) -> None:
        self.rebalances += 1
        self._assignor_failures = 0
        self._on_accepted()
        logger.info(
            "group %s: generation %d, assigned by %s: %s",
            self._settings.group_id,
            self._member.generation,
            self._member.protocol_name,
            self._rebalance_reason,
        )
        if self._hooks.active:
            event = hooks.RebalanceEnded(
                self._client_id,
                self._settings.group_id,
                self._member.generation,
                self._member.member_id,
                self._now() - self._rebalance_started_at,
            )
            self._hooks.emit(event)


def _nothing() -> None:
    pass


def _set(event: asyncio.Event, value: bool) -> None:
    if value:
        event.set()
    else:
        event.clear()
