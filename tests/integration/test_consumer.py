"""The consumer on every kind of cluster: records, positions and commits."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.client.metadata.request_router import Leader
from kafka_async.consumer.consumer import Consumer
from kafka_async.errors import UnknownTopicOrPartitionError
from kafka_async.producer.producer import Producer
from kafka_async.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafka_async.types import TopicPartition
from tests.integration.helpers import create_topic, poll_until

if TYPE_CHECKING:
    from collections.abc import Collection

    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = [pytest.mark.asyncio, pytest.mark.any_broker]


async def make(cluster: ClusterHandle, partitions: int, prefix: str = "t") -> list[TopicPartition]:
    name = await create_topic(cluster, prefix, partitions)
    return [TopicPartition(name, number) for number in range(partitions)]


async def fill(cluster: ClusterHandle, partitions: list[TopicPartition], each: int) -> None:
    """Write `each` records to each partition, with their number as value."""
    async with Producer(cluster.bootstrap_servers) as producer:
        for topic, partition in partitions:
            for number in range(each):
                await producer.enqueue(topic, str(number).encode(), partition=partition)


def consumer(cluster: ClusterHandle, **options: Any) -> Consumer:
    given: dict[str, Any] = {
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        **options,
    }
    return Consumer(cluster.bootstrap_servers, **given)


async def read(reader: Consumer, count: int) -> list[tuple[int, int]]:
    """Read `count` records and return each as (partition, offset)."""
    seen: list[tuple[int, int]] = []
    async with asyncio.timeout(30):
        while len(seen) < count:
            records = await reader.poll(max_records=count - len(seen))
            seen += [(record.partition, record.offset) for record in records]
    return seen


async def test_reads_assigned_partitions_in_order(kafka_cluster: ClusterHandle) -> None:
    partitions = await make(kafka_cluster, 3)
    await fill(kafka_cluster, partitions, 100)
    async with consumer(kafka_cluster, partitions=partitions) as reader:
        seen = await read(reader, 300)
        for partition in range(3):
            assert [o for p, o in seen if p == partition] == list(range(100))
        assert await reader.poll(timeout=0.1) == []
        assert await reader.beginning_offsets(partitions) == dict.fromkeys(partitions, 0)
        assert await reader.end_offsets(partitions) == dict.fromkeys(partitions, 100)


async def test_seeks_by_time(kafka_cluster: ClusterHandle) -> None:
    (partition,) = await make(kafka_cluster, 1)
    now = int(time.time()) * 1000
    async with Producer(kafka_cluster.bootstrap_servers) as producer:
        for second in range(5):
            await producer.send(partition.topic, b"v", timestamp=now + second * 1000)
    async with consumer(kafka_cluster, partitions=[partition]) as reader:
        await reader.seek_to_time(now / 1000 + 2.5)
        assert await read(reader, 2) == [(0, 3), (0, 4)]
        assert await reader.offsets_for_times({partition: now / 1000 + 99}) == {partition: None}


async def test_next_consumer_starts_at_the_committed_offsets(kafka_cluster: ClusterHandle) -> None:
    partitions = await make(kafka_cluster, 2)
    await fill(kafka_cluster, partitions, 10)
    options: dict[str, Any] = {"topics": [partitions[0].topic], "group_id": kafka_cluster.group()}
    async with consumer(kafka_cluster, **options) as reader:
        seen = await read(reader, 13)
        await reader.commit()
    async with consumer(kafka_cluster, **options) as reader:
        seen += await read(reader, 7)
        assert sorted(seen) == [(p, o) for p in range(2) for o in range(10)]
        await reader.seek_to_committed()
        assert len(await read(reader, 7)) == 7
        await reader.commit({partitions[0]: 4})
        committed = (await reader.committed())[partitions[0]]
        assert committed is not None
        assert committed.offset == 4


async def test_auto_commit_at_the_end_of_an_iteration(kafka_cluster: ClusterHandle) -> None:
    (partition,) = await make(kafka_cluster, 1)
    await fill(kafka_cluster, [partition], 10)
    options: dict[str, Any] = {
        "topics": [partition.topic],
        "group_id": kafka_cluster.group(),
        "enable_auto_commit": True,
    }
    async with asyncio.timeout(30), consumer(kafka_cluster, **options) as reader:
        async for record in reader:
            if record.offset == 4:
                break
    with pytest.raises(RuntimeError):
        await fail_at(7, consumer(kafka_cluster, **options))
    async with consumer(kafka_cluster, **options) as reader:
        assert await read(reader, 3) == [(0, 7), (0, 8), (0, 9)]


async def fail_at(offset: int, reader: Consumer) -> None:
    async with asyncio.timeout(30), reader:
        async for record in reader:
            if record.offset == offset:
                raise RuntimeError("while handling the record")


async def test_offsets_are_committed_or_aborted_with_the_transaction(
    kafka_cluster: ClusterHandle,
) -> None:
    (source,), (target,) = await make(kafka_cluster, 1, "in"), await make(kafka_cluster, 1, "out")
    await fill(kafka_cluster, [source], 6)
    options: dict[str, Any] = {"topics": [source.topic], "group_id": kafka_cluster.group()}
    async with (
        Producer(
            kafka_cluster.bootstrap_servers, transactional_id=kafka_cluster.transactional_id()
        ) as producer,
        consumer(kafka_cluster, **options) as reader,
    ):
        for commit in (True, False, True):
            (record,) = await read_records(reader, 1)
            txn = await producer.begin()
            await txn.enqueue(target.topic, record.value)
            await txn.commit_offsets(reader)
            if commit:
                await txn.commit()
                assert reader.__offset_source__().uncommitted() == {}
            else:
                await txn.abort()
                await reader.seek_to_committed()
        committed = (await reader.committed())[source]
        assert committed is not None
        assert committed.offset == 2
    async with consumer(
        kafka_cluster, partitions=[target], isolation_level="read_committed"
    ) as reader:
        assert [r.value for r in await read_records(reader, 2)] == [b"0", b"1"]


async def read_records(reader: Consumer, count: int) -> list[Any]:
    async with asyncio.timeout(30):
        return [await anext(reader) for _ in range(count)]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
async def test_reports_high_watermark_and_last_stable_offset_of_fetches(
    kafka_cluster: ClusterHandle, isolation: Any
) -> None:
    (partition,) = await make(kafka_cluster, 1)
    await fill(kafka_cluster, [partition], 3)
    async with (
        Producer(
            kafka_cluster.bootstrap_servers, transactional_id=kafka_cluster.transactional_id()
        ) as producer,
        consumer(kafka_cluster, partitions=[partition], isolation_level=isolation) as reader,
        producer.transaction() as transaction,
    ):
        assert reader.high_watermark(partition) is None
        await transaction.send(partition.topic, b"open")
        await read(reader, 3 if isolation == "read_committed" else 4)
        await poll_until(lambda: reader.high_watermark(partition) == 4, reader)
        assert reader.last_stable_offset(partition) == 3
        assert reader.health().lag == {partition: 0}


async def test_logs_an_offset_whose_records_were_deleted(
    kafka_cluster: ClusterHandle, caplog: pytest.LogCaptureFixture
) -> None:
    (partition,) = await make(kafka_cluster, 1)
    await fill(kafka_cluster, [partition], 9)
    async with consumer(kafka_cluster, partitions=[partition]) as reader:
        await read(reader, 9)  # a fetch of deleted records would be out of range too
        row = DeleteRecordsPartition(partition_index=0, offset=4)
        topic = DeleteRecordsTopic(name=partition.topic, partitions=[row])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=10_000)
        response = await reader.client.request(request, to=Leader(partition))
        assert response.topics[0].partitions[0].error_code == 0
        reader.seek(partition, 1)
        assert await read(reader, 5) == [(0, offset) for offset in range(4, 9)]
        assert (
            f"{partition}: offset 1 is out of range: continuing at offset 4 "
            "(auto_offset_reset=earliest): 3 offsets are skipped" in caplog.text
        )
        assert reader.statistics().offset_reset_total == 1


async def test_seeks_and_pauses(kafka_cluster: ClusterHandle) -> None:
    first, second = await make(kafka_cluster, 2)
    await fill(kafka_cluster, [first, second], 10)
    async with consumer(kafka_cluster, partitions=[first, second]) as reader:
        await read(reader, 20)
        reader.seek(first, 7)
        assert await read(reader, 3) == [(0, 7), (0, 8), (0, 9)]
        reader.pause(first)
        await reader.seek_to_beginning()
        assert await read(reader, 10) == [(1, number) for number in range(10)]
        assert await reader.poll(timeout=0.2) == []
        reader.resume(first)
        assert await read(reader, 10) == [(0, number) for number in range(10)]
        await reader.seek_to_end()
        assert [await reader.position(p) for p in (first, second)] == [10, 10]


async def test_read_committed_returns_no_aborted_records(kafka_cluster: ClusterHandle) -> None:
    (partition,) = await make(kafka_cluster, 1)
    name = partition.topic
    async with Producer(
        kafka_cluster.bootstrap_servers, transactional_id=kafka_cluster.transactional_id()
    ) as producer:
        for number, commit in enumerate([True, False, True, False, False, True]):
            txn = await producer.begin()
            await txn.enqueue(name, f"{number}a".encode())
            await txn.enqueue(name, f"{number}b".encode())
            await producer.flush()
            await (txn.commit() if commit else txn.abort())
    async with consumer(
        kafka_cluster, partitions=[partition], isolation_level="read_committed"
    ) as reader:
        values = [record.value for record in await read_records(reader, 6)]
        assert values == [f"{n}{x}".encode() for n in (0, 2, 5) for x in "ab"]
        assert await reader.poll(timeout=0.2) == []
        ends = await reader.end_offsets(partition)
        assert await reader.position(partition) == ends[partition]
    async with consumer(kafka_cluster, partitions=[partition]) as reader:
        assert len(await read(reader, 12)) == 12


async def test_missing_topic_raises_without_automatic_creation(
    kafka_cluster: ClusterHandle,
) -> None:
    name = kafka_cluster.topic("misspelt")
    async with consumer(
        kafka_cluster,
        topics=[name],
        group_id=kafka_cluster.group(),
        allow_auto_create_topics=False,
        default_api_timeout_ms=2_000,
    ) as reader:
        with pytest.raises(UnknownTopicOrPartitionError, match=f"{name}.* does not exist"):
            async with asyncio.timeout(30):
                await reader.poll(timeout=None)


async def test_stores_and_commits_positions_in_on_revoked_while_it_closes(
    kafka_cluster: ClusterHandle,
) -> None:
    (partition,) = await make(kafka_cluster, 1)
    await fill(kafka_cluster, [partition], 3)
    stored: dict[TopicPartition, int] = {}
    group = f"revoked-{partition.topic}"
    options: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    servers = kafka_cluster.bootstrap_servers
    async with (
        Producer(servers, transactional_id=group) as producer,
        Consumer(servers, topics=[partition.topic], group_id=group, **options) as consumer,
    ):

        @consumer.on_revoked
        async def _(partitions: Collection[TopicPartition]) -> None:
            for each in partitions:
                stored[each] = await consumer.position(each)
            assert await consumer.committed() == {partition: None}
            async with producer.transaction() as txn:
                await txn.commit_offsets(consumer)

        records: list[object] = []
        async with asyncio.timeout(40):
            while len(records) < 3:
                records += await consumer.poll()
        await consumer.stop()
    assert stored == {partition: 3}
    async with Consumer(servers, group_id=group) as other:
        committed = (await other.committed([partition]))[partition]
    assert committed is not None
    assert committed.offset == 3
