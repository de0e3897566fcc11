"""Paces the operations of asyncio peers, and measures their duration."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks.peers.paced import delay

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from benchmarks.peers.task import Task


async def paced(values: Iterable[bytes], rate: float, start: float = 0.0) -> AsyncIterator[bytes]:
    """Yield values at a rate per second, or without delay if it is 0.

    With a `start`, in seconds since the epoch, the first is yielded then (see `delay`).
    """
    begin = perf_counter() + delay(start, rate)
    for number, value in enumerate(values):
        # uvloop's timers have millisecond resolution and may fire early.
        while rate and (wait := begin + number / rate - perf_counter()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(wait)
        yield value


async def round_trips(
    send: Callable[[bytes], Awaitable[object]], values: Iterable[bytes], task: Task
) -> list[float]:
    """Return the seconds of each `await send(value)`, one after the other, at the task's rate."""
    durations: list[float] = []
    async for value in paced(values, task.rate, task.start):
        begun = perf_counter()
        await send(value)
        durations.append(perf_counter() - begun)
    return durations
