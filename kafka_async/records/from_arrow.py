"""Converts Arrow data to columns of records, for the kernel to append.

The kernel reads Arrow's buffers in place; pyarrow finds them and casts columns of other types.
pyarrow is imported on first use. No Python object is made per row, only one per distinct topic.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafka_async.errors import InvalidConfigurationError
from kafka_async.foundation.arguments import missing_extra
from kafka_async.kernel import BinaryInput, HeaderInput, NumberInput, RecordColumns
from kafka_async.types import check_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

__all__ = ["TopicRows", "from_arrow"]

COLUMNS: Final = ("value", "key", "topic", "partition", "timestamp", "headers")
HEADERS: Final = "list<struct<key: string, value: binary>>"


@dataclass(frozen=True, slots=True)
class TopicRows:
    """Holds the rows of one topic in one Arrow record batch.

    Attributes:
        topic: Name of the topic.
        columns: All rows of the record batch.
        selection: Numbers of the topic's rows as int64; None if all rows belong to it.
        count: Number of rows of this topic.
        first_row: Number of the record batch's first row within the whole data.
    """

    topic: str
    columns: RecordColumns
    selection: Buffer | None
    count: int
    first_row: int

    def row(self, at: int) -> int:
        """Return a row's number in the record batch from its position among the topic's rows."""
        return at if self.selection is None else memoryview(self.selection).cast("B").cast("q")[at]

    def label(self, row: int) -> str:
        """Return the location of a row of the record batch, for error messages."""
        return f"rows[{self.first_row + row}]"


def from_arrow(data: Any, topic: str | None) -> Iterator[TopicRows]:
    """Yield the rows of Arrow data by record batch and topic, in order.

    Args:
        data: A record batch, a table, or another object with `__arrow_c_array__` or
            `__arrow_c_stream__`.
        topic: Topic of all rows; None if the column topic contains it.

    Raises:
        TypeError: `data` is not Arrow data, or a column has the wrong type.
        ValueError: A column is missing or unknown, or a topic is null or invalid.
    """
    pa = _pyarrow()
    first_row = 0
    for batch in _batches(pa, data):
        columns = _columns_by_name(batch)
        topics = columns.pop("topic", None)
        if "value" not in columns:
            raise ValueError("there is no column value: name the column of the values so")
        if topic is None and topics is None:
            raise ValueError("there is neither an argument topic nor a column topic")
        made = RecordColumns(
            _binary(pa, columns["value"], "value"),
            _binary(pa, columns["key"], "key") if "key" in columns else None,
            _partitions(pa, columns["partition"]) if "partition" in columns else None,
            _timestamps(pa, columns["timestamp"]) if "timestamp" in columns else None,
            _headers(pa, columns["headers"]) if "headers" in columns else None,
        )
        if topic is not None:
            if made.rows:
                yield TopicRows(topic, made, None, made.rows, first_row)
        else:
            yield from _rows_by_topic(pa, topics, made, first_row)
        first_row += made.rows


def _pyarrow() -> Any:
    try:
        return importlib.import_module("pyarrow")
    except ImportError as error:
        raise InvalidConfigurationError(missing_extra("Arrow", "spark")) from error


def _batches(pa: Any, data: Any) -> list[Any]:
    if isinstance(data, pa.RecordBatch):
        return [data]
    if isinstance(data, pa.Table):
        return data.to_batches()
    if hasattr(data, "__arrow_c_stream__"):
        return pa.table(data).to_batches()
    if hasattr(data, "__arrow_c_array__"):
        return [pa.record_batch(data)]
    raise TypeError(
        f"rows must be an Arrow record batch or table, not {type(data).__name__}: convert it with "
        "pyarrow.RecordBatch.from_pydict or from_pylist"
    )


def _columns_by_name(batch: Any) -> dict[str, Any]:
    names = batch.schema.names
    for name in names:
        if name not in COLUMNS:
            raise ValueError(
                f"column {name} is not part of a record: select only {', '.join(COLUMNS)}"
            )
        if names.count(name) > 1:
            raise ValueError(f"there are several columns {name}: select one")
    return dict(zip(names, batch.columns, strict=True))


def _type_error(name: str, expected: str, found: Any) -> TypeError:
    return TypeError(f"column {name} must be {expected}, not {found}: cast it")


def _rows_by_topic(
    pa: Any, topics: Any, columns: RecordColumns, first_row: int
) -> Iterator[TopicRows]:
    types = pa.types
    if types.is_dictionary(topics.type):
        topics = topics.cast(topics.type.value_type)
    if topics.null_count:
        row = first_row + topics.is_null().index(True).as_py()
        raise ValueError(f"rows[{row}]: topic is null: set it, or give one topic for all rows")
    if not _is_text(types, topics.type):
        raise _type_error("topic", "string", topics.type)
    if not (types.is_string(topics.type) or types.is_large_string(topics.type)):
        topics = topics.cast(pa.large_string())  # pyarrow cannot dictionary-encode string views.
    encoded = topics.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    for name in names:
        check_topic(name)
    if len(names) == 1:
        yield TopicRows(names[0], columns, None, columns.rows, first_row)
        return
    compute = importlib.import_module("pyarrow.compute")
    for number, name in enumerate(names):
        chosen = compute.indices_nonzero(compute.equal(encoded.indices, number))
        yield TopicRows(name, columns, _buffers(chosen)[1], len(chosen), first_row)


def _buffers(array: Any) -> list[Any]:
    """Return the buffers of an array; an empty buffer that Arrow omits is returned as b""."""
    validity, *others = array.buffers()
    return [validity, *(b"" if buffer is None else buffer for buffer in others)]


def _binary(pa: Any, array: Any, name: str, expected: str = "binary or string") -> BinaryInput:
    types = pa.types
    wide = types.is_large_binary(array.type) or types.is_large_string(array.type)
    if not wide and not types.is_binary(array.type) and not types.is_string(array.type):
        array = _cast_to_binary(pa, array, name, expected)
        wide = True
    validity, offsets, data = _buffers(array)
    return BinaryInput(len(array), array.offset, validity, offsets, data, wide)


def _cast_to_binary(pa: Any, array: Any, name: str, expected: str) -> Any:
    """Convert a dictionary, view or fixed-size column to large binary."""
    types = pa.types
    if types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    kind = array.type
    if types.is_null(kind) or any(
        getattr(types, is_kind)(kind)
        for is_kind in (
            *("is_binary", "is_large_binary", "is_string", "is_large_string"),
            *("is_fixed_size_binary", "is_binary_view", "is_string_view"),
        )
        if hasattr(types, is_kind)
    ):
        return array.cast(pa.large_binary())
    raise _type_error(name, expected, kind)


def _is_text(types: Any, kind: Any) -> bool:
    """Return whether a column contains text; polars exports string views."""
    return (
        types.is_string(kind)
        or types.is_large_string(kind)
        or (hasattr(types, "is_string_view") and types.is_string_view(kind))
    )


def _partitions(pa: Any, array: Any) -> NumberInput:
    if not pa.types.is_int32(array.type):
        raise _type_error("partition", "int32", array.type)
    validity, data = _buffers(array)
    return NumberInput(len(array), array.offset, validity, data, wide=False)


def _timestamps(pa: Any, array: Any) -> NumberInput:
    """Return milliseconds; smaller units are rounded down."""
    types, kind = pa.types, array.type
    if types.is_timestamp(kind):
        if kind.unit == "s":
            array = array.cast(pa.timestamp("ms", tz=kind.tz))
        elif kind.unit != "ms":
            array = _floored(array.view(pa.int64()), {"us": 1_000, "ns": 1_000_000}[kind.unit])
    elif not types.is_int64(kind):
        raise _type_error("timestamp", "a timestamp, or int64 in milliseconds", kind)
    validity, data = _buffers(array)
    return NumberInput(len(array), array.offset, validity, data, wide=True)


def _floored(array: Any, units: int) -> Any:
    """Return int64 divided by `units`, rounded down; Arrow's division rounds towards zero."""
    compute = importlib.import_module("pyarrow.compute")
    quotient = compute.divide(array, units)
    rounded_up = compute.less(array, compute.multiply(quotient, units))
    return compute.subtract(quotient, rounded_up.cast("int64"))


def _headers(pa: Any, array: Any) -> HeaderInput:
    types, kind = pa.types, array.type
    is_list = types.is_list(kind) or types.is_large_list(kind)
    if not is_list or not types.is_struct(kind.value_type):
        raise _type_error("headers", HEADERS, kind)
    item = kind.value_type
    if [field.name for field in item] != ["key", "value"]:
        raise _type_error("headers", HEADERS, kind)
    names, values = array.values.flatten()
    if not _is_text(types, names.type):
        raise _type_error("headers", HEADERS, kind)
    validity, offsets = array.buffers()[:2]
    return HeaderInput(
        len(array),
        array.offset,
        validity,
        b"" if offsets is None else offsets,
        types.is_large_list(kind),
        _binary(pa, names, "headers", HEADERS),
        _binary(pa, values, "headers", HEADERS),
    )
