"""Reads records into the buffers of Arrow arrays."""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from kafka_async.kernel.record_reader import iter_headers, read_with_raw_headers
from kafka_async.kernel.shared import MAX_INT64, BinaryColumn, Columns, HeaderColumn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafka_async.kernel.shared import Section


def parse_columns(
    sections: Sequence[Section],
    topic: str,
    partition: int,
    start: int = 0,
    end: int = MAX_INT64,
    headers: bool = False,
) -> Columns:
    """Return the records of several sections with `start` <= offset < `end`, as Arrow buffers.

    Raises as `parse_records`, and ValueError if a column would exceed 2 GiB.
    """
    rows: list[Any] = []  # records with raw headers
    for section in tuple(sections):  # a copy: the caller's sequence may change
        rows += read_with_raw_headers(section, topic, partition, start, end)
    return Columns(
        len(rows),
        _binary_column([row.key for row in rows]),
        _binary_column([row.value for row in rows]),
        array("q", [row.offset for row in rows]).tobytes(),
        array("q", [row.timestamp for row in rows]).tobytes(),
        array("i", [row.timestamp_type for row in rows]).tobytes(),
        _header_column([row.headers for row in rows]) if headers else None,
    )


def _binary_column(values: Sequence[bytes | None]) -> BinaryColumn:
    offsets = _offsets(0 if value is None else len(value) for value in values)
    data = b"".join([value for value in values if value])
    return BinaryColumn(_validity([value is not None for value in values]), offsets, data)


class _BinaryColumnBuilder:
    """Builds a binary column without keeping an object per value."""

    def __init__(self) -> None:
        self._lengths = array("i")
        self._data = bytearray()
        self._valid = bytearray()

    def append(self, value: bytes | None) -> None:
        self._lengths.append(len(value or b""))
        self._data += value or b""
        self._valid.append(value is not None)

    def finish(self) -> BinaryColumn:
        return BinaryColumn(_validity(self._valid), _offsets(self._lengths), bytes(self._data))


def _header_column(rows: Sequence[bytes]) -> HeaderColumn:
    # No object per header: a header may take only two bytes of a section.
    names, values = _BinaryColumnBuilder(), _BinaryColumnBuilder()
    counts = array("i")
    for raw_headers in rows:
        count = 0
        for name, value in iter_headers(raw_headers):
            names.append(name)
            values.append(value)
            count += 1
        counts.append(count)
    return HeaderColumn(
        _validity([bool(raw_headers) for raw_headers in rows]),
        _offsets(counts),
        names.finish(),
        values.finish(),
    )


def _offsets(lengths: Iterable[int]) -> bytes:
    try:
        return array("i", accumulate(lengths, initial=0)).tobytes()
    except OverflowError:
        raise ValueError("a column may not exceed 2 GiB") from None


def _validity(valid: Sequence[int]) -> bytes | None:
    if all(valid):
        return None
    bitmap = bytearray((len(valid) + 7) // 8)
    for index, is_valid in enumerate(valid):
        if is_valid:
            bitmap[index >> 3] |= 1 << (index & 7)
    return bytes(bitmap)
