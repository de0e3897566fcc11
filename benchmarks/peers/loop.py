"""The event loop of asyncio clients, and the time of its longest iteration."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


def name() -> str:
    """Return the name of the event loop: uvloop if it is installed."""
    try:
        import uvloop
    except ImportError:
        return "asyncio"
    return uvloop.__name__


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, and return its result."""
    if name() == "asyncio":
        return asyncio.run(work)
    import uvloop

    return uvloop.run(work)


class IterationTimer:
    """Measures the longest event loop iteration in a block, in CPU milliseconds of the thread."""

    longest = 0.0

    async def __aenter__(self) -> IterationTimer:
        self._task = asyncio.ensure_future(self._measure())
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0)  # include the last iteration
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _measure(self) -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest = max(self.longest, (now - last) * 1000)
            last = now
