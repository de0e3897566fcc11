"""Readers of streams as Spark's driver calls them, without Spark's Java side."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kafka_async import blocking
from kafka_async.types import ProducerRecord
from tests.spark_versions import spark_version

if TYPE_CHECKING:
    from collections.abc import Generator

    from kafka_async.spark.source.stream_reader import KafkaStreamReader
    from kafka_async.testing.backends.base import Backend
    from kafka_async.testing.fixtures import ClusterHandle

Json = dict[str, Any]

READ_LIMITS = (4, 2)
"""First version of Spark that limits batches."""


def source(cluster: ClusterHandle | Backend, options: dict[str, str]) -> Any:
    from kafka_async.spark.source.source_options import source_options

    given = {name.replace("_", "."): value for name, value in options.items()}
    given |= {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "fetchOffset.retryIntervalMs": "0",
    }
    return source_options(given, streaming=True)


@contextmanager
def closed_at_end(reader: Any) -> Generator[Any]:
    try:
        yield reader
    finally:
        reader.stop()


def offsets(value: Json) -> Json:
    """Return the part of an offset that Spark's connector reads."""
    return {topic: partitions for topic, partitions in value.items() if partitions}


def stored(value: Json) -> Json:
    """Return an offset as Spark returns it from its checkpoint."""
    return json.loads(json.dumps(value))


def ranges(reader: KafkaStreamReader, start: Json, end: Json) -> list[tuple[int, int, int]]:
    """Return the partition, start and end of each task."""
    parts: Any = reader.partitions(stored(start), stored(end))
    return [(part.range.partition, part.range.start, part.range.end) for part in parts]


def everything() -> Any:
    """Return the limit of Spark 4.2 and newer that limits nothing."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    return ReadAllAvailable()


def next_offset(reader: Any, start: Json) -> Json:
    """Return the end of the next batch, requested as the installed Spark does."""
    if spark_version() < READ_LIMITS:
        return reader.latestOffset()
    return reader.latestOffset(start, everything())


def produce(
    cluster: ClusterHandle | Backend, topic: str, *counts: int, value: bytes = b"v"
) -> None:
    """Send `counts[n]` records to each partition n."""
    with blocking.Producer(cluster.bootstrap_servers) as producer:
        for partition, count in enumerate(counts):
            producer.send_records(
                ProducerRecord(topic, value, partition=partition, timestamp=1_000 + n)
                for n in range(count)
            )
        producer.flush()
