"""Generates the source of encoders.

An encoder takes a message and returns a list of buffers. Adjacent fixed-width fields, including
legacy length prefixes, become one `pack`; buffers are passed on without a copy. An encoder does not
validate values, since `pack`, `encode` and `len` raise on invalid ones; the caller then finds the
field (`encode_errors.py`). It only checks that no field is set that is absent from the version and
not ignorable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.protocol.codec_source import Source
from kafka_async.protocol.spec import RECORDS, STRING, UUID, Array, Fixed, Sized

if TYPE_CHECKING:
    from kafka_async.protocol.spec import Field, FieldType, Struct, VersionedStruct

_NULL_LEGACY: Final = {True: r'b"\xff\xff"', False: r'b"\xff\xff\xff\xff"'}
"""Null in the legacy encoding, by whether the type is a string."""


class EncoderSource(Source):
    """Generates `encode_X_vN(m)`."""

    VERB = "encode"
    METHOD = "pack"

    def _write(self, message: type[VersionedStruct]) -> None:
        self._run: list[tuple[str, str]] = []
        self._sink = "write"
        with self.block(f"def {self.name}(m)"):
            self.line("parts = []")
            self.line("write = parts.append")
            self._struct(message, "m")
            self._flush()
            self.line("return parts")

    def _struct(self, struct: type[Struct], value: str) -> None:
        for field in struct.SPEC.absent_fields(self.version):
            if not field.ignorable:
                self._check_not_set(struct, field, value)
        for field in struct.SPEC.untagged_fields(self.version):
            self._field(field, f"{value}.{field.name}")
        if self.flexible:
            self._tagged(struct, value)

    def _check_not_set(self, struct: type[Struct], field: Field, value: str) -> None:
        with self.block(f"if {self._is_set(field, f'{value}.{field.name}')}"):
            reason = f"version {self.version} has no {struct.__name__}.{field.name}, but it is set"
            self.line(f"raise UnsupportedVersionError({reason!r})")

    def _is_set(self, field: Field, place: str) -> str:
        """Return the condition under which a field does not have its default value."""
        if field.default is None:
            return f"{place} is not None"
        if isinstance(field.type, Array):
            return f"{place} is None or len({place})"
        if field.type is UUID:
            return f"{place} != ZERO_UUID"
        if isinstance(field.type, Fixed | Sized):
            return f"{place} != {field.default!r}"
        # A structure has its default value if all its fields have theirs.
        inner = [self._is_set(each, f"{place}.{each.name}") for each in field.type.SPEC.fields]
        return " or ".join([f"{place} is None", *inner, f"{place}.unknown_tagged_fields"])

    # -- tagged section ---------------------------------------------------------------------------

    def _tagged(self, struct: type[Struct], value: str) -> None:
        self._flush()
        unknown = f"{value}.unknown_tagged_fields"
        fields = list(struct.SPEC.tagged_fields(self.version))
        if not fields:
            self._emit(rf'write_tagged({unknown}) if {unknown} else b"\0"')
            return
        tags = self.new_name("tags")
        self.line(f"{tags} = list({unknown})")
        for field in fields:
            self._tagged_field(field, f"{value}.{field.name}", tags)
        self._emit(rf'write_tagged({tags}) if {tags} else b"\0"')

    def _tagged_field(self, field: Field, place: str, tags: str) -> None:
        part, outer = self.new_name("part"), self._sink
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
        item = self.new_name("v")
        self.line(f"{item} = {place}")
        with self.block(f"if {item} is None"):
            self._emit(self._null(field.type, compact))
        with self.block("else"):
            if not isinstance(field.type, Array | Sized):
                self._add_to_run("b", "1")
            self._value(field.type, item, compact)
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
            inner = self.new_name("s")
            self.line(f"{inner} = {place}")
            self._struct(kind, inner)

    def _fixed(self, kind: Fixed, place: str) -> None:
        self._add_to_run(kind.format, f"{place}.bytes" if kind is UUID else place)

    def _sized(self, kind: Sized, place: str, compact: bool) -> None:
        data = self.new_name("d")
        if kind is RECORDS:
            self._records(data, place, compact)
            return
        if kind is STRING:
            self.line(f"{data} = {place}.encode()")
        else:
            self.line(f"{data} = as_buffer({place})")
        if not compact:
            self._add_to_run("h" if kind is STRING else "i", f"len({data})")
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
        """Generate the encoding of records, which may be a tuple of buffers."""
        self.line(f"{data} = as_buffers({place})")
        size = f"sum(map(len, {data}))"
        if not compact:
            self._add_to_run("i", size)
        self._flush()
        if compact:
            self._emit(f"UVARINT[{size} + 1]")
        part = self.new_name("p")
        with self.block(f"for {part} in {data}"):
            self._emit(part)

    def _array(self, kind: Array, place: str, compact: bool) -> None:
        items, element = self.new_name("a"), kind.element
        self.line(f"{items} = {place}")
        if compact:
            self._flush()
            self._emit(f"UVARINT[len({items}) + 1]")
        else:
            self._add_to_run("i", f"len({items})")
            self._flush()
        if isinstance(element, Fixed) and element is not UUID:
            self._emit(f'pack(f">{{len({items})}}{element.format}", *{items})')
            return
        item = self.new_name("e")
        with self.block(f"for {item} in {items}"):
            if isinstance(element, Fixed | Sized):
                self._value(element, item, compact)
            else:
                self._struct(element, item)
            self._flush()

    # -- runs -------------------------------------------------------------------------------------

    def _add_to_run(self, format: str, value: str) -> None:
        """Add a fixed-width value to the run that the next `_flush` packs."""
        self._run.append((format, value))

    def _flush(self) -> None:
        if self._run:
            pack = self.struct_method("".join(format for format, _ in self._run))
            self._emit(f"{pack}({', '.join(value for _, value in self._run)})")
            self._run.clear()

    def _emit(self, expression: str) -> None:
        self.line(f"{self._sink}({expression})")
