"""Authenticates one connection, and again before its session ends (KIP-368).

A new connection authenticates after the handshake. When most of the session's lifetime is over,
SaslHandshake is sent behind the requests in flight, and requests that are submitted after it are
held until the broker has accepted the credentials.

The connection owns the socket, the timer and the tasks; this module owns the session and the
requests that are held because of it.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final, cast

from kafka_async.client.connection.diagnosis import Diagnosis
from kafka_async.client.security.authentication import Session
from kafka_async.client.security.sasl.mechanism import Await, Compute
from kafka_async.hooks import Authenticated, AuthenticationFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafka_async.client.connection.address import Address
    from kafka_async.client.connection.connection_context import ConnectionContext
    from kafka_async.client.security.authentication import Authenticator
    from kafka_async.client.wire.framing import Frame
    from kafka_async.client.wire.handshake import BrokerVersions, Step
    from kafka_async.client.wire.pending_response import Waiter
    from kafka_async.errors import KafkaError
    from kafka_async.protocol.message import Request

EARLIEST_REAUTHENTICATION: Final = 0.85
LATEST_REAUTHENTICATION: Final = 0.95
"""Fractions of a session's lifetime between which a connection authenticates again, at random."""
MIN_REAUTHENTICATION_INTERVAL: Final = 1.1
"""Seconds between two authentications of a connection. Brokers require one second."""


@dataclass(slots=True, eq=False)
class HeldRequest:
    """A request that waits for a connection to authenticate again; times as `InFlightRequest`."""

    request: Request[Any]
    version: int
    waiter: Waiter
    submitted_at: float
    deadline: float


