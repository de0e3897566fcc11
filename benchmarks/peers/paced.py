"""Paces operations at a steady rate in a blocking thread."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def delay(start: float, rate: float, now: Callable[[], float] = time.time) -> float:
    """Return the seconds until the first operation: at `start`, or at the next multiple of 1/rate.

    Args:
        start: the time of the first operation in seconds since the epoch, which is the same in all
            processes; 0 for now.
        rate: operations per second.
        now: returns the time in seconds since the epoch.
    """
    remaining = start - now() if start else 0.0
    return remaining if remaining >= 0 else remaining % (1 / rate)


def paced(
    records: int,
    rate: float,
    now: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
    start: float = 0.0,
) -> Iterator[int]:
    """Yield numbers from 0 at a rate per second, or without delay if it is 0.

    Due times are relative to the first one, so a late operation does not delay those after it. With
    a `start` the first is due then (see `delay`).
    """
    begin = now() + delay(start, rate)
    for number in range(records):
        if rate and (wait := begin + number / rate - now()) > 0:
            sleep(wait)
        yield number
