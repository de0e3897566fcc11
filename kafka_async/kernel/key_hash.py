"""The hash that partitions keyed records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.kernel.shared import to_bytes

if TYPE_CHECKING:
    from typing_extensions import Buffer

_MASK32: Final = 0xFFFF_FFFF


def murmur2(key: Buffer) -> int:
    """Return the signed 32-bit murmur2 hash of a key, as in Java's default partitioner."""
    data = to_bytes(key)
    length = len(data)
    state = (0x9747B28C ^ length) & _MASK32
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * 0x5BD1E995 & _MASK32
        word = (word ^ word >> 24) * 0x5BD1E995 & _MASK32
        state = (state * 0x5BD1E995 & _MASK32) ^ word
    if whole < length:
        state = (state ^ int.from_bytes(data[whole:], "little")) * 0x5BD1E995 & _MASK32
    state = (state ^ state >> 13) * 0x5BD1E995 & _MASK32
    state ^= state >> 15
    return state - (1 << 32) if state >> 31 else state
