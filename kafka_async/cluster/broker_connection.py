"""A lane: the one connection to a broker that a kind of traffic uses, made and made again on
demand.

A broker serves one request of a connection at a time, so what may park at a broker (a long fetch, a
rebalance, the creation of a topic) never shares a connection with what must not wait: each has its
lane.

A lane that lost its connection, or could not get one, stays down until somebody uses it again, and
then not before its back-off has passed: reconnect_backoff_ms, doubling with each failure in a row.
The time a new connection may take grows likewise (KIP-601). Everybody who waits for a connection
waits for the same attempt, which runs as a task of its own, so that cancelling one of them disturbs
no other.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from kafka_async.backoff import Backoff
from kafka_async.cluster.broker_activity import UNANSWERED_AFTER
from kafka_async.cluster.connection import Connection, ConnectionContext, ConnectionSetupError
from kafka_async.cluster.throttle import Throttle
from kafka_async.config import seconds
from kafka_async.errors import (
    ClientClosedError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
)
from kafka_async.hooks import Throttled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafka_async.cluster.broker_activity import BrokerActivity
    from kafka_async.cluster.connection import Address
    from kafka_async.cluster.handshake import BrokerVersions
    from kafka_async.cluster.response import ResponseFuture
    from kafka_async.protocol.message import Request, Response
    from kafka_async.protocol.registry import Api
    from kafka_async.supervisor import Offload, SupervisedTask, Supervisor

ResponseT = TypeVar("ResponseT", bound="Response")

CONNECT_PATIENCE: Final = 1.0
"""Seconds after which another broker is tried besides the one that is being connected."""
CLOSING_TIME: Final = 2.0
"""Seconds that a connection gets to close in good order."""


class ConnectionKind(enum.Enum):
    """What a lane carries. The value is its name in logs and events."""

    GENERAL = "general"
    SLOW = "slow"
    PRODUCE = "produce"
    FETCH = "fetch"
    COORDINATOR = "coordinator"


logger = logging.getLogger("kafka_async.cluster")

MIB: Final = 1024 * 1024
HELD_APIS: Final = frozenset({11, 14})
"""APIs of which a broker holds requests back for other members: JoinGroup and SyncGroup."""
FETCH_API: Final = 1
MAX_FRAME_SIZES: Final[dict[ConnectionKind, int]] = {
    ConnectionKind.GENERAL: 16 * MIB,
    ConnectionKind.SLOW: 16 * MIB,
    ConnectionKind.PRODUCE: 16 * MIB,
    ConnectionKind.FETCH: 100 * MIB,
    ConnectionKind.COORDINATOR: 16 * MIB,
}
"""The largest frame that a lane accepts, in bytes; a consumer lowers that of its fetches."""
MAX_FRAME: Final = max(MAX_FRAME_SIZES.values())


class LaneWatcher(Protocol):
    """What a lane tells whoever keeps the lanes of a client."""

    def connected(self, connection: BrokerConnection, versions: BrokerVersions) -> None:
        """The lane has a new connection."""
        ...

    def failed(self, connection: BrokerConnection, error: KafkaError) -> None:
        """The lane could not get a connection."""
        ...

    def lost(self, error: KafkaError) -> None:
        """A connection ended by an error."""
        ...

    def closed(self, connection: BrokerConnection) -> None:
        """The lane was closed for good."""
        ...


class BrokerConnection:
    """A lane to one broker; made by `Client.connection`, closed by who asked for it.

    `muted_until` is when the broker's quota lets the next request pass, in seconds of the
    loop's clock, in the past if at once; `send` waits for it, and who uses `submit` or `ask` has to
    look first (KIP-219).
    """

    def __init__(
        self,
        wiring: ConnectionContext,
        supervisor: Supervisor,
        node_id: int,
        kind: ConnectionKind,
        *,
        owner: str,
        activity: BrokerActivity,
        locate: Callable[[], Address],
        watcher: LaneWatcher,
        max_frame_size: int | None = None,
        fetch_max_wait: float = 0.0,
    ) -> None:
        self.node_id = node_id
        self.kind = kind
        self.muted_until = 0.0
        self._owner = owner
        self._frame_cap = max_frame_size
        self._fetch_max_wait = fetch_max_wait
        self._activity = activity
        self._wiring = wiring
        self._supervisor = supervisor
        self._locate = locate
        self._watcher = watcher
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._throttle = Throttle()
        self._attempt: SupervisedTask | None = None
        self._waiters: list[asyncio.Future[Connection]] = []
        self._ended: KafkaError | None = None
        self._failure: KafkaError | None = None
        self._retry_at = 0.0
        config = wiring.config
        self._backoff = Backoff(
            seconds(config.reconnect_backoff_ms), seconds(config.reconnect_backoff_max_ms)
        )
        self._patience = seconds(config.request_timeout_ms)
        self._setup = Backoff(
            seconds(config.socket_connection_setup_timeout_ms),
            seconds(config.socket_connection_setup_timeout_max_ms),
        )

    # -- questions --------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """Whether a request can be submitted now."""
        return self._connection is not None and self._connection.open

    @property
    def connecting(self) -> bool:
        """Whether a connection is being made right now."""
        return self._connection is not None and not self._connection.open

    @property
    def in_flight(self) -> int:
        """Requests under way."""
        return 0 if self._connection is None else self._connection.in_flight

    def unanswered_since(self, now: float) -> float | None:
        """Return when the oldest request was sent, if its response should be there by now.

        None while nothing is in flight, or while the broker may hold that request back.
        """
        exchange = None if self._connection is None else self._connection.oldest
        if exchange is None or self.kind is ConnectionKind.SLOW or exchange.api_key in HELD_APIS:
            return None
        held = self._fetch_max_wait if exchange.api_key == FETCH_API else 0.0
        return exchange.sent_at if now - exchange.sent_at >= UNANSWERED_AFTER + held else None

    @property
    def retry_at(self) -> float:
        """When the next connection may be tried; in the past if at once."""
        return self._retry_at

    @property
    def failure(self) -> KafkaError | None:
        """Why the last attempt to connect failed; None if it worked, or was not made yet."""
        return self._failure

    def trouble(self) -> str:
        """What keeps the connection that is being made from being there, and what to do."""
        connection = self._connection
        return "" if connection is None else connection.diagnosis(TimeoutError()).text

    def version(self, api: Api | int) -> int:
        """The newest version of an API that both sides know; the lane must be connected.

        Raises:
            UnsupportedVersionError: there is none.
            KafkaConnectionError: the lane is not connected.
        """
        return self._opened().versions.version(api if isinstance(api, int) else api.key)

    # -- requests ---------------------------------------------------------------------------------

    async def send(
        self,
        request: Request[ResponseT],
        *,
        timeout: float,
        version: int | None = None,
        offload: Offload | None = None,
    ) -> ResponseT:
        """Send a request, connecting first if need be, and wait for its answer.

        With `offload` a large one is decoded by it, in a thread.

        Raises:
            KafkaTimeoutError: no answer within `timeout` seconds.
            KafkaConnectionError: no connection, or it was lost; whether the broker has done what
                was asked is unknown then.
            UnsupportedVersionError: the broker does not know the API in a version that we know.
        """
        connection = self._connection
        if connection is None or not connection.open or self.muted_until:
            deadline = self._loop.time() + timeout
            connection = await self._ready(deadline)
            timeout = deadline - self._loop.time()
        if connection.full:
            await connection.drain()
        answer = connection.submit(request, version, timeout)
        return await (answer if offload is None else answer.decoded(offload))

    def submit(
        self,
        request: Request[ResponseT],
        *,
        timeout: float,
        expect_response: bool = True,
        version: int | None = None,
    ) -> ResponseFuture[ResponseT]:
        """Send a request behind those already sent and return at once; the lane must be connected.

        Cancelling the future does not recall the request. Without `expect_response` (acks=0) it is
        resolved at once, with an empty response.

        Raises:
            KafkaConnectionError: the lane is not connected.
            UnsupportedVersionError, EncodeError: the request cannot be said to this broker.
        """
        connection = self._opened()
        return connection.submit(request, version, timeout, expect_response=expect_response)

    def ask(
        self,
        request: Request[ResponseT],
        heard: Callable[[ResponseT | KafkaError], None],
        *,
        timeout: float,
        expect_response: bool = True,
        version: int | None = None,
    ) -> None:
        """Like `submit`, for whoever wants the answer in a call: no turn of the loop lies between.

        `heard` gets the answer, or why there is none, exactly once and not before this has
        returned. It must not raise.
        """
        connection = self._opened()
        connection.ask(request, version, timeout, heard, expect_response=expect_response)

    async def connect(self, timeout: float) -> None:
        """Connect unless connected; one attempt, after the back-off of earlier failures.

        Raises:
            KafkaConnectionError: it failed; the text says why.
            KafkaTimeoutError: it has not come about within `timeout` seconds.
        """
        await self._connected(self._loop.time() + timeout)

    async def close(self, reason: KafkaError | None = None) -> None:
        """Close the lane for good and wait until it is; what is under way fails. Bounded: 2 s."""
        connection = self._connection
        self.end(reason or ClientClosedError(f"the lane to {self._name()} was closed"))
        if connection is None:
            return
        try:
            async with asyncio.timeout(CLOSING_TIME):
                await connection.wait_ended()
        except TimeoutError:
            connection.abort()
        except asyncio.CancelledError:
            connection.abort()
            raise

    def end(self, reason: KafkaError) -> None:
        """Close at once, without waiting; what is under way fails with `reason`."""
        if self._ended is not None:
            return
        self._ended = reason
        self.disconnect(reason)
        self._watcher.closed(self)

    def disconnect(self, reason: KafkaError) -> None:
        """Drop the connection, if there is one; the next use makes another."""
        if self._attempt is not None:
            self._attempt.cancel()
            self._attempt = None
        self._release(reason)
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(reason)

    # -- connecting -------------------------------------------------------------------------------

    def _opened(self) -> Connection:
        connection = self._connection
        if connection is None or not connection.open:
            raise self._ended or KafkaConnectionError(f"not connected to {self._name()}")
        return connection

    async def _ready(self, deadline: float) -> Connection:
        """Connect, and wait until the throttle window has passed, which may be extended meanwhile.

        Requests that waited for one window are sent together when it has passed, as in Java.
        """
        while True:
            connection = await self._connected(deadline)
            delay = self._throttle.delay(self._loop.time())
            if not delay:
                return connection
            if self._loop.time() + delay >= deadline:
                raise KafkaTimeoutError(
                    f"{self._name()} throttles this client for {delay:.3g} s more, "
                    "which is beyond the request's deadline"
                )
            await self._wiring.lifetime.sleep(delay)

    async def _connected(self, deadline: float) -> Connection:
        connection = self._connection
        if connection is not None and connection.open:
            return connection
        if self._ended is not None:
            raise self._ended
        if self._attempt is None:
            self._attempt = self._supervisor.spawn(self._connect, name=f"connects {self._name()}")
        waiter: asyncio.Future[Connection] = self._loop.create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                return await waiter
        except TimeoutError:
            raise self._late() from None
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _late(self) -> KafkaError:
        connection = self._connection
        if connection is not None and not connection.open:
            return KafkaTimeoutError(f"{connection.address}: {self.trouble()}")
        before = "" if self._failure is None else f"; before that: {self._failure}"
        return KafkaTimeoutError(f"no connection to {self._name()} within the deadline{before}")

    async def _connect(self) -> None:
        delay = self._retry_at - self._loop.time()
        if delay > 0:
            await asyncio.sleep(delay)
        try:
            address = self._locate()
            connection = self._connection = self._made(address)
            # No longer than a request: a broker that froze must not hold up whatever waits for it.
            await connection.start(min(self._setup.next(), self._patience))
        except KafkaError as error:
            self._failed(error)
            return
        self._attempt = None
        self._failure = None
        self._backoff.reset()
        self._setup.reset()
        self._watcher.connected(self, connection.versions)
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(connection)

    def _made(self, address: Address) -> Connection:
        return Connection(
            self._wiring,
            address,
            self.kind.value,
            cap=min(MAX_FRAME_SIZES[self.kind], self._frame_cap or MAX_FRAME),
            activity=self._activity,
            on_end=self._lost,
            on_answer=self._answered,
        )

    def _failed(self, error: KafkaError) -> None:
        self._attempt = None
        self._connection = None
        if self._failure is None:
            logger.info("no connection (%s lane): %s", self.kind.value, error)
        self._failure = error
        self._retry_at = self._loop.time() + self._backoff.next()
        self._release(error)
        self._watcher.failed(self, error)

    def _release(self, error: KafkaError) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)

    def _lost(self, error: KafkaError | None) -> None:
        self._connection = None
        if error is not None and self._ended is None:
            self._retry_at = self._loop.time() + self._backoff.next()
            self._watcher.lost(error)

    def _answered(self, api_key: int, version: int, response: Response) -> None:
        throttle_time_ms: int = getattr(response, "throttle_time_ms", 0)
        if not throttle_time_ms:
            return
        pause = self._throttle.answered(api_key, version, throttle_time_ms, self._loop.time())
        self.muted_until = self._throttle.until
        if pause and self._wiring.hooks.active:
            event = Throttled(self._wiring.config.client_id, self.node_id, api_key, pause)
            self._wiring.hooks.emit(event)

    def __repr__(self) -> str:
        state = "connected" if self.connected else "closed" if self._ended else "not connected"
        return f"<Lane to {self._name()}, {self._owner}'s, {state}>"

    def _name(self) -> str:
        return f"broker {self.node_id} ({self.kind.value} lane)"


async def close_connections(
    connections: Iterable[BrokerConnection], timeout: float, reason: KafkaError | None = None
) -> None:
    """Close lanes all at once; abort the connections that are still open after `timeout` s."""
    loop = asyncio.get_running_loop()
    tasks = {loop.create_task(connection.close(reason)) for connection in connections}
    if not tasks:
        return
    try:
        # Even with no time left each task runs up to its first wait, by when its lane has ended.
        await asyncio.wait(tasks, timeout=max(0.0, timeout))
    finally:
        late = [task for task in tasks if not task.done()]
        for task in late:
            task.cancel()  # which aborts the connection
    if late:
        await asyncio.wait(late)


def is_permanent(error: KafkaError) -> bool:
    """Whether connecting again will not help before somebody changes something."""
    if isinstance(error, ConnectionSetupError):
        return error.hopeless
    return not error.retriable
