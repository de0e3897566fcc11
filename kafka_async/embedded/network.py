"""Open ports and client connections of brokers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import struct
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast

from kafka_async.embedded.requests.context import Disconnect
from kafka_async.embedded.state.throttle_log import Throttle
from kafka_async.errors import DecodeError, UnsupportedVersionError
from kafka_async.protocol.header import decode_request_header

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kafka_async.embedded.quotas.quota_manager import QuotaManager
    from kafka_async.embedded.requests.session import ClientSession
    from kafka_async.embedded.settings import Settings
    from kafka_async.embedded.state.throttle_log import ThrottleLog
    from kafka_async.foundation.memory_network import MemoryNetwork
    from kafka_async.foundation.supervisor import SupervisedTask, Supervisor
    from kafka_async.protocol.wire import BytesLike

logger = logging.getLogger("kafka_async.embedded")

SMALL_FRAME_BUFFER_BYTES: Final = 1 << 16
"""Size of the buffer for small frames; larger frames get a separate buffer."""

_SIZE: Final = struct.Struct(">i")
_connection_numbers = itertools.count()


class ResponseFrame(NamedTuple):
    """Holds an encoded response, and the actions after it."""

    parts: Sequence[BytesLike] | None
    """Buffers of the frame; None if no response is sent."""
    mute_seconds: float = 0.0
    """Time after the response for which the broker reads no request (KIP-219)."""
    closes: bool = False
    """True if the connection is closed after the response."""
    delay_seconds: float = 0.0
    """Time before the response and the close of the connection (KIP-306)."""
    client_id: str | None = None
    """The client id of the request."""
    api_key: int = -1
    """The API of the request."""


class RequestHandler(Protocol):
    """Defines the handler of request frames."""

    async def handle_request(self, session: ClientSession, frame: BytesLike) -> ResponseFrame:
        """Return the response; raise Disconnect to reset the connection."""
        ...


class RequestFrameReader:
    """Splits a stream into request frames. Pure.

    Returned frames never change. Small frames are copied from a shared buffer. A large frame is
    read into a separate buffer, which grows with the received bytes, not to the announced size.
    `limit` is the maximum size of frames that begin from now on.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._buffer = memoryview(bytearray(SMALL_FRAME_BUFFER_BYTES))
        self._buffered = 0
        self._large: bytearray | None = None
        self._large_received = 0
        self._large_size = 0

    def room(self) -> memoryview:
        """Return the buffer for the next bytes; never empty."""
        large = self._large
        if large is None:
            return self._buffer[self._buffered :]
        if self._large_received == len(large):
            self._large = grown = bytearray(min(2 * len(large), self._large_size))
            grown[: self._large_received] = large
            large = grown
        return memoryview(large)[self._large_received :]

    def received(self, count: int) -> list[BytesLike]:
        """Return the frames that `count` received bytes complete, without their size fields."""
        if self._large is not None:
            self._large_received += count
            if self._large_received < self._large_size:
                return []
            frame, self._large = memoryview(self._large), None
            return [frame]
        self._buffered += count
        frames: list[BytesLike] = []
        buffer, at, end = self._buffer, 0, self._buffered
        while end - at >= _SIZE.size:
            (size,) = _SIZE.unpack_from(buffer, at)
            # The loop ends with the buffered bytes: at an incomplete size field, at an incomplete
            # small frame, or at a large frame, whose remaining bytes go into its separate buffer.
            if not 0 <= size <= self.limit:
                raise DecodeError(f"a frame of {size} bytes; 0 to {self.limit} are allowed")
            start = at + _SIZE.size
            if size > SMALL_FRAME_BUFFER_BYTES - _SIZE.size:
                self._start_large_frame(size, buffer[start:end])
                at = end
                break
            if end - start < size:
                break
            frames.append(bytes(buffer[start : start + size]))
            at = start + size
        rest = bytes(buffer[at:end])
        buffer[: len(rest)] = rest
        self._buffered = len(rest)
        return frames

    def _start_large_frame(self, size: int, head: memoryview) -> None:
        self._large_size, self._large_received = size, head.nbytes
        self._large = bytearray(min(2 * SMALL_FRAME_BUFFER_BYTES, size))
        self._large[: head.nbytes] = head


