"""A connection to one broker that is opened on first use and reopened on demand.

A broker handles the requests of one TCP connection in order, and it may hold a request back (a long
fetch, a rebalance, the creation of a topic). Such a request never shares a connection with one that
must not wait: each kind of traffic has a separate `BrokerConnection`.

A connection that was lost or could not be opened stays down until it is used again, and then until
its backoff has passed: reconnect_backoff_ms, doubled with each failure in a row. The timeout for
opening it grows in the same way (KIP-601). All callers that wait for the connection wait for the
same attempt, which runs as a separate task, so that cancelling one caller affects no other. If
credentials were replaced during an attempt, their rejection is not raised: the connection is opened
again.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import itertools
import logging
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from anyio import move_on_after

from kafka_async.client.connection.connection import (
    FETCH_APIS,
    UNANSWERED_AFTER,
    Connection,
    ConnectionSetupError,
    has_response,
)
from kafka_async.client.connection.hedging import MIN_OVERDUE, REPEAT_AFTER, OverdueTimer
from kafka_async.client.connection.throttle import HEARTBEAT_APIS, ThrottleWindow, throttle_seconds
from kafka_async.config import seconds
from kafka_async.errors import (
    ClientClosedError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    SaslAuthenticationError,
)
from kafka_async.foundation.backoff import Backoff
from kafka_async.hooks import Throttled, ThrottleEnded
from kafka_async.protocol.api import lookup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafka_async.client.connection.address import Address
    from kafka_async.client.connection.connection import BrokerActivity
    from kafka_async.client.connection.connection_context import ConnectionContext
    from kafka_async.client.wire.handshake import BrokerVersions
    from kafka_async.client.wire.pending_response import ResponseFuture
    from kafka_async.foundation.supervisor import Offload, SupervisedTask
    from kafka_async.protocol.message import Request, Response
    from kafka_async.protocol.registry import Api

ResponseT = TypeVar("ResponseT", bound="Response")

CONNECT_HEDGE_AFTER: Final = 1.0
"""Seconds of connecting to a broker after which another broker is tried too."""
CLOSE_TIMEOUT: Final = 2.0
"""Maximum seconds for an orderly close of a connection."""


class ConnectionKind(enum.Enum):
    """The purpose of a connection. The value is its name in logs and events."""

    GENERAL = "general"
    SLOW = "slow"
    PRODUCE = "produce"
    FETCH = "fetch"
    COORDINATOR = "coordinator"


logger = logging.getLogger("kafka_async.cluster")

MIB: Final = 1024 * 1024
GROUP_WAIT_APIS: Final = frozenset({11, 14})
"""APIs whose requests a broker holds back for other group members: JoinGroup and SyncGroup."""
MAX_FRAME_SIZES: Final[dict[ConnectionKind, int]] = {
    ConnectionKind.GENERAL: 16 * MIB,
    ConnectionKind.SLOW: 16 * MIB,
    ConnectionKind.PRODUCE: 16 * MIB,
    ConnectionKind.FETCH: 100 * MIB,
    ConnectionKind.COORDINATOR: 16 * MIB,
}
"""Bytes of the largest response, by kind of connection; consumers set a lower limit for fetches."""
MAX_FRAME_SIZE: Final = max(MAX_FRAME_SIZES.values())
HEDGED_KINDS: Final = frozenset({ConnectionKind.PRODUCE, ConnectionKind.FETCH})
"""Kinds whose requests another broker may take over, once it has become the leader."""


class ConnectionObserver(Protocol):
    """Callbacks of a `BrokerConnection` to the object that manages all connections."""

    def connecting(self, connection: BrokerConnection) -> None:
        """Handle the start of an attempt to connect."""
        ...

    def connected(self, connection: BrokerConnection, versions: BrokerVersions) -> None:
        """Handle a new connection."""
        ...

    def failed(self, connection: BrokerConnection, error: KafkaError) -> None:
        """Handle a failed attempt to connect."""
        ...

    def lost(self, error: KafkaError) -> None:
        """Handle the end of a connection by an error."""
        ...

    def overdue(self, connection: BrokerConnection) -> None:
        """Handle a request or an attempt to connect that takes longer than usual."""
        ...

    def closed(self, connection: BrokerConnection) -> None:
        """Handle the final close."""
        ...


class BrokerConnection:
    """Connects to one broker, and reconnects when used again; its owner closes it for good.

    The client shares two with all its users; `Brokers.connection` creates those with one owner.

    Attributes:
        node_id: Id of the broker; negative for a bootstrap server.
        number: Number of the last connection that was opened, counted in the whole process; 0
        before.
        throttle_wait: Seconds for which requests of `send` waited for throttle times, summed up.
    """

    _numbers = itertools.count(1)

    def __init__(
        self,
        context: ConnectionContext,
        node_id: int,
        kind: ConnectionKind,
        *,
        owner: str,
        activity: BrokerActivity,
        address: Callable[[], Address],
        observer: ConnectionObserver,
        max_frame_size: int | None = None,
        fetch_max_wait: float = 0.0,
    ) -> None:
        # State that others read.
        self.node_id = node_id
        self.kind = kind
        self.number = 0
        self.throttle_wait = 0.0
        # Throttle times per address and kind (KIP-219), and those of this connection alone, for
        # heartbeats.
        self._window = ThrottleWindow()  # replaced by that of the address, once it is known
        self._own_window = ThrottleWindow()
        # What the owner passes in.
        self._owner = owner
        self._max_frame_size = max_frame_size
        self._fetch_max_wait = fetch_max_wait
        self._activity = activity
        self._context = context
        self._address = address
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        # One attempt at a time, with a future per caller that waits for it.
        self._connection: Connection | None = None
        self._attempt: SupervisedTask | None = None
        self._waiters: list[asyncio.Future[Connection]] = []
        # `_ended`: closed for good. `_failure`: why the last attempt failed, and when to try again.
        self._ended: KafkaError | None = None
        self._failure: KafkaError | None = None
        self._retry_at = 0.0
        self._backoff_ended = asyncio.Event()
        config = context.config
        self._backoff = Backoff(
            seconds(config.reconnect_backoff_ms), seconds(config.reconnect_backoff_max_ms)
        )
        self._request_timeout = seconds(config.request_timeout_ms)
        self._setup_timeout = Backoff(
            seconds(config.socket_connection_setup_timeout_ms),
            seconds(config.socket_connection_setup_timeout_max_ms),
        )

    # -- state ------------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """True if a request can be submitted now."""
        return self._connection is not None and self._connection.open

    @property
    def connecting(self) -> bool:
        """True while an attempt to connect is in progress."""
        return self._connection is not None and not self._connection.open

    @property
    def muted_until(self) -> float:
        """End of the throttle time, in seconds of the loop's clock (KIP-219).

        In the past if the broker is not throttling connections of this kind. `send` and `connect`
        wait for it; callers of `submit` and `submit_with_callback` have to check it.
        """
        return self._window.ends_at

    @property
    def suspected(self) -> bool:
        """True while the broker is slower than usual and has not responded since."""
        return self._activity.suspected

    @property
    def in_flight(self) -> int:
        """Number of requests without a response."""
        return 0 if self._connection is None else self._connection.in_flight

    def unanswered_since(self, now: float) -> float | None:
        """Return the send time of the oldest request if its response is overdue.

        Returns None while nothing is in flight, or while the broker may hold that request back.
        """
        request = None if self._connection is None else self._connection.oldest_request
        # These may take any time, as do JoinGroup and SyncGroup.
        if request is None or self.kind is ConnectionKind.SLOW:
            return None
        if request.api_key in GROUP_WAIT_APIS:
            return None
        # A fetch may wait for records for as long as the client has allowed.
        max_wait = self._fetch_max_wait if request.api_key in FETCH_APIS else 0.0
        return request.sent_at if now - request.sent_at >= UNANSWERED_AFTER + max_wait else None

    @property
    def retry_at(self) -> float:
        """Earliest time of the next attempt to connect; in the past if backoff has ended."""
        return self._retry_at

    @property
    def failure(self) -> KafkaError | None:
        """Error of the last attempt to connect; None if it succeeded or none was made."""
        return self._failure

    def connect_problem(self) -> str:
        """Return what a timeout at the current stage of connecting means, and the remedy."""
        connection = self._connection
        return "" if connection is None else connection.diagnosis(TimeoutError()).text

    def version(self, api: Api | int, max_version: int | None = None) -> int:
        """Return the newest version of an API that the connected broker and this client support.

        Raises UnsupportedVersionError if there is none up to `max_version`, and
        KafkaConnectionError without a connection.
        """
        key = api if isinstance(api, int) else api.key
        return self._current().versions.version(key, max_version)

    # -- requests ---------------------------------------------------------------------------------

    async def send(
        self,
        request: Request[ResponseT],
        *,
        timeout: float,
        version: int | None = None,
        offload: Offload | None = None,
    ) -> ResponseT:
        """Send a request, connecting first if necessary, and wait for its response.

        With `offload`, a large response is decoded in a thread. A request without a response
        (Produce with acks=0) waits until it was written; its result is an empty response.

        Raises:
            KafkaTimeoutError: There was no response within `timeout` seconds.
            KafkaConnectionError: There is no connection, or it was lost; the broker may or may not
                have handled the request.
            UnsupportedVersionError: The broker supports no version of the API that this client
                supports.
        """
        connection = self._connection
        # The common case is one comparison: connected and not throttled.
        if connection is None or not connection.open or self._window.ends_at:
            deadline = self._loop.time() + timeout
            connection = await self._connect_unmuted(deadline, request.API_KEY)
            timeout = deadline - self._loop.time()
        # A broker that does not read: without waiting, the transport's buffer would grow.
        while connection.writing_paused:
            deadline = self._loop.time() + timeout
            await self._drain(connection, deadline)
            if self._window.ends_at > self._loop.time():  # throttled while it waited
                connection = await self._connect_unmuted(deadline, request.API_KEY)
            timeout = deadline - self._loop.time()
        response = connection.submit(request, version, timeout)
        # A caller of Produce with acks=0 must feel the broker's back-pressure too.
        if not has_response(request):
            deadline = self._loop.time() + timeout
            message = await response  # not yet written if the connection authenticates again
            await self._drain(connection, deadline)
            return message
        return await (response if offload is None else response.decoded(offload))

    async def _drain(self, connection: Connection, deadline: float) -> None:
        """Wait until the bytes of all requests were written, up to the transport's buffer."""
        try:
            async with asyncio.timeout_at(deadline):
                await connection.drain()
        except TimeoutError:
            raise KafkaTimeoutError(
                f"{connection}: the broker has not read the bytes of earlier requests in time"
            ) from None
        if not connection.open:
            raise self._ended or KafkaConnectionError(
                f"{connection}: lost before the request was written"
            )

    def submit(
        self,
        request: Request[ResponseT],
        *,
        timeout: float,
        version: int | None = None,
    ) -> ResponseFuture[ResponseT]:
        """Send a request without waiting; the broker must be connected.

        Cancelling the future does not cancel the request. A request without a response (Produce
        with acks=0) leaves the future done at once, with an empty response.

        Raises:
            KafkaConnectionError: The broker is not connected.
            EncodeError: The request cannot be encoded in the version.
            UnsupportedVersionError: The broker does not support the API, or the version lacks a
                field that is set.
        """
        connection = self._current()
        return connection.submit(request, version, timeout)

    def submit_with_callback(
        self,
        request: Request[ResponseT],
        callback: Callable[[ResponseT | KafkaError], None],
        *,
        timeout: float,
        version: int | None = None,
    ) -> None:
        """Send a request like `submit`; `callback` receives the response or the error.

        The callback runs in the same event loop iteration in which the response arrives. It is
        called exactly once, not before this method has returned, and must not raise.
        """
        connection = self._current()
        connection.submit_with_callback(request, version, timeout, callback)

    async def connect(self, timeout: float) -> None:
        """Connect unless connected; one attempt, after backoff and throttle time have ended.

        Raises KafkaConnectionError, whose message names the reason, or KafkaTimeoutError after
        `timeout` seconds.
        """
        await self._connect_before(self._loop.time() + timeout)

    async def close(self, reason: KafkaError | None = None) -> None:
        """Close the connection for good, within CLOSE_TIMEOUT; requests in flight fail."""
        connection = self._connection
        # Fails the requests first; waiting for the transport comes after.
        self.end(reason or ClientClosedError(f"the {self._name()} was closed"))
        if connection is None:
            return
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await connection.wait_ended()
        # An orderly close of TLS needs the broker.
        except TimeoutError:
            connection.abort()
        except asyncio.CancelledError:
            connection.abort()
            raise

    def end(self, reason: KafkaError) -> None:
        """Close for good without waiting; requests in flight fail with `reason`."""
        # The first reason stays.
        if self._ended is not None:
            return
        self._ended = reason
        self.disconnect(reason)
        self._observer.closed(self)

    def postpone(self) -> None:
        """Connect after a back-off at the earliest, as after a failure."""
        self._retry_at = max(self._retry_at, self._loop.time() + self._backoff.next())

    def end_backoff(self) -> None:
        """Allow an attempt to connect now: the cause of the earlier failures was removed."""
        self._failure = None
        self._retry_at = 0.0
        self._backoff.reset()
        # Attempts that are waiting start now.
        self._backoff_ended.set()

    def disconnect(self, reason: KafkaError) -> None:
        """Close the current connection; the next use opens another."""
        # The attempt would report its failure for a connection that is not wanted any more.
        if self._attempt is not None:
            self._attempt.cancel()
            self._attempt = None
        self._fail_waiters(reason)
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(reason)

    # -- connecting -------------------------------------------------------------------------------

    def _current(self) -> Connection:
        connection = self._connection
        if connection is None or not connection.open:
            raise self._ended or KafkaConnectionError(f"the {self._name()} is not open")
        return connection

    async def _connect_unmuted(self, deadline: float, api_key: int) -> Connection:
        """Connect, and wait until the broker no longer throttles requests of this API.

        Requests that waited for the end of one throttle time are then sent together, as in Java.
        """
        waited = 0.0
        # Heartbeats wait only for throttle times of their own connection: others must not cost the
        # membership.
        window = self._own_window if api_key in HEARTBEAT_APIS else None
        # Repeated, since the connection may be lost, or the throttle time extended, during the
        # wait.
        while True:
            connection = await self._connect_before(deadline)
            now = self._loop.time()
            delay = (window or self._window).ends_at - now
            if delay <= 0:
                if waited:
                    self.note_throttle_wait(api_key, waited)
                return connection
            # Waiting until the deadline would only delay the error.
            if now + delay >= deadline:
                raise self.throttle_error()
            waited += delay
            await self._context.lifetime.sleep(delay)

    def throttle_error(self) -> KafkaTimeoutError:
        """Return the error for a request whose deadline is before the end of the throttle time."""
        delay = self._window.ends_at - self._loop.time()
        return KafkaTimeoutError(
            f"broker {self.node_id} throttles this client for {delay:.3g} s more, which is beyond "
            "the request's deadline: raise the client's quota, or send less"
        )

    def note_throttle_wait(self, api_key: int, duration: float) -> None:
        """Note that requests of an API have waited for the end of a throttle time, in seconds."""
        self.throttle_wait += duration
        if self._context.hooks.active:
            client_id, kind = self._context.config.client_id, self.kind.value
            self._context.hooks.emit(
                ThrottleEnded(
                    client_id, self.node_id, api_key, lookup(api_key).name, kind, duration
                )
            )

    async def _connect_before(self, deadline: float) -> Connection:
        while True:
            try:
                return await self._wait_for_attempt(deadline)
            except SaslAuthenticationError as error:
                # Another attempt, if the credentials were replaced since this one has failed.
                if not self._context.is_outdated(error):
                    raise

    async def _wait_for_attempt(self, deadline: float) -> Connection:
        connection = self._connection
        if connection is not None and connection.open:
            return connection
        if self._ended is not None:
            raise self._ended
        # Nothing can be sent before the deadline, so no connection is opened.
        if self._window.ends_at >= deadline:
            raise self.throttle_error()
        if self._attempt is None:
            self._attempt = self._context.supervisor.spawn(self._connect, name=self._name())
        waiter: asyncio.Future[Connection] = self._loop.create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                return await waiter
        except TimeoutError:
            raise self._connect_timeout() from None
        # Cancelled or timed out: the attempt goes on for others.
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _connect_timeout(self) -> KafkaError:
        if self._window.ends_at > self._loop.time():
            return self.throttle_error()
        connection = self._connection
        if connection is not None and not connection.open:
            return KafkaTimeoutError(f"{connection.address}: {self.connect_problem()}")
        before = "" if self._failure is None else f"; before that: {self._failure}"
        return KafkaTimeoutError(f"no {self._name()} within the deadline{before}")

    async def _connect(self) -> None:
        # Again if another connection has postponed this one in the meantime, or extended the
        # window. The handshake has requests too, which must not leave within a throttle window.
        self._find_window()
        while (delay := max(self._retry_at, self._window.ends_at) - self._loop.time()) > 0:
            self._backoff_ended.clear()
            # `end_backoff` ends the wait early.
            with move_on_after(delay):
                await self._backoff_ended.wait()
        while True:
            try:
                connection = await self._dial()
            except KafkaError as error:
                # These credentials were replaced during the attempt.
                if self._context.is_outdated(error):
                    continue
                self._on_connect_failed(error)
                return
            break
        self.number = next(self._numbers)
        self._attempt = None
        self._failure = None
        self._backoff.reset()
        self._setup_timeout.reset()
        self._observer.connected(self, connection.versions)
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(connection)

    async def _dial(self) -> Connection:
        self._observer.connecting(self)
        self._find_window()
        # A new connection is not muted at the broker.
        self._own_window = ThrottleWindow()
        connection = self._connection = self._create_connection(self._address())
        overdue = self._loop.call_later(MIN_OVERDUE, self._on_connecting_overdue, connection)
        try:
            # Not longer than a request: a frozen broker must not delay its callers further.
            await connection.start(min(self._setup_timeout.next(), self._request_timeout))
        finally:
            overdue.cancel()
        return connection

    def _on_connecting_overdue(self, connection: Connection) -> None:
        """Report an attempt to connect that takes long, repeatedly until it has ended."""
        # Only while this attempt is the current one, and only for kinds that can be hedged.
        if self.kind in HEDGED_KINDS and connection is self._connection and not connection.open:
            self._on_overdue()
            self._loop.call_later(REPEAT_AFTER, self._on_connecting_overdue, connection)

    def _find_window(self) -> None:
        """Use the throttle window of the broker's address, if that is known."""
        # Without an address the attempt will fail with that error.
        with contextlib.suppress(KafkaError):
            address = self._address()
            self._window = self._context.throttle_windows.window(
                address.host, address.port, self.kind.value
            )

    def _create_connection(self, address: Address) -> Connection:
        return Connection(
            self._context,
            address,
            self.kind.value,
            max_frame_size=min(MAX_FRAME_SIZES[self.kind], self._max_frame_size or MAX_FRAME_SIZE),
            activity=self._activity,
            on_closed=self._on_closed,
            on_throttle=self._on_throttle,
            throttled_until=lambda: self._window.ends_at,
            overdue_timer=(
                OverdueTimer(self._fetch_max_wait) if self.kind in HEDGED_KINDS else None
            ),
            on_overdue=self._on_overdue,
        )

    def _on_overdue(self) -> None:
        self._observer.overdue(self)

    def _on_connect_failed(self, error: KafkaError) -> None:
        self._attempt = None
        self._connection = None
        # Once per outage; further failures are the same news.
        if self._failure is None:
            logger.info("no %s connection: %s", self.kind.value, error)
        self._failure = error
        self._retry_at = self._loop.time() + self._backoff.next()
        self._fail_waiters(error)
        self._observer.failed(self, error)

    def _fail_waiters(self, error: KafkaError) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)

    def _on_closed(self, error: KafkaError | None) -> None:
        self._connection = None
        # An orderly close, of an idle connection, needs no back-off.
        if error is not None and self._ended is None:
            self._retry_at = self._loop.time() + self._backoff.next()
            self._observer.lost(error)

    def _on_throttle(self, api_key: int, version: int, throttle_time_ms: int) -> None:
        """Extend the window after a response with this throttle time."""
        duration = throttle_seconds(api_key, version, throttle_time_ms)
        if duration <= 0:
            return
        now = self._loop.time()
        self._window.extend(now, duration)
        self._own_window.extend(now, duration)
        if self._context.hooks.active:
            client_id, kind = self._context.config.client_id, self.kind.value
            self._context.hooks.emit(
                Throttled(client_id, self.node_id, api_key, lookup(api_key).name, duration, kind)
            )

    def __repr__(self) -> str:
        state = "connected" if self.connected else "closed" if self._ended else "not connected"
        return f"<BrokerConnection: {self._name()}, owner {self._owner}, {state}>"

    def _name(self) -> str:
        return f"{self.kind.value} connection to broker {self.node_id}"


async def close_connections(
    connections: Iterable[BrokerConnection], timeout: float, reason: KafkaError | None = None
) -> None:
    """Close connections concurrently; abort those that are still open after `timeout` seconds."""
    loop = asyncio.get_running_loop()
    tasks = {loop.create_task(connection.close(reason)) for connection in connections}
    if not tasks:
        return
    try:
        # Even with a timeout of 0 each task runs up to its first wait, after it has called `end`.
        await asyncio.wait(tasks, timeout=max(0.0, timeout))
    finally:
        late = [task for task in tasks if not task.done()]
        for task in late:
            task.cancel()  # aborts the connection
    if late:
        await asyncio.wait(late)


def is_permanent(error: KafkaError) -> bool:
    """Return True if retries fail until the configuration or the cluster changes."""
    if isinstance(error, ConnectionSetupError):
        return error.permanent
    return not error.retriable
