"""Serializer and deserializer of integers."""

from __future__ import annotations

from typing import Final

JAVA: Final = {32: "IntegerSerializer", 64: "LongSerializer"}


class Integer:
    """Serializes and deserializes int as a signed, big-endian number of fixed size.

    Args:
        bits: 32, as Java's IntegerSerializer, or 64, as its LongSerializer.

    Raises:
        ValueError: `bits` is another number.
    """

    def __init__(self, bits: int = 32) -> None:
        if bits not in JAVA:
            raise ValueError(
                f"bits is 32 (Java's IntegerSerializer) or 64 (LongSerializer), not {bits!r}"
            )
        self._size = bits // 8
        self._bits = bits

    def serialize(self, value: int) -> bytes:
        """Return the number as bytes."""
        if isinstance(value, bool) or not isinstance(value, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"serde.Integer takes int, not {type(value).__name__}: {value!r:.60}")
        try:
            return value.to_bytes(self._size, "big", signed=True)
        except OverflowError:
            cure = ": take serde.Integer(bits=64)" if self._bits == 32 else ""
            raise ValueError(f"{value} does not fit in {self._bits} bits{cure}") from None

    def deserialize(self, data: bytes) -> int:
        """Return the number that the bytes encode."""
        if len(data) != self._size:
            other = JAVA.get(len(data) * 8)
            cure = "" if other is None else f": {other} wrote them, take bits={len(data) * 8}"
            raise ValueError(f"{len(data)} bytes are no number of {self._bits} bits{cure}")
        return int.from_bytes(data, "big", signed=True)
