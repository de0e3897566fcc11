"""`Consumer.process` on every kind of cluster, while members of its group come and go."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import defaultdict
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import Admin, Consumer, Producer, TopicPartition
from kafka_async.errors import RecordDeserializationError
from tests.integration.helpers import create_topic
from tests.programs import python_path

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


async def committed_offset(kafka_cluster: ClusterHandle, group: str, topic: str) -> int:
    async with Admin(kafka_cluster.bootstrap_servers) as admin:
        rows = await admin.list_group_offsets(group)
    row = rows.get(TopicPartition(topic, 0))
    return -1 if row is None else row.offset


async def test_undecodable_record_loses_no_other_and_commits_follow_markers(
    kafka_cluster: ClusterHandle,
) -> None:
    topic = await create_topic(kafka_cluster, "undecodable")
    partition, group = TopicPartition(topic, 0), kafka_cluster.group()
    servers = kafka_cluster.bootstrap_servers
    done: set[int] = set()

    async def handle(record: Record[Any, Any]) -> None:
        await asyncio.sleep(0.01)
        done.add(record.offset)

    async with Producer(servers, transactional_id=kafka_cluster.group()) as producer:
        async with producer.transaction() as transaction:
            for number in range(60):
                value = b"no number" if number == 30 else b"%d" % number
                await transaction.enqueue(topic, value, key=b"%d" % (number % 7))
        aborted = await producer.begin()
        await aborted.send(topic, b"0")
        await aborted.abort()
    consumer = Consumer(
        servers,
        topics=[topic],
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=100,
        isolation_level="read_committed",
        value_deserializer=int,
    )
    async with consumer, asyncio.timeout(60):
        with pytest.raises(RecordDeserializationError) as raised:
            await consumer.process(handle, concurrency=20)
        assert raised.value.offset == 30
        assert done == set(range(30))
        consumer.seek(partition, 31)
        reading = asyncio.create_task(consumer.process(handle, concurrency=20))
        end = (await consumer.end_offsets([partition]))[partition]
        assert end == 63  # with the commit's marker, an aborted record and its marker
        while await committed_offset(kafka_cluster, group, topic) < end:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        assert done == set(range(60)) - {30}
        await consumer.stop()
        await reading


DRAINED = """
import asyncio, sys
import kafka_async
from kafka_async import Consumer

async def handle(record):
    if record.offset == 9:
        print("running", flush=True)
    await asyncio.sleep(0 if record.offset >= 10 else 2)

async def main():
    servers, topic, group = sys.argv[1:]
    async with Consumer(
        servers, topics=[topic], group_id=group, auto_offset_reset="earliest"
    ) as consumer:
        await consumer.process(handle, concurrency=10, ordering="none")

kafka_async.run(main())
"""


async def test_sigterm_commits_what_running_handlers_finish(kafka_cluster: ClusterHandle) -> None:
    topic, group = await create_topic(kafka_cluster, "sigterm"), kafka_cluster.group()
    servers = kafka_cluster.bootstrap_servers
    async with Producer(servers) as producer:
        await producer.send_many(topic, [b"x"] * 100)
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", DRAINED, servers, topic, group),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": python_path()},
    )
    assert program.stdout is not None
    async with asyncio.timeout(60):
        assert await program.stdout.readline() == b"running\n"
        program.send_signal(signal.SIGTERM)
        assert await program.wait() == 143
    assert await committed_offset(kafka_cluster, group, topic) == 10
