"""What a message is: fields, their types, and the versions that carry them.

A generated class holds one `Spec`; `compiler.py` turns it, for one version, into functions. Nothing
here encodes or decodes. Version ranges are those of Kafka's schema, left out where they cover every
version of the message:

    Field("name", STRING, until(12), ignorable=True)
    Field("topic_id", UUID, since(13), ignorable=True)
    Field("partitions", Array(PartitionData))
    Field("cluster_id", STRING, since(12), nullable=ALWAYS, default=None, tag=0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from kafka_async.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka_async.protocol.message import Struct


class VersionRange(NamedTuple):
    """Versions `min` to `max`, both included; empty where `max` is below `min`."""

    min: int
    max: int

    def contains(self, version: int) -> bool:
        """Whether `version` lies within."""
        return self.min <= version <= self.max

    def intersection(self, other: VersionRange) -> VersionRange:
        """The versions that both ranges hold; empty where there is none."""
        return VersionRange(max(self.min, other.min), min(self.max, other.max))

    @property
    def empty(self) -> bool:
        """Whether no version lies within."""
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
    """From `version` on."""
    return VersionRange(version, _LAST)


def until(version: int) -> VersionRange:
    """Up to `version`, included."""
    return VersionRange(0, version)


class Fixed:
    """A type of constant width: what `struct` calls it, its bytes, and its value when unset."""

    __slots__ = ("format", "name", "size", "zero")

    def __init__(self, name: str, format: str, size: int, zero: object) -> None:
        self.name = name
        self.format = format
        self.size = size
        self.zero = zero


class Sized:
    """A type with a length before it: string, bytes or records."""

    __slots__ = ("name", "zero")

    def __init__(self, name: str, zero: object) -> None:
        self.name = name
        self.zero = zero


class Array:
    """A sequence of one type."""

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
"""Record batches: any buffer goes in and is passed on uncopied, a view of the frame comes out."""

FieldType: TypeAlias = "Fixed | Sized | Array | type[Struct]"

_UNSET: Final[Any] = object()


class Field:
    """One field of a structure.

    Args:
        name: snake_case of Kafka's name.
        type: what it holds.
        versions: the versions that carry it.
        nullable: the versions in which it may be None.
        default: its value when unset and when a version lacks it; the type's zero if not given.
            Arrays default to empty and structures to a fresh one.
        tag: its number in the tagged section, or None when it stands in line.
        ignorable: whether a version that lacks it may drop a value that was set.
        flexible: the versions that may use the compact encoding, beside the message's own rule.
        secret: whether `repr` hides it.
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
        """What an unset field holds; a new object where that is a structure."""
        if self._default is not _UNSET:
            return self._default
        if isinstance(self.type, Array):
            return ()
        if isinstance(self.type, Fixed | Sized):
            return self.type.zero
        return self.type()


class Spec:
    """The fields of one structure, in the order of the wire."""

    __slots__ = ("fields",)

    def __init__(self, *fields: Field) -> None:
        self.fields = fields

    def carried(self, version: int) -> Iterator[Field]:
        """The fields that stand in line in `version`."""
        return (f for f in self.fields if f.tag is None and f.versions.contains(version))

    def tagged(self, version: int) -> Iterator[Field]:
        """The fields that `version` carries in the tagged section."""
        return (f for f in self.fields if f.tag is not None and f.versions.contains(version))

    def absent(self, version: int) -> Iterator[Field]:
        """The fields that `version` lacks."""
        return (f for f in self.fields if not f.versions.contains(version))
