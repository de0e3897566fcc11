"""Where time and connections come from: the Clock and Dialer protocols, and connections in memory.

Code that waits uses the running loop's own timers, so a loop that keeps virtual time moves
everything. What this file adds is the wall clock (a record's CreateTime), a dialer that can be
swapped, and `MemoryNetwork`, which joins asyncio protocols of one loop without sockets.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

if TYPE_CHECKING:
    import ssl as ssl_module
    from collections.abc import Callable

P = TypeVar("P", bound=asyncio.BaseProtocol)


class Clock(Protocol):
    """Two clocks: one that only goes forward, one that people read."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        ...

    def wall(self) -> float:
        """Seconds since the epoch."""
        ...


class SystemClock:
    """The machine's clocks; usable in any thread."""

    def monotonic(self) -> float:
        """Seconds of `time.monotonic`."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds of `time.time`."""
        return time.time()


class LoopClock:
    """The running loop's clock; the wall clock keeps step with it, so virtual time moves both."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._offset = time.time() - loop.time()
        if not keeps_virtual_time(loop):
            self.wall = time.time

    def monotonic(self) -> float:
        """Seconds of `loop.time`."""
        return self._loop.time()

    def wall(self) -> float:
        """Seconds since the epoch, as far from the start as the loop's time is."""
        return self._loop.time() + self._offset


def keeps_virtual_time(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether a loop's time jumps instead of passing (it has a true `virtual_time` attribute)."""
    return bool(getattr(loop, "virtual_time", False))


def time_function(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """The loop's time as a function for hot paths, without a Python frame on a real loop.

    asyncio's loops and uvloop's all keep the time of `time.monotonic`; uvloop's `time()` is
    moreover that of the loop's last turn, which a caller that never gives up the loop would see
    stand still.
    """
    return loop.time if keeps_virtual_time(loop) else time.monotonic


class Dialer(Protocol):
    """Opens connections; the shape of `loop.create_connection`."""

    async def dial(
        self,
        protocol_factory: Callable[[], P],
        host: str,
        port: int,
        *,
        ssl: ssl_module.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.Transport, P]:
        """Connect, and return the transport and the protocol; raises OSError."""
        ...


class MemoryNetwork:
    """Addresses and connections in memory, for one event loop. It is a `Dialer`."""

    def __init__(self) -> None:
        self._listeners: dict[tuple[str, int], Callable[[], asyncio.BaseProtocol]] = {}
        self._next_port = 9092

    def listen(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int = 0
    ) -> tuple[str, int]:
        """Accept connections at an address (port 0: a free one) and return it."""
        if port == 0:
            while (host, self._next_port) in self._listeners:
                self._next_port += 1
            port = self._next_port
        if (host, port) in self._listeners:
            raise OSError(f"{host}:{port} is in use")
        self._listeners[host, port] = protocol_factory
        return host, port

    def close(self, host: str, port: int) -> None:
        """Accept no more connections at an address; those that exist stay."""
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
        """Connect to a listener; ConnectionRefusedError if there is none."""
        await asyncio.sleep(0)
        if ssl is not None:
            raise OSError("connections in memory have no TLS")
        accept = self._listeners.get((host, port))
        if accept is None:
            raise ConnectionRefusedError(f"nobody listens at {host}:{port} in memory")
        protocol = protocol_factory()
        there, back = _Pipe(), _Pipe()
        far = MemoryTransport(accept(), (host, port), (host, 0), incoming=there, outgoing=back)
        near = MemoryTransport(protocol, (host, 0), (host, port), incoming=back, outgoing=there)
        far.open()
        near.open()
        return near, protocol


class _Pipe:
    """One direction of a connection in memory: what was written and not read yet."""

    def __init__(self) -> None:
        self.chunks: deque[bytes] = deque()
        self.size = 0
        self.ended = False
        self.reset = False
        self.on_data: Callable[[], None] = _nothing
        self.on_read: Callable[[], None] = _nothing

    def put(self, data: bytes) -> None:
        """Append bytes and tell the reader's end."""
        self.chunks.append(data)
        self.size += len(data)
        self.on_data()

    def end(self, *, reset: bool = False) -> None:
        """Nothing more will come; a reset throws away what is still under way."""
        self.ended = True
        if reset:
            self.reset = True
            self.chunks.clear()
        self.on_data()

    def take(self) -> bytes:
        """The oldest bytes."""
        data = self.chunks.popleft()
        self.size -= len(data)
        return data


def _nothing() -> None:
    pass


class MemoryTransport(asyncio.Transport):
    """One end of a connection in memory: what is written here is read at the other end."""

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
        self._high, self._low = 1 << 16, 1 << 14

    def open(self) -> None:
        """Tell the protocol, and take part in both pipes."""
        self._incoming.on_data = self._schedule
        self._outgoing.on_read = self._resume_writing
        self._protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Hand bytes to the other end, which reads them at the loop's next turn."""
        if self._closing or not data:
            return
        self._outgoing.put(bytes(data))
        if self._outgoing.size > self._high and not self._paused_writing:
            self._paused_writing = True
            self._protocol.pause_writing()

    def write_eof(self) -> None:
        """Nothing more will be written."""
        self._outgoing.end()

    def can_write_eof(self) -> bool:
        """Always."""
        return True

    def close(self) -> None:
        """Close in good order: what was written before still arrives."""
        if not self._closing:
            self._closing = True
            self._outgoing.end()
            self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        """Close at once, as a reset connection: the other end loses what it has not read."""
        if not self._lost:
            self._closing = True
            self._outgoing.end(reset=True)
            self._loop.call_soon(self._lose, None)

    def is_closing(self) -> bool:
        """Whether `close` or `abort` was called, or the connection was lost."""
        return self._closing

    def pause_reading(self) -> None:
        """Keep what arrives until `resume_reading`."""
        self._reading = False

    def resume_reading(self) -> None:
        """Deliver what has arrived."""
        self._reading = True
        self._schedule()

    def is_reading(self) -> bool:
        """Whether what arrives is delivered."""
        return self._reading and not self._closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Deliver to another protocol from now on."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol that is delivered to."""
        return self._protocol

    def get_write_buffer_size(self) -> int:
        """Bytes written here that the other end has not read."""
        return self._outgoing.size

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """The low and the high mark, in bytes."""
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the marks between which the protocol is asked to pause writing."""
        self._high = 1 << 16 if high is None else high
        self._low = self._high // 4 if low is None else low

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._scheduled = False
        while self._incoming.chunks and self._reading and not self._lost:
            self._feed(self._incoming.take())
        self._incoming.on_read()
        if self._lost or not self._incoming.ended or self._incoming.chunks:
            return
        if self._incoming.reset:
            self._lose(ConnectionResetError("the peer aborted"))
        elif not cast("asyncio.Protocol", self._protocol).eof_received():
            self.close()

    def _feed(self, data: bytes) -> None:
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

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = self._closing = True
            self._incoming.on_data = self._outgoing.on_read = _nothing
            self._protocol.connection_lost(error)
