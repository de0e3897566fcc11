"""The streaming reader of Spark 4.0 and 4.1, which do not limit batches."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from kafka_async import blocking
from kafka_async.types import TopicPartition
from tests.integration.helpers import create_topic_blocking
from tests.integration.stream_readers import (
    READ_LIMITS,
    closed_at_end,
    offsets,
    produce,
    ranges,
    source,
    stored,
)
from tests.spark_versions import spark_version

if TYPE_CHECKING:
    from collections.abc import Generator

    from kafka_async.spark.source.stream_reader import StreamReaderWithoutLimits
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = pytest.mark.spark


@contextmanager
def opened(cluster: ClusterHandle, **options: str) -> Generator[StreamReaderWithoutLimits]:
    """Open a reader; keywords are options, with underscores for dots."""
    from kafka_async.spark.source.stream_reader import StreamReaderWithoutLimits

    with closed_at_end(StreamReaderWithoutLimits(source(cluster, options))) as reader:
        yield reader


def test_source_has_the_reader_of_this_spark() -> None:
    from pyspark.sql.types import StructType

    from kafka_async.spark.source import KafkaDataSource

    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
    reader = KafkaDataSource(options).streamReader(StructType())
    limited = spark_version() >= READ_LIMITS
    assert type(reader).__name__ == (
        "LimitedStreamReader" if limited else "StreamReaderWithoutLimits"
    )


def test_remembers_its_position(kafka_cluster: ClusterHandle) -> None:
    topic = create_topic_blocking(kafka_cluster)
    produce(kafka_cluster, topic, 5)
    group = kafka_cluster.group()
    options = {"maxOffsetsPerTrigger": "3", "commitGroupId": group, "subscribe": topic}
    with opened(kafka_cluster, startingOffsets="earliest", **options) as reader:
        start = reader.initialOffset()
        first = reader.latestOffset()
        assert ranges(reader, start, first) == [(0, 0, 3)]
    with (
        opened(kafka_cluster, **options) as reader,
        blocking.Admin(kafka_cluster.bootstrap_servers) as admin,
    ):
        assert ranges(reader, start, first) == [(0, 0, 3)]  # a batch that was not complete
        second = reader.latestOffset()
        assert ranges(reader, first, second) == [(0, 3, 5)]
        assert reader.latestOffset() == second
        reader.commit(stored(second))
        assert admin.list_group_offsets(group)[TopicPartition(topic, 0)].offset == 5


def test_continues_after_a_restart(kafka_cluster: ClusterHandle) -> None:
    topic = create_topic_blocking(kafka_cluster)
    produce(kafka_cluster, topic, 11)
    options = {
        "maxOffsetsPerTrigger": "3",
        "subscribe": topic,
        "startingOffsets": "earliest",
    }
    with opened(kafka_cluster, **options) as reader:
        reader.initialOffset()
        reader.latestOffset()
        position = reader.latestOffset()
        assert offsets(position) == {topic: {"0": 6}}
    with opened(kafka_cluster, **options) as reader:
        end = reader.latestOffset()  # Spark passes no position, and plans no batch again.
        assert ranges(reader, position, end) == [(0, 6, 11)]  # more than the limit
        assert reader.latestOffset() == end
        produce(kafka_cluster, topic, 5)
        limited = reader.latestOffset()
        assert ranges(reader, end, limited) == [(0, 11, 14)]
