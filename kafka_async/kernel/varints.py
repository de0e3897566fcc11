"""Zigzag varints of 32 and 64 bits."""

from __future__ import annotations

from typing import Final

from kafka_async.kernel.shared import Corruption


class CorruptSection(Exception):
    """Signals a corruption to a caller, which adds topic, partition and offset."""

    def __init__(self, corruption: Corruption) -> None:
        super().__init__(corruption)
        self.corruption = corruption


def read_varint(data: bytes, at: int, end: int, bits: int = 32) -> tuple[int, int]:
    """Return the number at `at` and the position after it; raise CorruptSection beyond `end`."""
    if end - at >= 2:  # most varints have one byte or two
        raw = data[at]
        if raw < 0x80:
            return (raw >> 1) ^ -(raw & 1), at + 1
        if data[at + 1] < 0x80:
            raw = raw & 0x7F | data[at + 1] << 7
            return (raw >> 1) ^ -(raw & 1), at + 2
    raw = shift = 0
    while True:
        if at >= end:
            raise CorruptSection(Corruption.TRUNCATED)
        byte = data[at]
        at += 1
        if shift + 7 > bits and byte >> (bits - shift):
            raise CorruptSection(Corruption.VARINT)
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7


def encode_varint(value: int) -> bytes:
    """Encode a number of 64 bits as a zigzag varint."""
    if 0 <= value < 0x40:  # most numbers
        return _SMALL[value << 1]
    raw = value << 1 if value >= 0 else (~value << 1) | 1
    if raw < 0x80:
        return _SMALL[raw]
    if raw < 0x4000:
        return bytes((raw & 0x7F | 0x80, raw >> 7))
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


_SMALL: Final = [bytes([raw]) for raw in range(0x80)]


class _Varints(dict[int, bytes]):
    """Encodes varints, and caches encodings of one or two bytes."""

    def __missing__(self, value: int) -> bytes:
        data = encode_varint(value)
        if len(data) <= 2:
            self[value] = data
        return data


VARINTS: Final = _Varints()
