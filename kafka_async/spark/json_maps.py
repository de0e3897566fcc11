"""Rewrites JSON objects that are maps as arrays of entries, many values at a time. Pure.

Arrow's JSON parser reads no maps, but lists of structures: {"a": 1} as [{"key":"a","value":1}].
Arrow's functions find the objects by the path to the map in the schema and replace their braces,
colons and commas, for all values of a batch in one call each.

The rewritten text is JSON exactly if the text was: an entry is what is between two commas, and as
many colons as entries are required, since Arrow refuses an entry with two. So Arrow still finds
every error. An object that is not found, such as one whose name is written with escapes, is an
object where Arrow expects a list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow
import pyarrow.compute
from pyspark.sql import types

if TYPE_CHECKING:
    from collections.abc import Iterator

# pyarrow has no complete types.
pa: Any = pyarrow
pc: Any = pyarrow.compute

KEY: Final = "key"
VALUE: Final = "value"
_MARKS: Final = pa.array([byte in b'{}[]:,"' for byte in range(256)])
_OPENS: Final = pa.array([(byte in b"{[") - (byte in b"}]") for byte in range(256)], pa.int32())
"""1 for a mark that begins an object or an array, -1 for one that ends it."""
_REPLACED: Final = b"{{}}:,"
_REPLACEMENTS: Final = pa.array(
    [text.encode() for text in (f'[{{"{KEY}":', "[", "}]", "]", f',"{VALUE}":', f'}},{{"{KEY}":')],
    pa.binary(),
)
"""Text for each mark of `_REPLACED`; for braces the second one is that of an empty object."""
_NUMBERS: Final = pa.array([max(0, _REPLACED.find(bytes([byte]))) for byte in range(256)])
_ROOT_LEVEL: Final = 1


def has_map(kind: types.DataType) -> bool:
    """Return whether a type is a map or contains one."""
    if isinstance(kind, types.StructType):
        return any(has_map(field.dataType) for field in kind.fields)
    if isinstance(kind, types.ArrayType):
        return has_map(kind.elementType)
    return isinstance(kind, types.MapType)


def count_maps(array: Any, kind: types.DataType) -> int:
    """Return the number of maps in an array, those within other values included."""
    if isinstance(kind, types.MapType):
        return len(array) - array.null_count + count_maps(array.items, kind.valueType)
    if isinstance(kind, types.StructType):
        fields = enumerate(kind.fields)
        return sum(count_maps(array.field(number), field.dataType) for number, field in fields)
    return count_maps(array.values, kind.elementType) if isinstance(kind, types.ArrayType) else 0


def rewrite_maps(text: Any, schema: types.StructType) -> tuple[Any, int] | None:
    """Rewrite the maps of JSON objects that follow each other.

    Args:
        text: Buffer with the objects.
        schema: The columns of the objects.

    Returns:
        The buffer of the rewritten text, and the number of maps; None if the text is no JSON.
    """
    tokens = _tokens(text)
    if tokens is None:
        return None
    found = list(_maps(tokens, schema, _ROOT_LEVEL, tokens.level(_ROOT_LEVEL).openers))
    replaced = [each for each in found if len(each)]
    if not replaced:
        return text, 0
    marks = pa.concat_arrays(replaced)
    if len(replaced) > 1:
        marks = marks.take(pc.array_sort_indices(marks))
    kinds = tokens.kinds.take(marks)
    is_open, is_close = pc.equal(kinds, ord("{")), pc.is_in(kinds, pa.array(b"}]", pa.uint8()))
    before = pc.equal(tokens.kinds.take(pc.subtract(marks, 1)), ord("{"))
    after = pc.equal(tokens.kinds.take(pc.add(marks, 1)), ord("}"))
    is_empty = pc.or_(pc.and_(is_open, after), pc.and_(is_close, before))
    maps = pc.sum(is_open).as_py()
    filled = maps - pc.sum(pc.and_(is_open, is_empty)).as_py()
    colons, commas = (pc.sum(pc.equal(kinds, ord(mark))).as_py() for mark in ":,")
    if colons != commas + filled or pc.any(pc.equal(kinds, ord("]"))).as_py():
        return None
    texts = _REPLACEMENTS.take(pc.add(_NUMBERS.take(kinds), is_empty.cast(_NUMBERS.type)))
    start = pa.array([0], pa.int32())
    parts = _parts(text, pa.concat_arrays([start, tokens.positions.take(marks)]))
    first = pa.array([b"{"], pa.binary())
    rests = pc.binary_slice(parts, 1, text.size)
    joined = pc.binary_join_element_wise(pa.concat_arrays([first, texts]), rests, b"")
    return joined.buffers()[2], maps


@dataclass
class _Level:
    """Holds the marks of one level of nesting, except quotes.

    Attributes:
        marks: Numbers of the tokens, in order.
        owners: For each mark the number, within the level, of its object or array.
        openers: Numbers of the tokens that begin the objects and arrays.
    """

    marks: Any
    owners: Any
    openers: Any


@dataclass
class _Tokens:
    """Holds braces, brackets, colons and commas that are not in strings, and quotes.

    Attributes:
        text: The buffer.
        positions: Offset of each token.
        kinds: Byte of each token.
        levels: For a brace or bracket, that of the inside, from 1; otherwise that of the place.
        opens: Whether the token begins an object or array.
    """

    text: Any
    positions: Any
    kinds: Any
    levels: Any
    opens: Any

    def level(self, number: int) -> _Level:
        is_mark = pc.and_(pc.equal(self.levels, number), pc.not_equal(self.kinds, ord('"')))
        marks = pc.indices_nonzero(is_mark).cast(pa.int64())
        opens = self.opens.take(marks)
        owners = pc.subtract(pc.cumulative_sum(opens.cast(pa.int32())), 1)
        return _Level(marks, owners, marks.filter(opens))

    def inner(self, number: int, openers: Any, kind: str) -> Any:
        """Return the tokens that begin values of a kind directly within some of a level."""
        is_outer = pc.and_(self.opens, pc.equal(self.levels, number))
        is_inner = pc.and_(self.opens, pc.equal(self.levels, number + 1))
        all_outer = pc.indices_nonzero(is_outer).cast(pa.int64())
        inner = pc.indices_nonzero(pc.and_(is_inner, pc.equal(self.kinds, ord(kind))))
        owners = pc.subtract(pc.cumulative_sum(is_outer.cast(pa.int32())), 1).take(inner)
        return inner.cast(pa.int64()).filter(pc.is_in(all_outer, openers).take(owners))


def _tokens(text: Any) -> _Tokens | None:
    """Return the tokens of a text; None if its braces and brackets are no pairs."""
    data = pa.Array.from_buffers(pa.uint8(), text.size, [None, text])
    positions = pc.indices_nonzero(_MARKS.take(data))
    kinds = data.take(positions)
    is_quote = pc.equal(kinds, ord('"'))
    escaped = _escaped(data)
    if escaped is not None:
        is_quote = pc.and_(is_quote, pc.invert(pc.is_in(positions, escaped)))
    quotes = pc.cumulative_sum(is_quote.cast(pa.int32()))
    is_outside = pc.equal(pc.bit_wise_and(quotes, pa.scalar(1, pa.int32())), 0)
    keep = pc.or_(is_quote, is_outside)
    positions, kinds = positions.filter(keep).cast(pa.int32()), kinds.filter(keep)
    opens = _OPENS.take(kinds)
    depths = pc.cumulative_sum(opens)
    if len(depths) == 0 or pc.min(depths).as_py() < 0 or depths[-1].as_py() != 0:
        return None
    levels = pc.add(depths, pc.equal(opens, -1).cast(pa.int32()))
    return _Tokens(text, positions, kinds, levels, pc.equal(opens, 1))


def _escaped(data: Any) -> Any | None:
    """Return the positions after backslashes that escape; None if there is no backslash."""
    slashes = pc.indices_nonzero(pc.equal(data, ord("\\")))
    if len(slashes) == 0:
        return None
    # In a run of backslashes the first, third, and so on escape the next character.
    follows = pc.equal(pc.subtract(slashes[1:], slashes[:-1]), 1)
    starts = pa.concat_arrays([pa.array([True]), pc.invert(follows)])
    numbers = pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1), len(slashes))), 1)
    first = pc.cumulative_max(pc.if_else(starts, numbers, 0))
    order = pc.bit_wise_and(pc.subtract(numbers, first), 1)
    return pc.add(slashes.filter(pc.equal(order, 0)), 1)


def _maps(tokens: _Tokens, kind: types.DataType, level: int, openers: Any) -> Iterator[Any]:
    """Yield the tokens of the maps in values of a type.

    Args:
        tokens: All tokens.
        kind: The type.
        level: Level of nesting of the values.
        openers: Tokens that begin the values.
    """
    if isinstance(kind, types.StructType):
        for field in kind.fields:
            if has_map(field.dataType):
                values = _values_of(tokens, level, openers, field)
                yield from _maps(tokens, field.dataType, level + 1, values)
        return
    inner = kind
    if isinstance(kind, types.ArrayType):
        inner = kind.elementType
    elif isinstance(kind, types.MapType):
        inner = kind.valueType
        whole = tokens.level(level)
        yield whole.marks.filter(pc.is_in(whole.openers, openers).take(whole.owners))
    if has_map(inner):
        values = tokens.inner(level, openers, _first_mark(inner))
        yield from _maps(tokens, inner, level + 1, values)


def _values_of(tokens: _Tokens, level: int, openers: Any, field: types.StructField) -> Any:
    """Return the tokens that begin the values of a field in some objects."""
    whole = tokens.level(level)
    is_in = pc.is_in(whole.openers, openers).take(whole.owners)
    is_colon = pc.equal(tokens.kinds.take(whole.marks), ord(":"))
    colons = whole.marks.filter(pc.and_(is_in, is_colon))
    opening_quotes = pc.max_element_wise(pc.subtract(colons, 2), 0)
    names = _parts(tokens.text, tokens.positions).take(opening_quotes)
    values = pc.add(colons.filter(pc.equal(names, f'"{field.name}'.encode())), 1)
    return values.filter(pc.equal(tokens.kinds.take(values), ord(_first_mark(field.dataType))))


def _first_mark(kind: types.DataType) -> str:
    return "[" if isinstance(kind, types.ArrayType) else "{"


def _parts(text: Any, positions: Any) -> Any:
    """Return the parts of a text that begin at some positions, without a copy."""
    ends = pa.concat_arrays([positions, pa.array([text.size], pa.int32())])
    return pa.Array.from_buffers(pa.binary(), len(positions), [None, ends.buffers()[1], text])
