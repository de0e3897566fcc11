"""Tests of the size of Arrow batches that a task returns to Spark."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from kafka_async.spark.source.read_task import MAX_BYTES_PER_BATCH, MAX_ROWS_PER_BATCH, slices

pa: Any = pytest.importorskip("pyarrow")


def rows(count: int, size: int = 10) -> Any:
    return pa.RecordBatch.from_pydict(
        {"number": list(range(count)), "value": pa.array([b"v" * size] * count)}
    )


def numbers(parts: list[Any]) -> list[int]:
    return [number for part in parts for number in part.column("number").to_pylist()]


@pytest.mark.parametrize("count", [0, 1, MAX_ROWS_PER_BATCH, MAX_ROWS_PER_BATCH * 2 + 2])
def test_batch_has_a_maximum_of_rows(count: int) -> None:
    parts = list(slices(rows(count)))
    assert numbers(parts) == list(range(count))
    assert all(0 < part.num_rows <= MAX_ROWS_PER_BATCH for part in parts)


def test_parts_are_halves_so_that_none_is_small() -> None:
    parts = list(slices(rows(MAX_ROWS_PER_BATCH + 2)))
    assert [part.num_rows for part in parts] == [MAX_ROWS_PER_BATCH // 2 + 1] * 2


def test_batch_has_a_maximum_of_bytes() -> None:
    parts = list(slices(rows(100, 500_000)))
    assert numbers(parts) == list(range(100))
    assert all(part.nbytes <= MAX_BYTES_PER_BATCH for part in parts)
    assert len(parts) <= 8


def test_large_row_is_a_batch() -> None:
    parts = list(slices(rows(3, MAX_BYTES_PER_BATCH + 1)))
    assert [part.num_rows for part in parts] == [1, 1, 1]
