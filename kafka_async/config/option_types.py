"""Types of the values that options take."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol

from kafka_async.secrets import Secret
from kafka_async.types import Headers, Token


class SerializerObject(Protocol):
    """Serializes keys or values, as the objects of `kafka_async.serde` do."""

    @property
    def serialize(self) -> Callable[..., bytes | str | None]:
        """Function of (value) or (topic, headers, value)."""
        ...


class DeserializerObject(Protocol):
    """Deserializes keys or values, as the objects of `kafka_async.serde` do."""

    @property
    def deserialize(self) -> Callable[..., Any]:
        """Function of (data) or (topic, headers, data)."""
        ...


Serializer = (
    Callable[[Any], "bytes | str | None"]
    | Callable[[str, Headers, Any], "bytes | str | None"]
    | SerializerObject
)
Deserializer = (
    Callable[[Any], Any] | Callable[[str, Headers, "bytes | None"], Any] | DeserializerObject
)
Partitioner = Callable[[str, "bytes | None", int], int]
TokenProvider = Callable[[], Awaitable[Token]]
SecretSource = Secret | Callable[[], str | Secret]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
