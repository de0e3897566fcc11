"""Makes the table from which the compiled codec encodes and decodes a message in a version.

The table describes the same codec as the functions of `encoder_source.py` and `decoder_source.py`;
`kernel/_ccodec.pyx` interprets it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from kafka_async.protocol.codec_source import min_size
from kafka_async.protocol.memory_cost import element_cost
from kafka_async.protocol.spec import BYTES, RECORDS, STRING, UUID, Array, Fixed, Sized

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.protocol.spec import Field, FieldType, Struct, VersionedStruct
    from kafka_async.protocol.wire import BytesLike

    Rows: TypeAlias = "list[Row]"
    MakeLayout: TypeAlias = "Callable[[type[Struct], Rows, Rows, Rows, Rows, bool], Layout]"

_SIZED: Final = {STRING: "s", BYTES: "y", RECORDS: "r"}


class Layout(Protocol):
    """Codec of one structure, made by the compiled codec's `Layout` from the structure's rows."""

    def decode(self, source: BytesLike, position: int) -> tuple[Any, int]:
        """Decode the structure at a position; return it and the position after it."""
        ...

    def encode(self, value: Any) -> list[BytesLike]:
        """Encode a structure as a list of buffers."""
        ...


class Row(NamedTuple):
    """One field in the table of the compiled codec.

    Attributes:
        name: the slot.
        kind: the type: a format character of `struct`, or u (uuid), s (string), y (bytes),
            r (records), a (array) or m (structure).
        element: the type of an array's elements, empty for other fields.
        compact: the length of the field, and of an array's elements, is a varint.
        ignorable: a version that does not have the field encodes the message even if it is set.
        tag: the number of a tagged field, -1 for an untagged field.
        min_size: the minimum size of an array's element, in bytes.
        cost: the memory of an array's element, in bytes; see `memory_cost.py`.
        new_default: the default is a new structure for each message.
        inner: the layout of a structure, or of an array's elements.
    """

    name: str
    kind: str
    element: str
    compact: bool
    nullable: bool
    ignorable: bool
    tag: int
    min_size: int
    cost: int
    default: Any
    new_default: bool
    inner: Layout | None


class _Layouts:
    """Makes the layouts of a message in a version, one per structure class."""

    def __init__(self, layout: MakeLayout, version: int, flexible: bool) -> None:
        self.layout = layout
        self.version = version
        self.flexible = flexible
        self.layouts: dict[type[Struct], Layout] = {}

    def of(self, struct: type[Struct]) -> Layout:
        """Return the layout of a structure."""
        found = self.layouts.get(struct)
        if found is None:
            found = self.layouts[struct] = self._make(struct)
        return found

    def _make(self, struct: type[Struct]) -> Layout:
        spec, version = struct.SPEC, self.version
        rows = {field.name: self._row(field) for field in spec.fields}
        untagged = [rows[field.name] for field in spec.untagged_fields(version)]
        tagged = [rows[field.name] for field in spec.tagged_fields(version)]
        absent = [rows[field.name] for field in spec.absent_fields(version)]
        tagged.sort(key=lambda row: row.tag)
        return self.layout(struct, list(rows.values()), untagged, tagged, absent, self.flexible)

    def _row(self, field: Field) -> Row:
        kind, inner = field.type, None
        element = kind.element if isinstance(kind, Array) else None
        struct = kind if element is None else element
        if isinstance(struct, type):
            inner = self.of(struct)
        default = field.default
        return Row(
            field.name,
            _type_code(kind),
            "" if element is None else _type_code(element),
            self.flexible and field.flexible.contains(self.version),
            field.nullable.contains(self.version),
            field.ignorable,
            -1 if field.tag is None else field.tag,
            0 if element is None else min_size(element, self.version, self.flexible),
            0 if element is None else element_cost(element, self.version),
            default,
            isinstance(kind, type) and default is not None,
            inner,
        )


def layout_of(layout: MakeLayout, message: type[VersionedStruct], version: int) -> Layout:
    """Return the layout of a message in one of its versions, made by the class `layout`."""
    flexible = message.FLEXIBLE_FROM is not None and version >= message.FLEXIBLE_FROM
    return _Layouts(layout, version, flexible).of(message)


def _type_code(kind: FieldType) -> str:
    if isinstance(kind, Fixed):
        return "u" if kind is UUID else kind.format
    if isinstance(kind, Sized):
        return _SIZED[kind]
    return "a" if isinstance(kind, Array) else "m"
