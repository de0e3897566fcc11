"""Converts batches to Arrow, with the columns of Spark's Kafka source.

The kernel builds the buffers of Arrow arrays from the bytes of the batches, without a Python object
per record; pyarrow only wraps them. pyarrow is imported on first use.
"""

from __future__ import annotations

import importlib
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from kafka_async import kernel
from kafka_async.errors import CorruptRecordError, InvalidConfigurationError, RecordTooLargeError
from kafka_async.foundation.arguments import missing_extra
from kafka_async.kernel import BinaryColumn
from kafka_async.records.compression import MAX_DECOMPRESSED_BYTES_PER_CALL

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow

    from kafka_async.kernel import HeaderColumn, Section
    from kafka_async.records.batch import BatchView

MIN_KEPT_ROWS: Final = 4096
"""Minimum rows of a topic column that is cached for later batches."""
_INT32: Final = struct.Struct("=i")
_OFFSETS: Final = struct.Struct("=ii")


def _pyarrow() -> Any:
    try:
        return importlib.import_module("pyarrow")
    except ImportError as error:
        raise InvalidConfigurationError(missing_extra("Arrow", "spark")) from error


def arrow_schema(*, headers: bool = False) -> pyarrow.Schema:
    """Return the schema of `to_arrow`: the columns of Spark's Kafka source in their order."""
    pa = _pyarrow()
    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
    if headers:
        fields.append(pa.field("headers", _header_type(pa)))
    return pa.schema(fields)


def _header_type(pa: Any) -> Any:
    return pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


def to_arrow(
    views: Iterable[BatchView],
    *,
    topic: str,
    partition: int,
    start: int = 0,
    end: int | None = None,
    headers: bool = False,
) -> pyarrow.RecordBatch:
    """Return the records with `start` <= offset < `end` as one Arrow record batch.

    The batches come from one partition in offset order; control batches are skipped. The caller
    must leave out aborted transactions. `headers` adds Spark's column headers, null for records
    without headers. Raises RecordTooLargeError if the batches decompress to more than 512 MiB
    together, and ValueError if a column would exceed 2 GiB.
    """
    pa = _pyarrow()
    last = (1 << 63) - 1 if end is None else end
    sections: list[Section] = []
    remaining = MAX_DECOMPRESSED_BYTES_PER_CALL
    for view in views:
        if view.is_control or view.next_offset <= start or view.base_offset >= last:
            continue
        sections.append(view.section())
        remaining -= view.decompressed_bytes
        if remaining < 0:
            raise RecordTooLargeError(
                f"the batches decompress to more than {MAX_DECOMPRESSED_BYTES_PER_CALL} bytes "
                "together: narrow them with start and end",
                topic=topic,
                partition=partition,
                offset=view.base_offset,
            )
    columns = kernel.parse_columns(sections, topic, partition, start, last, headers)
    rows = columns.rows
    arrays = [
        _binary(pa.binary(), rows, columns.keys),
        _binary(pa.binary(), rows, columns.values),
        _topic_column(topic, rows),
        _fixed(pa.int32(), rows, _INT32.pack(partition) * rows),
        _fixed(pa.int64(), rows, columns.offsets),
        _microseconds(pa, rows, columns.timestamps, topic, partition),
        _fixed(pa.int32(), rows, columns.timestamp_types),
    ]
    if columns.headers is not None:
        arrays.append(_headers(pa, rows, columns.headers))
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(headers=headers))


def _buffer(data: bytes | None) -> Any:
    return None if data is None else _pyarrow().py_buffer(data)


def _fixed(kind: Any, rows: int, data: bytes) -> Any:
    return _pyarrow().Array.from_buffers(kind, rows, [None, _buffer(data)])


def _topic_column(topic: str, rows: int) -> Any:
    """Return a column with the topic in each row, a slice of a cached column."""
    length = max(MIN_KEPT_ROWS, 1 << (rows - 1).bit_length())
    return _repeated(topic, length).slice(0, rows)


@lru_cache(maxsize=4)
def _repeated(text: str, rows: int) -> Any:
    # pyarrow.scalar would import pandas on its first call, which takes a fifth of a second.
    pa = _pyarrow()
    data = text.encode()
    one = BinaryColumn(None, _OFFSETS.pack(0, len(data)), data)
    return pa.repeat(_binary(pa.string(), 1, one)[0], rows)


def _binary(kind: Any, rows: int, column: BinaryColumn) -> Any:
    buffers = [_buffer(column.validity), _buffer(column.offsets), _buffer(column.data)]
    return _pyarrow().Array.from_buffers(kind, rows, buffers)


def _microseconds(pa: Any, rows: int, milliseconds: bytes, topic: str, partition: int) -> Any:
    column = _fixed(pa.timestamp("ms", tz="UTC"), rows, milliseconds)
    try:
        return column.cast(pa.timestamp("us", tz="UTC"))
    except pa.ArrowInvalid as error:
        raise CorruptRecordError(
            f"a timestamp does not fit into microseconds ({error})",
            topic=topic,
            partition=partition,
        ) from None


def _headers(pa: Any, rows: int, column: HeaderColumn) -> Any:
    kind = _header_type(pa)
    count = len(column.names.offsets) // 4 - 1
    names = _binary(pa.string(), count, column.names)
    values = _binary(pa.binary(), count, column.values)
    structs = pa.StructArray.from_arrays([names, values], fields=list(kind.value_type))
    buffers = [_buffer(column.validity), _buffer(column.offsets)]
    return pa.Array.from_buffers(kind, rows, buffers, children=[structs])
