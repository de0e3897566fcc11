"""Yields values at a steady rate, in a blocking thread or in an event loop."""

from __future__ import annotations

import asyncio
import time
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator


def delay(start: float, rate: float, now: Callable[[], float] = time.time) -> float:
    """Return the seconds until `start`, which is the same time in all processes, or 0 for now.

    A late process starts at the next multiple of 1/rate.
    """
    remaining = start - now() if start else 0.0
    return remaining if remaining >= 0 else remaining % (1 / rate)


def paced(
    values: Iterable[bytes],
    rate: float,
    start: float = 0.0,
    now: Callable[[], float] = perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[bytes]:
    """Yield values at a rate per second, or without delay if it is 0.

    Due times are relative to the first one, so a late operation does not delay those after it. With
    a `start` the first is due then (see `delay`).
    """
    begin = now() + delay(start, rate)
    for number, value in enumerate(values):
        if rate and (wait := begin + number / rate - now()) > 0:
            sleep(wait)
        yield value


async def paced_in_loop(
    values: Iterable[bytes], rate: float, start: float = 0.0
) -> AsyncIterator[bytes]:
    """Yield values like `paced`, without blocking the event loop."""
    begin = perf_counter() + delay(start, rate)
    for number, value in enumerate(values):
        # uvloop's timers have millisecond resolution and may fire early.
        while rate and (wait := begin + number / rate - perf_counter()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(wait)
        yield value
