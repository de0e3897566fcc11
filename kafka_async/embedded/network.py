"""Listeners and connections: frames in, frames out, one request of a connection at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast

from kafka_async.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafka_async.clock import MemoryNetwork
    from kafka_async.embedded.broker import Broker
    from kafka_async.protocol.wire import BytesLike
    from kafka_async.supervisor import SupervisedTask, Supervisor

logger = logging.getLogger("kafka_async.embedded")

STAGE: Final = 1 << 16
"""Bytes of the buffer for small frames, and the first size of a large frame's own."""

_SIZE: Final = struct.Struct(">i")


class Disconnect(Exception):
    """Raised by an answerer: reset the connection instead of answering."""


class Answer(NamedTuple):
    """A response, and the seconds for which the connection is muted after it (KIP-219)."""

    parts: Sequence[BytesLike] | None
    """The parts of the response's frame; None if no response is sent."""
    muted: float = 0.0


class Answerer(Protocol):
    """Turns a request's frame into its response."""

    async def answer(self, broker: Broker, frame: BytesLike, client_host: str) -> Answer:
        """Return the response; raises Disconnect to reset the connection."""
        ...


class FrameReader:
    """Finds frames in a stream. What it hands out never changes: small frames are copied out of the
    stage, a large one is read into memory of its own, which grows with what has arrived and not
    with what was promised. Pure.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._stage = memoryview(bytearray(STAGE))
        self._staged = 0
        self._large: bytearray | None = None
        self._have = 0
        self._size = 0

    def room(self) -> memoryview:
        """Where the next bytes go; never empty."""
        large = self._large
        if large is None:
            return self._stage[self._staged :]
        if self._have == len(large):
            self._large = grown = bytearray(min(2 * len(large), self._size))
            grown[: self._have] = large
            large = grown
        return memoryview(large)[self._have :]

    def received(self, count: int) -> list[BytesLike]:
        """So many bytes have been put where `room` said: the frames that are complete, without
        sizes.

        Raises DecodeError for a size that is negative or over the limit.
        """
        if self._large is not None:
            self._have += count
            if self._have < self._size:
                return []
            frame, self._large = memoryview(self._large), None
            return [frame]
        self._staged += count
        frames: list[BytesLike] = []
        stage, at, end = self._stage, 0, self._staged
        while end - at >= _SIZE.size:
            (size,) = _SIZE.unpack_from(stage, at)
            if not 0 <= size <= self._limit:
                raise DecodeError(f"a frame of {size} bytes; 0 to {self._limit} are allowed")
            start = at + _SIZE.size
            if size > STAGE - _SIZE.size:
                self._begin_large(size, stage[start:end])
                at = end
                break
            if end - start < size:
                break
            frames.append(bytes(stage[start : start + size]))
            at = start + size
        rest = bytes(stage[at:end])
        stage[: len(rest)] = rest
        self._staged = len(rest)
        return frames

    def _begin_large(self, size: int, head: memoryview) -> None:
        self._size, self._have = size, head.nbytes
        self._large = bytearray(min(2 * STAGE, size))
        self._large[: head.nbytes] = head


class Connection(asyncio.BufferedProtocol):
    """A client's connection to a broker, and the task that answers it."""

    def __init__(
        self, broker: Broker, answerer: Answerer, supervisor: Supervisor, max_request_bytes: int
    ) -> None:
        self._broker = broker
        self._answerer = answerer
        self._supervisor = supervisor
        self._reader = FrameReader(max_request_bytes)
        self._frames: deque[BytesLike] = deque()
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost = asyncio.Event()
        self._paused = False
        self._transport: asyncio.Transport | None = None
        self._task: SupervisedTask | None = None
        self.client_host = ""

    # -- what the transport calls -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = stream = cast("asyncio.Transport", transport)  # uvloop's is its own class
        peer = transport.get_extra_info("peername")
        self.client_host = str(peer[0]) if peer else ""
        if not (self._broker.alive and self._supervisor.running):
            stream.abort()
            return
        self._broker.connections.add(self)
        self._task = self._supervisor.spawn(
            self._serve, name=f"broker {self._broker.id} connection from {self.client_host}"
        )

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to read into."""
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""
        try:
            frames = self._reader.received(nbytes)
        except DecodeError as error:
            logger.info("broker %d closes %s: %s", self._broker.id, self.client_host, error)
            self.abort()
            return
        if frames:
            self._frames.extend(frames)
            self._arrived.set()
            if len(self._frames) > 1 and not self._paused:
                self._paused = True
                self._open_transport.pause_reading()

    def eof_received(self) -> bool:
        """The client sends no more: what it asked before is dropped, as a broker does."""
        return False

    def pause_writing(self) -> None:
        """The client reads more slowly than it asks."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone; a request that is being handled is handled to its end."""
        self._lost.set()
        self._arrived.set()
        self._writable.set()

    # -- what the cluster calls -------------------------------------------------------------------

    def abort(self) -> None:
        """Reset the connection; the request that is being handled goes on."""
        if self._transport is not None:
            self._transport.abort()

    async def end(self) -> None:
        """Reset the connection, cancel what is being handled, and wait until both are gone."""
        self.abort()
        if self._task is not None:
            self._task.cancel()
            await self._task.wait()
        await self._lost.wait()

    # -- the task ---------------------------------------------------------------------------------

    @property
    def _open_transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    async def _serve(self) -> None:
        try:
            while (frame := await self._next()) is not None:
                answer = await self._answerer.answer(self._broker, frame, self.client_host)
                if answer.parts is not None and not self._open_transport.is_closing():
                    # Not writelines: in Python 3.12 and 3.13.0 it neither pauses the protocol nor
                    # notices an aborted connection.
                    self._open_transport.write(b"".join(answer.parts))
                    await self._writable.wait()
                if answer.muted:
                    await self._mute(answer.muted)
        except Disconnect as reason:
            logger.info("broker %d resets %s: %s", self._broker.id, self.client_host, reason)
        finally:
            self.abort()
            self._broker.connections.discard(self)

    async def _mute(self, seconds: float) -> None:
        """Handle no request for some time, unless the connection is lost."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._lost.wait()

    async def _next(self) -> BytesLike | None:
        """The next request, None once the connection is lost."""
        while not self._frames and not self._lost.is_set():
            if self._paused:
                self._paused = False
                self._open_transport.resume_reading()
            self._arrived.clear()
            await self._arrived.wait()
        return None if self._lost.is_set() else self._frames.popleft()


class Listener(Protocol):
    """An open port."""

    port: int

    async def close(self) -> None:
        """Accept no more."""
        ...


class SocketListener:
    """A port of this machine."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.port: int = server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Close the listening socket; connections are their broker's to close."""
        self._server.close()


class MemoryListener:
    """A port of a MemoryNetwork."""

    def __init__(self, network: MemoryNetwork, host: str, port: int) -> None:
        self._network = network
        self._host = host
        self.port = port

    async def close(self) -> None:
        """Free the address."""
        self._network.close(self._host, self.port)


async def listen(
    accept: Callable[[], Connection], host: str, port: int, network: MemoryNetwork | None
) -> Listener:
    """Listen at an address, in memory or on this machine (port 0: a free one); raises OSError."""
    if network is not None:
        return MemoryListener(network, *network.listen(accept, host, port))
    server = await asyncio.get_running_loop().create_server(accept, host, port)
    return SocketListener(server)
