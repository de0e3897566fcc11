"""Base classes of the generated messages: plain values that know how to become bytes.

A generated class is data and a `SPEC`. Encoding and decoding are functions that `compiler.py` makes
for one class and one version on first use; every complaint about bytes or values turns into one of
this package's errors here and nowhere else.
"""

from __future__ import annotations

from struct import error as StructError
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar, cast

from kafka_async.errors import DecodeError, EncodeError
from kafka_async.protocol import compiler
from kafka_async.protocol.encode_errors import diagnose
from kafka_async.protocol.spec import Array, Fixed, Sized
from kafka_async.protocol.wire import octets

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
"""Parts smaller than this are cheaper to join than to hand to the transport one by one."""

_SHOWN: Final = 32
"""Bytes of a bytes field that `repr` shows."""


class Struct:
    """A structure inside a message, or a message itself: slots, equality, repr and dictionaries.

    Attributes:
        unknown_tagged_fields: tagged fields that arrived and that the schema does not know, as
            (tag, payload). They are written again, so that a message survives being passed on.
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
        """Every field by name, structures as dictionaries, arrays as lists, records as bytes."""
        out = {field.name: _plain(getattr(self, field.name)) for field in self.SPEC.fields}
        if self.unknown_tagged_fields:
            out["unknown_tagged_fields"] = list(self.unknown_tagged_fields)
        return out

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """The value whose `to_dict` is `fields`; what is left out has its default.

        Raises:
            EncodeError: a name that is no field.
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
    """A structure that stands on its own: it has versions, and becomes bytes and comes back."""

    __slots__ = ()

    VERSIONS: ClassVar[VersionRange]
    FLEXIBLE_FROM: ClassVar[int | None]

    def encode(self, version: int) -> bytes:
        """The body in `version`, without any header.

        Raises:
            EncodeError: a value that does not fit its field, or None where the version forbids it.
            UnsupportedVersionError: the message has no such version, or a field is set that the
                version lacks and that must not be dropped.
        """
        return b"".join(self.encode_parts(version))

    def encode_parts(self, version: int) -> list[BytesLike]:
        """Like `encode`, as buffers to be written in turn; records are not copied.

        There may be many small ones: see `coalesce`.
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
        """The message that is the whole of `buffer`.

        Bytes and strings are copied out; `records` are views of `buffer`, which must not change.

        Raises:
            DecodeError: the bytes are no such message, end too early or go on after it.
            UnsupportedVersionError: the message has no such version.
        """
        buffer = octets(buffer)
        message, end = cls.decode_from(buffer, 0, version)
        if end != len(buffer):
            rest = len(buffer) - end
            raise DecodeError(f"{cls.__name__} version {version}: {rest} bytes after the message")
        return message

    @classmethod
    def decode_from(cls, buffer: BytesLike, position: int, version: int) -> tuple[Self, int]:
        """The message that begins at `position`, and where it ends; what follows is not looked at.

        Raises:
            DecodeError: the bytes are no such message or end too early.
            UnsupportedVersionError: the message has no such version.
        """
        decode = compiler.DECODERS.get((cls, version)) or compiler.decoder(cls, version)
        try:
            return decode(buffer if type(buffer) is bytes else octets(buffer), position)
        except (IndexError, StructError) as error:
            raise DecodeError(f"{cls.__name__} version {version}: the bytes end early") from error
        except UnicodeDecodeError as error:
            flaw = str(error)
        except ValueError as error:
            raise DecodeError(f"{cls.__name__} version {version}: {error}") from error
        # Not from the error, and outside of its block: that one carries the bytes themselves.
        raise DecodeError(f"{cls.__name__} version {version}: {flaw}")


class Response(Message):
    """The answer to a request."""

    __slots__ = ()

    API_KEY: ClassVar[int]


ResponseT = TypeVar("ResponseT", bound=Response)


class Request(Message, Generic[ResponseT]):
    """A request, which knows the class of its response."""

    __slots__ = ()

    API_KEY: ClassVar[int]
    RESPONSE: type[ResponseT]


def coalesce(parts: Sequence[BytesLike]) -> list[BytesLike]:
    """The same bytes in fewer buffers: runs of small ones joined, large ones left alone."""
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
    """Equality that does not care whether an array is a list or a tuple."""
    ours, theirs = _items(left), _items(right)
    if ours is None or theirs is None:
        return left == right
    return len(ours) == len(theirs) and all(map(_same, ours, theirs))


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
    """`value` if it is an array."""
    return cast("Sequence[Any]", value) if isinstance(value, list | tuple) else None


def _typed(kind: FieldType, value: Any) -> Any:
    if value is None or isinstance(kind, Fixed | Sized):
        return value
    if isinstance(kind, Array):
        return [_typed(kind.element, item) for item in value]
    return value if isinstance(value, kind) else kind.from_dict(value)
