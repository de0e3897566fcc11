"""Decodes JSON values of records into the columns of a schema, many records at a time. Pure.

Arrow parses all values of a batch at once. Its result is used only if it is what Spark's from_json
returns: if it refuses a value, or accepts one that Spark treats in another way, the batch is split,
and the records of a small part are parsed one after another. So one bad value does not slow down
the others.
"""

from __future__ import annotations

import binascii
import datetime
import zoneinfo
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow
import pyarrow.compute
import pyarrow.json
from pyspark.sql import types

from kafka_async.spark.json_maps import KEY, VALUE, count_maps, has_map, rewrite_maps
from kafka_async.spark.json_records import JsonRecords

if TYPE_CHECKING:
    from collections.abc import Iterator

# pyarrow has no complete types.
pa: Any = pyarrow
pc: Any = pyarrow.compute
pj: Any = pyarrow.json

ROWS_PARSED_ONE_BY_ONE: Final = 64
"""Rows of a part that is not split any more."""
PARTS: Final = 8
"""Parts into which a batch with a bad value is split."""

# Arrow parses values that are joined as if they were one text. If each begins with { and ends with
# }, no object can end in another value than it begins, and their number shows whether a value has
# several.
_SPACE: Final = " \t\r\n"
_NOT_FINITE: Final = r"[:,\[][ \t\r\n]*-?(?:Inf|NaN)"
_BASE64: Final = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)?$"
_DATE: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_LOCAL: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?$"
_LOCAL_RECENT: Final = _LOCAL.replace("[0-9]{4}", "(?:19[7-9][0-9]|20[0-2][0-9]|203[0-6])", 1)
"""Arrow knows no summer time after 2037."""
_ZONED: Final = _LOCAL[:-1] + r"(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])$"
_NEGATIVE_ZERO: Final[dict[type[types.DataType], tuple[Any, int]]] = {
    types.FloatType: (pa.int32(), -(1 << 31)),
    types.DoubleType: (pa.int64(), -(1 << 63)),
}
_ARROW: Final[dict[type[types.DataType], Any]] = {
    types.StringType: pa.string(),
    types.BooleanType: pa.bool_(),
    types.ByteType: pa.int8(),
    types.ShortType: pa.int16(),
    types.IntegerType: pa.int32(),
    types.LongType: pa.int64(),
    types.FloatType: pa.float32(),
    types.DoubleType: pa.float64(),
    types.DateType: pa.date32(),
    types.TimestampType: pa.timestamp("us", tz="UTC"),
    types.BinaryType: pa.binary(),
}
_READ_AS_STRING: Final = (types.DateType, types.TimestampType, types.BinaryType)
_CANNOT: Final = (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError)
"""Errors of Arrow for values that it does not parse; the last one is that of an error's text."""


class _ParsedOtherwiseError(Exception):
    """Spark may return something else for a value than Arrow does."""


