"""What is sent, and how to tell at the other end that all of it arrived: the same in every process.

Values are cut from one block of random bytes, so they compress as badly as hashes and cost nothing
to make while the clock runs; those for cases with compression look like log lines. The checksum is
a sum, so the order of arrival does not matter.
"""

from __future__ import annotations

import random
import zlib
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

DISTINCT = 1_000
KEYS = 10_007
"""Distinct keys of the keyed cases: a prime, so that keys and values do not march in step."""
WARM_UP = b"warm-up"
"""The value that peers send before the clock starts; checks leave it out."""
_WORDS = ("GET", "POST", "/cart", "/pay", "/home", "200", "404", "user=", "session=", "ms=", "eu")


@cache
def values(size: int, *, compressible: bool = False) -> list[bytes]:
    """A thousand values of `size` bytes, always the same ones; made once, before the clock runs."""
    rng = random.Random(size)
    if not compressible:
        block = rng.randbytes(DISTINCT + size)
        return [block[i : i + size] for i in range(DISTINCT)]
    return [_line(rng, size) for _ in range(DISTINCT)]


def _line(rng: random.Random, size: int) -> bytes:
    line = ""
    while len(line) < size:
        line += f"{rng.choice(_WORDS)} {rng.randrange(10**6)} "
    return line[:size].encode()


@cache
def keys() -> list[bytes]:
    """The keys of the keyed cases, ten bytes each, always the same ones."""
    return [b"%010d" % number for number in range(KEYS)]


def expected(records: int, size: int, *, compressible: bool = False) -> int:
    """The checksum of `records` values, taken in turn."""
    sums = [zlib.crc32(value) for value in values(size, compressible=compressible)]
    rounds, rest = divmod(records, DISTINCT)
    return rounds * sum(sums) + sum(sums[:rest])


def checksum(seen: Iterable[bytes]) -> int:
    """The checksum of what arrived."""
    return sum(zlib.crc32(value) for value in seen)