class ConnectionAuthentication:
    """Authenticates one connection, and holds its requests while it authenticates again.

    Args:
        kind: The connection's purpose, for events.
        send: Sends a request and returns the frame of its response, which may take the given
            number of seconds.
        wait_unthrottled: Waits for the end of the throttle time, and extends a time limit by it.

    Attributes:
        hold_from: Time from which requests are held, in seconds of the loop's clock; infinite
            without a limit. Read-only for callers.
        due_at: Time at which the connection must authenticate again; infinite if it need not, or
            does so at present. Read-only for callers.
        held: Requests that are held, oldest first; read-only for callers.
        retiring: True once the connection must close because the client has another user name.
            Read-only for callers.
    """

    def __init__(
        self,
        context: ConnectionContext,
        address: Address,
        kind: str,
        send: Callable[[Step, float], Awaitable[Frame]],
        wait_unthrottled: Callable[[asyncio.Timeout], Awaitable[None]],
    ) -> None:
        # Read by the connection.
        self.hold_from = inf
        self.due_at = inf
        self.held: deque[HeldRequest] = deque()
        self.retiring = False
        # Passed in.
        self._context = context
        self._hooks = context.hooks
        self._address = address
        self._kind = kind
        self._send = send
        self._wait_unthrottled = wait_unthrottled
        self._loop = asyncio.get_running_loop()
        # The authentication in progress, or the last one.
        self._session = Session()
        self._running = False
        self._again = False
        self._replacements = 0
        self._step_timeout = 0.0
        self._began_at = 0.0
        # When the last request was sent, and the function of the application that is awaited: both
        # are for the session's end and for errors.
        self._asked_at = 0.0
        self._awaited = ""
        self._awaited_since = 0.0

    @property
    def _authenticator(self) -> Authenticator:
        authenticator = self._context.authenticator
        assert authenticator is not None
        return authenticator

    async def authenticate(
        self, versions: BrokerVersions, timeout: float, limit: asyncio.Timeout
    ) -> None:
        """Authenticate a new connection; each step may take `timeout` seconds.

        `limit` is the limit of the connection's setup. Raises as `Authenticator.authenticate`.
        """
        self._running, self._step_timeout = True, timeout
        session = await self._run(versions, timeout, limit)
        self._begin_session(session)

    def begin_again(self) -> bool:
        """Hold new requests, because the time to authenticate again has come.

        Brokers do not let a connection change its user. After `set_sasl_credentials` with another
        user name this returns False: the connection must close as soon as the requests in flight
        have their responses.
        """
        # Held from the past on, so that nothing follows the SaslHandshake.
        self.hold_from, self.due_at = -inf, inf
        self.retiring = self._authenticator.username != self._session.username
        return not self.retiring

    async def authenticate_again(self, versions: BrokerVersions, first_timeout: float) -> None:
        """Authenticate behind the requests in flight, then hold requests no longer.

        The first response may take `first_timeout` seconds, since the broker responds in order;
        all other steps may take the time for the connection's setup. Requests are held until the
        throttle time has ended.

        Raises as `Authenticator.authenticate`, and TimeoutError.
        """
        self._running = self._again = True
        async with asyncio.timeout(first_timeout) as limit:
            session = await self._run(versions, first_timeout, limit)
            # The response may have begun a throttle time.
            await self._wait_unthrottled(limit)
        self._begin_session(session)

    async def _run(
        self, versions: BrokerVersions, first_timeout: float, limit: asyncio.Timeout
    ) -> Session:
        """Carry out the steps of an authentication; return its session.

        The response to the first request may take `first_timeout` seconds; a connection that
        authenticates again then sets `limit` to the time for all other steps.
        """
        address = self._address
        procedure = self._authenticator.authenticate(
            address.host, address.port, versions, self._context.tokens
        )
        self._began_at = self._loop.time()
        self._replacements = self._authenticator.replacements
        # Only the first response waits for the requests in flight; the time for the other steps
        # begins after it.
        step, timeout, behind_requests = next(procedure), first_timeout, self._again
        # A generator without I/O decides the steps; this loop carries them out.
        while True:
            result: Any = None
            failure: Exception | None = None
            if isinstance(step, Compute | Await):
                try:
                    result = await self._call(step)
                except Exception as error:  # noqa: BLE001  # of a function of the application
                    failure = error
            else:
                await self._wait_unthrottled(limit)
                self._asked_at = self._loop.time()
                result = await self._send(step, timeout)
            if behind_requests:
                limit.reschedule(self._loop.time() + self._step_timeout)
                behind_requests = False
            timeout = self._step_timeout
            try:
                step = procedure.send(result) if failure is None else procedure.throw(failure)
            except StopIteration as ended:
                return cast("Session", ended.value)

    async def _call(self, step: Compute | Await) -> Any:
        # It stays set when the time for the setup is over, for the error.
        self._awaited, self._awaited_since = step.purpose, self._loop.time()
        try:
            if isinstance(step, Compute):
                offload = self._context.supervisor.offload_credentials
                result = await offload(step.function, *step.arguments)
            else:
                result = await step.function()
        except Exception:
            self._awaited = ""
            raise
        self._awaited = ""
        return result

    def _begin_session(self, session: Session) -> None:
        """Set the time of the next authentication."""
        self._running = False
        self._session = session
        fraction = random.uniform(EARLIEST_REAUTHENTICATION, LATEST_REAUTHENTICATION)
        # The broker's session began later, when it had received the request.
        self.hold_from = self._asked_at + session.lifetime * fraction
        self.due_at = max(self.hold_from, self._began_at + MIN_REAUTHENTICATION_INTERVAL)
        if self._hooks.active:
            lifetime = None if session.lifetime == inf else session.lifetime
            self._hooks.emit(Authenticated(*self._facts(), lifetime))

    # -- failures ---------------------------------------------------------------------------------

    def diagnosis(self, error: BaseException) -> Diagnosis | None:
        """Return the cause of `error` if it is a function that has not returned in time.

        If a source of tokens is retrying, the cause is its last failure.
        """
        if not self._awaited or not isinstance(error, TimeoutError):
            return None
        tokens = self._context.tokens
        if tokens is not None and tokens.purpose == self._awaited and tokens.failure is not None:
            return Diagnosis(tokens.failure.message)
        waited = self._loop.time() - self._awaited_since
        return Diagnosis(f"{self._awaited} did not return within {waited:.3g} s")

    def fail(self, error: KafkaError) -> None:
        """Note a failure and emit its event, if an authentication had begun."""
        # The connection failed before or after its authentication.
        if not self._running:
            return
        self._authenticator.note_failure(error, self._replacements)
        if self._hooks.active:
            self._hooks.emit(AuthenticationFailed(*self._facts(), error))

    def _facts(self) -> tuple[str, int, str, str, float, bool]:
        """Return the common fields of the events of this authentication."""
        return (
            self._context.config.client_id,
            self._address.node_id,
            self._kind,
            self._authenticator.mechanism.name,
            self._loop.time() - self._began_at,
            self._again,
        )

    # -- held requests ----------------------------------------------------------------------------

    def hold(self, request: HeldRequest) -> None:
        """Keep a request until the connection has authenticated."""
        self.held.append(request)

    def take_held(self, now: float) -> HeldRequest | None:
        """Return the oldest request that is no longer held, or None."""
        return self.held.popleft() if self.held and now < self.hold_from else None

    def take_overdue(self, now: float) -> list[HeldRequest]:
        """Return the held requests whose deadline is over, and forget them."""
        overdue = [each for each in self.held if each.deadline <= now]
        for each in overdue:
            self.held.remove(each)
        return overdue

    def close(self) -> list[HeldRequest]:
        """Return all held requests, oldest first, and forget them."""
        held = list(self.held)
        self.held.clear()
        return held
