"""The producer on every kind of cluster: each record is written once and in order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kafka_async import Client, Producer, ProducerRecord, RecordBatch, TopicPartition
from kafka_async.client.client import services_of
from kafka_async.errors import (
    DeliveryError,
    KafkaTimeoutError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from tests.integration.helpers import create_topic, read_values

if TYPE_CHECKING:
    from kafka_async.config import Compression
    from kafka_async.testing.backends import BrokerControl
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = [pytest.mark.asyncio, pytest.mark.any_broker]


async def leader_of(cluster: ClusterHandle, topic: str) -> int:
    """Wait until the topic's first partition has a leader, and return its id."""
    async with Client(cluster.bootstrap_servers) as client, asyncio.timeout(30):
        while (
            row := services_of(client).metadata.snapshot.leader(TopicPartition(topic, 0))
        ) is None:
            await asyncio.sleep(0.05)
            await services_of(client).metadata.refresh(topics=[topic])
        return row.leader_id


async def test_first_record_creates_a_topic(kafka_cluster: ClusterHandle) -> None:
    topic = kafka_cluster.topic("auto")
    async with Producer(kafka_cluster.bootstrap_servers) as producer:
        delivery = await producer.enqueue(topic, b"v")
        assert (await delivery).topic == topic


async def test_splits_a_batch_over_the_topics_limit(kafka_cluster: ClusterHandle) -> None:
    topic = await create_topic(kafka_cluster, configs={"max.message.bytes": "20000"})
    values = [b"%d" % n * 2000 for n in range(40)]
    async with Producer(kafka_cluster.bootstrap_servers, linger_ms=50) as producer:
        await producer.send_many(topic, values)
        too_large = await producer.enqueue(topic, b"x" * 30_000)
        with pytest.raises(RecordTooLargeError):
            await too_large
        await producer.flush()
        assert producer.statistics().batch_split_total > 0
    assert await read_values(kafka_cluster, topic) == values


async def test_restart_of_the_leader_loses_and_duplicates_no_record(
    kafka_cluster: ClusterHandle,
) -> None:
    control = kafka_cluster.control
    topic = await create_topic(kafka_cluster)
    leader = await leader_of(kafka_cluster, topic)
    values = [b"%d" % n for n in range(1000)]
    async with Producer(kafka_cluster.bootstrap_servers, linger_ms=1) as producer:
        deliveries = await producer.send_many(topic, values)
        await deliveries[0]
        restarting = asyncio.create_task(asyncio.to_thread(restart, control, leader))
        while len(values) < 1200 or not restarting.done():
            values.append(b"%d" % len(values))
            deliveries.append(await producer.enqueue(topic, values[-1]))
            await asyncio.sleep(0.01)
        await restarting
        await producer.flush()
    assert [delivery.result().offset for delivery in deliveries] == list(range(len(values)))
    assert await read_values(kafka_cluster, topic) == values


def restart(control: BrokerControl, broker: int) -> None:
    control.stop_broker(broker)
    control.start_broker(broker)


async def test_record_fails_at_delivery_timeout_without_a_leader(
    kafka_cluster: ClusterHandle,
) -> None:
    """Stops the only replica; the producer works again after its restart."""
    control = kafka_cluster.control
    topic = await create_topic(kafka_cluster, replication_factor=1)
    leader = await leader_of(kafka_cluster, topic)
    async with Producer(
        kafka_cluster.bootstrap_servers, request_timeout_ms=1000, delivery_timeout_ms=2000
    ) as producer:
        assert (await producer.send(topic, b"1")).offset == 0
        await asyncio.to_thread(control.stop_broker, leader)
        try:
            async with asyncio.timeout(20):  # Much less than the default.
                with pytest.raises(KafkaTimeoutError, match="delivery_timeout_ms"):
                    await producer.send(topic, b"2")
        finally:
            await asyncio.to_thread(control.start_broker, leader)
        await leader_of(kafka_cluster, topic)
        await services_of(producer.client).metadata.refresh(topics=[topic])
        assert (await producer.send(topic, b"3")).offset == 1
    assert await read_values(kafka_cluster, topic) == [b"1", b"3"]


