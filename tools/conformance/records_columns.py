"""Reads batches as columns, as for Arrow and Spark, and converts the columns back to records."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import kafka_async.kernel
from kafka_async.records.batch import iter_batches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafka_async.kernel import BinaryColumn, HeaderColumn
    from tools.conformance.records_java import ReadRecord


def read_columns(batches: bytes) -> list[ReadRecord]:
    """Return the records of all batches of version 2, except control batches.

    Raises:
        CorruptRecordError: a batch is corrupt.
    """
    views = iter_batches(batches, topic="t", partition=0)
    sections = [view.section() for view in views if view.header.magic == 2 and not view.is_control]
    columns = kafka_async.kernel.parse_columns(sections, "t", 0, headers=True)
    assert columns.headers is not None
    rows = zip(
        _numbers("q", columns.offsets),
        _numbers("q", columns.timestamps),
        _values(columns.keys, columns.rows),
        _values(columns.values, columns.rows),
        _headers(columns.headers, columns.rows),
        strict=True,
    )
    return list(rows)


def _numbers(kind: str, data: bytes) -> Sequence[int]:
    return array(kind, data)


def _values(column: BinaryColumn, rows: int) -> list[bytes | None]:
    ends = _numbers("i", column.offsets)
    return [
        column.data[ends[row] : ends[row + 1]] if _valid(column.validity, row) else None
        for row in range(rows)
    ]


def _valid(bitmap: bytes | None, row: int) -> bool:
    return bitmap is None or bool(bitmap[row >> 3] >> (row & 7) & 1)


def _headers(column: HeaderColumn, rows: int) -> list[tuple[tuple[str, bytes | None], ...]]:
    ends = _numbers("i", column.offsets)
    count = ends[-1]
    names = [(name or b"").decode() for name in _values(column.names, count)]
    pairs = list(zip(names, _values(column.values, count), strict=True))
    return [tuple(pairs[ends[row] : ends[row + 1]]) for row in range(rows)]
