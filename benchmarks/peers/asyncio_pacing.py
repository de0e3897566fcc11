"""Operations at a given rate, and how long each took: the same for every asyncio peer."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable


async def paced(values: Iterable[bytes], rate: float) -> AsyncIterator[bytes]:
    """The values, each when its time has come: `rate` a second, with 0 at once."""
    start = perf_counter()
    for number, value in enumerate(values):
        wait = start + number / rate - perf_counter() if rate else 0.0
        if wait > 0:
            await asyncio.sleep(wait)
        yield value


async def round_trips(
    send: Callable[[bytes], Awaitable[object]], values: Iterable[bytes], rate: float
) -> list[float]:
    """The seconds that each `await send(value)` took, one after the other."""
    durations: list[float] = []
    async for value in paced(values, rate):
        begun = perf_counter()
        await send(value)
        durations.append(perf_counter() - begun)
    return durations
