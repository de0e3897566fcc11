"""Positions of partitions without a group's offset, on every kind of cluster."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import Consumer, Producer, TopicPartition
from kafka_async.config import ConsumerConfig
from kafka_async.errors import IllegalStateError
from tests.integration.helpers import create_topic

if TYPE_CHECKING:
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_static_partitions_are_never_committed_for_a_group_that_is_subscribed(
    kafka_cluster: ClusterHandle, protocol: str
) -> None:
    shared = TopicPartition(await create_topic(kafka_cluster, "shared"), 0)
    static = TopicPartition(await create_topic(kafka_cluster, "static"), 0)
    options: dict[str, Any] = {
        "group_id": kafka_cluster.group(),
        "group_protocol": protocol,
        "topics": [shared.topic],
        "partitions": [static],
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 10,
    }
    async with Producer(kafka_cluster.bootstrap_servers) as producer:
        for partition in (shared, static):
            await producer.send_many(partition.topic, [b"%d" % n for n in range(5)])
    for _ in range(2):  # the second consumer continues in the group, and begins in the other
        async with AsyncExitStack() as stack, asyncio.timeout(60):
            consumer = Consumer(kafka_cluster.bootstrap_servers, **options)
            await stack.enter_async_context(consumer)
            values: list[bytes | None] = []
            while values != [b"0", b"1", b"2", b"3", b"4"]:
                values += [r.value for r in await consumer.poll() if r.topic == static.topic]
            while shared not in consumer.assignment() or await consumer.position(shared) < 5:
                await consumer.poll()
            with pytest.raises(IllegalStateError, match="not part of the subscription"):
                await consumer.commit(static)
            with pytest.raises(IllegalStateError, match="not part of the subscription"):
                await consumer.commit({static: 3})
            await consumer.commit()
            await consumer.seek_to_committed()
            assert await consumer.position(static) == 5
            found = await consumer.committed([shared, static])
            assert {p: at and at.offset for p, at in found.items()} == {shared: 5, static: None}


async def test_static_partitions_without_a_subscription_are_committed(
    kafka_cluster: ClusterHandle,
) -> None:
    partition = TopicPartition(await create_topic(kafka_cluster, "static"), 0)
    async with Producer(kafka_cluster.bootstrap_servers) as producer:
        await producer.send(partition.topic, b"0")
    async with Consumer(
        kafka_cluster.bootstrap_servers,
        partitions=[partition],
        group_id=kafka_cluster.group(),
        auto_offset_reset="earliest",
    ) as consumer:
        assert len(await consumer.poll(timeout=30)) == 1
        await consumer.commit()
        found = (await consumer.committed([partition]))[partition]
    assert found is not None
    assert found.offset == 1


async def test_reset_by_duration_reads_the_records_since_then(
    kafka_cluster: ClusterHandle,
) -> None:
    partition = TopicPartition(await create_topic(kafka_cluster, "durations"), 0)
    now = time.time()
    async with Producer(kafka_cluster.bootstrap_servers) as producer:
        for minutes in (120, 90, 30, 20):
            at = round((now - 60 * minutes) * 1000)
            await producer.send(partition.topic, b"%d" % minutes, timestamp=at)
    config = ConsumerConfig.from_properties(
        {
            "bootstrap.servers": kafka_cluster.bootstrap_servers,
            "auto.offset.reset": "by_duration:PT1H",
        }
    )
    async with Consumer(config=config, partitions=[partition]) as consumer:
        values: list[bytes | None] = []
        async with asyncio.timeout(30):
            while len(values) < 2:
                values += [record.value for record in await consumer.poll()]
    assert values == [b"30", b"20"]
