"""Values, keys, topic names and checksums of the benchmark, the same in every process.

Values are slices of one random block, so they do not compress; values for cases with compression
are similar to log lines. The checksum is a sum, so it does not depend on the order of records.
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
"""Number of keys: a prime, so that each key occurs with different values."""
WARM_UP = b"warm-up"
"""Value that peers send before the measurement; checks ignore it."""
_WORDS = ("GET", "POST", "/cart", "/pay", "/home", "200", "404", "user=", "session=", "ms=", "eu")


class WrongResultError(RuntimeError):
    """A client lost, duplicated or changed records, or computed a wrong result."""


@cache
def values(size: int, *, compressible: bool = False) -> list[bytes]:
    """Return 1,000 values of `size` bytes, always the same ones."""
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
    """Return the keys of keyed cases, ten bytes each, always the same ones."""
    return [b"%010d" % number for number in range(KEYS)]


def topic_names(topic: str, count: int) -> list[str]:
    """Return the topic itself, or the names of several topics that begin with it."""
    return [topic] if count == 1 else [f"{topic}-{number:05}" for number in range(count)]


def expected(records: int, size: int, *, compressible: bool = False) -> int:
    """Return the checksum of `records` values in cyclic order."""
    sums = [zlib.crc32(value) for value in values(size, compressible=compressible)]
    rounds, rest = divmod(records, DISTINCT)
    return rounds * sum(sums) + sum(sums[:rest])


def checksum(seen: Iterable[bytes]) -> int:
    """Return the checksum of received values."""
    return sum(zlib.crc32(value) for value in seen)
