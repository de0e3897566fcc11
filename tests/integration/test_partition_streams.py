"""`Consumer.partition_streams` on every kind of cluster, while members come and go."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import Consumer, Producer, TopicPartition
from tests.integration.helpers import create_topic

if TYPE_CHECKING:
    from kafka_async.consumer.delivery.partition_streams import PartitionStream
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

RECORDS, PARTITIONS = 2_000, 4


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_each_record_is_handled_once_and_in_order_while_members_join_and_leave(
    kafka_cluster: ClusterHandle, protocol: str
) -> None:
    topic = await create_topic(kafka_cluster, "streams", PARTITIONS)
    options: dict[str, Any] = {
        "group_id": kafka_cluster.group(),
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 100,
    }
    if protocol == "classic":
        options["heartbeat_interval_ms"] = 200
        options["partition_assignment_strategy"] = ["cooperative-sticky"]
    handled: defaultdict[int, list[int]] = defaultdict(list)
    progress = asyncio.Condition()

    async def handle(stream: PartitionStream) -> None:
        async for record in stream:
            await asyncio.sleep(0)
            async with progress:
                handled[record.partition].append(record.offset)
                progress.notify_all()

    async def run(consumer: Consumer) -> None:
        async with consumer.partition_streams() as streams:
            async for stream in streams:
                stream.start_soon(handle, stream)

    async def wait_until_handled(count: int) -> None:
        async with progress, asyncio.timeout(60):
            await progress.wait_for(lambda: sum(map(len, handled.values())) >= count)

    async with Producer(kafka_cluster.bootstrap_servers) as producer:
        for number in range(RECORDS):
            await producer.enqueue(topic, b"%d" % number, partition=number % PARTITIONS)
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        members: list[Consumer] = []
        for count in (1, RECORDS // 2):
            consumer = Consumer(kafka_cluster.bootstrap_servers, topics=[topic], **options)
            members.append(await stack.enter_async_context(consumer))
            group.create_task(run(consumer))
            await wait_until_handled(count)
        await members[0].stop()
        await wait_until_handled(RECORDS)
        for member in members:
            await member.stop()
    # Nothing failed, so each record was handled once, and in order.
    each = list(range(RECORDS // PARTITIONS))
    assert handled == dict.fromkeys(range(PARTITIONS), each)
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    async with Consumer(kafka_cluster.bootstrap_servers, topics=[topic], **options) as reader:
        committed = await reader.committed(partitions)
    assert {p: at and at.offset for p, at in committed.items()} == dict.fromkeys(
        partitions, len(each)
    )
