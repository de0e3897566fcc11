"""Tests of the columns and options of a writer, which are checked before any task runs."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql import types

from kafka_async.errors import InvalidConfigurationError
from kafka_async.spark.sink.writer import record_columns
from kafka_async.spark.source import KafkaDataSource

OPTIONS = {"kafka.bootstrap.servers": "localhost:9092", "topic": "t"}
HEADERS = types.ArrayType(
    types.StructType(
        [
            types.StructField("key", types.StringType()),
            types.StructField("value", types.BinaryType()),
        ]
    )
)
TYPES: dict[str, types.DataType] = {
    "BIGINT": types.LongType(),
    "BINARY": types.BinaryType(),
    "HEADERS": HEADERS,
    "INT": types.IntegerType(),
    "MAP": types.MapType(types.StringType(), types.BinaryType()),
    "STRING": types.StringType(),
    "TIMESTAMP": types.TimestampType(),
}


def schema_of(columns: str) -> types.StructType:
    """Return the schema of columns such as "key STRING, value BINARY"."""
    pairs = (column.split() for column in columns.split(", "))
    return types.StructType([types.StructField(name, TYPES[kind]) for name, kind in pairs])


def check(columns: str, options: dict[str, str]) -> None:
    """Create the writers of a batch and of a stream, and raise what both raise."""
    source, schema = KafkaDataSource(dict(options)), schema_of(columns)
    try:
        source.writer(schema, overwrite=False)
    except InvalidConfigurationError as error:
        with pytest.raises(InvalidConfigurationError, match=f"^{re.escape(str(error))}$"):
            source.streamWriter(schema, overwrite=False)
        raise
    source.streamWriter(schema, overwrite=False)


@pytest.mark.parametrize("kind", ["STRING", "BINARY"])
def test_all_columns_of_a_record_are_written(kind: str) -> None:
    check(f"key {kind}, value {kind}, topic STRING, partition INT, headers HEADERS", OPTIONS)
    check(f"value {kind}, topic STRING", {"kafka.bootstrap.servers": "localhost:9092"})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("value INT", "column value is of type int: cast it to binary or string"),
        ("value STRING, key BIGINT", "column key is of type bigint: cast it to binary or string"),
        ("value STRING, topic BINARY", "column topic is of type binary: cast it to string"),
        ("value STRING, partition BIGINT", "column partition is of type bigint: cast it to int"),
        (
            "value STRING, headers MAP",
            "column headers is of type map<string,binary>",
        ),
        (
            "key STRING, word STRING",
            "there is no column value: name one of these columns so: key, word",
        ),
    ],
)
def test_error_names_the_column(columns: str, message: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=re.escape(message)):
        check(columns, OPTIONS)


def test_columns_that_records_do_not_have_are_not_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    check("value STRING, offset BIGINT, timestamp TIMESTAMP, timestampType INT", OPTIONS)
    assert not caplog.records
    check("value STRING, id INT, header STRING", OPTIONS)
    assert "not written, because a record has no such part: id, header" in caplog.text
    pa: Any = importlib.import_module("pyarrow")  # its stubs lack the types of elements
    rows = pa.RecordBatch.from_pydict({"id": [1], "value": ["v"], "timestamp": [2]})
    assert record_columns(rows).to_pylist() == [{"value": "v"}]


def test_topic_is_an_option_or_a_column() -> None:
    with pytest.raises(InvalidConfigurationError, match="neither an option topic nor a column"):
        check("value STRING", {"kafka.bootstrap.servers": "localhost:9092"})


def test_a_batch_overwrites_no_topic_and_the_mode_complete_appends() -> None:
    source, schema = KafkaDataSource(dict(OPTIONS)), schema_of("value STRING")
    with pytest.raises(InvalidConfigurationError, match=r'overwritten: use mode\("append"\)'):
        source.writer(schema, overwrite=True)
    source.streamWriter(schema, overwrite=True)  # Spark's flag of the output mode "complete"


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("topics", "no option topics: did you mean topic?"),
        ("exactlyonc", "no option exactlyonc: did you mean exactlyOnce?"),
        ("ledger_topic", "no option ledger_topic: did you mean ledgerTopic?"),
        ("linger.ms", "no option linger.ms: did you mean kafka.linger.ms?"),
        ("kafka.linger", "did you mean kafka.linger.ms?"),
        ("kafka.key.serializer", "option kafka.key.serializer is not allowed"),
        ("kafka.interceptor.classes", "interceptor"),
    ],
)
def test_error_names_the_option(option: str, message: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=re.escape(message)):
        check("value STRING", {**OPTIONS, option: "1"})
