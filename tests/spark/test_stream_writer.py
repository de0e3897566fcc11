"""Tests of the streaming writer's conversion of rows, which Spark 4.0 needs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

pytest.importorskip("pyspark")

from pyspark.sql import Row
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DayTimeIntervalType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from kafka_async.spark.sink import stream_writer
from kafka_async.spark.sink.sink_options import sink_options

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
SCHEMA = StructType(
    [
        StructField("value", BinaryType()),
        StructField("key", StringType()),
        StructField("partition", IntegerType()),
        StructField("headers", ArrayType(HEADER)),
    ]
)
ROWS: list[Any] = [
    Row(
        value=b"v",
        key="k",
        partition=1,
        headers=[Row(key="a", value=b"x"), Row(key="n", value=None)],
    ),
    Row(value=bytearray(b"w"), key=None, partition=None, headers=None),
    Row(value=None, key="", partition=0, headers=[]),
]
EXPECTED: list[Any] = [
    {
        "value": b"v",
        "key": "k",
        "partition": 1,
        "headers": [{"key": "a", "value": b"x"}, {"key": "n", "value": None}],
    },
    {"value": b"w", "key": None, "partition": None, "headers": None},
    {"value": None, "key": "", "partition": 0, "headers": []},
]


def test_rows_become_arrow_batches_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_writer, "MAX_ROWS_PER_CONVERSION", 2)
    batches = list(stream_writer.arrow_batches(iter(ROWS), SCHEMA))
    assert [batch.num_rows for batch in batches] == [2, 1]
    assert [row for batch in batches for row in batch.to_pylist()] == EXPECTED


def test_columns_that_records_do_not_have_are_not_converted() -> None:
    schema = StructType([StructField("at", DayTimeIntervalType()), *SCHEMA.fields[:1]])
    (batch,) = stream_writer.arrow_batches(iter([Row(at=object(), value=b"v")]), schema)
    assert batch.to_pylist() == [{"value": b"v"}]


def test_no_rows_become_no_batches() -> None:
    assert list(stream_writer.arrow_batches(iter([]), SCHEMA)) == []


def reloaded(monkeypatch: pytest.MonkeyPatch, *, arrow: bool) -> ModuleType:
    """Return the module as this version of Spark with or without an Arrow writer imports it."""
    from importlib import import_module

    from pyspark.sql import datasource

    if arrow:
        base = getattr(datasource, "DataSourceStreamArrowWriter", None)
        if base is None:
            base = type("DataSourceStreamArrowWriter", (datasource.DataSourceStreamWriter,), {})
        monkeypatch.setattr(datasource, "DataSourceStreamArrowWriter", base, raising=False)
    else:
        monkeypatch.delattr(datasource, "DataSourceStreamArrowWriter", raising=False)
    name = "kafka_async.spark.sink.stream_writer"
    monkeypatch.delitem(sys.modules, name)
    return import_module(name)


@pytest.mark.parametrize("arrow", [True, False])
def test_writer_takes_what_the_version_of_spark_gives(
    monkeypatch: pytest.MonkeyPatch, arrow: bool
) -> None:
    module = reloaded(monkeypatch, arrow=arrow)
    options = sink_options({"kafka.bootstrap.servers": "localhost:1", "topic": "t"})
    writer = module.stream_writer(options, SCHEMA)
    assert type(writer) is (module.StreamWriter if arrow else module.RowStreamWriter)
    written: list[Any] = []

    def write_task(_: object, batches: Any) -> None:
        written.extend(row for batch in batches for row in batch.to_pylist())

    monkeypatch.setattr(module, "write_task", write_task)
    if not arrow:
        writer.write(iter(ROWS))
        assert written == EXPECTED
