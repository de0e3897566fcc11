"""Writes the source of decoders.

A decoder takes a buffer and a position and gives the message and the position after it. Objects are
made empty and their slots filled as bytes are read, so that a run of fixed-width fields is one
`unpack_from` straight into the slots; a compact length's first byte and the count of tagged fields
join the run before them. Every length is compared with what is left before anything of that size is
made, so nothing is ever sliced short; running off the end in a fixed run raises by itself. What is
left of the memory that the message may take is in `left`, see `memory_cost.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.protocol.codec_source import Source, smallest
from kafka_async.protocol.memory_cost import ARRAY, FACTOR, MOST, SPARE, TAG, TAGS, element_cost
from kafka_async.protocol.spec import INT8, RECORDS, STRING, UUID, Array, Fixed, Sized

if TYPE_CHECKING:
    from kafka_async.protocol.message import Message, Struct
    from kafka_async.protocol.spec import Field


class DecoderSource(Source):
    """The text of `decode_X_vN(buf, p)`."""

    VERB = "decode"
    METHOD = "unpack_from"

    def _write(self, message: type[Message]) -> None:
        self._pending: list[tuple[str, int, str]] = []
        self._after: list[str] = []
        with self.block(f"def {self.name}(buf, p)"):
            self.line("end = len(buf)")
            self.line(f"left = end * {FACTOR} + {SPARE}")
            with self.block(f"if left > {MOST}"):
                self.line(f"left = {MOST}")
            self._struct(message, "m")
            self._flush()
            self.line("return m, p")

    def _struct(self, struct: type[Struct], value: str) -> None:
        """Make an object, call it `value`, and read its fields into it."""
        spec = struct.SPEC
        self.line(f"{value} = new({self.refer(struct)})")
        for field in spec.fields:
            if field.tag is not None or not field.versions.contains(self.version):
                self._unset(field, f"{value}.{field.name}")
        self.line(f"{value}.unknown_tagged_fields = ()")
        for field in spec.carried(self.version):
            self._field(field, f"{value}.{field.name}")
        if self.flexible:
            self._tagged(struct, value)

    def _unset(self, field: Field, place: str) -> None:
        """Give a field its default; a structure in place, which is faster than by its class."""
        default = field.default
        if isinstance(field.type, type) and default is not None:
            inner = self.fresh("s")
            self.line(f"{inner} = new({self.refer(field.type)})")
            for each in field.type.SPEC.fields:
                self._unset(each, f"{inner}.{each.name}")
            self.line(f"{inner}.unknown_tagged_fields = ()")
            self.line(f"{place} = {inner}")
        elif field.type is UUID:
            self.line(f"{place} = ZERO_UUID")
        else:
            self.line(f"{place} = {default!r}")

    # -- tagged section ---------------------------------------------------------------------------

    def _tagged(self, struct: type[Struct], value: str) -> None:
        count = self.fresh("n")
        self._soon("B", 1, count)
        self._flush()
        fields = list(struct.SPEC.tagged(self.version))
        with self.block(f"if {count}"):
            self.line(f"{count}, p = read_tag_count(buf, p - 1)")
            self._spend(f"{TAGS} + {count} * {TAG}")
            if not fields:
                place = f"{value}.unknown_tagged_fields"
                self.line(f"{place}, p = read_unknown_tags(buf, p, {count})")
                return
            unknown, tag, stop = self.fresh("unknown"), self.fresh("tag"), self.fresh("stop")
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
        inner = self.fresh("s")
        self._struct(struct, inner)
        self.line(f"{place} = {inner}")

    def _nullable_struct(self, struct: type[Struct], field: Field, place: str) -> None:
        marker = self.fresh("n")
        self._soon("b", 1, marker)
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
            raw = self.fresh("u")
            self._soon(kind.format, kind.size, raw)
            self._after.append(f"{place} = UUID(bytes={raw})")
        else:
            self._soon(kind.format, kind.size, place)

    def _length(self, legacy: str, compact: bool) -> str:
        """Read a length into a variable, -1 for null."""
        length = self.fresh("n")
        if not compact:
            self._soon(legacy, 2 if legacy == "h" else 4, length)
            self._flush()
            return length
        self._soon("B", 1, length)
        self._flush()
        with self.block(f"if {length} > 127"):
            self.line(f"{length}, p = read_uvarint(buf, p - 1)")
        self.line(f"{length} -= 1")
        return length

    def _sized(self, kind: Sized, name: str, place: str, compact: bool, nullable: bool) -> None:
        length, stop = self._length("h" if kind is STRING else "i", compact), self.fresh("q")
        wrong = f"{length} < 0 or {stop} > end"
        if compact and kind is STRING:
            wrong += f" or {length} > MAX_STRING"
        if nullable:
            with self.block(f"if {length} == -1"):
                self.line(f"{place} = None")
            with self.block("else"):
                self._take(kind, name, place, length, stop, wrong)
        else:
            self._take(kind, name, place, length, stop, wrong)

    def _take(self, kind: Sized, name: str, place: str, length: str, stop: str, wrong: str) -> None:
        self.line(f"{stop} = p + {length}")
        with self.block(f"if {wrong}"):
            self.line(f'raise bad_length("{name}", {length}, end - p)')
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
        size = smallest(element, self.version, self.flexible)
        with self.block(f"if not 0 <= {count} <= MAX_ELEMENTS or {count} * {size} > end - p"):
            self.line(f'raise bad_length("{field.name}", {count}, end - p)')
        with self.block(f"if {count}"):
            self._spend(f"{ARRAY} + {count} * {element_cost(element, self.version)}")
        if element is INT8:
            self.line(f"{place} = tuple([INT8[byte] for byte in buf[p:p + {count}]])")
            self.line(f"p += {count}")
            return
        if isinstance(element, Fixed) and element is not UUID:
            self.line(f'{place} = unpack_from(f">{{{count}}}{element.format}", buf, p)')
            self.line(f"p += {count} * {size}")
            return
        items, item = self.fresh("a"), self.fresh("e")
        # An empty list of its own for each element would be most of a hostile message's memory.
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

    def _spend(self, amount: str) -> None:
        """Take so many bytes from the memory that the message may cost."""
        self.line(f"left -= {amount}")
        with self.block("if left < 0"):
            self.line("raise too_large(end)")

    # -- runs -------------------------------------------------------------------------------------

    def _soon(self, format: str, size: int, target: str) -> None:
        """Add to the run of fixed-width values; it is read by the next `_flush`."""
        self._pending.append((format, size, target))

    def _flush(self) -> None:
        if not self._pending:
            return
        formats, sizes, targets = zip(*self._pending, strict=True)
        if formats == ("B",):
            self.line(f"{targets[0]} = buf[p]")
        else:
            unpack = self.run("".join(formats))
            self.line(f"{', '.join(targets)}{',' * (len(targets) == 1)} = {unpack}(buf, p)")
        self.line(f"p += {sum(sizes)}")
        for text in self._after:
            self.line(text)
        self._pending.clear()
        self._after.clear()
