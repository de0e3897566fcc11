"""Turns a message's spec, for one version, into the table that the compiled codec walks.

What the table says is what `encoder_source.py` and `decoder_source.py` write into functions; see
`kernel/_ccodec.pyx` for what is done with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from kafka_async.protocol.codec_source import smallest
from kafka_async.protocol.memory_cost import element_cost
from kafka_async.protocol.spec import BYTES, RECORDS, STRING, UUID, Array, Fixed, Sized

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.protocol.message import Message, Struct
    from kafka_async.protocol.spec import Field, FieldType
    from kafka_async.protocol.wire import BytesLike

    Rows: TypeAlias = "list[Row]"
    MakeLayout: TypeAlias = "Callable[[type[Struct], Rows, Rows, Rows, Rows, bool], Layout]"

_SIZED: Final = {STRING: "s", BYTES: "y", RECORDS: "r"}


class Layout(Protocol):
    """What the compiled codec makes of a structure's rows; see its `Layout`."""

    def decode(self, source: BytesLike, position: int) -> tuple[Any, int]:
        """The structure at a position, and the position after it."""
        ...

    def encode(self, value: Any) -> list[BytesLike]:
        """The parts of the structure."""
        ...


class Row(NamedTuple):
    """One field as the compiled codec wants to know it.

    Attributes:
        name: the slot.
        kind: what it holds: `struct`'s letter, or one of u (uuid), s (string), y (bytes),
            r (records), a (array), m (structure).
        element: the kind of an array's elements, empty for anything else.
        compact: whether its length, and that of its elements, is a varint.
        nullable: whether it may be None.
        droppable: whether a version that lacks it may drop what was set.
        tag: its number in the tagged section, -1 if it stands in line.
        least: the bytes that an array's element takes at least.
        cost: the bytes of memory that it takes; see `memory_cost.py`.
        default: what it holds when unset.
        fresh: whether that is a new structure each time.
        inner: the layout of a structure, or of an array's elements.
    """

    name: str
    kind: str
    element: str
    compact: bool
    nullable: bool
    ignorable: bool
    tag: int
    least: int
    cost: int
    default: Any
    fresh: bool
    inner: Layout | None


class _Layouts:
    """Makes the layouts of one message in one version; a structure used twice has one."""

    def __init__(self, layout: MakeLayout, version: int, flexible: bool) -> None:
        self.layout = layout
        self.version = version
        self.flexible = flexible
        self.made: dict[type[Struct], Layout] = {}

    def of(self, struct: type[Struct]) -> Layout:
        """The layout of a structure."""
        found = self.made.get(struct)
        if found is None:
            found = self.made[struct] = self._make(struct)
        return found

    def _make(self, struct: type[Struct]) -> Layout:
        spec, version = struct.SPEC, self.version
        rows = {field.name: self._row(field) for field in spec.fields}
        line = [rows[field.name] for field in spec.carried(version)]
        tagged = [rows[field.name] for field in spec.tagged(version)]
        absent = [rows[field.name] for field in spec.absent(version)]
        tagged.sort(key=lambda row: row.tag)
        return self.layout(struct, list(rows.values()), line, tagged, absent, self.flexible)

    def _row(self, field: Field) -> Row:
        kind, inner = field.type, None
        element = kind.element if isinstance(kind, Array) else None
        struct = kind if element is None else element
        if isinstance(struct, type):
            inner = self.of(struct)
        default = field.default
        return Row(
            field.name,
            _letter(kind),
            "" if element is None else _letter(element),
            self.flexible and field.flexible.contains(self.version),
            field.nullable.contains(self.version),
            field.ignorable,
            -1 if field.tag is None else field.tag,
            0 if element is None else smallest(element, self.version, self.flexible),
            0 if element is None else element_cost(element, self.version),
            default,
            isinstance(kind, type) and default is not None,
            inner,
        )


def layout_of(layout: MakeLayout, message: type[Message], version: int) -> Layout:
    """The table for a message in a version that it has, made by the class `layout`."""
    flexible = message.FLEXIBLE_FROM is not None and version >= message.FLEXIBLE_FROM
    return _Layouts(layout, version, flexible).of(message)


def _letter(kind: FieldType) -> str:
    if isinstance(kind, Fixed):
        return "u" if kind is UUID else kind.format
    if isinstance(kind, Sized):
        return _SIZED[kind]
    return "a" if isinstance(kind, Array) else "m"
