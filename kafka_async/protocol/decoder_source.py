"""Generates the source of decoders.

A decoder takes a buffer and a position, and returns the message and the position after it. It
creates objects without `__init__` and sets their slots as it reads, so that a run of fixed-width
fields is one `unpack_from` into the slots. The first byte of a compact length, and of a tagged
section, is part of the run before it. Every length is checked against the rest of the buffer before
memory is allocated for it; `unpack_from` raises at the end of the buffer. The variable `left` is
the memory that the message may still allocate, see `memory_cost.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.protocol.codec_source import Source, min_size
from kafka_async.protocol.memory_cost import (
    ARRAY_COST,
    BASE_MEMORY,
    MAX_MEMORY,
    MEMORY_PER_BYTE,
    TAGGED_FIELD_COST,
    TAGGED_SECTION_COST,
    element_cost,
)
from kafka_async.protocol.spec import INT8, RECORDS, STRING, UUID, Array, Fixed, Sized

if TYPE_CHECKING:
    from kafka_async.protocol.spec import Field, Struct, VersionedStruct


class DecoderSource(Source):
    """Generates `decode_X_vN(buf, p)`."""

    VERB = "decode"
    METHOD = "unpack_from"

    def _write(self, message: type[VersionedStruct]) -> None:
        self._run: list[tuple[str, int, str]] = []
        self._after: list[str] = []
        with self.block(f"def {self.name}(buf, p)"):
            self.line("end = len(buf)")
            self.line(f"left = end * {MEMORY_PER_BYTE} + {BASE_MEMORY}")
            with self.block(f"if left > {MAX_MEMORY}"):
                self.line(f"left = {MAX_MEMORY}")
            self._struct(message, "m")
            self._flush()
            self.line("return m, p")

    def _struct(self, struct: type[Struct], value: str) -> None:
        """Create an object in the variable `value` and read its fields."""
        spec = struct.SPEC
        self.line(f"{value} = new({self.class_name(struct)})")
        for field in spec.fields:
            if field.tag is not None or not field.versions.contains(self.version):
                self._set_default(field, f"{value}.{field.name}")
        self.line(f"{value}.unknown_tagged_fields = ()")
        for field in spec.untagged_fields(self.version):
            self._field(field, f"{value}.{field.name}")
        if self.flexible:
            self._tagged(struct, value)

    def _set_default(self, field: Field, place: str) -> None:
        """Set the default of a field; building a structure inline is faster than `__init__`."""
        default = field.default
        if isinstance(field.type, type) and default is not None:
            inner = self.new_name("s")
            self.line(f"{inner} = new({self.class_name(field.type)})")
            for each in field.type.SPEC.fields:
                self._set_default(each, f"{inner}.{each.name}")
            self.line(f"{inner}.unknown_tagged_fields = ()")
            self.line(f"{place} = {inner}")
        elif field.type is UUID:
            self.line(f"{place} = ZERO_UUID")
        else:
            self.line(f"{place} = {default!r}")

    # -- tagged section ---------------------------------------------------------------------------

    def _tagged(self, struct: type[Struct], value: str) -> None:
        count = self.new_name("n")
        self._add_to_run("B", 1, count)
        self._flush()
        fields = list(struct.SPEC.tagged_fields(self.version))
        with self.block(f"if {count}"):
            self.line(f"{count}, p = read_tag_count(buf, p - 1)")
            self._charge_memory(f"{TAGGED_SECTION_COST} + {count} * {TAGGED_FIELD_COST}")
            if not fields:
                place = f"{value}.unknown_tagged_fields"
                self.line(f"{place}, p = read_unknown_tags(buf, p, {count})")
                return
            unknown, tag, stop = map(self.new_name, ("unknown", "tag", "stop"))
            self.line(f"{unknown}, {tag} = [], -1")
            with self.block(f"for _ in range({count})"):
                self.line(f"{tag}, p, {stop} = read_tag(buf, p, {tag})")
                for branch, field in zip(["if"] + ["elif"] * len(fields), fields, strict=False):
                    with self.block(f"{branch} {tag} == {field.tag}"):
                        self._field(field, f"{value}.{field.name}")
                        self._flush()
                with self.block("else"):
                    self.line(f"{unknown}.append(({tag}, bytes(buf[p:{stop}])))")
                    self.line(f"p = {stop}")
                with self.block(f"if p != {stop}"):
                    self.line(
                        f'raise ValueError(f"tag {{{tag}}} does not have the size it claims")'
                    )
            self.line(f"{value}.unknown_tagged_fields = tuple({unknown})")

    # -- fields -----------------------------------------------------------------------------------

    def _field(self, field: Field, place: str) -> None:
        kind = field.type
        if isinstance(kind, Fixed):
            self._fixed(kind, place)
        elif isinstance(kind, Sized):
            self._sized(kind, field.name, place, self.is_compact(field), self.is_nullable(field))
        elif isinstance(kind, Array):
            self._array(kind, field, place)
        elif self.is_nullable(field):
            self._nullable_struct(kind, field, place)
        else:
            self._inner(kind, place)

    def _inner(self, struct: type[Struct], place: str) -> None:
        inner = self.new_name("s")
        self._struct(struct, inner)
        self.line(f"{place} = {inner}")

    def _nullable_struct(self, struct: type[Struct], field: Field, place: str) -> None:
        marker = self.new_name("n")
        self._add_to_run("b", 1, marker)
        self._flush()
        with self.block(f"if {marker} == 1"):
            self._inner(struct, place)
            self._flush()
        with self.block(f"elif {marker} == -1"):
            self.line(f"{place} = None")
        with self.block("else"):
            self.line(f'raise ValueError(f"{field.name} begins with {{{marker}}}, not 1 or -1")')

    def _fixed(self, kind: Fixed, place: str) -> None:
        if kind is UUID:
            raw = self.new_name("u")
            self._add_to_run(kind.format, kind.size, raw)
            self._after.append(f"{place} = UUID(bytes={raw})")
        else:
            self._add_to_run(kind.format, kind.size, place)

    def _length(self, legacy: str, compact: bool) -> str:
        """Read a length into a new variable, -1 for null, and return its name."""
        length = self.new_name("n")
        if not compact:
            self._add_to_run(legacy, 2 if legacy == "h" else 4, length)
            self._flush()
            return length
        self._add_to_run("B", 1, length)
        self._flush()
        with self.block(f"if {length} > 127"):
            self.line(f"{length}, p = read_uvarint(buf, p - 1)")
        self.line(f"{length} -= 1")
        return length

    def _sized(self, kind: Sized, name: str, place: str, compact: bool, nullable: bool) -> None:
        length, stop = self._length("h" if kind is STRING else "i", compact), self.new_name("q")
        wrong = f"{length} < 0 or {stop} > end"
        if compact and kind is STRING:
            wrong += f" or {length} > MAX_STRING"
        if nullable:
            with self.block(f"if {length} == -1"):
                self.line(f"{place} = None")
            with self.block("else"):
                self._read_value(kind, name, place, length, stop, wrong)
        else:
            self._read_value(kind, name, place, length, stop, wrong)

    def _read_value(
        self, kind: Sized, name: str, place: str, length: str, stop: str, wrong: str
    ) -> None:
        self.line(f"{stop} = p + {length}")
        with self.block(f"if {wrong}"):
            self.line(f'raise invalid_length("{name}", {length}, end - p)')
        if kind is STRING:
            self.line(f'{place} = str(buf[p:{stop}], "utf-8")')
        elif kind is RECORDS:
            self.line(f"{place} = memoryview(buf)[p:{stop}]")
        else:
            self.line(f"{place} = bytes(buf[p:{stop}])")
        self.line(f"p = {stop}")

    def _array(self, kind: Array, field: Field, place: str) -> None:
        compact = self.is_compact(field)
        count = self._length("i", compact)
        if self.is_nullable(field):
            with self.block(f"if {count} == -1"):
                self.line(f"{place} = None")
            with self.block("else"):
                self._elements(kind, field, place, count)
        else:
            self._elements(kind, field, place, count)

    def _elements(self, kind: Array, field: Field, place: str, count: str) -> None:
        element = kind.element
        size = min_size(element, self.version, self.flexible)
        with self.block(f"if not 0 <= {count} <= MAX_ELEMENTS or {count} * {size} > end - p"):
            self.line(f'raise invalid_length("{field.name}", {count}, end - p)')
        with self.block(f"if {count}"):
            self._charge_memory(f"{ARRAY_COST} + {count} * {element_cost(element, self.version)}")
        if element is INT8:
            self.line(f"{place} = tuple([INT8[byte] for byte in buf[p:p + {count}]])")
            self.line(f"p += {count}")
            return
        if isinstance(element, Fixed) and element is not UUID:
            self.line(f'{place} = unpack_from(f">{{{count}}}{element.format}", buf, p)')
            self.line(f"p += {count} * {size}")
            return
        items, item = self.new_name("a"), self.new_name("e")
        # Empty arrays share the empty tuple: a list for each would take most of the memory of a
        # malicious message.
        self.line(f"{items} = {place} = [] if {count} else ()")
        with self.block(f"for _ in range({count})"):
            if isinstance(element, Fixed):
                self._fixed(element, item)
            elif isinstance(element, Sized):
                self._sized(element, field.name, item, self.is_compact(field), nullable=False)
            elif not isinstance(element, Array):
                self._struct(element, item)
            self._flush()
            self.line(f"{items}.append({item})")

    def _charge_memory(self, amount: str) -> None:
        """Subtract an amount from the memory that the message may still allocate."""
        self.line(f"left -= {amount}")
        with self.block("if left < 0"):
            self.line("raise too_large(end)")

    # -- runs -------------------------------------------------------------------------------------

    def _add_to_run(self, format: str, size: int, target: str) -> None:
        """Add a fixed-width value to the run that the next `_flush` unpacks."""
        self._run.append((format, size, target))

    def _flush(self) -> None:
        if not self._run:
            return
        formats, sizes, targets = zip(*self._run, strict=True)
        if formats == ("B",):
            self.line(f"{targets[0]} = buf[p]")
        else:
            unpack = self.struct_method("".join(formats))
            self.line(f"{', '.join(targets)}{',' * (len(targets) == 1)} = {unpack}(buf, p)")
        self.line(f"p += {sum(sizes)}")
        for text in self._after:
            self.line(text)
        self._run.clear()
        self._after.clear()
