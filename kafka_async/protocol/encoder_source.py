"""Writes the source of encoders.

An encoder takes the message and gives a list of its parts. Fixed-width fields that stand next to
one another, legacy length prefixes included, become one `pack`; what a field holds as
bytes is handed over as it is. Wrong values are left to `pack`, `encode` and `len` to refuse: the
caller finds out which field it was (diagnosis.py). The one thing tested here is a field that the
version lacks and that must not be dropped silently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.protocol.codec_source import Source
from kafka_async.protocol.spec import RECORDS, STRING, UUID, Array, Fixed, Sized

if TYPE_CHECKING:
    from kafka_async.protocol.message import Message, Struct
    from kafka_async.protocol.spec import Field, FieldType

_NULL_LEGACY: Final = {True: r'b"\xff\xff"', False: r'b"\xff\xff\xff\xff"'}
"""A legacy null by whether the field is a string."""


class EncoderSource(Source):
    """The text of `encode_X_vN(m)`."""

    VERB = "encode"
    METHOD = "pack"

    def _write(self, message: type[Message]) -> None:
        self._pending: list[tuple[str, str]] = []
        self._sink = "write"
        with self.block(f"def {self.name}(m)"):
            self.line("parts = []")
            self.line("write = parts.append")
            self._struct(message, "m")
            self._flush()
            self.line("return parts")

    def _struct(self, struct: type[Struct], value: str) -> None:
        for field in struct.SPEC.absent(self.version):
            if not field.ignorable:
                self._refuse_set(struct, field, value)
        for field in struct.SPEC.carried(self.version):
            self._field(field, f"{value}.{field.name}")
        if self.flexible:
            self._tagged(struct, value)

    def _refuse_set(self, struct: type[Struct], field: Field, value: str) -> None:
        with self.block(f"if {self._is_set(field, f'{value}.{field.name}')}"):
            fault = f"version {self.version} has no {struct.__name__}.{field.name}, but it is set"
            self.line(f"raise UnsupportedVersionError({fault!r})")

    def _is_set(self, field: Field, place: str) -> str:
        """The condition under which a field holds something else than its default."""
        if field.default is None:
            return f"{place} is not None"
        if isinstance(field.type, Array):
            return f"{place} is None or len({place})"
        if field.type is UUID:
            return f"{place} != ZERO_UUID"
        if isinstance(field.type, Fixed | Sized):
            return f"{place} != {field.default!r}"
        # A structure is unset when it is as its class makes it.
        inner = [self._is_set(each, f"{place}.{each.name}") for each in field.type.SPEC.fields]
        return " or ".join([f"{place} is None", *inner, f"{place}.unknown_tagged_fields"])

    # -- tagged section ---------------------------------------------------------------------------

    def _tagged(self, struct: type[Struct], value: str) -> None:
        self._flush()
        unknown = f"{value}.unknown_tagged_fields"
        fields = list(struct.SPEC.tagged(self.version))
        if not fields:
            self._emit(rf'write_tagged({unknown}) if {unknown} else b"\0"')
            return
        tags = self.fresh("tags")
        self.line(f"{tags} = list({unknown})")
        for field in fields:
            self._tagged_field(field, f"{value}.{field.name}", tags)
        self._emit(rf'write_tagged({tags}) if {tags} else b"\0"')

    def _tagged_field(self, field: Field, place: str, tags: str) -> None:
        part, outer = self.fresh("part"), self._sink
        with self.block(f"if {self._is_set(field, place)}"):
            self.line(f"{part} = []")
            self._sink = f"{part}.append"
            self._field(field, place)
            self._flush()
            self._sink = outer
            self.line(f'{tags}.append(({field.tag}, b"".join({part})))')

    # -- fields -----------------------------------------------------------------------------------

    def _field(self, field: Field, place: str) -> None:
        compact = self.is_compact(field)
        if isinstance(field.type, Fixed):
            self._fixed(field.type, place)
            return
        if not self.is_nullable(field):
            self._value(field.type, place, compact)
            return
        self._flush()
        held = self.fresh("v")
        self.line(f"{held} = {place}")
        with self.block(f"if {held} is None"):
            self._emit(self._null(field.type, compact))
        with self.block("else"):
            if not isinstance(field.type, Array | Sized):
                self._later("b", "1")
            self._value(field.type, held, compact)
            self._flush()

    def _null(self, kind: FieldType, compact: bool) -> str:
        if not isinstance(kind, Array | Sized):
            return r'b"\xff"'
        return r'b"\0"' if compact else _NULL_LEGACY[kind is STRING]

    def _value(self, kind: FieldType, place: str, compact: bool) -> None:
        if isinstance(kind, Fixed):
            self._fixed(kind, place)
        elif isinstance(kind, Sized):
            self._sized(kind, place, compact)
        elif isinstance(kind, Array):
            self._array(kind, place, compact)
        else:
            inner = self.fresh("s")
            self.line(f"{inner} = {place}")
            self._struct(kind, inner)

    def _fixed(self, kind: Fixed, place: str) -> None:
        self._later(kind.format, f"{place}.bytes" if kind is UUID else place)

    def _sized(self, kind: Sized, place: str, compact: bool) -> None:
        data = self.fresh("d")
        if kind is RECORDS:
            self._records(data, place, compact)
            return
        if kind is STRING:
            self.line(f"{data} = {place}.encode()")
        else:
            self.line(f"{data} = octets({place})")
        if not compact:
            self._later("h" if kind is STRING else "i", f"len({data})")
            self._flush()
            self._emit(data)
            return
        self._flush()
        if kind is STRING:
            self._emit(f"STRING_LENGTH[len({data}) + 1] + {data}")
            return
        self._emit(f"UVARINT[len({data}) + 1]")
        self._emit(data)

    def _records(self, data: str, place: str, compact: bool) -> None:
        """They may be given in several buffers, so that nobody has to join a header and records."""
        self.line(f"{data} = pieces({place})")
        size = f"sum(map(len, {data}))"
        if not compact:
            self._later("i", size)
        self._flush()
        if compact:
            self._emit(f"UVARINT[{size} + 1]")
        piece = self.fresh("p")
        with self.block(f"for {piece} in {data}"):
            self._emit(piece)

    def _array(self, kind: Array, place: str, compact: bool) -> None:
        items, element = self.fresh("a"), kind.element
        self.line(f"{items} = {place}")
        if compact:
            self._flush()
            self._emit(f"UVARINT[len({items}) + 1]")
        else:
            self._later("i", f"len({items})")
            self._flush()
        if isinstance(element, Fixed) and element is not UUID:
            self._emit(f'pack(f">{{len({items})}}{element.format}", *{items})')
            return
        item = self.fresh("e")
        with self.block(f"for {item} in {items}"):
            if isinstance(element, Fixed | Sized):
                self._value(element, item, compact)
            else:
                self._struct(element, item)
            self._flush()

    # -- runs -------------------------------------------------------------------------------------

    def _later(self, format: str, value: str) -> None:
        """Add to the run of fixed-width values; it is written by the next `_flush`."""
        self._pending.append((format, value))

    def _flush(self) -> None:
        if self._pending:
            pack = self.run("".join(format for format, _ in self._pending))
            self._emit(f"{pack}({', '.join(value for _, value in self._pending)})")
            self._pending.clear()

    def _emit(self, expression: str) -> None:
        self.line(f"{self._sink}({expression})")
