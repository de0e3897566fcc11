"""What is sent, and how to tell at the other end that all of it arrived: the same in every process.

Values are cut from one block of random bytes, so they compress as badly as hashes and cost nothing
to make while the clock runs. The checksum is a sum, so the order of arrival does not matter.
"""

from __future__ import annotations

import random
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

DISTINCT = 1_000


def values(size: int) -> list[bytes]:
    """A thousand values of `size` bytes, always the same ones."""
    block = random.Random(size).randbytes(DISTINCT + size)
    return [block[i : i + size] for i in range(DISTINCT)]


def expected(records: int, size: int) -> int:
    """The checksum of `records` values, taken in turn."""
    sums = [zlib.crc32(value) for value in values(size)]
    rounds, rest = divmod(records, DISTINCT)
    return rounds * sum(sums) + sum(sums[:rest])


def checksum(seen: Iterable[bytes]) -> int:
    """The checksum of what arrived."""
    return sum(zlib.crc32(value) for value in seen)