class ClientConnection(asyncio.BufferedProtocol):
    """Represents a client's connection to a broker; a task handles its requests in order."""

    def __init__(
        self,
        session: ClientSession,
        handler: RequestHandler,
        supervisor: Supervisor,
        settings: Settings,
        throttle_log: ThrottleLog,
        quotas: QuotaManager,
    ) -> None:
        self._quotas = quotas
        self._session = session
        self._throttle_log = throttle_log
        self._number = next(_connection_numbers)
        self._broker = session.broker
        self._handler = handler
        self._supervisor = supervisor
        self._settings = settings
        self._reader = RequestFrameReader(0)
        self._update_frame_limit()
        self._requests: deque[BytesLike] = deque()
        self._request_available = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._disconnected = asyncio.Event()
        self._reading_paused = False
        self._transport: asyncio.Transport | None = None
        self._task: SupervisedTask | None = None
        self._closing: asyncio.TimerHandle | None = None

    # -- asyncio.BufferedProtocol -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the task that handles requests."""
        self._transport = stream = cast("asyncio.Transport", transport)  # uvloop's is its own class
        peer = transport.get_extra_info("peername")
        self._session.client_host = str(peer[0]) if peer else ""
        if not self._session.set_certificate(transport.get_extra_info("peercert")):
            logger.info(
                "broker %d closes %s: no rule of ssl_principal_mapping_rules maps the subject of "
                "its certificate",
                self._broker.id,
                self._session.client_host,
            )
            stream.abort()
            return
        if not (self._broker.alive and self._supervisor.running):
            stream.abort()
            return
        self._broker.connections.add(self)
        loop = asyncio.get_running_loop()
        delay = self._quotas.on_connection(self._broker.id, self._session.client_host, loop.time())
        if delay:  # as on a broker, close the connection after the throttle time
            stream.pause_reading()
            self._closing = loop.call_later(delay, stream.abort)
            return
        self._task = self._supervisor.spawn(
            self._serve,
            name=f"broker {self._broker.id} connection from {self._session.client_host}",
        )

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer to read into."""
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Queue the requests that the received bytes complete."""
        try:
            frames = self._reader.received(nbytes)
        except DecodeError as error:
            logger.info(
                "broker %d closes %s: %s", self._broker.id, self._session.client_host, error
            )
            self.abort()
            return
        if frames:
            self._record_early_requests(frames)
            self._requests.extend(frames)
            self._request_available.set()
            if len(self._requests) > 1 and not self._reading_paused:
                self._reading_paused = True
                self._open_transport.pause_reading()

    def _record_early_requests(self, frames: Sequence[BytesLike]) -> None:
        """Record requests that arrive within a throttle window."""
        now, log = asyncio.get_running_loop().time(), self._throttle_log
        if not log.is_open(now):
            return
        for frame in frames:
            with contextlib.suppress(DecodeError, UnsupportedVersionError):
                header, _ = decode_request_header(frame)
                log.received(self._broker.id, header.client_id, header.api_key, self._number, now)

    def eof_received(self) -> bool:
        """Close the connection; as on a broker, queued requests are dropped."""
        return False

    def pause_writing(self) -> None:
        """Pause the handling of requests until the client has read its responses."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Continue handling requests."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the task after the request in progress."""
        if self._closing is not None:
            self._closing.cancel()
            self._broker.connections.discard(self)
        self._disconnected.set()
        self._request_available.set()
        self._writable.set()
        if self._session.on_closed is not None:
            self._session.on_closed()

    # -- for the cluster --------------------------------------------------------------------------

    def abort(self) -> None:
        """Reset the connection; a request in progress continues."""
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Reset the connection, cancel its task, and wait until both have ended."""
        self.abort()
        if self._task is not None:
            self._task.cancel()
            await self._task.wait()
        await self._disconnected.wait()

    # -- the task ---------------------------------------------------------------------------------

    @property
    def _open_transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    async def _serve(self) -> None:
        try:
            while (frame := await self._next_request()) is not None:
                response = await self._handler.handle_request(self._session, frame)
                self._update_frame_limit()
                # In this order, as on a broker: the delay after a failed authentication, the
                # response, the end of the connection, and the throttle time.
                if response.delay_seconds:
                    await self._mute(response.delay_seconds)
                if response.parts is not None and not self._open_transport.is_closing():
                    # Not writelines: in Python 3.12 and 3.13.0 it neither pauses the protocol nor
                    # notices an aborted connection.
                    self._open_transport.write(b"".join(response.parts))
                    await self._writable.wait()
                if response.closes:
                    self._open_transport.close()
                    await self._disconnected.wait()
                if response.mute_seconds:
                    now = asyncio.get_running_loop().time()
                    self._throttle_log.opened(
                        Throttle(
                            self._broker.id,
                            response.client_id,
                            response.api_key,
                            self._number,
                            now,
                            now + response.mute_seconds,
                        )
                    )
                    await self._mute(response.mute_seconds)
        except Disconnect as reason:
            logger.info(
                "broker %d resets %s: %s", self._broker.id, self._session.client_host, reason
            )
        finally:
            self.abort()
            self._broker.connections.discard(self)

    def _update_frame_limit(self) -> None:
        """Lower the frame limit before the client has authenticated."""
        self._reader.limit = (
            self._settings.sasl_server_max_receive_size
            if self._session.authenticating
            else self._settings.socket_request_max_bytes
        )

    async def _mute(self, seconds: float) -> None:
        """Handle no request for this time, or until the connection is lost."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._disconnected.wait()

    async def _next_request(self) -> BytesLike | None:
        """Return the next request, or None once the connection is lost."""
        while not self._requests and not self._disconnected.is_set():
            if self._reading_paused:
                self._reading_paused = False
                self._open_transport.resume_reading()
            self._request_available.clear()
            await self._request_available.wait()
        return None if self._disconnected.is_set() else self._requests.popleft()


class OpenPort(NamedTuple):
    """Represents a listening port; `close` stops accepting connections."""

    port: int
    close: Callable[[], Awaitable[None]]


async def listen(
    protocol_factory: Callable[[], asyncio.BaseProtocol],
    host: str,
    port: int,
    network: MemoryNetwork | None,
) -> OpenPort:
    """Listen at an address, on a socket or in memory; port 0 is a free port."""
    if network is not None:
        host, port = network.listen(protocol_factory, host, port)

        async def close() -> None:
            network.close(host, port)

        return OpenPort(port, close)
    server = await asyncio.get_running_loop().create_server(protocol_factory, host, port)
    return OpenPort(server.sockets[0].getsockname()[1], partial(_close_server, server))


async def _close_server(server: asyncio.Server) -> None:
    """Close a server after it has completed the accepts in progress.

    Otherwise asyncio leaves their sockets open: their transports cannot attach to a closed server.
    """
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    server.close()
