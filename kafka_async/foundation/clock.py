"""Protocols for clocks and for opening connections, which tests replace.

Code that waits uses the timers of the running event loop, so a loop with virtual time controls all
waits. This module adds the wall clock (a record's CreateTime) and the `Dialer` protocol.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    import ssl as ssl_module
    from collections.abc import Callable

P = TypeVar("P", bound=asyncio.BaseProtocol)


class Clock(Protocol):
    """A monotonic clock and a wall clock."""

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary start; the value never decreases."""
        ...

    def wall(self) -> float:
        """Return the seconds since the epoch."""
        ...


class LoopClock:
    """The event loop's clock, and a wall clock that advances with it under virtual time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._offset = time.time() - loop.time()
        if not keeps_virtual_time(loop):
            self.wall = time.time

    def monotonic(self) -> float:
        """Return `loop.time()`."""
        return self._loop.time()

    def wall(self) -> float:
        """Return the seconds since the epoch, advanced by the loop's clock."""
        return self._loop.time() + self._offset


def keeps_virtual_time(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether a loop has virtual time: a true `virtual_time` attribute."""
    return bool(getattr(loop, "virtual_time", False))


def time_function(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """Return a function for the loop's time that is fast and advances within an iteration.

    The loops of asyncio and uvloop use `time.monotonic`, but uvloop's `time()` is the start of the
    event loop iteration: it does not advance for a caller that never yields to the loop.
    """
    return loop.time if keeps_virtual_time(loop) else time.monotonic


class Dialer(Protocol):
    """Opens connections, with the interface of `loop.create_connection`."""

    async def dial(
        self,
        protocol_factory: Callable[[], P],
        host: str,
        port: int,
        *,
        ssl: ssl_module.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.Transport, P]:
        """Connect; return the transport and the protocol. Raises OSError if that fails."""
        ...
