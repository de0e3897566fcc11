"""Reads that decode JSON values to columns, on a cluster."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import blocking
from tests.integration.helpers import create_topic_blocking
from tests.integration.stream_readers import next_offset, stored
from tests.integration.test_spark import read
from tests.integration.test_spark_stream_source import read_available

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = pytest.mark.spark

VALUES = [
    b'{"id": 1, "tags": ["a", null], "at": "2026-01-02T03:04:05+01:00", "more": {}}',
    None,
    b'{"id": "two", "tags": ["kept"]}',
    b"nonsense",
    b'{"tags": [], "counts": {"x": 2}}',
]
FORMAT = {
    "valueFormat": "json",
    "valueSchema": "id BIGINT, tags ARRAY<STRING>, at TIMESTAMP, counts MAP<STRING, INT>",
    "corruptRecordColumn": "bad",
}
IDS = [1, None, None, None, None]
TAGS = [["a", None], None, ["kept"], None, []]
BAD = [None, None, '{"id": "two", "tags": ["kept"]}', "nonsense", None]


def topic_with_values(cluster: ClusterHandle) -> str:
    topic = create_topic_blocking(cluster)
    with blocking.Producer(cluster.bootstrap_servers) as producer:
        producer.send_many(topic, VALUES, keys=[b"%d" % n for n in range(len(VALUES))])
        producer.flush()
    return topic


def rows_of_tasks(reader: Any, parts: Any) -> Any:
    import pyarrow as pa

    batches = [rows for part in parts for rows in reader.read(part)]
    return pa.Table.from_batches(batches)


def check(rows: Any) -> None:
    assert rows.column("id").to_pylist() == IDS
    assert rows.column("tags").to_pylist() == TAGS
    assert [at and at.isoformat() for at in rows.column("at").to_pylist()] == [
        "2026-01-02T02:04:05+00:00",
        *[None] * 4,
    ]
    assert rows.column("counts").to_pylist() == [None, None, None, None, [("x", 2)]]
    assert rows.column("bad").to_pylist() == BAD
    assert rows.column("key").to_pylist() == [b"%d" % n for n in range(len(VALUES))]
    assert rows.column("offset").to_pylist() == list(range(len(VALUES)))


def test_batch_and_stream_decode_values(kafka_cluster: ClusterHandle) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    from kafka_async.spark.source import KafkaDataSource

    topic = topic_with_values(kafka_cluster)
    servers = {"kafka.bootstrap.servers": kafka_cluster.bootstrap_servers}
    options = {"subscribe": topic, "includeHeaders": "true", "startingOffsets": "earliest"}
    source = KafkaDataSource({**servers, **options, **FORMAT})
    schema: Any = source.schema()
    batch: Any = source.reader(schema)
    rows = rows_of_tasks(batch, batch.partitions())
    check(rows)
    # Spark 4.2 and newer compare them; older versions know no other time zone.
    has_zone = "timezone" in inspect.signature(to_arrow_schema).parameters
    arguments: dict[str, Any] = {"timezone": "UTC"} if has_zone else {}
    assert rows.schema.equals(to_arrow_schema(schema, **arguments))
    stream: Any = source.streamReader(schema)
    try:
        start = stored(stream.initialOffset())
        end = stored(next_offset(stream, start))
        check(rows_of_tasks(stream, stream.partitions(start, end)))
    finally:
        stream.stop()


def test_spark_reads_typed_columns(kafka_cluster: ClusterHandle, spark: SparkSession) -> None:
    topic = topic_with_values(kafka_cluster)
    rows = read(spark, kafka_cluster, subscribe=topic, **FORMAT)
    assert rows.columns[:6] == ["key", "id", "tags", "at", "counts", "bad"]
    found: list[Any] = rows.orderBy("offset").collect()
    assert [row["id"] for row in found] == IDS
    assert [row["tags"] for row in found] == TAGS
    assert [row["counts"] for row in found] == [*[None] * 4, {"x": 2}]
    assert [row["bad"] for row in found] == BAD
    assert rows.where("bad is not null").count() == 2


def test_load_names_a_wrong_option(kafka_cluster: ClusterHandle, spark: SparkSession) -> None:
    for options, message in (
        ({**FORMAT, "valueFormat": "jsn"}, "did you mean json?"),
        ({**FORMAT, "valueSchema": "offset INT"}, "valueSchema names the column offset"),
        ({"valueSchem": "a INT"}, "did you mean valueSchema?"),
    ):
        with pytest.raises(Exception, match=message):  # Spark wraps the source's exception.
            read(spark, kafka_cluster, subscribe="t", **options)


@pytest.mark.slow
def test_query_reads_typed_columns(
    kafka_cluster: ClusterHandle, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_with_values(kafka_cluster)
    schema = read(spark, kafka_cluster, subscribe=topic, **FORMAT).select("id", "tags").schema
    options = {
        "startingOffsets": "earliest",
        **FORMAT,
        "valueSchema": json.dumps(schema.jsonValue()),
    }
    read_rows, _ = read_available(spark, kafka_cluster, tmp_path, subscribe=topic, **options)
    assert sorted(read_rows) == [(0, offset) for offset in range(len(VALUES))]
