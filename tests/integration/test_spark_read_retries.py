"""Options of a read that say how long it waits for data, and how often it looks up offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafka_async.errors import KafkaTimeoutError
from kafka_async.types import TopicPartition
from tests.integration.helpers import create_topic_blocking
from tests.integration.stream_readers import produce, source

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.spark.source.cluster_offsets import ClusterOffsets
    from kafka_async.spark.source.data_loss import Loss
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("milliseconds", [250, 750])
def test_task_without_data_fails_after_the_poll_timeout(
    kafka_cluster: ClusterHandle, monkeypatch: pytest.MonkeyPatch, milliseconds: int
) -> None:
    """The range begins at the end of the log, so its records never come."""
    from kafka_async import blocking
    from kafka_async.spark.offsets import OffsetRange
    from kafka_async.spark.source.read_task import read_range

    topic = create_topic_blocking(kafka_cluster)
    produce(kafka_cluster, topic, 3)
    options = {"subscribe": topic, "kafkaConsumer_pollTimeoutMs": str(milliseconds)}
    waits: list[float | None] = []
    poll = blocking.Consumer.poll_batches

    def counted(self: blocking.Consumer, *, timeout: float | None = None) -> object:
        waits.append(timeout)
        return poll(self, timeout=timeout)

    monkeypatch.setattr(blocking.Consumer, "poll_batches", counted)
    with pytest.raises(KafkaTimeoutError) as raised:
        list(read_range(OffsetRange(topic, 0, 3, 5), None, source(kafka_cluster, options)))
    assert waits == [0.25] * (milliseconds // 250)
    error = raised.value
    assert (error.topic, error.partition, error.offset) == (topic, 0, 3)
    assert f"no data for {milliseconds / 1000:g} s, yet the partition goes on to 5" in str(error)
    assert "raise kafkaConsumer.pollTimeoutMs" in str(error)


def losses(cluster: ClusterOffsets, topic: str) -> list[Loss]:
    """Compare a query that has read three records with the cluster."""
    from kafka_async.spark.source.data_loss import find_losses
    from kafka_async.spark.source.stream_offset import StreamOffset

    start = StreamOffset({TopicPartition(topic, 0): 3})
    return find_losses(start, cluster.state(start))[1]


def opened(
    cluster: ClusterHandle, topic: str, attempts: int, pause: Callable[[float], None]
) -> ClusterOffsets:
    from kafka_async.spark.source.cluster_offsets import ClusterOffsets

    options = {"subscribe": topic, "fetchOffset_numRetries": str(attempts)}
    return ClusterOffsets(source(cluster, options), pause)


@pytest.mark.parametrize("attempts", [1, 2, 4])
def test_lost_records_are_reported_after_the_number_of_look_ups(
    kafka_cluster: ClusterHandle, attempts: int
) -> None:
    topic = create_topic_blocking(kafka_cluster)
    pauses: list[float] = []
    cluster = opened(kafka_cluster, topic, attempts, pauses.append)
    try:
        assert len(losses(cluster, topic)) == 1
    finally:
        cluster.close()
    assert len(pauses) == attempts - 1


@pytest.mark.parametrize("attempts", [1, 4])
def test_records_that_a_later_look_up_finds_are_not_reported(
    kafka_cluster: ClusterHandle, attempts: int
) -> None:
    topic = create_topic_blocking(kafka_cluster)
    cluster = opened(kafka_cluster, topic, attempts, lambda _: produce(kafka_cluster, topic, 3))
    try:
        assert len(losses(cluster, topic)) == (1 if attempts == 1 else 0)
    finally:
        cluster.close()