async def test_sends_all_fields_of_a_record(kafka_cluster: ClusterHandle) -> None:
    topic = await create_topic(kafka_cluster)
    headers = [("trace", b"1"), ("empty", None)]
    async with Producer(kafka_cluster.bootstrap_servers) as producer:
        metadata = await producer.send(
            topic, b"value", key=b"key", headers=headers, timestamp=1_700_000_000_000
        )
        assert (metadata.topic, metadata.partition, metadata.offset) == (topic, 0, 0)
    (record,) = await kafka_cluster.read(topic)
    assert (record.key, record.value, record.timestamp) == (b"key", b"value", 1_700_000_000_000)
    assert list(record.headers) == headers


async def test_missing_partition_raises_before_max_block_with_the_topics_name(
    kafka_cluster: ClusterHandle,
) -> None:
    topic = await create_topic(kafka_cluster, partitions=2)
    async with Producer(kafka_cluster.bootstrap_servers, max_block_ms=300_000) as producer:
        with pytest.raises(UnknownTopicOrPartitionError, match=f"{topic}.* partitions 0 to 1"):
            async with asyncio.timeout(60):
                await producer.send(topic, b"value", partition=9)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_sends_every_codec(kafka_cluster: ClusterHandle, compression: Compression) -> None:
    topic = await create_topic(kafka_cluster)
    values = [b"%06d" % n * 20 for n in range(3000)]
    servers = kafka_cluster.bootstrap_servers
    async with Producer(servers, compression_type=compression) as producer:
        deliveries = await producer.send_many(topic, values)
        await producer.flush()
    assert [delivery.result().offset for delivery in deliveries] == list(range(3000))
    assert await read_values(kafka_cluster, topic) == values


async def test_sends_prebuilt_batches(kafka_cluster: ClusterHandle) -> None:
    topic = await create_topic(kafka_cluster)
    place = TopicPartition(topic, 0)
    async with Producer(kafka_cluster.bootstrap_servers) as producer:
        for first in (0, 3):
            batch = RecordBatch.build(
                [ProducerRecord("", b"%d" % n) for n in range(first, first + 3)],
                "zstd",
                timestamp=1_700_000_000_000,
            )
            assert (await (await producer.send_batch(place, batch))).offset == first
    assert await read_values(kafka_cluster, topic) == [b"%d" % n for n in range(6)]


@pytest.mark.mainly_on("embedded", reason="the test of delivery_timeout_ms stops a leader on both")
async def test_stop_is_bounded_without_a_leader(kafka_cluster: ClusterHandle) -> None:
    control = kafka_cluster.control
    topic = await create_topic(kafka_cluster, replication_factor=1)
    leader = await leader_of(kafka_cluster, topic)
    producers = [
        Producer(kafka_cluster.bootstrap_servers, close_timeout_ms=1_000) for _ in range(2)
    ]
    for producer in producers:
        await producer.start()
        await producer.send(topic, b"written")
    await asyncio.to_thread(control.stop_broker, leader)
    try:
        await producers[0].send_many(topic, [b"v"] * 3)
        async with asyncio.timeout(20):  # delivery_timeout_ms is 120 s.
            with pytest.raises(DeliveryError, match="3 records were not delivered"):
                await producers[0].stop()
            await producers[1].stop()
        assert [producer.health().state for producer in producers] == ["closed", "closed"]
    finally:
        await asyncio.to_thread(control.start_broker, leader)
        await leader_of(kafka_cluster, topic)


async def test_producers_share_a_client(kafka_cluster: ClusterHandle) -> None:
    topic = await create_topic(kafka_cluster)
    async with Client(kafka_cluster.bootstrap_servers) as client:
        async with (
            Producer(client) as one,
            Producer(client, acks=1, enable_idempotence=False) as two,
        ):
            await one.send(topic, b"1")
            await two.send(topic, b"2")
        await services_of(client).metadata.refresh()
    assert await read_values(kafka_cluster, topic) == [b"1", b"2"]
