"""Streaming queries that write to topics at least once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafka_async import blocking
from kafka_async.types import TopicPartition
from tests.integration.helpers import create_topic_blocking

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = pytest.mark.spark


def read_values(cluster: ClusterHandle, topic: str) -> list[bytes | None]:
    partition = TopicPartition(topic, 0)
    with blocking.Consumer(
        cluster.bootstrap_servers, partitions=[partition], auto_offset_reset="earliest"
    ) as consumer:
        end = consumer.end_offsets([partition])[partition]
        values: list[bytes | None] = []
        while consumer.position(partition) < end:
            values += [record.value for record in consumer.poll(timeout=1.0)]
    return values


def run_query(
    spark: SparkSession, cluster: ClusterHandle, topic: str, folder: Path, checkpoint: Path
) -> None:
    query = (
        spark.readStream.format("text")
        .load(str(folder))
        .writeStream.format("kafka_async")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("topic", topic)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_streaming_query_writes_each_row_and_continues_after_restart(
    kafka_cluster: ClusterHandle, spark: SparkSession, tmp_path: Path
) -> None:
    topic = create_topic_blocking(kafka_cluster, partitions=1)
    folder, checkpoint = tmp_path / "lines", tmp_path / "checkpoint"
    folder.mkdir()
    for run in range(2):
        lines = [f"{run}-{number}" for number in range(100)]
        (folder / f"{run}.txt").write_text("\n".join(lines))
        run_query(spark, kafka_cluster, topic, folder, checkpoint)
        expected = [f"{done}-{number}".encode() for done in range(run + 1) for number in range(100)]
        assert sorted(value or b"" for value in read_values(kafka_cluster, topic)) == sorted(
            expected
        )
