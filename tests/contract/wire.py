"""Connections that carry raw frames, over sockets or in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from kafka_async.clock import MemoryNetwork

Dial: TypeAlias = "Callable[[str, int], Awaitable[Wire]]"

RESPONSE_TIMEOUT = 15.0
"""Seconds to wait for a response before the run fails."""


class Wire(asyncio.Protocol):
    """Represents a connection; responses are frames without sizes, None after it is closed."""

    def __init__(self) -> None:
        self._frames: dict[int, asyncio.Future[bytes | None]] = {}
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._last = 0
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            size = int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < 4 + size:
                return
            frame = bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
            waiter = self._frames.pop(int.from_bytes(frame[:4], "big"), None)
            if waiter is not None and not waiter.done():
                waiter.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        for waiter in self._frames.values():
            if not waiter.done():
                waiter.set_result(None)

    def next_id(self) -> int:
        """Return the correlation id of the next request."""
        self._last += 1
        return self._last

    def send(self, correlation_id: int, data: bytes) -> asyncio.Future[bytes | None]:
        """Write a whole frame; the future is its response."""
        waiter: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._frames[correlation_id] = waiter
        if self.closed or self._transport is None:
            waiter.set_result(None)
        else:
            self._transport.write(data)
        return waiter

    def drop(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.abort()


async def dial_socket(host: str, port: int) -> Wire:
    """Connect to a broker's port."""
    loop = asyncio.get_running_loop()
    return (await loop.create_connection(Wire, host, port))[1]


def dial_memory(network: MemoryNetwork) -> Dial:
    """Return a function that connects to brokers in memory."""

    async def dial(host: str, port: int) -> Wire:
        return (await network.dial(Wire, host, port))[1]

    return dial
