"""JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


class Json:
    """Serializes and deserializes values as compact JSON in UTF-8.

    NaN and infinity are refused: they are no JSON, and other languages cannot read them.

    Args:
        default: Called with an object that JSON has no form for; returns one that it has. Without
            it such an object raises SerializationError.
    """

    def __init__(self, *, default: Callable[[Any], Any] | None = None) -> None:
        self._encode = json.JSONEncoder(
            default=default, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        ).encode

    def serialize(self, value: Any) -> str:
        """Return the value as JSON."""
        return self._encode(value)

    def deserialize(self, data: bytes) -> Any:
        """Return what the JSON says."""
        return json.loads(data)
