"""Arguments out of an input's bytes: whatever the bytes are, there are some."""

from __future__ import annotations

import struct

_SIZES = {1: "<b", 2: "<h", 4: "<i", 8: "<q"}


class Feed:
    """Reads an input from its front; past its end there are zeros and empty strings."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    @property
    def left(self) -> int:
        """Bytes that were not taken yet."""
        return max(0, len(self._data) - self._at)

    def byte(self) -> int:
        """A number of 0 to 255."""
        at = self._at
        self._at += 1
        return self._data[at] if at < len(self._data) else 0

    def number(self, size: int) -> int:
        """A signed number of 1, 2, 4 or 8 bytes."""
        return int(struct.unpack(_SIZES[size], self.take(size).ljust(size, b"\0"))[0])

    def take(self, size: int) -> bytes:
        """The next bytes, fewer at the end."""
        begin = self._at
        self._at += size
        return self._data[begin : self._at]

    def field(self) -> bytes | None:
        """A key or a value: null, short, or up to 64 KiB of what is left."""
        size = self.byte()
        if size == 255:
            return None
        if size == 254:
            return self.take(self.number(2) & 0xFFFF)
        if size == 253:  # long, from little input
            return self.take(8) * (self.number(2) & 0xFFF)
        return self.take(size)
