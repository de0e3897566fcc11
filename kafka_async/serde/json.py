"""Serializer and deserializer of JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


class Json:
    """Serializes and deserializes values as compact JSON in UTF-8.

    NaN and infinity raise SerializationError: JSON does not have them, and other languages cannot
    read them.

    Args:
        default: Function that converts an object that JSON cannot represent to one that it can. By
            default, such an object raises SerializationError.
    """

    def __init__(self, *, default: Callable[[Any], Any] | None = None) -> None:
        self._encode = json.JSONEncoder(
            default=default, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        ).encode

    def serialize(self, value: Any) -> str:
        """Return the value as JSON."""
        return self._encode(value)

    def deserialize(self, data: bytes) -> Any:
        """Return the value of the JSON."""
        return json.loads(data)
