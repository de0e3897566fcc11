"""Operations at a steady rate, in a thread that may block."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def delay(start: float, rate: float, now: Callable[[], float] = time.time) -> float:
    """Seconds until the first turn: until `start`, or the next turn of who is late.

    Args:
        start: of all turns, in seconds since the epoch, which all processes count alike; 0 is now.
        rate: turns a second.
        now: seconds since the epoch.
    """
    left = start - now() if start else 0.0
    return left if left >= 0 else left % (1 / rate)


def paced(
    records: int,
    rate: float,
    now: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
    start: float = 0.0,
) -> Iterator[int]:
    """Numbers from 0, each not before its turn; a rate of 0 is one after the other.

    The turns are counted from the first, so a late one does not move those after it. With a `start`
    the first is due then (`delay`).
    """
    begin = now() + delay(start, rate)
    for number in range(records):
        if rate and (wait := begin + number / rate - now()) > 0:
            sleep(wait)
        yield number
