"""Connections in memory: asyncio protocols of one event loop, without sockets."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    import ssl as ssl_module
    from collections.abc import Callable

P = TypeVar("P", bound=asyncio.BaseProtocol)


class MemoryNetwork:
    """Connects asyncio protocols of one event loop in memory. It is a `Dialer`."""

    def __init__(self) -> None:
        self._listeners: dict[tuple[str, int], Callable[[], asyncio.BaseProtocol]] = {}
        self._next_port = 9092

    def listen(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int = 0
    ) -> tuple[str, int]:
        """Accept connections at an address and return it; port 0 chooses a free port."""
        if port == 0:
            while (host, self._next_port) in self._listeners:
                self._next_port += 1
            port = self._next_port
        if (host, port) in self._listeners:
            raise OSError(f"{host}:{port} is in use")
        self._listeners[host, port] = protocol_factory
        return host, port

    def close(self, host: str, port: int) -> None:
        """Stop accepting connections at an address; open connections stay open."""
        self._listeners.pop((host, port), None)

    async def dial(
        self,
        protocol_factory: Callable[[], P],
        host: str,
        port: int,
        *,
        ssl: ssl_module.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.Transport, P]:
        """Connect to a listener; raise ConnectionRefusedError if nothing listens at the address."""
        await asyncio.sleep(0)
        if ssl is not None:
            raise OSError("connections in memory have no TLS")
        accept = self._listeners.get((host, port))
        if accept is None:
            raise ConnectionRefusedError(f"no listener at {host}:{port} in memory")
        protocol = protocol_factory()
        outgoing, incoming = _Pipe(), _Pipe()
        server = MemoryTransport(
            accept(), (host, port), (host, 0), incoming=outgoing, outgoing=incoming
        )
        client = MemoryTransport(
            protocol, (host, 0), (host, port), incoming=incoming, outgoing=outgoing
        )
        server.open()
        client.open()
        return client, protocol


class _Pipe:
    """One direction of a connection in memory: bytes written and not read yet."""

    def __init__(self) -> None:
        self.chunks: deque[bytes] = deque()
        self.size = 0
        self.ended = False
        self.reset = False
        self.on_data: Callable[[], None] = _nothing
        self.on_read: Callable[[], None] = _nothing

    def put(self, data: bytes) -> None:
        """Append bytes and notify the reader."""
        self.chunks.append(data)
        self.size += len(data)
        self.on_data()

    def end(self, *, reset: bool = False) -> None:
        """End the stream; a reset discards unread bytes."""
        self.ended = True
        if reset:
            self.reset = True
            self.chunks.clear()
        self.on_data()

    def get(self) -> bytes:
        """Remove and return the oldest chunk."""
        data = self.chunks.popleft()
        self.size -= len(data)
        return data


def _nothing() -> None:
    pass


class MemoryTransport(asyncio.Transport):
    """One end of a connection in memory."""

    def __init__(
        self,
        protocol: asyncio.BaseProtocol,
        local: tuple[str, int],
        remote: tuple[str, int],
        *,
        incoming: _Pipe,
        outgoing: _Pipe,
    ) -> None:
        super().__init__({"sockname": local, "peername": remote})
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._incoming, self._outgoing = incoming, outgoing
        self._reading = True
        self._closing = False
        self._lost = False
        self._paused_writing = False
        self._scheduled = False
        self._high, self._low = 1 << 16, 1 << 14  # water marks, in bytes

    def open(self) -> None:
        """Connect the protocol to both pipes."""
        self._incoming.on_data = self._schedule_delivery
        self._outgoing.on_read = self._resume_writing
        self._protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Write bytes; the other end reads them in the next event loop iteration."""
        if self._closing or not data:
            return
        self._outgoing.put(bytes(data))
        if self._outgoing.size > self._high and not self._paused_writing:
            self._paused_writing = True
            self._protocol.pause_writing()

    def close(self) -> None:
        """Close; bytes already written are still delivered."""
        if not self._closing:
            self._closing = True
            self._outgoing.end()
            self._loop.call_soon(self._end, None)

    def abort(self) -> None:
        """Reset the connection: the other end loses its unread bytes."""
        if not self._lost:
            self._closing = True
            self._outgoing.end(reset=True)
            self._loop.call_soon(self._end, None)

    def is_closing(self) -> bool:
        """Return whether `close` or `abort` was called, or the connection was lost."""
        return self._closing

    def pause_reading(self) -> None:
        """Keep received bytes until `resume_reading`."""
        self._reading = False

    def resume_reading(self) -> None:
        """Deliver received bytes."""
        self._reading = True
        self._schedule_delivery()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the water marks for pausing and resuming the protocol's writing."""
        self._high = 1 << 16 if high is None else high
        self._low = self._high // 4 if low is None else low

    def _schedule_delivery(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._scheduled = False
        while self._incoming.chunks and self._reading and not self._lost:
            self._pass_to_protocol(self._incoming.get())
        self._incoming.on_read()
        if self._lost or not self._incoming.ended or self._incoming.chunks:
            return
        if self._incoming.reset:
            self._end(ConnectionResetError("the peer aborted"))
        elif not cast("asyncio.Protocol", self._protocol).eof_received():
            self.close()

    def _pass_to_protocol(self, data: bytes) -> None:
        if not isinstance(self._protocol, asyncio.BufferedProtocol):
            cast("asyncio.Protocol", self._protocol).data_received(data)
            return
        view = memoryview(data)
        while view and not self._lost:
            room = memoryview(cast("bytearray", self._protocol.get_buffer(len(view))))
            count = min(len(room), len(view))
            room[:count] = view[:count]
            self._protocol.buffer_updated(count)
            view = view[count:]

    def _resume_writing(self) -> None:
        if self._paused_writing and self._outgoing.size <= self._low:
            self._paused_writing = False
            self._protocol.resume_writing()

    def _end(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = self._closing = True
            self._incoming.on_data = self._outgoing.on_read = _nothing
            self._protocol.connection_lost(error)
