"""`Consumer.process` on every kind of cluster, while members of its group come and go."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import Consumer, Producer, TopicPartition
from tests.integration.helpers import create_topic

if TYPE_CHECKING:
    from kafka_async.kernel import Record
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

RECORDS, KEYS, PARTITIONS = 2_000, 40, 4


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_records_of_a_key_stay_in_order_while_members_join_and_leave(
    kafka_cluster: ClusterHandle, strategy: str
) -> None:
    topic = await create_topic(kafka_cluster, "process", PARTITIONS)
    options: dict[str, Any] = {
        "group_id": kafka_cluster.group(),
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 100,
        "heartbeat_interval_ms": 200,
        "partition_assignment_strategy": [strategy],
    }
    handled: defaultdict[bytes | None, list[int]] = defaultdict(list)
    progress = asyncio.Condition()

    async def handle(record: Record[bytes, bytes]) -> None:
        await asyncio.sleep(0)
        async with progress:
            handled[record.key].append(int(record.value or b""))
            progress.notify_all()

    async def wait_until_handled(count: int) -> None:
        async with progress, asyncio.timeout(60):
            await progress.wait_for(lambda: sum(map(len, handled.values())) >= count)

    async with Producer(kafka_cluster.bootstrap_servers) as producer:
        for number in range(RECORDS):
            key = b"key %d" % (number % KEYS)
            await producer.enqueue(topic, b"%d" % number, key=key)
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        members: list[Consumer] = []
        for count in (1, RECORDS // 4, RECORDS // 2):
            consumer = Consumer(kafka_cluster.bootstrap_servers, topics=[topic], **options)
            members.append(await stack.enter_async_context(consumer))
            group.create_task(consumer.process(handle, concurrency=8))
            await wait_until_handled(count)
        await members[0].stop()
        await wait_until_handled(RECORDS)
        for member in members:
            await member.stop()
    # Nothing failed, so each record was handled once, and in order.
    assert {key: len(numbers) for key, numbers in handled.items()} == {
        b"key %d" % number: RECORDS // KEYS for number in range(KEYS)
    }
    assert all(numbers == sorted(numbers) for numbers in handled.values())
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    async with Consumer(kafka_cluster.bootstrap_servers, topics=[topic], **options) as reader:
        ends = await reader.end_offsets(partitions)
        committed = await reader.committed(partitions)
    assert {p: at and at.offset for p, at in committed.items()} == ends
