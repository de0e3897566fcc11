"""One TCP connection, from dialling to its end: handshake, requests, timeouts, idleness.

A request needs neither a task nor a timer. It is written when the caller submits it, and its
response is matched in the transport's callback, which completes the caller's future or calls its
callback. One timer per connection is set to the earliest deadline and checks for overdue requests
when it fires.

An overdue request fails alone. A connection is closed in two cases. First, when a request has had
no response for request_timeout_ms, or for its own timeout if that is longer: a broker responds in
order, so no later request can succeed. Second, when only requests without a response were written
and the broker has not read them for request_timeout_ms. When a connection ends, all requests in
flight fail at once, with the connection's name and the reason.

With SASL a connection authenticates after the handshake, and again before its session ends; see
`connection_authentication.py`.
"""

from __future__ import annotations

import asyncio
import logging
from copy import copy
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from kafka_async.client.connection.connection_authentication import (
    ConnectionAuthentication,
    HeldRequest,
)
from kafka_async.client.connection.diagnosis import (
    ConnectionFacts,
    ConnectionStage,
    Diagnosis,
    diagnose,
    is_hang_up,
)
from kafka_async.client.connection.quota_usage import FETCH, PRODUCE
from kafka_async.client.connection.transport import Stream
from kafka_async.client.security.tls import server_name
from kafka_async.client.wire.framing import FrameReader
from kafka_async.client.wire.handshake import BrokerVersions, handshake
from kafka_async.client.wire.in_flight_requests import InFlightRequest, InFlightRequests
from kafka_async.client.wire.pending_response import (
    OnThrottle,
    ResponseCallback,
    ResponseFuture,
    Waiter,
)
from kafka_async.config import seconds
from kafka_async.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    ProtocolError,
    RebootstrapRequiredError,
)
from kafka_async.hooks import (
    Connected,
    Disconnected,
    RequestSent,
    ResponseReceived,
)
from kafka_async.protocol.api import lookup

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.client.connection.address import Address
    from kafka_async.client.connection.connection_context import ConnectionContext
    from kafka_async.client.connection.hedging import OverdueTimer
    from kafka_async.client.wire.framing import Frame
    from kafka_async.client.wire.handshake import Step
    from kafka_async.foundation.supervisor import SupervisedTask
    from kafka_async.protocol.message import Request, Response
    from kafka_async.protocol.messages.produce import ProduceRequest

logger = logging.getLogger("kafka_async.cluster")

ResponseT = TypeVar("ResponseT", bound="Response")

MAX_HANDSHAKE_FRAME_SIZE: Final = 1024 * 1024
"""Bytes of the largest response that is accepted before the handshake is complete."""
API_VERSIONS: Final = 18
PRODUCE_API: Final = 0
FETCH_APIS: Final = frozenset({1, 78})
"""APIs whose requests wait for records: Fetch and ShareFetch."""
UNANSWERED_AFTER: Final = 5.0
"""Seconds without a response after which a broker counts as frozen or cut off.

A broker responds within milliseconds to every request that it does not hold back.
"""
BLOCKED_LOOP_DELAY: Final = 0.5
"""Seconds by which a timer is late if the event loop was blocked.

Responses may have arrived in that time, which the loop reads after it has run the timers.
"""
BLOCKED_LOOP_GRACE: Final = 0.1
"""Seconds in which such responses are read before overdue requests fail."""

MIN_IDLE_BEFORE_USE: Final = 1.0
"""Minimum seconds for which a connection may stay idle before its first request.

The tasks for which it was opened run some event loop iterations later; closed before, they would
open the next one, and so on.
"""


def has_response(request: Request[Any]) -> bool:
    """Return True if brokers respond to a request: not to Produce with acks=0."""
    return request.API_KEY != PRODUCE_API or cast("ProduceRequest", request).acks != 0


class ConnectionSetupError(KafkaConnectionError):
    """A connection could not be established.

    Attributes:
        permanent: True if retries fail until the configuration or the cluster changes.
        refused: True if no process listens at the address, or its name is unknown.
    """

    permanent = False
    refused = False


