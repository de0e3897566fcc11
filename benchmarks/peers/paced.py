"""Operations at a steady rate, in a thread that may block."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def paced(
    records: int,
    rate: float,
    now: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[int]:
    """Numbers from 0, each not before its turn; a rate of 0 is one after the other.

    The turns are counted from the first, so a late one does not move those after it.
    """
    begin = now()
    for number in range(records):
        if rate and (wait := begin + number / rate - now()) > 0:
            sleep(wait)
        yield number
