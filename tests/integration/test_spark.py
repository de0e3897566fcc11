"""The data source in Spark, reading and writing topics."""

from __future__ import annotations

import asyncio
import datetime
import gc
import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import blocking
from kafka_async.types import ProducerRecord
from tests.integration.helpers import SPARKS_SIDE, as_bytes, create_topic_blocking

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = [pytest.mark.spark, pytest.mark.mainly_on("embedded", reason=SPARKS_SIDE)]

MAX_READS = 10
"""Spark may start a second process for a task while the first one still ends its task."""


def read(spark: SparkSession, cluster: ClusterHandle, **options: str) -> DataFrame:
    reader = spark.read.format("kafka_async")
    reader = reader.option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    for name, value in options.items():
        reader = reader.option(name.replace("_", "."), value)
    return reader.load()


def write(rows: DataFrame, cluster: ClusterHandle, **options: str) -> None:
    writer = rows.write.format("kafka_async").mode("append").options(**options)
    writer.option("kafka.bootstrap.servers", cluster.bootstrap_servers).save()


def test_columns_match_sparks_kafka_connector(
    kafka_cluster: ClusterHandle, spark: SparkSession
) -> None:
    topic = create_topic_blocking(kafka_cluster, partitions=3)
    records = [
        ProducerRecord(topic, b"v", key=b"k", partition=2, timestamp=1_700_000_000_123),
        ProducerRecord(topic, None, key=None, partition=2, headers=[("h", b"x"), ("n", None)]),
    ]
    with blocking.Producer(kafka_cluster.bootstrap_servers) as producer:
        producer.send_records(records)
        producer.flush()
    rows = read(spark, kafka_cluster, subscribe=topic, includeHeaders="true").collect()
    first, second = sorted(rows, key=lambda row: row["offset"])
    assert first["key"] == b"k"
    assert first["value"] == b"v"
    assert (first["topic"], first["partition"], first["offset"]) == (topic, 2, 0)
    moment = datetime.datetime.fromtimestamp(1_700_000_000.123)
    assert abs(first["timestamp"] - moment) < datetime.timedelta(milliseconds=1)
    assert first["timestampType"] == 0
    assert not first["headers"]
    assert second["key"] is None
    assert second["value"] is None
    assert [tuple(header) for header in second["headers"]] == [("h", b"x"), ("n", None)]


def test_reads_every_record_once_for_all_range_options(
    kafka_cluster: ClusterHandle, spark: SparkSession
) -> None:
    topic = create_topic_blocking(kafka_cluster, partitions=3)
    values = [str(number).encode() for number in range(10_000)]
    with blocking.Producer(
        kafka_cluster.bootstrap_servers, compression_type="lz4", batch_size=8_192
    ) as producer:
        producer.send_many(topic, values, keys=values)
        producer.flush()
    for options in ({}, {"minPartitions": "7"}, {"maxRecordsPerPartition": "1111"}):
        rows = read(spark, kafka_cluster, subscribe=topic, **options).select("value").collect()
        assert sorted(row["value"] for row in rows) == sorted(values)


def test_read_committed_reads_only_committed_records(
    kafka_cluster: ClusterHandle, spark: SparkSession
) -> None:
    topic = create_topic_blocking(kafka_cluster, partitions=1)
    name = kafka_cluster.transactional_id()
    with blocking.Producer(kafka_cluster.bootstrap_servers, transactional_id=name) as producer:
        for value in (b"one", b"aborted", b"two"):
            try:
                with producer.transaction() as transaction:
                    transaction.enqueue(topic, value)
                    producer.flush()
                    if value == b"aborted":
                        raise ZeroDivisionError
            except ZeroDivisionError:
                pass
    options = {"subscribe": topic, "kafka_isolation_level": "read_committed"}
    rows = read(spark, kafka_cluster, **options).collect()
    assert [row["value"] for row in rows] == [b"one", b"two"]
    assert [row["offset"] for row in rows] == [0, 4]