class WrongBrokerError(ConnectionSetupError):
    """The broker at the address is not the one that metadata placed there (KIP-1242).

    Its `__cause__` is the broker's RebootstrapRequiredError, which applications never see: the
    client bootstraps again, or with metadata_recovery_strategy="none" retries as Java does.
    """


@dataclass(slots=True)
class BrokerActivity:
    """Responses and timeouts of one broker, over all connections to it.

    Attributes:
        responded_at: Event loop time of the last response; None before.
        overdue: A request timed out after request_timeout_ms or UNANSWERED_AFTER, whichever is
            shorter, and the broker has not responded since.
        suspected: A request takes longer than usual on its connection, and the broker has not
            responded since: other brokers are preferred for requests that any can handle.
        hang_ups: Connections in a row that the broker closed before its first response, or at the
            first request after the handshake; counted until a connection ends in another way.
    """

    responded_at: float | None = None
    overdue: bool = False
    suspected: bool = False
    hang_ups: int = 0

    def record_response(self, now: float) -> None:
        """Record a response."""
        self.responded_at = now
        self.overdue = self.suspected = False

    @property
    def rank(self) -> int:
        """Order of preference for requests that any broker can handle: 0 is best."""
        return 2 if self.overdue else 1 if self.suspected else 0

    def suspect(self) -> None:
        """Record that the broker takes longer than usual."""
        self.suspected = True

    def record_timeout(self) -> None:
        """Record a timeout of a request that was in flight long enough to suspect the broker."""
        self.overdue = True

    def record_end(self, *, hang_up: bool) -> None:
        """Record the end of a connection by an error."""
        # Any other end breaks the series.
        self.hang_ups = self.hang_ups + 1 if hang_up else 0