class JsonColumns:
    """Decodes the column value of Arrow batches.

    Args:
        schema: The columns of the values.
        corrupt: Name of the column of the schema that holds the text of a corrupt value, if any.
        zone: Name of the time zone of timestamps that name none.
    """

    def __init__(self, schema: types.StructType, corrupt: str | None, zone: str = "UTC") -> None:
        self._schema = schema
        self._corrupt = corrupt
        self._zone = zone
        self._fields = [field for field in schema.fields if field.name != corrupt]
        self._maps = [field for field in self._fields if has_map(field.dataType)]
        self._options = pj.ParseOptions(
            explicit_schema=pa.schema(
                [pa.field(row.name, _arrow_type(row.dataType, reads=True)) for row in self._fields]
            ),
            unexpected_field_behavior="ignore",
        )
        self._records = JsonRecords(
            types.StructType(self._fields),
            datetime.UTC if zone == "UTC" else zoneinfo.ZoneInfo(zone),
        )
        self.parsed_one_by_one = 0
        """Number of values that were parsed one by one."""

    def decode(self, rows: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        """Return the batch with the columns of the schema in place of the column value."""
        position = rows.schema.get_field_index("value")
        arrays: list[Any] = list(cast("Any", rows).columns)
        fields: list[Any] = list(rows.schema)
        typed = self.decode_values(rows.column(position))
        names = [pa.field(field.name, _arrow_type(field.dataType)) for field in self._schema.fields]
        return pa.RecordBatch.from_arrays(
            [*arrays[:position], *typed, *arrays[position + 1 :]],
            schema=pa.schema([*fields[:position], *names, *fields[position + 1 :]]),
        )

    def decode_values(self, values: Any) -> list[Any]:
        """Return a column for each field of the schema; null values have nulls in all of them."""
        if len(values) == 0 or values.null_count == len(values):
            return [
                pa.nulls(len(values), _arrow_type(field.dataType)) for field in self._schema.fields
            ]
        parts = list(self._decode(values.drop_null()))
        columns = [pa.concat_arrays(list(pieces)) for pieces in zip(*parts, strict=True)]
        if values.null_count:
            valid = values.is_valid()
            number = pc.subtract(pc.cumulative_sum(valid.cast(pa.int64())), 1)
            positions = pc.if_else(valid, number, pa.scalar(None, pa.int64()))
            columns = [column.take(positions) for column in columns]
        return columns

    def _decode(self, values: Any) -> Iterator[list[Any]]:
        """Yield the columns of parts of the values, in order."""
        try:
            yield self._decode_batch(values)
            return
        except (*_CANNOT, _ParsedOtherwiseError):
            pass
        if len(values) <= ROWS_PARSED_ONE_BY_ONE:
            yield self._decode_one_by_one(values)
            return
        step = max(ROWS_PARSED_ONE_BY_ONE, -(-len(values) // PARTS))
        for start in range(0, len(values), step):
            yield from self._decode(values.slice(start, step))

    def _decode_batch(self, values: Any) -> list[Any]:
        texts = values.cast(pa.string())
        if not _are_objects(texts):
            texts = pc.ascii_trim(texts, _SPACE)
            if not _are_objects(texts):
                raise _ParsedOtherwiseError
        joined = pc.binary_join(
            pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts), "\n"
        )[0]
        _check(pc.invert(pc.match_substring_regex(joined, _NOT_FINITE)))
        data, maps = self._rewritten(joined.as_buffer())
        table = pj.read_json(
            pa.BufferReader(data),
            read_options=pj.ReadOptions(use_threads=False, block_size=data.size + 1),
            parse_options=self._options,
        )
        if table.num_rows != len(values):
            raise _ParsedOtherwiseError
        columns = {
            row.name: self._finish(_one_chunk(table.column(row.name)), row.dataType)
            for row in self._fields
        }
        if sum(count_maps(columns[row.name], row.dataType) for row in self._maps) != maps:
            raise _ParsedOtherwiseError  # A value is already as a map is rewritten.
        return self._in_order(columns, pa.nulls(len(values), pa.string()))

    def _rewritten(self, text: Any) -> tuple[Any, int]:
        """Return a text with lists in place of maps, and the number of maps."""
        if not self._maps:
            return text, 0
        rewritten = rewrite_maps(text, types.StructType(self._maps))
        if rewritten is None:
            raise _ParsedOtherwiseError
        return rewritten

    def _decode_one_by_one(self, values: Any) -> list[Any]:
        self.parsed_one_by_one += len(values)
        columns: dict[str, list[Any]] = {row.name: [] for row in self._fields}
        corrupt: list[str | None] = []
        for value in values.to_pylist():
            text = value.decode("utf-8", "replace")
            parsed, is_corrupt = self._records.parse(text)
            for name, column in columns.items():
                column.append(parsed.get(name))
            corrupt.append(text if is_corrupt else None)
        arrays = {
            row.name: pa.array(columns[row.name], _arrow_type(row.dataType)) for row in self._fields
        }
        return self._in_order(arrays, pa.array(corrupt, pa.string()))

    def _in_order(self, columns: dict[str, Any], corrupt: Any) -> list[Any]:
        return [
            corrupt if field.name == self._corrupt else columns[field.name]
            for field in self._schema.fields
        ]

    def _finish(self, array: Any, kind: types.DataType) -> Any:
        """Return an array that Arrow has parsed, with the type of the column."""
        mask = array.is_null() if array.null_count else None
        if isinstance(kind, types.StructType):
            children = [
                self._finish(array.field(number), field.dataType)
                for number, field in enumerate(kind.fields)
            ]
            fields = list(_arrow_type(kind))
            if not fields:
                return array
            return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
        if isinstance(kind, types.ArrayType):
            values = self._finish(array.values, kind.elementType)
            return pa.ListArray.from_arrays(
                array.offsets, values, type=_arrow_type(kind), mask=mask
            )
        if isinstance(kind, types.MapType):
            return self._finish_map(array, kind)
        if isinstance(kind, (types.FloatType, types.DoubleType)):
            bits, zero = _NEGATIVE_ZERO[type(kind)]
            _check(pc.invert(pc.any(pc.equal(array.view(bits), pa.scalar(zero, bits)))))
        elif isinstance(kind, types.DecimalType):
            array.validate(full=True)  # Arrow has not compared the digits with the precision.
        elif isinstance(kind, types.DateType):
            _check(pc.all(pc.match_substring_regex(array, _DATE)))
            return array.cast(pa.date32())
        elif isinstance(kind, types.TimestampType):
            return self._timestamps(array)
        elif isinstance(kind, types.BinaryType):
            return _from_base64(array)
        return array

    def _finish_map(self, array: Any, kind: types.MapType) -> Any:
        """Return a map for each list of entries."""
        entries, arrow_type = array.values, _arrow_type(kind)
        keys = entries.field(0)
        if entries.null_count or keys.null_count:
            raise _ParsedOtherwiseError  # The text has null in place of an entry or a key.
        items = self._finish(entries.field(1), kind.valueType)
        fields = [arrow_type.key_field, arrow_type.item_field]
        children = [pa.StructArray.from_arrays([keys, items], fields=fields)]
        buffers = array.buffers()[:2]
        return pa.Array.from_buffers(arrow_type, len(array), buffers, children=children)

    def _timestamps(self, texts: Any) -> Any:
        is_utc = self._zone == "UTC"
        local = pc.match_substring_regex(texts, _LOCAL if is_utc else _LOCAL_RECENT)
        zoned = pc.match_substring_regex(texts, _ZONED)
        _check(pc.all(pc.or_(local, zoned)))
        none = pa.scalar(None, pa.string())
        at_zone = pc.if_else(local, texts, none).cast(pa.timestamp("us"))
        if not is_utc:
            at_zone = pc.assume_timezone(at_zone, self._zone)
        utc = pa.timestamp("us", tz="UTC")
        return pc.coalesce(pc.if_else(zoned, texts, none).cast(utc), at_zone.cast(utc))


def _are_objects(texts: Any) -> bool:
    """Return whether each text begins and ends as an object."""
    starts, ends = pc.starts_with(texts, "{"), pc.ends_with(texts, "}")
    return bool(pc.all(starts).as_py() and pc.all(ends).as_py())


def _check(condition: Any) -> None:
    """Raise unless the condition is true, or null because there are only nulls."""
    if condition.as_py() is False:
        raise _ParsedOtherwiseError


def _one_chunk(column: Any) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _from_base64(texts: Any) -> Any:
    """Decode strings in one call: with A for the padding, which is cut off afterwards."""
    filled = pc.fill_null(texts, "")
    _check(pc.all(pc.match_substring_regex(filled, _BASE64)))
    padded = pc.replace_substring(filled, "=", "A")
    _, offsets, data = padded.buffers()
    count = len(padded) + 1
    ends = pa.Array.from_buffers(pa.int32(), padded.offset + count, [None, offsets])[
        padded.offset :
    ]
    first, last = ends[0].as_py(), ends[count - 1].as_py()
    decoded = binascii.a2b_base64(data[first:last] if data else b"")
    starts = pc.multiply(pc.divide(pc.subtract(ends, first), 4), 3).cast(pa.int32())
    whole = pa.Array.from_buffers(
        pa.binary(), len(padded), [None, starts.buffers()[1], pa.py_buffer(decoded)]
    )
    one, two = pc.ends_with(filled, "="), pc.ends_with(filled, "==")
    cut = pc.if_else(one, pc.binary_slice(whole, 0, -1), whole)
    cut = pc.if_else(two, pc.binary_slice(whole, 0, -2), cut)
    return pc.if_else(texts.is_valid(), cut, pa.scalar(None, pa.binary()))


def _arrow_type(kind: types.DataType, *, reads: bool = False) -> Any:
    """Return Arrow's type of a column; with `reads` the one that Arrow's JSON parser reads."""
    if isinstance(kind, types.StructType):
        return pa.struct(
            [pa.field(row.name, _arrow_type(row.dataType, reads=reads)) for row in kind.fields]
        )
    if isinstance(kind, types.ArrayType):
        return pa.list_(pa.field("element", _arrow_type(kind.elementType, reads=reads)))
    if isinstance(kind, types.MapType):
        value = _arrow_type(kind.valueType, reads=reads)
        if reads:  # Arrow's JSON parser reads no maps; see json_maps.
            return pa.list_(pa.struct([pa.field(KEY, pa.string()), pa.field(VALUE, value)]))
        return pa.map_(pa.string(), value)
    if isinstance(kind, types.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if reads and isinstance(kind, _READ_AS_STRING):
        return pa.string()
    return _ARROW[type(kind)]
