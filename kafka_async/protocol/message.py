"""Base classes of the generated messages.

A generated class has slots and a `SPEC`; `compiler.py` makes its encoder and decoder of a version
on first use. Errors of encoders and decoders become `EncodeError` and `DecodeError` in this module.
"""

from __future__ import annotations

from struct import error as StructError
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar, cast

from kafka_async.errors import DecodeError, EncodeError
from kafka_async.protocol import compiler
from kafka_async.protocol.encode_errors import diagnose
from kafka_async.protocol.spec import Array, Fixed, Sized
from kafka_async.protocol.wire import as_buffer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from kafka_async.protocol.spec import FieldType, Spec, VersionRange
    from kafka_async.protocol.wire import BytesLike, TaggedFields

__all__ = ["Message", "Request", "Response", "Struct"]

_BAD_VALUES: Final = (
    StructError,
    ValueError,
    TypeError,
    AttributeError,
    OverflowError,
    BufferError,
)

COALESCE_BELOW: Final = 4096
"""Bytes. Buffers smaller than this are cheaper to join than to write one by one."""

_SHOWN: Final = 32
"""Bytes of a bytes field that `repr` shows."""


class Struct:
    """Structure in a message, or a message: equality, `repr` and conversion to dictionaries.

    Attributes:
        unknown_tagged_fields: decoded tagged fields that are not in the schema, as (tag, payload).
            They are encoded again, so that a forwarded message is unchanged.
    """

    __slots__ = ("unknown_tagged_fields",)

    SPEC: ClassVar[Spec]
    unknown_tagged_fields: TaggedFields

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.unknown_tagged_fields == other.unknown_tagged_fields and all(
            _same(getattr(self, field.name), getattr(other, field.name))
            for field in self.SPEC.fields
        )

    def __repr__(self) -> str:
        shown = [
            f"{field.name}={'<hidden>' if field.secret else _shown(value)}"
            for field in self.SPEC.fields
            if not _same(value := getattr(self, field.name), field.default)
        ]
        if self.unknown_tagged_fields:
            shown.append(f"unknown_tagged_fields={_shown(self.unknown_tagged_fields)}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary of all fields.

        Structures become dictionaries, arrays lists, and records bytes.
        """
        out = {field.name: _plain(getattr(self, field.name)) for field in self.SPEC.fields}
        if self.unknown_tagged_fields:
            out["unknown_tagged_fields"] = list(self.unknown_tagged_fields)
        return out

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Make a value from a dictionary as `to_dict` returns it.

        Args:
            fields: values by field name; fields that are not in it have their defaults.

        Raises:
            EncodeError: there is no field of that name.
        """
        self = cls()
        types = {field.name: field.type for field in cls.SPEC.fields}
        for name, value in fields.items():
            if name == "unknown_tagged_fields":
                self.unknown_tagged_fields = tuple((tag, payload) for tag, payload in value)
            elif name in types:
                setattr(self, name, _typed(types[name], value))
            else:
                raise EncodeError(f"{cls.__name__} has no field {name!r}")
        return self


class Message(Struct):
    """Structure with versions, which can be encoded and decoded."""

    __slots__ = ()

    VERSIONS: ClassVar[VersionRange]
    FLEXIBLE_FROM: ClassVar[int | None]

    def encode(self, version: int) -> bytes:
        """Encode the message, without a header.

        Args:
            version: the version to encode.

        Raises:
            EncodeError: a value does not fit its field, or is None in a version that does not allow
                it.
            UnsupportedVersionError: the message has no such version, or a field is set that the
                version does not have and that is not ignorable.
        """
        return b"".join(self.encode_parts(version))

    def encode_parts(self, version: int) -> list[BytesLike]:
        """Encode the message as buffers to be written in order, without copying records.

        There can be many small buffers; `coalesce` joins them.

        Args:
            version: the version to encode.

        Raises:
            EncodeError: as `encode`.
            UnsupportedVersionError: as `encode`.
        """
        kind = type(self)
        encode = compiler.ENCODERS.get((kind, version)) or compiler.encoder(kind, version)
        try:
            return encode(self)
        except _BAD_VALUES as error:
            reason = diagnose(self, version) or str(error)
            raise EncodeError(f"{type(self).__name__} version {version}: {reason}") from error

    @classmethod
    def decode(cls, buffer: BytesLike, version: int) -> Self:
        """Decode a message.

        Bytes and strings are copied. Records are views of `buffer`, which must not change.

        Args:
            buffer: the message, without a header.
            version: the version of the message.

        Raises:
            DecodeError: the bytes are not a valid message, or there are bytes after it.
            UnsupportedVersionError: the message has no such version.
        """
        buffer = as_buffer(buffer)
        message, end = cls.decode_from(buffer, 0, version)
        if end != len(buffer):
            rest = len(buffer) - end
            raise DecodeError(f"{cls.__name__} version {version}: {rest} bytes after the message")
        return message

    @classmethod
    def decode_from(cls, buffer: BytesLike, position: int, version: int) -> tuple[Self, int]:
        """Decode the message at `position`; return it and the position after it.

        Args:
            buffer: any bytes after the message are ignored.
            position: the first byte of the message.
            version: the version of the message.

        Raises:
            DecodeError: the bytes are not a valid message.
            UnsupportedVersionError: the message has no such version.
        """
        decode = compiler.DECODERS.get((cls, version)) or compiler.decoder(cls, version)
        try:
            return decode(buffer if type(buffer) is bytes else as_buffer(buffer), position)
        except (IndexError, StructError) as error:
            raise DecodeError(f"{cls.__name__} version {version}: the bytes end early") from error
        except UnicodeDecodeError as error:
            reason = str(error)
        except ValueError as error:
            raise DecodeError(f"{cls.__name__} version {version}: {error}") from error
        # Raised outside of the `except` block: a UnicodeDecodeError refers to the whole buffer.
        raise DecodeError(f"{cls.__name__} version {version}: {reason}")


class Response(Message):
    """Response to a request."""

    __slots__ = ()

    API_KEY: ClassVar[int]


ResponseT = TypeVar("ResponseT", bound=Response)


class Request(Message, Generic[ResponseT]):
    """Request with the class of its response."""

    __slots__ = ()

    API_KEY: ClassVar[int]
    RESPONSE: type[ResponseT]


def coalesce(parts: Sequence[BytesLike]) -> list[BytesLike]:
    """Join adjacent small buffers; large buffers are not copied."""
    if sum(map(len, parts)) < COALESCE_BELOW:
        return [b"".join(parts)] if parts else []
    out: list[BytesLike] = []
    small: list[BytesLike] = []
    for part in parts:
        if len(part) < COALESCE_BELOW:
            small.append(part)
            continue
        if small:
            out.append(b"".join(small))
            small = []
        out.append(part)
    if small:
        out.append(b"".join(small))
    return out


def _same(left: Any, right: Any) -> bool:
    """Compare two values; a list is equal to a tuple with equal items."""
    left_items, right_items = _items(left), _items(right)
    if left_items is None or right_items is None:
        return left == right
    return len(left_items) == len(right_items) and all(map(_same, left_items, right_items))


def _shown(value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        data = cast("BytesLike", value)
        head = bytes(data[:_SHOWN])
        return repr(head) if len(data) <= _SHOWN else f"<{len(data)} bytes {head!r}...>"
    items = _items(value)
    return repr(value) if items is None else f"[{', '.join(map(_shown, items))}]"


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return value.to_dict()
    if isinstance(value, bytearray | memoryview):
        data = cast("BytesLike", value)
        return bytes(data)
    items = _items(value)
    return value if items is None else [_plain(item) for item in items]


def _items(value: Any) -> Sequence[Any] | None:
    """Return `value` if it is an array, else None."""
    return cast("Sequence[Any]", value) if isinstance(value, list | tuple) else None


def _typed(kind: FieldType, value: Any) -> Any:
    if value is None or isinstance(kind, Fixed | Sized):
        return value
    if isinstance(kind, Array):
        return [_typed(kind.element, item) for item in value]
    return value if isinstance(value, kind) else kind.from_dict(value)
