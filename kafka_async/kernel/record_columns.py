"""Appends the rows of Arrow columns to open batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from kafka_async.kernel.record_encoder import record_size_bound
from kafka_async.kernel.shared import (
    MAX_TIMESTAMP,
    BinaryInput,
    HeaderInput,
    NumberInput,
    RowFault,
    arrow_layout_error,
    copy_error,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

    from kafka_async.types import Headers


class RecordColumns:
    """Reads record fields from Arrow columns, which must not change while this object exists.

    A null partition or timestamp counts as not given.

    Raises:
        ValueError: The columns do not have the same number of rows, or a buffer is too short.
    """

    __slots__ = ("_headers", "_key", "_partition", "_timestamp", "_value", "rows")

    def __init__(
        self,
        values: BinaryInput,
        keys: BinaryInput | None = None,
        partitions: NumberInput | None = None,
        timestamps: NumberInput | None = None,
        headers: HeaderInput | None = None,
    ) -> None:
        self.rows = values.rows
        for column in (keys, partitions, timestamps, headers):
            if column is not None and column.rows != self.rows:
                raise ValueError(f"columns of {column.rows} and {self.rows} rows")
        self._value = _binary_reader(values, "value")
        self._key = None if keys is None else _binary_reader(keys, "key")
        self._partition = None if partitions is None else _number_reader(partitions, "partition")
        self._timestamp = None if timestamps is None else _number_reader(timestamps, "timestamp")
        self._headers = None if headers is None else _header_reader(headers)

    def __reduce__(self) -> NoReturn:
        raise copy_error(self)

    def record(
        self, row: int
    ) -> tuple[bytes | None, bytes | None, Headers, int | None, int | None]:
        """Return key, value, headers, partition and timestamp of a row.

        Raises:
            IndexError: The row does not exist.
            ValueError: A header name is null or not UTF-8, or the column is not valid.
        """
        if not 0 <= row < self.rows:
            raise IndexError(f"row {row} of {self.rows}")
        return (
            None if self._key is None else self._key(row),
            self._value(row),
            () if self._headers is None else self._headers(row),
            None if self._partition is None else self._partition(row),
            None if self._timestamp is None else self._timestamp(row),
        )

    def find_fault(
        self, limit: int, partitions: int, start: int, end: int, selection: Buffer | None = None
    ) -> tuple[int, RowFault] | None:
        """Return the first row that cannot become a record, with the reason, or None.

        Args:
            limit: Maximum of `record_size_bound` in bytes.
            partitions: Number of partitions of the topic.
            start: First row, or first position in `selection`.
            end: Row or position after the last one.
            selection: Numbers of the rows as int64.

        Raises:
            IndexError: The row does not exist.
            ValueError: A column is not valid.
        """
        for row in selected_rows(start, end, selection):
            try:
                key, value, headers, partition, timestamp = self.record(row)
            except HeaderNameError:
                return row, RowFault.HEADER_NAME
            if partition is not None and not 0 <= partition < partitions:
                return row, RowFault.PARTITION
            if timestamp is not None and not -1 <= timestamp <= MAX_TIMESTAMP:
                return row, RowFault.TIMESTAMP
            if record_size_bound(key, value, headers) > limit:
                return row, RowFault.SIZE
        return None


class HeaderNameError(ValueError):
    """A header name is null or not UTF-8."""


def selected_rows(start: int, end: int, selection: Buffer | None) -> memoryview | range:
    """Return the selection's row numbers from `start` to `end`, or this range of rows."""
    rows = None if selection is None else memoryview(selection).cast("B").cast("q")
    if not 0 <= start <= end or (rows is not None and end > len(rows)):
        raise IndexError(f"rows {start} to {end}")
    return range(start, end) if rows is None else rows[start:end]


def _valid(validity: Buffer | None, start: int, rows: int, column: str) -> Callable[[int], bool]:
    if validity is None:
        return _always_valid
    bits = memoryview(validity).cast("B")
    if start < 0 or len(bits) * 8 < start + rows:
        raise arrow_layout_error(column)
    return lambda row: bool(bits[start + row >> 3] >> (start + row & 7) & 1)


def _always_valid(_: int) -> bool:
    return True


def _numbers(data: Buffer, start: int, count: int, *, wide: bool, column: str) -> memoryview:
    """Return `count` integers from position `start` on, or none of an empty column."""
    size = 8 if wide else 4
    view = memoryview(data).cast("B")
    if start < 0 or len(view) < (start + count) * size:
        raise arrow_layout_error(column)
    return view[start * size : (start + count) * size].cast("q" if wide else "i")


def _spans(
    offsets: Buffer, start: int, rows: int, size: int, *, wide: bool, column: str
) -> Callable[[int], tuple[int, int]]:
    if not rows:
        return lambda _: (0, 0)
    ends = _numbers(offsets, start, rows + 1, wide=wide, column=column)

    def span(row: int) -> tuple[int, int]:
        begin, end = ends[row], ends[row + 1]
        if not 0 <= begin <= end <= size:
            raise arrow_layout_error(column)
        return begin, end

    return span


def _binary_reader(given: BinaryInput, column: str) -> Callable[[int], bytes | None]:
    rows, start, validity, offsets, data, wide = given
    is_valid = _valid(validity, start, rows, column)
    view = memoryview(data).cast("B")
    span = _spans(offsets, start, rows, len(view), wide=wide, column=column)

    def read(row: int) -> bytes | None:
        begin, end = span(row)
        return bytes(view[begin:end]) if is_valid(row) else None

    return read


def _number_reader(given: NumberInput, column: str) -> Callable[[int], int | None]:
    rows, start, validity, data, wide = given
    is_valid = _valid(validity, start, rows, column)
    numbers = _numbers(data, start, rows, wide=wide, column=column)
    return lambda row: numbers[row] if is_valid(row) else None


def _header_reader(given: HeaderInput) -> Callable[[int], Headers]:
    rows, start, validity, offsets, wide, names, values = given
    if names.rows != values.rows:
        raise arrow_layout_error("headers")
    is_valid = _valid(validity, start, rows, "headers")
    span = _spans(offsets, start, rows, names.rows, wide=wide, column="headers")
    name_of, value_of = _binary_reader(names, "headers"), _binary_reader(values, "headers")

    def read(row: int) -> Headers:
        begin, end = span(row)
        if not is_valid(row):
            return ()
        return [(_header_name(name_of(at)), value_of(at)) for at in range(begin, end)]

    return read


def _header_name(name: bytes | None) -> str:
    if name is None:
        raise HeaderNameError("the name of a header is null")
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise HeaderNameError("the name of a header is not UTF-8") from None
