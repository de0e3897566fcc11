"""One connection, from dialling to its end: handshake, requests and answers, deadlines, idleness.

A request costs no task and no timer of its own. It is written in the caller's step; its answer is
matched in the transport's callback. That resolves the caller's future, and the message is decoded
by whoever looks at it first; or it is decoded and handed over right there, to who would rather be
called. One timer a connection stands at the earliest deadline there may be and looks what is
overdue when it fires.

A request that is overdue fails alone. A connection on which the oldest request has been overdue for
its whole patience (at least request_timeout_ms) is dead, because a broker answers in order, and
ends. When it ends, everything under way fails at once, with the connection's name and the reason.
"""

from __future__ import annotations

import asyncio
import logging
from copy import copy
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from kafka_async.cluster.broker_activity import UNANSWERED_AFTER
from kafka_async.cluster.diagnosis import Diagnosis, Stage, explain
from kafka_async.cluster.framing import FrameReader
from kafka_async.cluster.handshake import BrokerVersions, handshake
from kafka_async.cluster.in_flight_requests import InFlightRequest, InFlightRequests
from kafka_async.cluster.response import Hearing, ResponseFuture, Waiter
from kafka_async.cluster.transport import Stream
from kafka_async.config import seconds
from kafka_async.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    ProtocolError,
    RebootstrapRequiredError,
)
from kafka_async.hooks import Connected, Disconnected, RequestSent, ResponseReceived
from kafka_async.protocol.api import lookup

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from kafka_async.clock import Dialer
    from kafka_async.cluster.broker_activity import BrokerActivity
    from kafka_async.cluster.framing import Frame, ReceiveBudget
    from kafka_async.cluster.handshake import Step
    from kafka_async.cluster.lifetime import Lifetime
    from kafka_async.config import ClientConfig
    from kafka_async.hooks import Hooks
    from kafka_async.protocol.message import Request, Response
    from kafka_async.supervisor import Offload

logger = logging.getLogger("kafka_async.cluster")

ResponseT = TypeVar("ResponseT", bound="Response")

MAX_HANDSHAKE_FRAME_SIZE: Final = 1024 * 1024


@dataclass(slots=True)
class ConnectionContext:
    """What all connections of one client share."""

    config: ClientConfig
    hooks: Hooks
    dialer: Dialer
    budget: ReceiveBudget
    lifetime: Lifetime
    software_version: str
    tls: Callable[[], Awaitable[ssl.SSLContext | None]]
    offload: Offload
    cluster_id: str | None = None

    @property
    def expected_cluster(self) -> str | None:
        """Cluster id that brokers check (KIP-1242); as in Java, None without rebootstrap."""
        rebootstraps = self.config.metadata_recovery_strategy == "rebootstrap"
        return self.cluster_id if rebootstraps else None


@dataclass(frozen=True, slots=True)
class Address:
    """Where a connection goes to; `node_id` is negative for a bootstrap server."""

    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        place = f"{self.host}:{self.port}"
        return place if self.node_id < 0 else f"{place} (broker {self.node_id})"


class ConnectionSetupError(KafkaConnectionError):
    """A connection could not be set up.

    `hopeless` if a retry will not help by itself; `refused` if no process listens at the address,
    or its name is unknown.
    """

    hopeless = False
    refused = False


class WrongBrokerError(ConnectionSetupError):
    """The broker at the address is not the one that metadata placed there (KIP-1242).

    Its `__cause__` is the broker's RebootstrapRequiredError, which applications never see: the
    client bootstraps again, or with metadata_recovery_strategy="none" retries as Java does.
    """