def test_reads_exactly_a_range_of_offsets(
    kafka_cluster: ClusterHandle, spark: SparkSession
) -> None:
    topic = create_topic_blocking(kafka_cluster, partitions=1)
    asyncio.run(kafka_cluster.produce(topic, [b"%d" % n for n in range(100)]))
    rows = read(
        spark,
        kafka_cluster,
        subscribe=topic,
        startingOffsets=json.dumps({topic: {"0": 10}}),
        endingOffsets=json.dumps({topic: {"0": 20}}),
    ).collect()
    assert [row["offset"] for row in rows] == list(range(10, 20))


def test_error_names_a_missing_topic(kafka_cluster: ClusterHandle, spark: SparkSession) -> None:
    with pytest.raises(Exception, match="no-such-topic"):  # Spark wraps the source's exception.
        read(spark, kafka_cluster, subscribe="no-such-topic").collect()


def test_writes_rows_as_records(kafka_cluster: ClusterHandle, spark: SparkSession) -> None:
    topic = create_topic_blocking(kafka_cluster, partitions=2)
    rows = spark.range(1000).selectExpr(
        "cast(id as string) as key",
        "cast(id * 2 as string) as value",
        "cast(id % 2 as int) as partition",
    )
    write(rows, kafka_cluster, topic=topic)
    back = read(spark, kafka_cluster, subscribe=topic).collect()
    assert {(as_bytes(row["key"]), as_bytes(row["value"]), row["partition"]) for row in back} == {
        (str(n).encode(), str(2 * n).encode(), n % 2) for n in range(1000)
    }
    assert len(back) == 1000


def test_writes_rows_to_the_topic_of_their_column(
    kafka_cluster: ClusterHandle, spark: SparkSession
) -> None:
    first, second = (create_topic_blocking(kafka_cluster, name) for name in ("first", "second"))
    rows = spark.createDataFrame([(first, b"a"), (second, b"b")], "topic string, value binary")
    write(rows, kafka_cluster)
    for topic, value in ((first, b"a"), (second, b"b")):
        back = read(spark, kafka_cluster, subscribe=topic).collect()
        assert [row["value"] for row in back] == [value]


def test_refuses_columns_that_do_not_form_a_record(
    kafka_cluster: ClusterHandle, spark: SparkSession
) -> None:
    for sql, named in (
        ("id as value", "column value is of type bigint"),
        ("cast(id as string) as key", "no column value"),
    ):
        with pytest.raises(Exception, match=named):  # Spark wraps the source's exception.
            write(spark.range(1).selectExpr(sql), kafka_cluster, topic="t")


def test_reader_stops_at_the_end_of_its_range(
    kafka_cluster: ClusterHandle, spark: SparkSession
) -> None:
    topic = create_topic_blocking(kafka_cluster, partitions=1)
    with blocking.Producer(kafka_cluster.bootstrap_servers) as producer:
        producer.send(topic, b"before")
        frame = read(spark, kafka_cluster, subscribe=topic)
        assert frame.count() == 1
        producer.send(topic, b"after")
    assert read(spark, kafka_cluster, subscribe=topic).count() == 2


def test_later_tasks_of_a_process_run_with_a_frozen_heap(spark: SparkSession) -> None:
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class FrozenObjects(DataSource):
        """Reads the id and the number of frozen objects of the process that runs the task."""

        @classmethod
        def name(cls) -> str:
            return "frozen_objects"

        def schema(self) -> str:
            return "process long, objects long"

        def reader(self, schema: object) -> DataSourceReader:
            return Reader()

    class Reader(DataSourceReader):
        def read(self, partition: InputPartition) -> Iterator[tuple[int, int]]:
            from kafka_async.spark.source.read_task import read_partition

            options: Any = None  # There is no range that a task would read with them.
            assert list(read_partition(partition, options)) == []
            yield os.getpid(), gc.get_freeze_count()

    spark.dataSource.register(FrozenObjects)
    frozen: dict[int, list[int]] = {}
    for _ in range(MAX_READS):
        row = spark.read.format("frozen_objects").load().collect()[0]
        counts = frozen.setdefault(int(row["process"]), [])
        counts.append(int(row["objects"]))
        if len(counts) == 3:
            break
    else:
        pytest.fail(f"no process had three tasks: {frozen}")
    assert min(count for counts in frozen.values() for count in counts[1:]) > 10_000
