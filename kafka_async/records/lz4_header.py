"""Corrects the header checksum of lz4 frames, which Kafka computed wrongly in magic 0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing_extensions import Buffer

_FLAGS_AT: Final = 4  # after the frame's magic number
_FLAGS_AND_BLOCK_SIZE: Final = 2
_HAS_SIZE: Final = 0x08  # in the flags: eight bytes of content size follow
_HAS_DICTIONARY: Final = 0x01  # in the flags: four bytes of a dictionary's id follow

_MASK: Final = 0xFFFF_FFFF
_PRIMES: Final = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1


def with_correct_checksum(frame: Buffer) -> bytes:
    """Return the frame with a correct header checksum."""
    fixed = bytearray(frame)
    flags = fixed[_FLAGS_AT] if len(fixed) > _FLAGS_AT else 0
    at = _FLAGS_AT + _FLAGS_AND_BLOCK_SIZE
    at += (8 if flags & _HAS_SIZE else 0) + (4 if flags & _HAS_DICTIONARY else 0)
    if at < len(fixed):
        fixed[at] = xxh32(fixed[_FLAGS_AT:at]) >> 8 & 0xFF
    return bytes(fixed)


def xxh32(data: bytes | bytearray) -> int:
    """Return XXH32 with the seed 0 of fewer than 16 bytes; a header has at most 14."""
    state = _PRIMES[4] + len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        state = state + int.from_bytes(data[at : at + 4], "little") * _PRIMES[2] & _MASK
        state = (state << 17 | state >> 15) * _PRIMES[3] & _MASK
    for byte in data[whole:]:
        state = state + byte * _PRIMES[4] & _MASK
        state = (state << 11 | state >> 21) * _PRIMES[0] & _MASK
    state = (state ^ state >> 15) * _PRIMES[1] & _MASK
    state = (state ^ state >> 13) * _PRIMES[2] & _MASK
    return state ^ state >> 16
