"""Serializer and deserializer of pydantic models and other types that pydantic validates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kafka_async.foundation.arguments import missing_extra

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")


class Pydantic(Generic[T]):
    """Serializes and deserializes a pydantic type as JSON, under its aliases.

    Both directions validate: a value that does not fit `model` raises SerializationError when it is
    sent, and bytes that do not fit raise RecordDeserializationError when they are read.

    Args:
        model: A BaseModel, or any type that pydantic's TypeAdapter takes.

    Raises:
        ImportError: pydantic is not installed; the extra `pydantic` installs it.
    """

    def __init__(self, model: type[T]) -> None:
        try:
            from pydantic import TypeAdapter
        except ImportError as error:
            raise ImportError(missing_extra("serde.Pydantic", "pydantic")) from error
        self._adapter: TypeAdapter[Any] = TypeAdapter(model)

    def serialize(self, value: T) -> bytes:
        """Return the value as JSON."""
        return self._adapter.dump_json(self._adapter.validate_python(value), by_alias=True)

    def deserialize(self, data: bytes) -> T:
        """Return the validated value of the JSON."""
        return self._adapter.validate_json(data)
