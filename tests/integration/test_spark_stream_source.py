"""Streaming and filtered reads in Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import blocking
from kafka_async.admin import OffsetSpec
from kafka_async.types import TopicPartition
from tests.integration.helpers import SPARKS_SIDE, create_topic_blocking
from tests.integration.stream_readers import READ_LIMITS
from tests.spark_versions import spark_version
from tools.sparks import run_to_end

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = [pytest.mark.spark, pytest.mark.mainly_on("embedded", reason=SPARKS_SIDE)]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def read_available(
    spark: SparkSession, cluster: ClusterHandle, checkpoint: Path, **options: str
) -> tuple[list[tuple[int, int]], list[Any]]:
    """Run a query until it has read what is there; return partitions and offsets, and progress."""
    read: list[tuple[int, int]] = []

    def collect(rows: DataFrame, batch: int) -> None:
        read.extend((row["partition"], row["offset"]) for row in rows.collect())

    query = run_to_end(
        spark.readStream.format("kafka_async")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .options(**options)
        .load()
        .writeStream.foreachBatch(collect)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
    )
    return read, [json.loads(progress.json)["sources"][0] for progress in query.recentProgress]


def test_query_reads_each_record_once_across_restarts(
    kafka_cluster: ClusterHandle, spark: SparkSession, tmp_path: Path
) -> None:
    topic = create_topic_blocking(kafka_cluster, partitions=2)
    group = kafka_cluster.group()
    options = {
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "60",
        "commitGroupId": group,
    }
    send(kafka_cluster, topic, 100)
    read, progress = read_available(spark, kafka_cluster, tmp_path, **options)
    send(kafka_cluster, topic, 10)
    more, _ = read_available(spark, kafka_cluster, tmp_path, **options)
    assert len(read) == 100
    assert len(more) == 10
    assert len(set(read + more)) == 110
    counts = [source["numInputRows"] for source in progress]
    assert sum(counts) == 100
    with blocking.Admin(kafka_cluster.bootstrap_servers) as admin:
        committed = {tp: at.offset for tp, at in admin.list_group_offsets(group).items()}
        ends = {tp: admin.list_offsets({tp: OffsetSpec.LATEST})[tp].offset for tp in committed}
    assert set(committed) == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    assert sum(ends.values()) == 110
    if spark_version() < READ_LIMITS:  # as in the table of versions in docs/spark.md
        assert len(counts) == 1
        assert sum(committed.values()) == 100
        return
    assert len(counts) == 2
    assert 58 <= counts[0] <= 60  # Each partition's share is rounded down.
    # Spark's own progress shows the lag.
    latest, end = progress[0]["latestOffset"][topic], progress[0]["endOffset"][topic]
    assert sum(latest.values()) - sum(end.values()) == counts[1]
    assert committed == ends


def send(cluster: ClusterHandle, topic: str, count: int) -> None:
    with blocking.Producer(cluster.bootstrap_servers) as producer:
        values = [b"%d" % number for number in range(count)]
        producer.send_many(topic, values, keys=values)
        producer.flush()


@pytest.mark.slow
@pytest.mark.one_backend("apache")
def test_query_stops_if_its_topic_was_created_again(
    kafka_cluster: ClusterHandle, spark: SparkSession, tmp_path: Path
) -> None:
    from kafka_async.admin import NewTopic

    topic = create_topic_blocking(kafka_cluster)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    send(kafka_cluster, topic, 5)
    assert len(read_available(spark, kafka_cluster, tmp_path, **options)[0]) == 5
    with blocking.Admin(kafka_cluster.bootstrap_servers) as admin:
        admin.delete_topics([topic])
        admin.create_topics([NewTopic(topic)])
    send(kafka_cluster, topic, 9)
    # The new topic is longer than the old one, so offsets alone would not show the loss.
    with pytest.raises(Exception, match=rf"DataLossError: {topic}-0 at offset 5"):
        read_available(spark, kafka_cluster, tmp_path, **options)
    kept = {**options, "failOnDataLoss": "false"}
    assert len(read_available(spark, kafka_cluster, tmp_path, **kept)[0]) == 9


@pytest.mark.slow
@pytest.mark.one_backend("embedded")
def test_filters_are_pushed_where_spark_pushes(
    kafka_cluster: ClusterHandle, spark: SparkSession
) -> None:
    topic = create_topic_blocking(kafka_cluster, partitions=3)
    send(kafka_cluster, topic, 30)
    condition = "partition = 1 and offset >= 2 and timestamp > timestamp'2020-01-01'"

    def frame() -> DataFrame:
        reader = spark.read.format("kafka_async").option("subscribe", topic)
        return (
            reader.option("kafka.bootstrap.servers", kafka_cluster.bootstrap_servers)
            .load()
            .where(condition)
        )

    unfiltered = frame()
    expected = {row["offset"] for row in unfiltered.collect()}
    assert unfiltered.rdd.getNumPartitions() == 3
    spark.conf.set(PUSHDOWN, "true")
    try:
        filtered = frame()
        assert {row["offset"] for row in filtered.collect()} == expected
        assert filtered.rdd.getNumPartitions() == (1 if spark_version() >= (4, 1) else 3)
    finally:
        spark.conf.unset(PUSHDOWN)


@pytest.mark.slow
@pytest.mark.one_backend("embedded")
def test_query_with_a_wrong_option_fails_with_its_error(
    kafka_cluster: ClusterHandle, spark: SparkSession, tmp_path: Path
) -> None:
    options = {"subscribe": "t", "endingOffsets": "latest"}
    # Spark's own UnboundLocalError would take the place of an error of streamReader.
    with pytest.raises(Exception, match="InvalidConfigurationError: endingOffsets is for batch"):
        read_available(spark, kafka_cluster, tmp_path, **options)


@pytest.mark.slow
@pytest.mark.one_backend("apache")
def test_empty_topic_has_no_rows(kafka_cluster: ClusterHandle, spark: SparkSession) -> None:
    topic = create_topic_blocking(kafka_cluster)
    reader = spark.read.format("kafka_async").option("subscribe", topic)
    reader = reader.option("kafka.bootstrap.servers", kafka_cluster.bootstrap_servers)
    assert reader.load().collect() == []
