"""The connection of a group member to its coordinator, and whether the coordinator responds.

JoinGroup, SyncGroup, heartbeats and LeaveGroup share the connection. Commits use another one: the
coordinator holds back the responses to JoinGroup and SyncGroup, and handles no later request of the
connection until then.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from kafka_async.client.connection.broker_connection import ConnectionKind
from kafka_async.client.connection.connection import UNANSWERED_AFTER
from kafka_async.client.metadata.coordinator_lookup import CoordinatorKind
from kafka_async.client.metadata.request_router import REROUTE_ERRORS, Broker, CoordinatorOfGroup
from kafka_async.errors import (
    ClientClosedError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    RebalanceInProgressError,
)
from kafka_async.group import classic_protocol
from kafka_async.protocol.messages.leave_group import LeaveGroupRequest
from kafka_async.protocol.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from kafka_async.client.connection.broker_connection import BrokerConnection
    from kafka_async.client.services import ClientServices
    from kafka_async.group.member import GroupSettings, LocalMember

R = TypeVar("R")
LeaveProcedure: TypeAlias = "Callable[[LocalMember, int, str], Generator[Any, Any, None]]"
"""Leaves a group, given the member, the version of the request, and the reason."""
logger = logging.getLogger("kafka_async.group")

_JOIN_GRACE: Final = 5.0
"""Seconds added to the rebalance timeout for the timeouts of JoinGroup and SyncGroup."""
_LEAVE_TIMEOUT: Final = 5.0
MAX_MISSED_HEARTBEATS: Final = 3
"""Heartbeat intervals without a response after which the coordinator is looked up again."""
_CLOSE_TIMEOUT: Final = 2.0
"""Maximum seconds to wait for the response to LeaveGroup while the consumer is closed."""


class CoordinatorConnection:
    """Sends a member's requests to the coordinator of its group, which may move.

    Attributes:
        held: JoinGroup or SyncGroup is in flight, or was abandoned.
        heartbeat_at: Event loop time of the last successful heartbeat, or None.
        acknowledged_at: Event loop time at which the last acknowledged JoinGroup, SyncGroup or
            heartbeat was sent: the coordinator keeps the member at least until session_timeout
            later. None before the first.
    """

    def __init__(
        self,
        services: ClientServices,
        settings: GroupSettings,
        leave: LeaveProcedure = classic_protocol.leave,
        leave_api_key: int = LeaveGroupRequest.API_KEY,
    ) -> None:
        self.held = False
        self.heartbeat_at: float | None = None
        self.acknowledged_at: float | None = None
        # Parts of the client; `leave` differs between the protocols.
        self._services = services
        self._settings = settings
        self._leave = leave
        self._leave_api_key = leave_api_key
        self._now = asyncio.get_running_loop().time
        # The last response of any kind, from which the coordinator's silence is measured.
        self._connection: BrokerConnection | None = None
        self._last_response_at = 0.0
        self._heartbeat_sent_at: float | None = None  # of the heartbeat in flight

    @property
    def connection_number(self) -> int:
        """Number of the connection of the last request; 0 before the first."""
        return 0 if self._connection is None else self._connection.number

    @property
    def in_flight(self) -> int:
        """Requests without a response."""
        return 0 if self._connection is None else self._connection.in_flight

    async def exchange(self, procedure: Generator[Any, Any, R], timeout: float) -> R:
        """Send the requests of a procedure, each within `timeout` seconds; return its result."""
        # Once per procedure: its requests must reach the same coordinator.
        connection = await self._find(min(timeout, self._settings.request_timeout))
        request = next(procedure)
        while True:
            response = await connection.send(request, timeout=timeout)
            try:
                request = procedure.send(response)
            except StopIteration as result:
                return result.value

    async def exchange_held(self, procedure: Generator[Any, Any, R]) -> R:
        """Send JoinGroup or SyncGroup, whose response waits for the other members."""
        settings = self._settings
        # Other members have the rebalance timeout to join.
        timeout = max(settings.request_timeout, settings.rebalance_timeout + _JOIN_GRACE)
        sent_at = self._now()
        # Heartbeats are not sent while `held`; `probe` replaces them.
        self.held, self._last_response_at = True, sent_at
        try:
            result = await self.exchange(procedure, timeout)
        # Not in `finally`: a cancelled JoinGroup is still held at the broker, see `leave`.
        except KafkaError:
            self.held = False
            raise
        self.held, self._last_response_at = False, self._now()
        # The time of sending: the coordinator may have counted from then on.
        self.acknowledged_at = sent_at
        return result

    async def heartbeat(self, procedure: Generator[Any, Any, R]) -> R:
        """Send a heartbeat; look up the coordinator again if it does not respond."""
        self._heartbeat_sent_at = sent_at = self._now()
        try:
            result = await self.exchange(procedure, self._heartbeat_timeout())
        except RebalanceInProgressError:  # the coordinator has extended the session
            self.acknowledged_at = sent_at
            raise
        except KafkaTimeoutError as error:
            # The requests behind a frozen coordinator must not wait for its session.
            self._drop(error)
            raise
        finally:
            self._heartbeat_sent_at = None
        self._last_response_at = self.heartbeat_at = self._now()
        self.acknowledged_at = sent_at
        return result

    def _heartbeat_timeout(self) -> float:
        """Return the seconds to wait for a heartbeat's response.

        A coordinator that has missed MAX_MISSED_HEARTBEATS of them is looked up again, in any case
        before the session ends.
        """
        # Bounded by the session, by the missed heartbeats, and from below by half an interval.
        settings = self._settings
        left = self._last_response_at + settings.session_timeout - self._now()
        timeout = left if left > 0 else settings.session_timeout
        missed = max(MAX_MISSED_HEARTBEATS * settings.heartbeat_interval, UNANSWERED_AFTER)
        return min(settings.request_timeout, missed, max(timeout, settings.heartbeat_interval / 2))

    async def probe(self) -> None:
        """Check that the broker responds while it holds back JoinGroup or SyncGroup.

        That may last until the rebalance times out, five minutes by default. The broker handles
        nothing else on the connection, so a frozen broker would not be noticed for that long.
        """
        settings, connection, now = self._settings, self._connection, self._now()
        if connection is None or now - self._last_response_at < settings.session_timeout / 2:
            return
        try:
            # Over the shared connection, since this one is blocked.
            await self._services.request(
                MetadataRequest(topics=[], allow_auto_topic_creation=False),
                to=Broker(connection.node_id),
                timeout=min(settings.request_timeout, settings.session_timeout / 2),
                retry=False,
            )
            self._last_response_at = self._now()
        except KafkaError as error:
            # The response may have arrived, or the coordinator moved, during the wait.
            if self.held and connection is self._connection:
                self._drop(error)

    async def leave(
        self, member: LocalMember, reason: str, close_deadline: float | None = None
    ) -> None:
        """Send LeaveGroup, again if the coordinator has moved. Other errors are logged.

        Without the retry the group would wait for the session of a member that no longer exists.
        After a lost connection it does wait. A closing consumer gives up at `close_deadline`, an
        event loop time, and does not wait for a coordinator that does not respond.
        """
        closing, timeout = close_deadline is not None, _LEAVE_TIMEOUT
        if close_deadline is not None:
            timeout = min(_CLOSE_TIMEOUT, max(0.0, close_deadline - self._now()))
        # The request would wait behind it.
        if self.held and self._connection is not None:  # by an abandoned JoinGroup
            self._connection.disconnect(KafkaConnectionError("the member leaves the group"))
        self.held = False
        moved: KafkaError | None = None
        try:
            # It may still arrive, which spares the group a wait.
            if closing and not self._responsive():
                self._submit_leave(member, reason)
                return
            async with asyncio.timeout(timeout):
                backoff = self._services.retry_backoff()
                while (moved := await self._send_leave(member, reason, timeout)) is not None:
                    self.forget()
                    await asyncio.sleep(backoff.next())
        except (KafkaError, TimeoutError) as error:
            logger.info(
                "leaving group %s: %s",
                self._settings.group_id,
                error
                # The first cause is more useful than the timeout.
                if isinstance(error, KafkaError)
                else moved or f"no response for {timeout:g} s",
            )

    async def _send_leave(
        self, member: LocalMember, reason: str, timeout: float
    ) -> KafkaError | None:
        """Send LeaveGroup once; return the error of a broker that is not the coordinator."""
        connection = await self._find(timeout)
        await connection.connect(timeout)
        version = connection.version(self._leave_api_key)
        try:
            await self.exchange(self._leave(member, version, reason), timeout)
        except REROUTE_ERRORS[CoordinatorOfGroup] as error:
            return error
        return None

    def _responsive(self) -> bool:
        """Return True if a response to LeaveGroup can be expected."""
        sent_at = self._heartbeat_sent_at
        # A heartbeat that is late shows a frozen coordinator before the client does.
        overdue = sent_at is not None and self._now() - sent_at > _CLOSE_TIMEOUT / 2
        return not overdue and self._services.responsive

    def _submit_leave(self, member: LocalMember, reason: str) -> None:
        """Send LeaveGroup over an open connection without waiting for the response."""
        connection = self._connection
        if connection is None or connection.muted_until > self._now():
            return  # a broker does not read the connection of a client that it throttles
        if connection.connected:
            version = connection.version(self._leave_api_key)
            request = next(self._leave(member, version, reason))
            connection.submit(request, timeout=_CLOSE_TIMEOUT)

    def forget(self) -> None:
        """Look the coordinator up again before the next request."""
        self._services.coordinators.forget(CoordinatorKind.GROUP, self._settings.group_id)

    async def close(self) -> None:
        """Close the connection."""
        await self._replace(None)

    def end(self) -> None:
        """Close the connection without waiting."""
        if self._connection is not None:
            self._connection.end(ClientClosedError("the consumer is closed"))

    def _drop(self, error: KafkaError) -> None:
        """Fail the requests to a coordinator that does not respond, and look it up again."""
        logger.info("group %s: %s", self._settings.group_id, error)
        self.forget()
        if self._connection is not None:
            self._connection.disconnect(
                KafkaConnectionError(f"the coordinator does not respond: {error}")
            )

    async def _find(self, timeout: float) -> BrokerConnection:
        node_id = await self._services.coordinators.find(
            CoordinatorKind.GROUP, self._settings.group_id, timeout=timeout
        )
        connection = self._connection
        # Each coordinator gets a connection for this member only.
        if connection is None or connection.node_id != node_id:
            connection = self._services.brokers.connection(
                node_id, ConnectionKind.COORDINATOR, self
            )
            await self._replace(connection)
        return connection

    async def _replace(self, connection: BrokerConnection | None) -> None:
        old, self._connection = self._connection, connection
        if old is not None:
            await old.close()
