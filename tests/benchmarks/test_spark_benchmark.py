"""Tests of the Spark benchmark that need no Spark session."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from benchmarks import payload
from benchmarks.spark.ready_batches import ReadyBatches
from kafka_async.records.arrow import arrow_schema


def test_ready_batches_have_the_columns_and_rows_of_a_topic() -> None:
    source: Any = ReadyBatches({"records": "80000", "size": "100", "partitions": "3"})
    reader = source.reader(None)
    parts = reader.partitions()
    assert len(parts) == 3
    batches = [batch for part in parts for batch in reader.read(part)]
    assert sum(batch.num_rows for batch in batches) == 80_000
    assert all(batch.schema == arrow_schema() for batch in batches)
    values = payload.values(100)
    assert batches[0].column("value")[1_001].as_py() == values[1]
