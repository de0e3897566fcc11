"""Turns the bytes of an input into arguments; any bytes are valid."""

from __future__ import annotations

import struct

_SIZES = {1: "<b", 2: "<h", 4: "<i", 8: "<q"}


class InputReader:
    """Reads an input from its start; after its end come zeros and empty strings."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    @property
    def left(self) -> int:
        """Bytes that were not read yet."""
        return max(0, len(self._data) - self._at)

    def byte(self) -> int:
        """Read a number of 0 to 255."""
        at = self._at
        self._at += 1
        return self._data[at] if at < len(self._data) else 0

    def number(self, size: int) -> int:
        """Read a signed number of 1, 2, 4 or 8 bytes."""
        return int(struct.unpack(_SIZES[size], self.take(size).ljust(size, b"\0"))[0])

    def take(self, size: int) -> bytes:
        """Read the next `size` bytes, fewer at the end."""
        begin = self._at
        self._at += size
        return self._data[begin : self._at]

    def field(self) -> bytes | None:
        """Read a key or a value: null, short, or up to 64 KiB."""
        size = self.byte()
        if size == 255:
            return None
        if size == 254:
            return self.take(self.number(2) & 0xFFFF)
        if size == 253:  # a long field from a short input
            return self.take(8) * (self.number(2) & 0xFFF)
        return self.take(size)
