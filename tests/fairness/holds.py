"""How long the event loop is held, in CPU time of its own thread.

CPU time, not wall time, so that whoever else wants the processor does not count. Caches, clock
rates and the halves of a core are shared all the same, which may double what a try takes: so the
best of some tries has to keep the limit, and most of them twice the limit. A hold that is always
there fails the first, and a long one that is there half of the time the second. What Python's
collector takes is left out: it walks the whole application's objects.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Self

LIMIT = 5.0
"""Milliseconds for which the loop may be held (docs/design.md)."""
TRIES, LOUD = 7, 2
"""Of so many tries, so many may take as long as they like."""
NOISE = 2
"""By what a busy neighbour may multiply the CPU time that something takes."""


class Watch:
    """`async with Watch() as watch`: afterwards `longest` is the longest turn, in milliseconds."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.turns = 0
        self._collecting = self._collected = 0.0
        self._thread = threading.get_ident()

    async def __aenter__(self) -> Self:
        self._pulse = asyncio.ensure_future(self._beat())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.longest, self.turns = 0.0, 0
        gc.callbacks.append(self._on_collection)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0)  # so that the last turn counts
        gc.callbacks.remove(self._on_collection)
        self._pulse.cancel()
        await asyncio.wait({self._pulse})

    async def _beat(self) -> None:
        last = time.thread_time() - self._collected
        while True:
            await asyncio.sleep(0)
            now = time.thread_time() - self._collected
            self.longest = max(self.longest, (now - last) * 1000)
            self.turns += 1
            last = now

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._collecting = time.thread_time()
        else:
            self._collected += time.thread_time() - self._collecting


TIME_OUT, STEP = 20.0, 0.2
MOST = round((TIME_OUT + LIMIT) / STEP) + 1
"""Steps that may be done when a time-out of 20 ms has fired, be the machine as slow as it likes."""


async def steps(step: Callable[[], Awaitable[object]]) -> int:
    """Do something again and again under a time-out, which must fire; how often it was done.

    Each step takes 0.2 ms at least, as an application takes its time for each record.
    """
    done = 0
    try:
        async with asyncio.timeout(TIME_OUT / 1000):
            while done < 10 * MOST:
                await step()
                done += 1
                _spin(STEP / 1000)
    except TimeoutError:
        return done
    raise AssertionError(f"the time-out has not fired in {done} steps")


def _spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


async def longest_hold(work: Callable[[], Awaitable[object]]) -> float:
    """What the work holds the loop for, in ms: the best try, or all but LOUD without the noise.

    Each try has to be like the first: what the work makes or learns is not to serve the next one.
    """
    tries: list[float] = []
    for _ in range(TRIES):
        async with Watch() as watch:
            await work()
        tries.append(watch.longest)
        quiet = sum(longest <= LIMIT * NOISE for longest in tries)
        if quiet >= TRIES - LOUD and min(tries) <= LIMIT:
            break  # whatever the rest is
    else:
        return max(min(tries), sorted(tries)[-1 - LOUD] / NOISE)
    return min(tries)
