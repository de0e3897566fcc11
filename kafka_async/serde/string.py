"""Serializer and deserializer of text."""

from __future__ import annotations


class String:
    """Serializes and deserializes str, as Java's StringSerializer does.

    Args:
        encoding: Name of a Python codec, by default utf-8.

    Raises:
        LookupError: The codec does not exist.
    """

    def __init__(self, encoding: str = "utf-8") -> None:
        "".encode(encoding)  # an unknown codec raises LookupError here
        self._encoding = encoding

    def serialize(self, value: str) -> bytes:
        """Return the text as bytes."""
        if not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"serde.String takes str, not {type(value).__name__}: {value!r:.60}")
        return value.encode(self._encoding)

    def deserialize(self, data: bytes) -> str:
        """Return the bytes as text."""
        return str(data, self._encoding)