class Connection:
    """One TCP or TLS connection to a broker.

    Requests can be submitted while `open` is true.

    Args:
        kind: The connection's purpose, for logs, errors and events.
        max_frame_size: Maximum size of a response, in bytes.
        activity: Receives the broker's responses and timeouts.
        on_closed: Called once with the error (None for an orderly close) after an open connection
            has ended.
        on_throttle: Called when a response has arrived, with its API key, version and throttle time
            in milliseconds, unless the time is 0.
        throttled_until: Returns the end of the throttle time, in seconds of the loop's clock.
        overdue_timer: Decides when `on_overdue` is called; None for never.
        on_overdue: Called when a request is overdue, and repeatedly until a response arrives.
    """

    def __init__(
        self,
        context: ConnectionContext,
        address: Address,
        kind: str,
        *,
        max_frame_size: int,
        activity: BrokerActivity,
        on_closed: Callable[[KafkaError | None], None],
        on_throttle: OnThrottle,
        throttled_until: Callable[[], float],
        overdue_timer: OverdueTimer | None = None,
        on_overdue: Callable[[], None],
    ) -> None:
        # State that others read.
        self.address = address
        self.stage = ConnectionStage.IDLE
        self.open = False
        self.versions = BrokerVersions()
        # What the owner passes in.
        self._context = context
        self._hooks = context.hooks
        self._kind = kind
        self._max_frame_size = max_frame_size
        self._activity = activity
        self._on_closed = on_closed
        self._on_throttle = on_throttle
        self._throttled_until = throttled_until
        self._overdue_timer = overdue_timer
        self._on_overdue = on_overdue
        self._loop = asyncio.get_running_loop()
        # The small limit applies until the broker has proved to be one, and is authenticated.
        self._reader = FrameReader(MAX_HANDSHAKE_FRAME_SIZE, context.budget, self._pause_reading)
        self._requests: InFlightRequests[Waiter] = InFlightRequests(
            context.config.client_id, self._reader, self._handle_frame
        )
        # `_close_reason` is set once, when the connection ends, and is what all waiters raise.
        self._stream: Stream | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._close_reason: KafkaError | None = None
        # Correlation id of the first request after the handshake: a broker that closes the
        # connection then usually rejects it as a whole, see `diagnosis`.
        self._first_request: int | None = None
        self._tls_version: str | None = None
        # Timeouts: of idleness, of requests, and of a broker that does not respond.
        self._used_at = self._loop.time()
        self._request_timeout = seconds(context.config.request_timeout_ms)
        self._overdue_after = min(self._request_timeout, UNANSWERED_AFTER)
        max_idle = seconds(context.config.connections_max_idle_ms)
        self._max_idle = max_idle if max_idle >= 0 else inf
        # Requests are held while it authenticates again (KIP-368).
        self._authentication = ConnectionAuthentication(
            context, address, kind, self._send_step, self._wait_unthrottled
        )
        self._reauthentication: SupervisedTask | None = None
        self.room = self._requests.room

    @property
    def in_flight(self) -> int:
        """Number of requests without a response, cancelled and held ones included."""
        return len(self._requests.queue) + len(self._authentication.held)

    @property
    def oldest_request(self) -> InFlightRequest[Waiter] | None:
        """The request in flight that was sent first."""
        return self._requests.queue[0] if self._requests.queue else None

    async def start(self, timeout: float) -> None:
        """Connect, run the handshake, and authenticate.

        Raises ConnectionSetupError if that fails or takes longer than `timeout` seconds, throttle
        times excluded, and KafkaError if the broker rejects the client.
        """
        started_at = self._loop.time()
        self.stage = ConnectionStage.CONNECTING
        try:
            async with asyncio.timeout(timeout) as limit:
                await self._dial()
                self.stage = ConnectionStage.HANDSHAKE
                self.versions = await self._run_handshake(timeout, limit)
                # The steps of the handshake do not note throttle times themselves.
                if throttle_time_ms := self.versions.throttle_time_ms:
                    version = self.versions.version(API_VERSIONS)
                    self._on_throttle(API_VERSIONS, version, throttle_time_ms)
                if self._context.authenticator is not None:
                    self.stage = ConnectionStage.AUTHENTICATION
                    await self._authentication.authenticate(self.versions, timeout, limit)
        except (OSError, KafkaError) as error:
            # `_close_reason` comes first: closing by the client is the cause of what failed here.
            failure = self._close_reason or self._connection_error(error)
            self._authentication.fail(failure)
            self._end(failure)
            self.abort()  # the orderly end of TLS would outlive a client that stops now
            if failure is error:
                raise
            raise failure from error
        # Cancelled: the caller wants no connection any more.
        except BaseException:
            self._end(None)
            self.abort()
            raise
        # From here on responses may be as large as this kind of connection allows.
        self._reader.max_frame_size = self._max_frame_size
        self.stage = ConnectionStage.OPEN
        self._first_request = self._requests.next_id
        self.open = self._close_reason is None
        self._used_at = self._loop.time()
        # The handshake may have set an earlier timer already.
        next_at = min(self._idle_until(), self._authentication.due_at)
        if next_at < self._timer_at:
            self._set_timer(next_at)
        self._emit_connected(self._used_at - started_at)

    async def _dial(self) -> None:
        context, address = self._context, self.address
        tls = await context.tls()
        name = None if tls is None else server_name(address.host)
        _, stream = await context.dialer.dial(
            partial(Stream, self), address.host, address.port, ssl=tls, server_hostname=name
        )
        context.streams.add(stream)
        if self._close_reason is not None:  # closed while dialling, when there was no stream yet
            stream.abort()
            raise self._close_reason
        self._stream = stream
        stream.attach()
        self._tls_version = stream.tls_version

    def diagnosis(self, error: BaseException) -> Diagnosis:
        """Return the cause of `error` at the connection's current stage."""
        found = self._authentication.diagnosis(error)
        if found is not None:
            return found
        config = self._context.config
        facts = ConnectionFacts(
            config.security_protocol,
            # A broker that has responded before is known to speak the protocol.
            known=self._activity.responded_at is not None,
            hang_ups=self._activity.hang_ups,
            tls_version=self._tls_version,
            certificate=None if config.ssl_context is not None else bool(config.ssl_certfile),
            first_request=self._first_request_pending(),
            joined=self._context.cluster_id is not None,
        )
        return diagnose(error, self.stage, facts)

    def _first_request_pending(self) -> bool:
        """Return True if the first response after the handshake is still due."""
        request = self.oldest_request
        return request is not None and request.correlation_id == self._first_request

    def submit(
        self,
        request: Request[ResponseT],
        version: int | None,
        timeout: float,
    ) -> ResponseFuture[ResponseT]:
        """Send a request as `BrokerConnection.submit` does; None is the newest version."""
        future = ResponseFuture[ResponseT](request.RESPONSE, self._on_throttle, loop=self._loop)
        self._send(request, version, timeout, future)
        return future

    def submit_with_callback(
        self,
        request: Request[ResponseT],
        version: int | None,
        timeout: float,
        callback: Callable[[ResponseT | KafkaError], None],
    ) -> None:
        """Send a request as `BrokerConnection.submit_with_callback` does."""
        waiter = ResponseCallback(request.RESPONSE, self._on_throttle, callback, self._loop)
        self._send(request, version, timeout, waiter)

    @property
    def writing_paused(self) -> bool:
        """True while the broker reads more slowly than the client writes; see `drain`."""
        return self._stream is not None and self._stream.writing_paused

    async def drain(self) -> None:
        """Wait until writing is no longer paused or the connection has ended."""
        if self._stream is not None:
            await self._stream.drain()

    def close(self, reason: KafkaError | None = None) -> None:
        """Close the connection; requests in flight fail with `reason`. See `wait_ended`."""
        self._end(reason)

    async def wait_ended(self) -> None:
        """Wait until the transport is closed; return at once if there is none."""
        if self._stream is not None and not self._stream.ended.done():
            await asyncio.shield(self._stream.ended)

    def abort(self) -> None:
        """Close the transport at once, without flushing."""
        if self._stream is not None:
            self._stream.abort()

    def __str__(self) -> str:
        return f"{self.address}, {self._kind} connection"

    # -- stream callbacks -------------------------------------------------------------------------

    def received(self, nbytes: int) -> None:
        """Process received bytes."""
        try:
            self._requests.received(nbytes)
        # What follows on the stream cannot be read any more.
        except ProtocolError as error:
            self._fail(error)

    def lost(self, error: Exception | None) -> None:
        """Handle the end of the transport."""
        if self._close_reason is None:
            self._fail(error or ConnectionResetError("the broker closed the connection"))
        self._end(None)

    def _handle_frame(self, request: InFlightRequest[Waiter], frame: Frame) -> None:
        now = self._loop.time()
        # Any response counts: the broker is alive.
        self._activity.record_response(now)
        if self._overdue_timer is not None:
            self._overdue_timer.on_response(now - self._readable_at(request))
        # Quotas of consumption count the bytes of fetches.
        if request.api_key in FETCH_APIS:
            node_id = self.address.node_id
            self._context.quota_usage.record(node_id, FETCH, len(frame), now)
        request.waiter.set_frame(frame, request.version)
        if self._hooks.active:
            self._emit_response_received(request, len(frame))
        # The last response before a connection with other credentials replaces this one.
        if self._authentication.retiring and not self._requests.queue:
            self._retire()

    def _pause_reading(self, pause: bool) -> None:
        if self._stream is not None:
            self._stream.pause_reading(pause)

    # -- sending ----------------------------------------------------------------------------------

    async def _run_handshake(self, timeout: float, limit: asyncio.Timeout) -> BrokerVersions:
        context = self._context
        procedure = handshake(
            context.software_version, context.expected_cluster, self.address.node_id
        )
        step = next(procedure)
        # A generator without I/O builds the requests; this loop sends them.
        while True:
            await self._wait_unthrottled(limit)
            frame = await self._send_step(step, timeout)
            try:
                step = procedure.send(frame)
            except StopIteration as ended:
                return cast("BrokerVersions", ended.value)

    async def _send_step(self, step: Step, timeout: float) -> Frame:
        if self._close_reason is not None:
            raise self._close_reason
        future: ResponseFuture[Any] = ResponseFuture(loop=self._loop)
        now = self._loop.time()
        self._write(step.request, step.version, now, now + timeout, future)
        return await future

    def _send(
        self,
        request: Request[Any],
        version: int | None,
        timeout: float,
        waiter: Waiter,
    ) -> None:
        """Write a request, or hold it while the connection authenticates again."""
        if self._close_reason is not None or self._stream is None:
            raise self._not_connected_error()
        if version is None:
            version = self.versions.version(request.API_KEY)
        now = self._loop.time()
        # The broker refuses requests after the session has ended, so they wait for the new session.
        if now >= self._authentication.hold_from:
            self._hold(request, version, now, now + timeout, waiter)
        else:
            self._write(request, version, now, now + timeout, waiter)
        self._used_at = now

    def _write(
        self,
        request: Request[Any],
        version: int,
        now: float,
        deadline: float,
        waiter: Waiter,
    ) -> None:
        stream, requests = self._stream, self._requests
        assert stream is not None
        correlation_id, parts = requests.encode(request, version)
        responds = has_response(request)
        # With nothing in flight, delaying the write only adds latency.
        stream.write(parts, not (requests.queue and responds))
        if request.API_KEY == PRODUCE_API:
            size, node_id = sum(map(len, parts)), self.address.node_id
            self._context.quota_usage.record(node_id, PRODUCE, size, now)
        if self._hooks.active:
            self._emit_request_sent(request.API_KEY, version, correlation_id, sum(map(len, parts)))
        # Nothing to match: the caller gets its result now. Only a full buffer shows whether the
        # broker still reads.
        if not responds:
            waiter.set_empty_response(request.RESPONSE())
            if stream.writing_paused and now + self._request_timeout < self._timer_at:
                self._set_timer(now + self._request_timeout)
            return
        # A caller with a short timeout gives up earlier than the connection does.
        connection_deadline = max(deadline, now + self._request_timeout)
        requests.add(
            InFlightRequest(
                correlation_id,
                request.API_KEY,
                version,
                waiter,
                now,
                deadline,
                connection_deadline,
            )
        )
        check_at = deadline
        if self._overdue_timer is not None:
            check_at = min(check_at, now + self._overdue_timer.delay)
        # The timer is set only for an earlier time; a late one checks everything that is due.
        if check_at < self._timer_at:
            self._set_timer(check_at)

    def _emit_request_sent(
        self, api_key: int, version: int, correlation_id: int, size: int
    ) -> None:
        client_id, node_id = self._context.config.client_id, self.address.node_id
        self._hooks.emit(
            RequestSent(
                client_id, node_id, api_key, lookup(api_key).name, version, correlation_id, size
            )
        )

    def _emit_connected(self, duration: float) -> None:
        logger.debug("%s: connected in %.3g s", self, duration)
        if self._hooks.active:
            node_id, host, port = self.address.node_id, self.address.host, self.address.port
            client_id = self._context.config.client_id
            self._hooks.emit(Connected(client_id, node_id, host, port, self._kind, duration))

    def _emit_response_received(self, request: InFlightRequest[Waiter], size: int) -> None:
        event = ResponseReceived(
            self._context.config.client_id,
            self.address.node_id,
            request.api_key,
            lookup(request.api_key).name,
            request.correlation_id,
            size,
            self._loop.time() - request.sent_at,
        )
        self._hooks.emit(event)

    # -- re-authentication ------------------------------------------------------------------------

    def _begin_reauthentication(self) -> None:
        """Authenticate again behind the requests in flight, or close behind them."""
        # Another user needs another connection: brokers do not let a connection change its user.
        if not self._authentication.begin_again():
            if not self._requests.queue:
                self._retire()
            return
        try:
            self._reauthentication = self._context.supervisor.spawn(
                self._reauthenticate, name=f"authenticating {self}"
            )
        except KafkaError as error:  # the client has stopped
            self._end(error)

    async def _reauthenticate(self) -> None:
        now = self._loop.time()
        # Brokers handle requests in order: those in flight may take their full time first.
        ahead = max((each.connection_deadline for each in self._requests.queue), default=now)
        timeout = max(ahead - now, 0.0) + self._request_timeout
        try:
            await self._authentication.authenticate_again(self.versions, timeout)
        except (OSError, KafkaError) as error:
            self._reauthentication = None
            self._fail_reauthentication(error)
            return
        self._reauthentication = None
        self._release_held()

    async def _wait_unthrottled(self, limit: asyncio.Timeout) -> None:
        """Wait for the end of the throttle time, which is added to the time limit.

        A response may extend the throttle time during the wait.
        """
        while (delay := self._throttled_until() - self._loop.time()) > 0:
            limit_at = limit.when()
            assert limit_at is not None
            limit.reschedule(limit_at + delay)
            await asyncio.sleep(delay)

    def _fail_reauthentication(self, error: OSError | KafkaError) -> None:
        if self._close_reason is not None:
            return
        if isinstance(error, KafkaError) and not isinstance(error, KafkaTimeoutError):
            text = error.message
        else:
            text = self.diagnosis(error).text
        # Not an AuthenticationError: a new connection may succeed, or raises one itself.
        failure = KafkaConnectionError(f"{self}: authenticating again has failed: {text}")
        failure.__cause__ = error
        self._authentication.fail(failure)
        logger.info("lost: %s", failure)
        self._end(failure)
        self.abort()

    def _retire(self) -> None:
        reason = KafkaConnectionError(f"{self}: closed, as the client uses another user name now")
        self._end(None, reason)

    def _hold(
        self,
        request: Request[Any],
        version: int,
        now: float,
        deadline: float,
        waiter: Waiter,
    ) -> None:
        # Checked now, so that the caller gets an error of encoding at once.
        self._requests.check(request, version)
        held = HeldRequest(request, version, waiter, now, deadline)
        self._authentication.hold(held)
        if deadline < self._timer_at:
            self._set_timer(deadline)

    def _release_held(self) -> None:
        """Send the requests that were held, in order."""
        now = self._loop.time()
        # Ends when no request is held, or when the connection ends.
        while self._close_reason is None:
            held = self._authentication.take_held(now)
            if held is None:
                break
            # One that cannot be written does not hold up the others.
            try:
                self._write(held.request, held.version, now, held.deadline, held.waiter)
            except KafkaError as error:
                held.waiter.fail(error)
        self._set_timer(min(self._timer_at, self._authentication.due_at))

    # -- deadlines --------------------------------------------------------------------------------

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = None if at == inf else self._loop.call_at(at, self._check_deadlines)

    def _check_deadlines(self) -> None:
        """Fail overdue requests, close a dead or idle connection, and set the timer again."""
        now = self._loop.time()
        late = now - self._timer_at
        self._timer_at, self._timer = inf, None
        # The loop was blocked by the application, not the broker: read the responses that have
        # arrived.
        if late > BLOCKED_LOOP_DELAY:
            self._set_timer(now + BLOCKED_LOOP_GRACE)
            return
        # In this order: idle, authentication, a broker that has stopped reading, overdue requests,
        # held requests. `next_at` collects the next time of each.
        next_at = inf if self.in_flight else self._idle_until()
        if next_at <= now:
            logger.debug("%s: closed, idle for %g s", self, self._max_idle)
            self._end(None)
            return
        if now >= self._authentication.due_at:
            self._begin_reauthentication()
        next_at = min(next_at, self._authentication.due_at, self._unread_until())
        dead: KafkaTimeoutError | None = None
        if self._unread_until() <= now:
            dead = KafkaTimeoutError(
                f"{self}: the broker has read no request for {self._request_timeout:.3g} s"
            )
        for request in self._requests.queue:
            if request.deadline > now:
                next_at = min(next_at, request.deadline)
                continue
            error = self._timeout_error(request.api_key, now - request.sent_at)
            # A caller's short timeout is no sign of a frozen broker.
            if request.sent_at + self._overdue_after <= now:
                self._activity.record_timeout()
            # The request stays in the queue, since its response may still arrive and must be
            # matched.
            request.waiter.fail(error)
            next_at = min(next_at, request.connection_deadline)
            if request.connection_deadline <= now:
                dead = dead or error
        if dead is not None:
            self._fail(dead)
            return
        for held in self._authentication.take_overdue(now):
            held.waiter.fail(self._timeout_error(held.request.API_KEY, now - held.submitted_at))
        next_at = min([next_at, *[each.deadline for each in self._authentication.held]])
        if self._close_reason is None:
            self._set_timer(min(next_at, self._check_overdue(now)))

    def _check_overdue(self, now: float) -> float:
        """Report an overdue request; return the time of the next check."""
        timer, oldest = self._overdue_timer, self.oldest_request
        if timer is None or oldest is None:
            return inf
        if timer.is_due(self._readable_at(oldest), now):
            self._on_overdue()
        return timer.due_at(self._readable_at(oldest))

    def _readable_at(self, request: InFlightRequest[Waiter]) -> float:
        """Return the time from which the broker reads a request, which is after a throttle time."""
        return max(request.sent_at, self._throttled_until())

    def _idle_until(self) -> float:
        """Return the time at which the connection is closed unless it is used until then."""
        # Before the first request; see MIN_IDLE_BEFORE_USE.
        if self._requests.next_id == self._first_request:
            return self._used_at + max(self._max_idle, MIN_IDLE_BEFORE_USE)
        return self._used_at + self._max_idle

    def _unread_until(self) -> float:
        """Return the time by which the broker must read requests that have no response."""
        stream = self._stream
        # With requests in flight their deadlines show a frozen broker.
        if stream is None or stream.paused_at is None or self._requests.queue:
            return inf
        return stream.paused_at + self._request_timeout

    def _timeout_error(self, api_key: int, waited: float) -> KafkaTimeoutError:
        name = lookup(api_key).name
        return KafkaTimeoutError(f"{self}: no response to {name} for {waited:.3g} s")

    # -- the end ----------------------------------------------------------------------------------

    def _fail(self, error: Exception) -> None:
        failure = self._connection_error(error)
        # Failed attempts are logged by the owner.
        if self._close_reason is None and self.stage is ConnectionStage.OPEN:
            logger.info("lost: %s", failure)
        self._end(failure)
        self.abort()

    def _connection_error(self, error: BaseException) -> KafkaError:
        """Return the error for requests in flight.

        Timeouts, protocol errors, RebootstrapRequiredError and exceptions that are no KafkaError
        become the cause of a connection error, or of an AuthenticationError if they indicate one.
        Other errors are returned unchanged.
        """
        # KIP-1242: the client bootstraps again; applications never see the broker's error.
        if isinstance(error, RebootstrapRequiredError):
            failure = WrongBrokerError(
                f"{self.address}: another broker or cluster responds at this address"
            )
            failure.__cause__ = error
            return failure
        setup = self.stage is not ConnectionStage.OPEN
        # Closed without an explanation, as brokers do with TLS, SASL or protocol mismatches.
        hang_up = is_hang_up(error) and (setup or self._first_request_pending())
        self._activity.record_end(hang_up=hang_up)
        found = self.diagnosis(error)
        if found.error is not None:
            failure = found.error(f"{self.address}: {found.text}")
            failure.__cause__ = error
            return failure
        if isinstance(error, KafkaError) and not isinstance(
            error, ProtocolError | KafkaTimeoutError
        ):
            return error
        place = f"{self}: "  # the message of a timeout begins with it already
        failure = KafkaConnectionError(place + found.text.removeprefix(place))
        if setup:
            failure = ConnectionSetupError(f"{self.address}: {found.text}")
            failure.permanent, failure.refused = found.permanent, found.refused
        failure.__cause__ = error
        return failure

    def _not_connected_error(self) -> KafkaError:
        reason = self._close_reason
        return KafkaConnectionError(f"{self}: not connected" if reason is None else reason.message)

    def _end(self, reason: KafkaError | None, orderly: KafkaError | None = None) -> None:
        """Close for the error `reason`, or in order; held requests then fail with `orderly`."""
        # The first reason counts: later ones are consequences.
        if self._close_reason is not None:
            return
        was_open, self.open = self.stage is ConnectionStage.OPEN, False
        self._close_reason = (
            reason or orderly or KafkaConnectionError(f"{self}: closed by the client")
        )
        if self._timer is not None:
            self._timer.cancel()
        if self._reauthentication is not None:
            self._reauthentication.cancel()
        for request in self._requests.close():
            request.waiter.fail(_copy(self._close_reason))
        for held in self._authentication.close():
            held.waiter.fail(_copy(self._close_reason))
        if self._stream is not None:
            self._stream.close()
        # A failed attempt is reported by `start`.
        if not was_open:
            return
        if self._hooks.active:
            client_id = self._context.config.client_id
            self._hooks.emit(Disconnected(client_id, self.address.node_id, self._kind, reason))
        self._on_closed(reason)


def _copy(error: KafkaError) -> KafkaError:
    """Return a copy of an error: each waiter that raises it adds a separate traceback."""
    twin = copy(error)
    twin.__cause__ = error.__cause__
    return twin
