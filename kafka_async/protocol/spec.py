"""Message schemas: structures, fields, types and versions.

Each generated class is a `Struct` with a `Spec`, from which `compiler.py` makes the encoder and the
decoder of a version. Version ranges come from Kafka's schema, and are omitted if they include every
version of the message:

    Field("name", STRING, until(12), ignorable=True)
    Field("topic_id", UUID, since(13), ignorable=True)
    Field("partitions", Array(PartitionData))
    Field("cluster_id", STRING, since(12), nullable=ALWAYS, default=None, tag=0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias, cast

from kafka_async.errors import EncodeError
from kafka_async.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Self

    from kafka_async.protocol.wire import BytesLike, TaggedFields


class VersionRange(NamedTuple):
    """Versions `min` to `max`, both included; empty if `max` is less than `min`."""

    min: int
    max: int

    def contains(self, version: int) -> bool:
        """Return True if the range includes `version`."""
        return self.min <= version <= self.max

    def intersection(self, other: VersionRange) -> VersionRange:
        """Return the versions that both ranges include; the result may be empty."""
        return VersionRange(max(self.min, other.min), min(self.max, other.max))

    @property
    def empty(self) -> bool:
        """True if the range includes no version."""
        return self.max < self.min

    def __str__(self) -> str:
        if self.empty:
            return "none"
        return str(self.min) if self.min == self.max else f"{self.min}-{self.max}"


_LAST: Final = 0x7FFF

ALWAYS: Final = VersionRange(0, _LAST)
"""Every version."""

NEVER: Final = VersionRange(0, -1)
"""No version."""


def since(version: int) -> VersionRange:
    """Return the range of `version` and all later versions."""
    return VersionRange(version, _LAST)


def until(version: int) -> VersionRange:
    """Return the range of all versions up to `version`, included."""
    return VersionRange(0, version)


class Fixed:
    """Type of constant width; `zero` is a field's default.

    `format` is the format character of the `struct` module, `size` the number of bytes.
    """

    __slots__ = ("format", "name", "size", "zero")

    def __init__(self, name: str, format: str, size: int, zero: object) -> None:
        self.name = name
        self.format = format
        self.size = size
        self.zero = zero


class Sized:
    """Type with a length prefix: string, bytes or records; `zero` is a field's default."""

    __slots__ = ("name", "zero")

    def __init__(self, name: str, zero: object) -> None:
        self.name = name
        self.zero = zero


class Array:
    """Sequence of elements of one type."""

    __slots__ = ("element",)

    def __init__(self, element: Fixed | Sized | type[Struct]) -> None:
        self.element = element


BOOL: Final = Fixed("bool", "?", 1, False)
INT8: Final = Fixed("int8", "b", 1, 0)
INT16: Final = Fixed("int16", "h", 2, 0)
UINT16: Final = Fixed("uint16", "H", 2, 0)
INT32: Final = Fixed("int32", "i", 4, 0)
UINT32: Final = Fixed("uint32", "I", 4, 0)
INT64: Final = Fixed("int64", "q", 8, 0)
FLOAT64: Final = Fixed("float64", "d", 8, 0.0)
UUID: Final = Fixed("uuid", "16s", 16, ZERO_UUID)
STRING: Final = Sized("string", "")
BYTES: Final = Sized("bytes", b"")
RECORDS: Final = Sized("records", None)
"""Record batches: encoded from any buffer without a copy, decoded as a view of the frame."""

FieldType: TypeAlias = "Fixed | Sized | Array | type[Struct]"

_UNSET: Final[Any] = object()

_SHOWN: Final = 32
"""Bytes of a bytes field that `repr` shows."""


class Field:
    """Field of a structure.

    Args:
        name: Kafka's name in snake case.
        nullable: the versions in which its value may be None.
        default: the value if the field is not set or absent from the version. Without this
            argument: the type's zero, an empty array or a new structure.
        tag: the tag number (KIP-482), None for an untagged field.
        ignorable: a set field is left out of versions that lack it; otherwise encoding raises.
        flexible: the versions in which the field may be compact, if the message's version is
            flexible.
        secret: hide the value in `repr`.
    """

    __slots__ = (
        "_default",
        "flexible",
        "ignorable",
        "name",
        "nullable",
        "secret",
        "tag",
        "type",
        "versions",
    )

    def __init__(
        self,
        name: str,
        type: FieldType,
        versions: VersionRange = ALWAYS,
        *,
        nullable: VersionRange = NEVER,
        default: Any = _UNSET,
        tag: int | None = None,
        ignorable: bool = False,
        flexible: VersionRange = ALWAYS,
        secret: bool = False,
    ) -> None:
        self.name = name
        self.type = type
        self.versions = versions
        self.nullable = nullable
        self.tag = tag
        self.ignorable = ignorable
        self.flexible = flexible
        self.secret = secret
        self._default = default

    @property
    def default(self) -> Any:
        """Value of a field that is not set; a new object if the type is a structure."""
        if self._default is not _UNSET:
            return self._default
        if isinstance(self.type, Array):
            return ()
        if isinstance(self.type, Fixed | Sized):
            return self.type.zero
        return self.type()


class Spec:
    """Fields of one structure, in the order of the wire format."""

    __slots__ = ("fields",)

    def __init__(self, *fields: Field) -> None:
        self.fields = fields

    def untagged_fields(self, version: int) -> Iterator[Field]:
        """Return the fields of `version` that are not tagged."""
        return (f for f in self.fields if f.tag is None and f.versions.contains(version))

    def tagged_fields(self, version: int) -> Iterator[Field]:
        """Return the tagged fields of `version`."""
        return (f for f in self.fields if f.tag is not None and f.versions.contains(version))

    def absent_fields(self, version: int) -> Iterator[Field]:
        """Return the fields that `version` does not have."""
        return (f for f in self.fields if not f.versions.contains(version))


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
        """Make a value from a `to_dict` dictionary; absent fields get their defaults.

        Raise EncodeError if a field does not exist.
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


class VersionedStruct(Struct):
    """Structure of a whole message, with the versions in which it can be encoded.

    Attributes:
        FLEXIBLE_FROM: the first version with tagged fields and compact lengths (KIP-482), or None.
    """

    __slots__ = ()

    VERSIONS: ClassVar[VersionRange]
    FLEXIBLE_FROM: ClassVar[int | None]


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
