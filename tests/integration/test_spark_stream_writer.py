"""Streaming queries that write to topics: rows at least once, and every output mode."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import blocking
from kafka_async.types import TopicPartition
from tests.integration.helpers import SPARKS_SIDE, create_topic_blocking
from tools.sparks import run_to_end

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = [pytest.mark.spark, pytest.mark.mainly_on("embedded", reason=SPARKS_SIDE)]


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
    spark: SparkSession,
    cluster: ClusterHandle,
    folder: Path,
    checkpoint: Path,
    columns: str = "value",
    **options: str,
) -> None:
    run_to_end(
        spark.readStream.format("text")
        .load(str(folder))
        .selectExpr(*columns.split(";"))
        .writeStream.format("kafka_async")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .options(**options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
    )


def test_streaming_query_writes_each_row_and_continues_after_restart(
    kafka_cluster: ClusterHandle, spark: SparkSession, tmp_path: Path
) -> None:
    topic = create_topic_blocking(kafka_cluster, partitions=1)
    folder, checkpoint = tmp_path / "lines", tmp_path / "checkpoint"
    folder.mkdir()
    for run in range(2):
        lines = [f"{run}-{number}" for number in range(100)]
        (folder / f"{run}.txt").write_text("\n".join(lines))
        run_query(spark, kafka_cluster, folder, checkpoint, topic=topic)
        expected = [f"{done}-{number}".encode() for done in range(run + 1) for number in range(100)]
        assert sorted(value or b"" for value in read_values(kafka_cluster, topic)) == sorted(
            expected
        )


@pytest.mark.slow
@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.one_backend("embedded")
def test_error_of_a_query_names_the_row(
    kafka_cluster: ClusterHandle, spark: SparkSession, tmp_path: Path, exactly_once: bool
) -> None:
    topic = create_topic_blocking(kafka_cluster, partitions=1)
    folder = tmp_path / "lines"
    folder.mkdir()
    (folder / "0.txt").write_text("good\nbad\n")
    options = {
        "exactlyOnce": "true",
        "sinkId": kafka_cluster.topic("sink"),
        "ledgerTopic": kafka_cluster.topic("ledger"),
    }
    columns = f"value;if(value = 'bad', null, '{topic}') as topic"
    with pytest.raises(Exception, match=r"rows\[1\]: topic is null"):  # Spark wraps it.
        run_query(
            spark,
            kafka_cluster,
            folder,
            tmp_path / "checkpoint",
            columns,
            **(options if exactly_once else {}),
        )
    assert read_values(kafka_cluster, topic) == []


# -- output modes ---------------------------------------------------------------------------------


class Words:
    """Counts the words of files in a stream, each file in one batch, and writes the counts."""

    def __init__(self, spark: SparkSession, cluster: ClusterHandle, directory: Path) -> None:
        self.spark = spark
        self.cluster = cluster
        self.topic = create_topic_blocking(cluster, partitions=2)
        self.files = directory / "files"
        self.files.mkdir()
        self.checkpoint = directory / "checkpoint"
        for number, words in enumerate(("a b a", "b c")):
            file = self.files / f"{number}.txt"
            file.write_text(words.replace(" ", "\n"))
            os.utime(file, (number, number))  # Spark reads older files first.
        self.sink = {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "topic": self.topic,
            "exactlyOnce": "true",
            "sinkId": self.topic,
            "ledgerTopic": cluster.topic("ledger"),
        }

    def counted(self, mode: str) -> DataStreamWriter:
        lines = self.spark.readStream.format("text").option("maxFilesPerTrigger", 1)
        counts: Any = lines.load(str(self.files)).groupBy("value").count()
        rows = counts.selectExpr("value AS key", "CAST(count AS STRING) AS value")
        writer = rows.writeStream.outputMode(mode).trigger(availableNow=True)
        return writer.option("checkpointLocation", str(self.checkpoint))

    def forget_last_batch(self) -> None:
        """Make Spark repeat the last batch, as if its driver was killed after the sink's commit."""
        for file in (self.checkpoint / "commits").glob("*1*"):
            file.unlink()

    def written(self) -> Counter[str]:
        """Return the committed records, as words with their counts."""
        records = asyncio.run(self.cluster.read(self.topic))
        return Counter(
            f"{(record.key or b'').decode()}={(record.value or b'').decode()}" for record in records
        )


@pytest.fixture
def words(kafka_cluster: ClusterHandle, spark: SparkSession, tmp_path: Path) -> Words:
    return Words(spark, kafka_cluster, tmp_path)


FIRST_BATCH = ("a=2", "b=1")
"""Counts after the first file."""


@pytest.mark.slow
@pytest.mark.one_backend("apache")
def test_mode_complete_writes_the_whole_result_of_each_batch_once(words: Words) -> None:
    writer = words.counted("complete").format("kafka_async").options(**words.sink)
    expected = Counter([*FIRST_BATCH, "a=2", "b=2", "c=1"])
    for _ in range(2):
        run_to_end(writer)
        assert words.written() == expected
        words.forget_last_batch()
    at_least_once = {name: words.sink[name] for name in ("kafka.bootstrap.servers", "topic")}
    run_to_end(words.counted("complete").format("kafka_async").options(**at_least_once))
    assert words.written() == expected + Counter(["a=2", "b=2", "c=1"])


@pytest.mark.slow
@pytest.mark.one_backend("embedded")
def test_mode_update_is_refused_by_spark_and_written_by_foreach_batch(words: Words) -> None:
    """The recipe of docs/spark.md."""
    with pytest.raises(Exception, match="kafka_async does not support Update mode"):
        run_to_end(words.counted("update").format("kafka_async").options(**words.sink))

    def write_batch(rows: DataFrame, batch_id: int) -> None:
        writer = rows.write.format("kafka_async").options(**words.sink)
        writer.option("writeId", f"word-counts/{batch_id}").mode("append").save()

    writer = words.counted("update").foreachBatch(write_batch)
    expected = Counter([*FIRST_BATCH, "b=2", "c=1"])
    for _ in range(2):
        run_to_end(writer)
        assert words.written() == expected
        words.forget_last_batch()
