"""Tests of the Spark benchmark that need no Spark session."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from benchmarks import payload
from benchmarks.spark import goals
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


def test_verdicts_compare_each_case_with_its_target() -> None:
    ratios = {
        (goals.READ_100, goals.CONNECTOR): 2.8,
        (goals.READ_100, goals.READY): 0.9,
        (goals.READ_1K, goals.CONNECTOR): 1.4,
        (goals.COPY, goals.CONNECTOR): 2.0,
        (goals.COPY, goals.ONCE): 1.2,
        (goals.FILTER, goals.CONNECTOR): 25.0,
    }
    latencies = {
        (goals.LATENCY, goals.OURS): (150.0, 300.0),
        (goals.LATENCY, goals.CONNECTOR): (100.0, 200.0),
        (goals.LATENCY, goals.PYTHON): (90.0, 150.0),
        (goals.LATENCY, goals.JVM): (30.0, 80.0),
        (goals.CONTROL, goals.OURS): (12.0, 140.0),
    }
    found = {verdict.name: verdict.met for verdict in goals.check(ratios, latencies)}
    assert found == {
        "batch read, 100 B, Spark's connector": True,
        "batch read, 100 B, ours to ready-made Arrow batches": True,
        "batch read, 1 KiB, Spark's connector": False,
        "copy, 100 B, Spark's connector": True,
        "copy, 100 B, kafka_async, exactly once": False,
        "read of 1 % by time, Spark's connector": True,
        "copy at 1,000 records/s, p50": True,  # 100 ms and the 60 ms that Python costs
        "copy at 1,000 records/s, p99": False,
        "control message to job, p50": True,
        "control message to job, p99": False,
    }