class Connection:
    """A connection to `address`. `on_end(error)` is called once, when an open one has ended.

    `on_answer(api_key, version, response)` sees every decoded answer. Requests can be sent while it
    is `open`.
    """

    def __init__(
        self,
        wiring: ConnectionContext,
        address: Address,
        connection: str,
        *,
        cap: int,
        activity: BrokerActivity,
        on_end: Callable[[KafkaError | None], None],
        on_answer: Callable[[int, int, Response], None],
    ) -> None:
        self.address = address
        self.stage = Stage.IDLE
        self.open = False
        self.versions = BrokerVersions()
        self._wiring = wiring
        self._hooks = wiring.hooks
        self._connection = connection
        self._cap = cap
        self._activity = activity
        self._on_end = on_end
        self._on_answer = on_answer
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(MAX_HANDSHAKE_FRAME_SIZE, wiring.budget, self._blocked)
        self._channel: InFlightRequests[Waiter] = InFlightRequests(
            wiring.config.client_id, self._reader, self._answered
        )
        self._stream: Stream | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._look_at = inf
        self._reason: KafkaError | None = None
        self._used_at = self._loop.time()
        self._patience = seconds(wiring.config.request_timeout_ms)
        self._counts_after = min(self._patience, UNANSWERED_AFTER)
        idle = seconds(wiring.config.connections_max_idle_ms)
        self._idle = idle if idle >= 0 else inf
        self.room = self._channel.room

    @property
    def in_flight(self) -> int:
        """Requests without an answer, those included that nobody waits for any more."""
        return len(self._channel.under_way)

    @property
    def oldest(self) -> InFlightRequest[Waiter] | None:
        """The request in flight that was sent first."""
        return self._channel.under_way[0] if self._channel.under_way else None

    async def start(self, timeout: float) -> None:
        """Dial, and say what has to be said first.

        Raises:
            ConnectionSetupError: it did not come about within `timeout` seconds, or at all.
            KafkaError: the broker refuses.
        """
        begun = self._loop.time()
        self.stage = Stage.CONNECTING
        try:
            async with asyncio.timeout(timeout):
                await self._dial()
                self.stage = Stage.HANDSHAKE
                self.versions = await self._shake_hands(timeout)
        except (OSError, KafkaError) as error:
            failure = self._reason or self._failure(error)
            self._end(failure)
            if failure is error:
                raise
            raise failure from error
        except BaseException:
            self._end(None)
            raise
        self._reader.cap = self._cap
        self.stage = Stage.OPEN
        self.open = self._reason is None
        self._used_at = self._loop.time()
        if (idle_until := self._used_at + self._idle) < self._look_at:
            self._watch(idle_until)
        self._tell_connected(self._used_at - begun)

    async def _dial(self) -> None:
        wiring, address = self._wiring, self.address
        context = await wiring.tls()
        name = None if context is None else address.host
        _, stream = await wiring.dialer.dial(
            partial(Stream, self), address.host, address.port, ssl=context, server_hostname=name
        )
        if self._reason is not None:  # closed while it dialled, when there was nothing to close yet
            stream.abort()
            raise self._reason
        self._stream = stream
        stream.attach()

    def diagnosis(self, error: BaseException) -> Diagnosis:
        """What `error` means for a connection that has come this far."""
        tls = self._wiring.config.security_protocol == "SSL"
        known = self._activity.responded_at is not None
        return explain(error, self.stage, tls=tls, known=known)

    def submit(
        self,
        request: Request[ResponseT],
        version: int | None,
        timeout: float,
        *,
        expect_response: bool = True,
    ) -> ResponseFuture[ResponseT]:
        """Send a request behind those already sent, in the newest version if `version` is None.

        Without `expect_response` the future is resolved at once, with an empty response.

        Raises:
            KafkaConnectionError: the connection has ended.
            EncodeError, UnsupportedVersionError: the request cannot be said in that version.
        """
        future = ResponseFuture[ResponseT](request.RESPONSE, self._on_answer, loop=self._loop)
        self._send(request, version, timeout, future, expect_response)
        return future

    def ask(
        self,
        request: Request[ResponseT],
        version: int | None,
        timeout: float,
        heard: Callable[[ResponseT | KafkaError], None],
        *,
        expect_response: bool = True,
    ) -> None:
        """Like `submit`; `heard` gets the answer, or why there is none, straight from the stream.

        Raises what `submit` raises.
        """
        hearing = Hearing(request.RESPONSE, self._on_answer, heard, self._loop)
        self._send(request, version, timeout, hearing, expect_response)

    @property
    def full(self) -> bool:
        """Whether the broker reads more slowly than we write; `drain` waits for the end of that."""
        return self._stream is not None and self._stream.full

    async def drain(self) -> None:
        """Wait until the connection is not `full` any more, or has ended."""
        if self._stream is not None:
            await self._stream.drain()

    def close(self, reason: KafkaError | None = None) -> None:
        """End it; what is under way fails with `reason`. `wait_ended` waits until it is gone."""
        self._end(reason)

    async def wait_ended(self) -> None:
        """Wait until the transport is gone."""
        if self._stream is not None and not self._stream.ended.done():
            await asyncio.shield(self._stream.ended)

    def abort(self) -> None:
        """Drop the transport without good manners."""
        if self._stream is not None:
            self._stream.abort()

    def __str__(self) -> str:
        return f"{self.address}, {self._connection} lane"

    # -- what the stream calls --------------------------------------------------------------------

    def received(self, nbytes: int) -> None:
        """Bytes have arrived."""
        try:
            self._channel.received(nbytes)
        except ProtocolError as error:
            self._broken(error)

    def lost(self, error: Exception | None) -> None:
        """The transport is gone."""
        if self._reason is None:
            self._broken(error or ConnectionResetError("the broker closed the connection"))
        self._end(None)

    def _answered(self, exchange: InFlightRequest[Waiter], frame: Frame) -> None:
        self._activity.responded(self._loop.time())
        exchange.waiter.answered(frame, exchange.version)
        if self._hooks.active:
            self._tell_answered(exchange, len(frame))

    def _blocked(self, blocked: bool) -> None:
        if self._stream is not None:
            self._stream.pause_reading(blocked)

    # -- sending ----------------------------------------------------------------------------------

    async def _shake_hands(self, timeout: float) -> BrokerVersions:
        wiring = self._wiring
        procedure = handshake(
            wiring.software_version, wiring.expected_cluster, self.address.node_id
        )
        step = next(procedure)
        while True:
            frame = await self._ask(step, timeout)
            try:
                step = procedure.send(frame)
            except StopIteration as ended:
                return cast("BrokerVersions", ended.value)

    async def _ask(self, step: Step, timeout: float) -> Frame:
        if self._reason is not None:
            raise self._reason
        future: ResponseFuture[Any] = ResponseFuture(loop=self._loop)
        self._send(step.request, step.version, timeout, future)
        return await future

    def _send(
        self,
        request: Request[Any],
        version: int | None,
        timeout: float,
        waiter: Waiter,
        expect_response: bool = True,
    ) -> None:
        stream, channel = self._stream, self._channel
        if self._reason is not None or stream is None:
            raise self._gone()
        if version is None:
            version = self.versions.version(request.API_KEY)
        correlation_id, parts = channel.encode(request, version)
        now = self._used_at = self._loop.time()
        # With nothing under way there is nothing to wait for: the caller's round trip begins now.
        stream.write(parts, not channel.under_way)
        if self._hooks.active:
            self._tell_sent(request.API_KEY, version, correlation_id, sum(map(len, parts)))
        if not expect_response:
            waiter.spared(request.RESPONSE())
            return
        deadline = now + timeout
        patience = now + max(timeout, self._patience)
        channel.sent(
            InFlightRequest(
                correlation_id, request.API_KEY, version, waiter, now, deadline, patience
            )
        )
        if deadline < self._look_at:
            self._watch(deadline)

    def _tell_sent(self, api_key: int, version: int, correlation_id: int, size: int) -> None:
        client_id, node_id = self._wiring.config.client_id, self.address.node_id
        self._hooks.emit(RequestSent(client_id, node_id, api_key, version, correlation_id, size))

    def _tell_connected(self, took: float) -> None:
        logger.debug("%s: connected in %.3g s", self, took)
        if self._hooks.active:
            node_id, host, port = self.address.node_id, self.address.host, self.address.port
            client_id = self._wiring.config.client_id
            self._hooks.emit(Connected(client_id, node_id, host, port, self._connection, took))

    def _tell_answered(self, exchange: InFlightRequest[Waiter], size: int) -> None:
        took = self._loop.time() - exchange.sent_at
        event = ResponseReceived(
            self._wiring.config.client_id,
            self.address.node_id,
            exchange.api_key,
            exchange.correlation_id,
            size,
            took,
        )
        self._hooks.emit(event)

    # -- deadlines --------------------------------------------------------------------------------

    def _watch(self, at: float) -> None:
        """Have it looked for what is overdue at that time, which is before any such time."""
        if self._timer is not None:
            self._timer.cancel()
        self._look_at = at
        self._timer = None if at == inf else self._loop.call_at(at, self._look)

    def _look(self) -> None:
        self._look_at, self._timer = inf, None
        now = self._loop.time()
        following = inf if self._channel.under_way else self._used_at + self._idle
        dead: KafkaTimeoutError | None = None
        for exchange in self._channel.under_way:
            if exchange.deadline > now:
                following = min(following, exchange.deadline)
                continue
            error = self._overdue(exchange, now)
            if exchange.sent_at + self._counts_after <= now:  # not the caller's haste
                self._activity.timed_out()
            exchange.waiter.fail(error)
            following = min(following, exchange.patience)
            if exchange.patience <= now:
                dead = dead or error
        if dead is not None:
            self._broken(dead)
        elif following <= now:
            logger.debug("%s: closed, idle for %g s", self, self._idle)
            self._end(None)
        else:
            self._watch(following)

    def _overdue(self, exchange: InFlightRequest[Any], now: float) -> KafkaTimeoutError:
        name = lookup(exchange.api_key).name
        return KafkaTimeoutError(f"{self}: no answer to {name} for {now - exchange.sent_at:.3g} s")

    # -- the end ----------------------------------------------------------------------------------

    def _broken(self, error: Exception) -> None:
        failure = self._failure(error)
        if self._reason is None and self.stage is Stage.OPEN:
            logger.info("lost: %s", failure)
        self._end(failure)
        self.abort()

    def _failure(self, error: BaseException) -> KafkaError:
        """What those are told who wait: the error itself where it says more than "lost"."""
        if isinstance(error, RebootstrapRequiredError):
            failure = WrongBrokerError(
                f"{self.address}: another broker or cluster responds at this address"
            )
            failure.__cause__ = error
            return failure
        if isinstance(error, KafkaError) and not isinstance(
            error, ProtocolError | KafkaTimeoutError
        ):
            return error
        found = self.diagnosis(error)
        place = f"{self}: "  # a time-out names it already
        failure = KafkaConnectionError(place + found.text.removeprefix(place))
        if self.stage is not Stage.OPEN:
            failure = ConnectionSetupError(f"{self.address}: {found.text}")
            failure.hopeless, failure.refused = found.hopeless, found.refused
        failure.__cause__ = error
        return failure

    def _gone(self) -> KafkaError:
        text = f"{self}: not connected" if self._reason is None else self._reason.message
        return KafkaConnectionError(text)

    def _end(self, reason: KafkaError | None) -> None:
        if self._reason is not None:
            return
        was_open, self.open = self.stage is Stage.OPEN, False
        self._reason = reason or KafkaConnectionError(f"{self}: closed by the client")
        if self._timer is not None:
            self._timer.cancel()
        for exchange in self._channel.abandon():
            exchange.waiter.fail(_copy(self._reason))
        if self._stream is not None:
            self._stream.close()
        if not was_open:
            return
        if self._hooks.active:
            client_id = self._wiring.config.client_id
            self._hooks.emit(
                Disconnected(client_id, self.address.node_id, self._connection, reason)
            )
        self._on_end(reason)


def _copy(error: KafkaError) -> KafkaError:
    """The same error as another object: each waiter's raising adds its own traceback."""
    twin = copy(error)
    twin.__cause__ = error.__cause__
    return twin
