"""Group membership: joins, rebalances, sends heartbeats and leaves.

One task owns the membership. It runs the work of the current state until an event ends it
(`member_states.py`); a broker's error is looked up in the table of its request. Other tasks only
set requests (`join`, `rejoin`, `leave`, `on_poll`) and wake the owner. A JoinGroup or SyncGroup in
flight is abandoned when the member is told to leave; the application's listeners run to their end.

Heartbeats share a connection with JoinGroup and SyncGroup, whose responses the coordinator delays;
commits use another one.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from anyio import CancelScope, move_on_after

from kafka_async import hooks
from kafka_async.backoff import Backoff
from kafka_async.cluster.broker_connection import ConnectionKind
from kafka_async.cluster.request_destinations import Broker, CoordinatorKind
from kafka_async.errors import (
    ClientClosedError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    RetriableError,
)
from kafka_async.group import classic_protocol
from kafka_async.group.member import LocalMember, PollTimeoutError, RebalanceHandler
from kafka_async.group.member_states import (
    FATAL_ERRORS,
    HEARTBEAT_ERRORS,
    HEARTBEAT_STATES,
    JOIN_ERRORS,
    SYNC_ERRORS,
    Invalidation,
    MembershipErrorTable,
    MembershipEvent,
    MemberState,
    membership_error_action,
    next_state,
)
from kafka_async.protocol.messages.leave_group import LeaveGroupRequest
from kafka_async.protocol.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping

    from kafka_async.cluster.broker_connection import BrokerConnection
    from kafka_async.cluster.client import Client
    from kafka_async.group.member import GroupSettings
    from kafka_async.supervisor import Supervisor
    from kafka_async.types import GroupMetadata

R = TypeVar("R")
logger = logging.getLogger("kafka_async.group")

_JOIN_GRACE = 5.0
"""Seconds added to the rebalance timeout for the timeouts of JoinGroup and SyncGroup."""
_LEAVE_TIMEOUT = 5.0
_CLOSE_TIMEOUT = 2.0
"""Maximum seconds to wait for the response to LeaveGroup while the consumer is closed."""
_NO_REBALANCE_STATES = frozenset(
    {
        MemberState.STABLE,
        MemberState.UNJOINED,
        MemberState.FATAL,
        MemberState.POLL_TIMEOUT,
        MemberState.CLOSED,
    }
)
_NOT_MEMBER_STATES = frozenset({MemberState.UNJOINED, MemberState.CLOSED})
_LOST_STATES = frozenset(
    {
        MemberState.UNJOINED,
        MemberState.LOST,
        MemberState.POLL_TIMEOUT,
        MemberState.FATAL,
        MemberState.LEAVING,
        MemberState.CLOSED,
    }
)
"""States of a member whose partitions are lost or revoked."""


class GroupMembership:
    """Keeps a consumer in its group.

    Attributes:
        error: The error that ends in FATAL: a response of the coordinator, or an exception of the
            assignor or while the assignment is applied. None once the member starts again.
        rebalances: Number of completed rebalances.
    """

    def __init__(
        self,
        client: Client,
        supervisor: Supervisor,
        settings: GroupSettings,
        handler: RebalanceHandler,
    ) -> None:
        self.error: Exception | None = None
        self.rebalances = 0
        self.on_fatal_error: Callable[[], None] = _nothing
        """Called when the member has become FATAL, because of `error`."""
        self._client = client
        self._supervisor = supervisor
        self._settings = settings
        self._handler = handler
        self._member = LocalMember(settings)
        self._state = MemberState.UNJOINED
        self._join_requested = self._close_requested = self._polled = False
        self._rejoin_reason: str | None = None  # set while a rebalance is requested
        self._heartbeat_event: MembershipEvent | None = None  # from the last heartbeat's error
        self._invalidated = Invalidation.NONE
        self._join_result: classic_protocol.Joined | None = None
        self._assignment = b""
        self._rebalance_started_at = 0.0
        self._rebalance_reason = ""
        self._leave_deadline: float | None = None
        self._heartbeat_sent_at: float | None = None  # of the heartbeat in flight
        self._last_response_at = 0.0
        self.heartbeat_at: float | None = None
        """Event loop time of the last successful heartbeat; None before the first."""
        self._request_parked = False  # JoinGroup or SyncGroup is in flight
        self._wakeup = asyncio.Event()
        self._no_rebalance = asyncio.Event()
        self._not_member = asyncio.Event()
        self._state_changed = asyncio.Event()
        self._request_scope: CancelScope | None = None
        self._connection: BrokerConnection | None = None
        self._backoff = Backoff(settings.retry_backoff, settings.retry_backoff_max)
        self._state_handlers: Mapping[MemberState, Callable[[], Awaitable[MembershipEvent]]] = {
            MemberState.UNJOINED: self._run_unjoined,
            MemberState.PREPARING_REBALANCE: self._run_preparing_rebalance,
            MemberState.JOINING: self._run_joining,
            MemberState.SYNCING: self._run_syncing,
            MemberState.ASSIGNING: self._run_assigning,
            MemberState.STABLE: self._run_stable,
            MemberState.LOST: self._run_lost,
            MemberState.POLL_TIMEOUT: self._run_poll_timeout,
            MemberState.FATAL: self._run_fatal,
            MemberState.LEAVING: self._run_leaving,
        }

    # -- requests of other tasks ------------------------------------------------------------------

    @property
    def state(self) -> MemberState:
        """Current state."""
        return self._state

    @property
    def metadata(self) -> GroupMetadata:
        """Identity of the member in its current generation."""
        return self._member.metadata()

    @property
    def generation(self) -> int:
        """Generation of the group; -1 unless this is a member."""
        return self._member.generation

    @property
    def in_flight(self) -> int:
        """Requests to the coordinator without a response."""
        return 0 if self._connection is None else self._connection.in_flight

    @property
    def failed_permanently(self) -> bool:
        """True if joining again cannot resolve `error`."""
        return type(self.error) in FATAL_ERRORS

    def start(self) -> None:
        """Start the tasks; the member joins after a call of `join`."""
        self._supervisor.on_failure(self._on_task_failure)
        self._supervisor.spawn(self._run, name=f"group {self._settings.group_id}")
        self._supervisor.spawn(
            self._send_heartbeats, name=f"heartbeats of {self._settings.group_id}"
        )

    def join(self, reason: str) -> None:
        """Join the group, or rejoin it."""
        self._join_requested = True
        self.rejoin(reason)

    def rejoin(self, reason: str) -> None:
        """Rebalance the group: the subscription or the partitions to assign have changed."""
        self._rejoin_reason = reason
        self._wakeup.set()

    def on_poll(self) -> None:
        """Join again after a poll timeout or a fatal error: the application polled."""
        if self._state in (MemberState.POLL_TIMEOUT, MemberState.FATAL):
            self._polled = True
            self._wakeup.set()

    async def leave(self, *, close: bool = False, deadline: float | None = None) -> None:
        """Revoke all partitions, leave the group and return when that is done.

        Args:
            close: Whether the membership ends for good.
            deadline: Time on the event loop's clock until which a closing member waits for the
                response to LeaveGroup. It does not wait for a coordinator that does not respond.
        """
        self._join_requested = False
        self._leave_deadline = deadline
        self._close_requested = self._close_requested or close
        self._wakeup.set()
        if self._request_scope is not None:
            self._request_scope.cancel()
        await asyncio.sleep(0)
        await self._not_member.wait()
        self._supervisor.check()

    async def next_generation(self, former: GroupMetadata) -> GroupMetadata | None:
        """Wait for a generation after `former`'s; None if this member lost its place."""
        while True:
            current = self.metadata
            if current.member_id != former.member_id or self._state in _LOST_STATES:
                return None
            if current.generation_id > former.generation_id:
                return current
            self._state_changed.clear()
            await self._state_changed.wait()

    async def wait_for_rebalance(self) -> None:
        """Wait until no rebalance is in progress."""
        await self._no_rebalance.wait()

    def _on_task_failure(self, _: KafkaError) -> None:
        self._not_member.set()
        self._no_rebalance.set()

    # -- the work of each state -------------------------------------------------------------------

    async def _run(self) -> None:
        self._enter(MemberState.UNJOINED)
        try:
            while self._state is not MemberState.CLOSED:
                event = await self._state_handlers[self._state]()
                self._enter(next_state(self._state, event))
            await self._set_connection(None)
        finally:
            if self._connection is not None:
                self._connection.end(ClientClosedError("the consumer is closed"))

    def _enter(self, state: MemberState) -> None:
        if state is not self._state:
            logger.info("group %s: %s", self._settings.group_id, state.value)
        self._state = state
        self._state_changed.set()
        for event, states in (
            (self._no_rebalance, _NO_REBALANCE_STATES),
            (self._not_member, _NOT_MEMBER_STATES),
        ):
            event.set() if state in states else event.clear()

    async def _run_unjoined(self) -> MembershipEvent:
        while True:
            if self._join_requested:
                return MembershipEvent.JOIN_REQUESTED
            if self._close_requested:
                return MembershipEvent.CLOSE_REQUESTED
            await self._wait_for_wakeup()

    async def _run_preparing_rebalance(self) -> MembershipEvent:
        reason, self._rejoin_reason = self._rejoin_reason or "the group rebalances", None
        self._begin_rebalance(reason)
        try:
            await self._handler.on_join_prepare()
        except PollTimeoutError:
            return MembershipEvent.POLL_TIMED_OUT
        if self._heartbeat_event in (MembershipEvent.MEMBERSHIP_LOST, MembershipEvent.FAILED):
            return self._pop_heartbeat_event()
        self._heartbeat_event = None
        return MembershipEvent.PREPARED if self._join_requested else MembershipEvent.LEAVE_REQUESTED

    async def _run_joining(self) -> MembershipEvent:
        while self._join_requested:
            with self._new_request_scope():
                event = await self._attempt(JOIN_ERRORS, self._join)
                if event is not None:
                    return event
        return MembershipEvent.LEAVE_REQUESTED

    async def _join(self) -> MembershipEvent:
        self._join_result = joined = await self._exchange_parked(
            classic_protocol.join(
                self._member,
                self._handler.protocol_type,
                self._handler.protocols(),
                self._rebalance_reason,
            ),
            max(self._settings.request_timeout, self._settings.rebalance_timeout + _JOIN_GRACE),
        )
        self._member.member_id = joined.member_id
        self._member.generation = joined.generation
        self._member.protocol_name = joined.protocol_name
        return MembershipEvent.JOINED

    async def _run_syncing(self) -> MembershipEvent:
        while self._join_requested:
            with self._new_request_scope():
                event = await self._attempt(SYNC_ERRORS, self._sync)
                if event is not None:
                    return event
        return MembershipEvent.LEAVE_REQUESTED

    async def _sync(self) -> MembershipEvent:
        joined = self._join_result
        assert joined is not None
        assignments: Mapping[str, bytes] = {}
        if joined.leads and not joined.skip_assignment:
            assignments = await self._assign(joined)
        self._assignment = await self._exchange_parked(
            classic_protocol.sync(self._member, self._handler.protocol_type, assignments),
            max(self._settings.request_timeout, self._settings.rebalance_timeout + _JOIN_GRACE),
        )
        return MembershipEvent.SYNCED

    async def _assign(self, joined: classic_protocol.Joined) -> Mapping[str, bytes]:
        """Compute the assignments; on failure leave, since the other members wait for them."""
        try:
            return await self._handler.assign(joined.protocol_name, joined.members)
        except RetriableError:
            raise  # the group rebalances again
        except Exception as error:
            logger.warning(
                "group %s: the assignor %s raised %r, so this member, the leader, leaves",
                self._settings.group_id,
                joined.protocol_name,
                error,
            )
            await self._leave_group("the assignor has failed", static=True)
            raise

    async def _run_assigning(self) -> MembershipEvent:
        assert self._join_result is not None
        self._heartbeat_event = None
        name, generation = self._join_result.protocol_name, self._join_result.generation
        try:
            rejoin = await self._handler.on_join_complete(name, self._assignment, generation)
        except PollTimeoutError:
            return MembershipEvent.POLL_TIMED_OUT
        except KafkaError as error:
            self.error = error
            return MembershipEvent.FAILED
        if rejoin and self._rejoin_reason is None:
            self._rejoin_reason = "partitions were revoked for other members"
        self._end_rebalance()
        return MembershipEvent.ASSIGNED

    async def _run_stable(self) -> MembershipEvent:
        self._backoff.reset()
        while True:
            if not self._join_requested:
                return MembershipEvent.LEAVE_REQUESTED
            if self._heartbeat_event is not None:
                return self._pop_heartbeat_event()
            if self._rejoin_reason is not None:
                return MembershipEvent.REBALANCE_NEEDED
            left = self._handler.last_poll_time() + self._settings.rebalance_timeout - self._now()
            if left <= 0:
                return MembershipEvent.POLL_TIMED_OUT
            await self._wait_for_wakeup(left)

    async def _run_lost(self) -> MembershipEvent:
        await self._handler.on_partitions_lost()
        self._member.invalidate(max(self._invalidated, Invalidation.GENERATION))
        self._invalidated, self._heartbeat_event, self.error = Invalidation.NONE, None, None
        return (
            MembershipEvent.PARTITIONS_DROPPED
            if self._join_requested
            else MembershipEvent.LEAVE_REQUESTED
        )

    async def _run_poll_timeout(self) -> MembershipEvent:
        logger.warning(
            "group %s: the consumer was not polled for max_poll_interval_ms (%.0f s), so it leaves "
            "the group; it joins again at the next poll",
            self._settings.group_id,
            self._settings.rebalance_timeout,
        )
        self._invalidated, self._polled = Invalidation.MEMBER_ID, False
        await self._leave_group("max.poll.interval.ms has passed without a poll")
        return await self._wait_for_poll()

    async def _run_fatal(self) -> MembershipEvent:
        self.on_fatal_error()
        self._invalidated, self._polled = Invalidation.MEMBER_ID, False
        return await self._wait_for_poll()

    async def _wait_for_poll(self) -> MembershipEvent:
        while self._join_requested:
            if self._polled and not self.failed_permanently:
                return MembershipEvent.POLLED
            await self._wait_for_wakeup()
        return MembershipEvent.LEAVE_REQUESTED

    async def _run_leaving(self) -> MembershipEvent:
        if (
            self._invalidated is Invalidation.NONE
            and self._heartbeat_event is not MembershipEvent.MEMBERSHIP_LOST
        ):
            await self._handler.on_leave_prepare()
            await self._leave_group("the consumer is being closed or unsubscribed")
        else:
            await self._handler.on_partitions_lost()
        self._member.invalidate(Invalidation.MEMBER_ID)
        self._invalidated = Invalidation.NONE
        self._heartbeat_event = self._rejoin_reason = self.error = None
        return MembershipEvent.LEFT

    # -- requests and their errors ----------------------------------------------------------------

    async def _attempt(
        self, table: MembershipErrorTable, request: Callable[[], Awaitable[MembershipEvent]]
    ) -> MembershipEvent | None:
        """Send a request and return the resulting event; None to retry."""
        try:
            return await request()
        except KafkaError as error:
            action = membership_error_action(table, error)
            logger.debug("group %s: %s", self._settings.group_id, error)
            self._invalidated = max(self._invalidated, action.invalidates)
            if action.find_coordinator:
                self._client.forget_coordinator(CoordinatorKind.GROUP, self._settings.group_id)
            if action.event is MembershipEvent.FAILED:
                self.error = error
            else:
                await asyncio.sleep(self._backoff.next())
            return action.event
        except Exception as error:  # noqa: BLE001  # raised by the application's assignor
            self.error = error
            return MembershipEvent.FAILED

    async def _exchange_parked(self, procedure: Generator[Any, Any, R], timeout: float) -> R:
        """Send JoinGroup or SyncGroup, whose response the coordinator holds back.

        It handles no later request of the connection until then.
        """
        self._request_parked, self._last_response_at = True, self._now()
        try:
            result = await self._exchange(procedure, timeout)
        except KafkaError:
            self._request_parked = False
            raise
        self._request_parked, self._last_response_at = False, self._now()
        return result

    async def _exchange(self, procedure: Generator[Any, Any, R], timeout: float) -> R:
        connection = await self._find_connection(min(timeout, self._settings.request_timeout))
        request = next(procedure)
        while True:
            response = await connection.send(request, timeout=timeout)
            try:
                request = procedure.send(response)
            except StopIteration as result:
                return result.value

    async def _find_connection(self, timeout: float) -> BrokerConnection:
        node_id = await self._client.coordinator(
            CoordinatorKind.GROUP, self._settings.group_id, timeout=timeout
        )
        connection = self._connection
        if connection is None or connection.node_id != node_id:
            connection = self._client.connection(node_id, ConnectionKind.COORDINATOR, self)
            await self._set_connection(connection)
        return connection

    async def _set_connection(self, connection: BrokerConnection | None) -> None:
        old, self._connection = self._connection, connection
        if old is not None:
            await old.close()

    async def _leave_group(self, reason: str, *, static: bool = False) -> None:
        """Send LeaveGroup; a static member sends it only if `static`."""
        member = self._member
        if not member.member_id:
            return
        if self._settings.group_instance_id is not None and not static:
            return
        timeout = _LEAVE_TIMEOUT
        if self._leave_deadline is not None:
            timeout = min(_CLOSE_TIMEOUT, max(0.0, self._leave_deadline - self._now()))
        if self._request_parked and self._connection is not None:  # by an abandoned JoinGroup
            self._connection.disconnect(KafkaConnectionError("the member leaves the group"))
        self._request_parked = False
        try:
            if self._close_requested and not self._coordinator_responsive():
                self._send_leave_group(reason)
                return
            async with asyncio.timeout(timeout):
                connection = await self._find_connection(timeout)
                await connection.connect(timeout)
                version = connection.version(LeaveGroupRequest.API_KEY)
                await self._exchange(classic_protocol.leave(member, version, reason), timeout)
        except (KafkaError, TimeoutError) as error:
            logger.info(
                "leaving group %s: %s",
                self._settings.group_id,
                error if isinstance(error, KafkaError) else f"no response for {timeout:g} s",
            )

    def _coordinator_responsive(self) -> bool:
        """Return whether a response to LeaveGroup can be expected."""
        overdue = (
            self._heartbeat_sent_at is not None
            and self._now() - self._heartbeat_sent_at > _CLOSE_TIMEOUT / 2
        )
        return not overdue and self._client.responsive

    def _send_leave_group(self, reason: str) -> None:
        """Send LeaveGroup over an open connection without waiting for the response."""
        connection = self._connection
        if connection is not None and connection.connected:
            version = connection.version(LeaveGroupRequest.API_KEY)
            request = next(classic_protocol.leave(self._member, version, reason))
            connection.submit(request, timeout=_CLOSE_TIMEOUT)

    # -- heartbeats -------------------------------------------------------------------------------

    async def _send_heartbeats(self) -> None:
        settings = self._settings
        backoff = Backoff(settings.retry_backoff, settings.retry_backoff_max)
        delay = settings.heartbeat_interval
        while self._state is not MemberState.CLOSED:
            await asyncio.sleep(delay)
            delay = settings.heartbeat_interval
            generation = self._member.generation
            if self._request_parked:
                await self._probe_coordinator()
                continue
            if self._state not in HEARTBEAT_STATES or generation < 0:
                continue
            self._heartbeat_sent_at = self._now()
            try:
                timeout = self._heartbeat_timeout()
                await self._exchange(classic_protocol.heartbeat(self._member), timeout)
                self._last_response_at = self._now()
                self.heartbeat_at = self._now()
                backoff.reset()
            except KafkaError as error:
                if isinstance(error, KafkaTimeoutError):
                    self._drop_coordinator(error)
                if self._state in HEARTBEAT_STATES and generation == self._member.generation:
                    self._on_heartbeat_error(error)
                if membership_error_action(HEARTBEAT_ERRORS, error).event is None:
                    delay = min(delay, backoff.next())
            finally:
                self._heartbeat_sent_at = None

    def _heartbeat_timeout(self) -> float:
        """Return the seconds to wait for a heartbeat's response: at most until the session ends."""
        settings = self._settings
        left = self._last_response_at + settings.session_timeout - self._now()
        timeout = left if left > 0 else settings.session_timeout
        return min(settings.request_timeout, max(timeout, settings.heartbeat_interval / 2))

    async def _probe_coordinator(self) -> None:
        """Check that the broker responds while it delays the response to JoinGroup or SyncGroup.

        The delay may last until the rebalance times out, five minutes by default, and the broker
        handles nothing else on that connection: a frozen broker would not be noticed for that long.
        """
        settings, connection, now = self._settings, self._connection, self._now()
        if connection is None or now - self._last_response_at < settings.session_timeout / 2:
            return
        try:
            await self._client.request(
                MetadataRequest(topics=[], allow_auto_topic_creation=False),
                to=Broker(connection.node_id),
                timeout=min(settings.request_timeout, settings.session_timeout / 2),
                retry=False,
            )
            self._last_response_at = self._now()
        except KafkaError as error:
            if self._request_parked and connection is self._connection:
                self._drop_coordinator(error)

    def _drop_coordinator(self, error: KafkaError) -> None:
        """Fail the requests to a coordinator that does not respond, and look it up again."""
        logger.info("group %s: %s", self._settings.group_id, error)
        self._client.forget_coordinator(CoordinatorKind.GROUP, self._settings.group_id)
        if self._connection is not None:
            self._connection.disconnect(
                KafkaConnectionError(f"the coordinator does not respond: {error}")
            )

    def _on_heartbeat_error(self, error: KafkaError) -> None:
        action = membership_error_action(HEARTBEAT_ERRORS, error)
        logger.debug("heartbeat of group %s: %s", self._settings.group_id, error)
        if action.find_coordinator:
            self._client.forget_coordinator(CoordinatorKind.GROUP, self._settings.group_id)
        if action.event is None or self._heartbeat_event in (
            MembershipEvent.MEMBERSHIP_LOST,
            MembershipEvent.FAILED,
        ):
            return
        if action.event is MembershipEvent.FAILED:
            self.error = error
        self._invalidated = max(self._invalidated, action.invalidates)
        self._heartbeat_event = action.event
        self._wakeup.set()

    # -- helpers ----------------------------------------------------------------------------------

    def _pop_heartbeat_event(self) -> MembershipEvent:
        event, self._heartbeat_event = self._heartbeat_event, None
        assert event is not None
        return event

    def _new_request_scope(self) -> CancelScope:
        self._request_scope = CancelScope()
        return self._request_scope

    async def _wait_for_wakeup(self, timeout: float | None = None) -> None:
        """Wait until another task wakes the owner, or until the timeout."""
        with move_on_after(timeout):
            await self._wakeup.wait()
        self._wakeup.clear()

    def _begin_rebalance(self, reason: str) -> None:
        self._rebalance_reason, self._rebalance_started_at = reason, self._now()
        if self._client.hooks.active:
            self._client.hooks.emit(
                hooks.RebalanceBegun(self._client.config.client_id, self._settings.group_id, reason)
            )

    def _end_rebalance(self) -> None:
        self.rebalances += 1
        if not self._client.hooks.active:
            return
        member = self._member
        self._client.hooks.emit(
            hooks.RebalanceEnded(
                self._client.config.client_id,
                self._settings.group_id,
                member.generation,
                member.member_id,
                self._now() - self._rebalance_started_at,
            )
        )

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _nothing() -> None:
    pass
