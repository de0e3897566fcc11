"""`Consumer.rewind` on every kind of cluster."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import Consumer, Producer, TopicPartition
from tests.integration.helpers import create_topic

if TYPE_CHECKING:
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]


GROUPS: dict[str, dict[str, Any]] = {
    "range": {"heartbeat_interval_ms": 200, "partition_assignment_strategy": ["range"]},
    "cooperative": {
        "heartbeat_interval_ms": 200,
        "partition_assignment_strategy": ["cooperative-sticky"],
    },
    "consumer": {"group_protocol": "consumer", "rewind_check_interval_ms": 200},
}


@pytest.mark.parametrize("kind", GROUPS)
async def test_member_rewinds_partitions_that_others_own(
    kafka_cluster: ClusterHandle, kind: str
) -> None:
    topic = await create_topic(kafka_cluster, "rewind", 2)
    partitions = [TopicPartition(topic, number) for number in range(2)]
    options: dict[str, Any] = {
        "topics": [topic],
        "group_id": kafka_cluster.group(),
        "auto_offset_reset": "earliest",
        **GROUPS[kind],
    }
    seen: list[tuple[int, int]] = []
    progress = asyncio.Condition()

    async def read(consumer: Consumer) -> None:
        async for record in consumer:
            async with progress:
                seen.append((record.partition, record.offset))
                progress.notify_all()

    async def wait_until_seen(count: int) -> None:
        async with progress:
            await progress.wait_for(lambda: len(seen) >= count)

    async with Producer(kafka_cluster.bootstrap_servers) as producer:
        for partition in partitions:
            for number in range(5):
                await producer.send(topic, b"%d" % number, partition=partition.partition)
    async with asyncio.timeout(60), AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        members: list[Consumer] = []
        for _ in partitions:
            consumer = Consumer(kafka_cluster.bootstrap_servers, **options)
            members.append(await stack.enter_async_context(consumer))
            group.create_task(read(consumer))
        while any(len(member.assignment()) != 1 for member in members):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await wait_until_seen(10)
        for member in members:
            await member.commit()
        seen.clear()
        wanted = {partitions[0]: 3, partitions[1]: 99}
        found = await members[0].rewind(wanted)
        assert found == {partitions[0]: 3, partitions[1]: 5}
        assert await members[1].rewind({partitions[1]: 4}) == {partitions[1]: 4}
        await wait_until_seen(3)
        for member in members:
            await member.stop()
    assert sorted(seen) == [(0, 3), (0, 4), (1, 4)]


@pytest.mark.parametrize("kind", ["range", "consumer"])
async def test_member_rewinds_before_its_first_poll(
    kafka_cluster: ClusterHandle, kind: str
) -> None:
    partition = TopicPartition(await create_topic(kafka_cluster, "rewind"), 0)
    async with Producer(kafka_cluster.bootstrap_servers) as producer:
        await producer.send_many(partition.topic, [b"%d" % number for number in range(5)])
    async with Consumer(
        kafka_cluster.bootstrap_servers,
        topics=[partition.topic],
        group_id=kafka_cluster.group(),
        **GROUPS[kind],
    ) as consumer:
        assert await consumer.rewind({partition: 3}, timeout=30) == {partition: 3}
        assert [record.offset for record in await consumer.poll(timeout=30)] == [3, 4]
