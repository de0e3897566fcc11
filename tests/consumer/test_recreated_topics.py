"""Consumers whose topic is deleted and created again: state of the former topic ends with it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from kafka_async.admin import ConfigResource, ResourceType
from kafka_async.consumer.share.share_consumer import ShareConsumer
from kafka_async.errors import (
    NoOffsetForPartitionError,
    TransactionAbortableError,
    UnknownTopicIdError,
)
from kafka_async.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from kafka_async.protocol.messages.share_fetch import ShareFetchRequest
from kafka_async.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kafka_async import Consumer
    from kafka_async.kernel import Record
    from tests.consumer.conftest import Stage, StartStage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

P0 = TopicPartition("t", 0)
NEW = [b"new-0", b"new-1", b"new-2"]
READERS: list[dict[str, Any]] = [
    {"partitions": [P0]},
    {"partitions": [P0], "group_id": "g"},
    {"topics": ["t"], "group_id": "g", "partition_assignment_strategy": ["range"]},
    {"topics": ["t"], "group_id": "g", "partition_assignment_strategy": ["cooperative-sticky"]},
    {"topics": ["t"], "group_id": "g", "group_protocol": "consumer"},
]
NAMES = ["manual", "manual-in-group", "range", "cooperative-sticky", "consumer"]


@pytest_asyncio.fixture
async def stage(start_stage: StartStage) -> Stage:
    """Start two brokers; a former topic "t" with 5 records and leader epoch 3."""
    stage = await start_stage(2, auto_create_topics=False)
    await create(stage)
    for _ in range(3):
        await stage.cluster.move_leader(P0)
    stage.produce(P0, (f"old-{number}" for number in range(5)))
    return stage


def reader(stage: Stage, *topics: str, **options: Any) -> Consumer:
    """Return a consumer that updates its metadata every second."""
    return stage.consumer(*topics, metadata_max_age_ms=1000, **options)


async def create(stage: Stage) -> None:
    await stage.cluster.create_topic("t", partitions=1, replication_factor=2)


async def recreate(stage: Stage) -> None:
    """Create the topic again, with the leader epoch 0 and other records."""
    await stage.cluster.delete_topic("t")
    await create(stage)
    stage.produce(P0, NEW)


async def read(consumer: Consumer, count: int) -> list[bytes | None]:
    """Return the values of the next records."""
    found: list[bytes | None] = []

    async def poll() -> None:
        while len(found) < count:
            found.extend(record.value for record in await consumer.poll(timeout=1))

    await asyncio.wait_for(poll(), 20)
    return found


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.message for r in caplog.records if "created again" in r.message]


@pytest.mark.parametrize("options", READERS, ids=NAMES)
async def test_new_topic_with_a_lower_leader_epoch_is_read_from_its_beginning(
    stage: Stage, caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    async with reader(stage, **options) as consumer:
        await read(consumer, 5)
        with caplog.at_level(logging.WARNING, "kafka_async"):
            await recreate(stage)
            assert await read(consumer, 3) == NEW
        assert await consumer.position(P0) == 3
    assert warnings(caplog) == [
        "topic t was deleted and created again: the positions of the former topic (0: 5) are "
        "dropped, with what was not returned or committed, and the new one is read by "
        "auto_offset_reset=earliest"
    ]


@pytest.mark.parametrize("options", READERS[1:], ids=NAMES[1:])
async def test_restarted_group_reads_all_records_of_the_new_topic(
    stage: Stage, options: dict[str, Any]
) -> None:
    automatic = {"enable_auto_commit": True, "auto_commit_interval_ms": 60_000}
    async with reader(stage, **options, **automatic) as consumer:
        await read(consumer, 5)
        await recreate(stage)
    async with reader(stage, **options) as consumer:
        assert await read(consumer, 3) == NEW


async def test_commit_of_an_offset_of_the_former_topic_is_refused(stage: Stage) -> None:
    async with reader(stage, "t") as consumer:
        await read(consumer, 5)
        await recreate(stage)
        with pytest.raises(UnknownTopicIdError, match="created again"):
            await consumer.commit({P0: 5})
        assert await read(consumer, 3) == NEW
        await consumer.commit()
        assert await consumer.committed([P0]) == {P0: OffsetAndMetadata(3, 0)}


@pytest.mark.parametrize("deletion_seen", [False, True])
async def test_commit_of_returned_records_leaves_the_former_topic_out_with_one_warning(
    stage: Stage, caplog: pytest.LogCaptureFixture, deletion_seen: bool
) -> None:
    async with reader(stage, "t") as consumer:
        await read(consumer, 5)
        with caplog.at_level(logging.WARNING, "kafka_async"):
            if deletion_seen:
                await stage.cluster.delete_topic("t")
                await consumer.commit()
                await create(stage)
            else:
                await recreate(stage)
            await consumer.commit()
            assert await consumer.committed([P0]) == {P0: None}
            await asyncio.sleep(3)  # the consumer learns of the new topic
    [warning] = warnings(caplog)
    assert "the positions of the former topic (0: 5) are dropped" in warning


async def test_records_that_were_not_returned_are_dropped(stage: Stage) -> None:
    async with reader(stage, partitions=[P0]) as consumer:
        assert len(await consumer.poll(max_records=2, timeout=1)) == 2
        await recreate(stage)
        await asyncio.sleep(3)  # the consumer learns of the new topic
        assert await read(consumer, 3) == NEW


async def test_lent_records_of_a_stream_are_dropped(stage: Stage) -> None:
    async with reader(stage, partitions=[P0]) as consumer:
        seen: list[bytes | None] = []
        async for record in consumer:
            seen.append(record.value)
            if len(seen) == 2:
                await recreate(stage)
                await asyncio.sleep(3)  # the consumer learns of the new topic
            if len(seen) == 5:
                break
        assert seen == [b"old-0", b"old-1", *NEW]


async def test_pause_ends_with_the_topic(stage: Stage) -> None:
    async with reader(stage, partitions=[P0]) as consumer:
        await read(consumer, 5)
        consumer.pause(P0)
        await recreate(stage)
        await asyncio.sleep(3)  # the consumer learns of the new topic
        assert consumer.paused() == frozenset()
        assert await read(consumer, 3) == NEW


@pytest.mark.parametrize("reset", ["latest", "none"])
async def test_new_topic_follows_auto_offset_reset(stage: Stage, reset: str) -> None:
    async with reader(stage, partitions=[P0], auto_offset_reset=reset) as consumer:
        consumer.seek(P0, 0)
        await read(consumer, 5)
        await recreate(stage)
        if reset == "none":
            with pytest.raises(NoOffsetForPartitionError, match="was deleted and created again"):
                await read(consumer, 1)
            consumer.seek(P0, 1)
            assert await read(consumer, 2) == NEW[1:]
        else:
            await asyncio.sleep(3)  # the consumer learns of the new topic
            assert await consumer.position(P0) == 3


async def test_new_topic_is_read_by_another_stream(stage: Stage) -> None:
    seen: list[list[bytes | None]] = []

    async def handle(stream: Any) -> None:
        values: list[bytes | None] = []
        seen.append(values)
        async for record in stream:
            values.append(record.value)
            if record.value == b"old-4":
                await recreate(stage)
            if record.value == NEW[-1]:
                done.set()

    done = asyncio.Event()
    async with reader(stage, "t") as consumer, consumer.partition_streams() as streams:
        for _ in range(2):
            stream = await anext(streams)
            stream.start_soon(handle, stream)
        await asyncio.wait_for(done.wait(), 20)
        await consumer.stop()
    assert [len(values) for values in seen] == [5, 3]
    assert seen[1] == NEW


async def test_waiting_records_of_the_former_topic_are_not_handled(stage: Stage) -> None:
    seen: list[bytes | None] = []
    consumer = reader(stage, "t")

    async def handle(record: Record[bytes, bytes]) -> None:
        seen.append(record.value)
        if record.value == b"old-1":
            await recreate(stage)
            await asyncio.sleep(3)  # the consumer learns of the new topic
        if record.value == NEW[-1]:
            asyncio.create_task(consumer.stop())  # noqa: RUF006  # the block below waits for it

    async with consumer:
        await consumer.process(handle, ordering="partition", concurrency=1)
    assert seen == [b"old-0", b"old-1", *NEW]


async def test_transaction_with_records_of_the_former_topic_commits_no_offsets(
    stage: Stage,
) -> None:
    producer = stage.producer(transactional_id="x")
    async with reader(stage, "t") as consumer, producer:
        transaction = await producer.begin()
        await read(consumer, 5)
        await recreate(stage)
        await asyncio.sleep(3)  # the consumer learns of the new topic
        with pytest.raises(Exception, match="lost since: t-0"):
            await transaction.commit_offsets(consumer)
        await transaction.abort()
        await consumer.seek_to_committed()
        assert await read(consumer, 3) == NEW


async def test_transaction_with_offsets_of_the_former_topic_leaves_the_new_one_uncommitted(
    stage: Stage,
) -> None:
    producer = stage.producer(transactional_id="x")
    async with reader(stage, "t") as consumer, producer:
        transaction = await producer.begin()
        await read(consumer, 5)
        await transaction.commit_offsets(consumer)
        await recreate(stage)
        stage.produce(P0, [b"new-3", b"new-4"])
        await asyncio.sleep(3)  # the consumer learns of the new topic
        await transaction.commit()
        await consumer.seek_to_committed()
        assert len(await read(consumer, 5)) == 5
        assert consumer.__offset_source__().uncommitted() == {P0: OffsetAndMetadata(5, 0)}


@pytest.mark.parametrize("recreated", [True, False], ids=["created again", "deleted"])
async def test_transaction_refuses_offsets_of_a_topic_that_has_just_ended(
    stage: Stage, recreated: bool
) -> None:
    """The consumer has not noticed it yet: the request names the topic by its id (KIP-1319)."""
    producer = stage.producer(transactional_id="x")
    async with reader(stage, "t") as consumer, producer:
        transaction = await producer.begin()
        await read(consumer, 5)
        await (recreate(stage) if recreated else stage.cluster.delete_topic("t"))
        async with asyncio.timeout(10):
            with pytest.raises(TransactionAbortableError, match="deleted since"):
                await transaction.commit_offsets(consumer)
        await transaction.abort()
        if not recreated:
            await create(stage)
            stage.produce(P0, NEW)
        await consumer.seek_to_committed()
        assert await read(consumer, 3) == NEW
        async with producer.transaction() as transaction:
            await transaction.commit_offsets(consumer)
        assert await consumer.committed([P0]) == {P0: OffsetAndMetadata(3, 0)}


@pytest.mark.parametrize("old", [{"transaction_version": 1}, {"api_versions": {28: (0, 5)}}])
async def test_brokers_without_topic_ids_in_transactions_get_no_commit_once_it_was_noticed(
    start_stage: StartStage, old: dict[str, Any]
) -> None:
    stage = await start_stage(2, auto_create_topics=False, **old)
    await create(stage)
    stage.produce(P0, (f"old-{number}" for number in range(5)))
    producer = stage.producer(transactional_id="x")
    async with reader(stage, "t") as consumer, producer:
        transaction = await producer.begin()
        await read(consumer, 5)
        await recreate(stage)
        await transaction.commit_offsets(consumer)
        await asyncio.sleep(3)  # the consumer learns of the new topic
        with pytest.raises(TransactionAbortableError, match="deleted since"):
            await transaction.commit()
        await transaction.abort()
        await consumer.seek_to_committed()
        assert await read(consumer, 3) == NEW


async def test_coordinator_that_does_not_know_a_topic_yet_is_asked_again(stage: Stage) -> None:
    faults = stage.cluster.faults.add(api="TxnOffsetCommit", error="UNKNOWN_TOPIC_ID", count=2)
    producer = stage.producer(transactional_id="x")
    async with reader(stage, "t") as consumer, producer:
        await read(consumer, 5)
        async with producer.transaction() as transaction:
            await transaction.commit_offsets(consumer)
        assert await consumer.committed([P0]) == {P0: OffsetAndMetadata(5, 3)}
    assert faults.exhausted


async def test_share_consumer_acknowledges_each_record_under_its_topic_id(stage: Stage) -> None:
    """The acknowledgement of an offset of the former topic must not concern the new one."""
    async with stage.admin() as admin:
        group = ConfigResource(ResourceType.GROUP, "s")
        await admin.alter_configs({group: {"share.auto.offset.reset": "earliest"}})
    consumer = ShareConsumer(
        stage.cluster.bootstrap_servers,
        topics=["t"],
        group_id="s",
        dialer=stage.network,
        metadata_max_age_ms=1000,
        share_acknowledgement_mode="explicit",
    )
    former = stage.cluster.topics.get("t")
    assert former is not None
    async with consumer:
        old = await consumer.poll(timeout=20)
        await recreate(stage)
        await asyncio.sleep(3)  # the consumer learns of the new topic
        for record in old:
            consumer.acknowledge(record)
        new = await consumer.poll(timeout=20)
        for record in new:
            consumer.acknowledge(record)
        await consumer.commit()
    successor = stage.cluster.topics.get("t")
    assert successor is not None
    assert [len(old), [record.value for record in new]] == [5, NEW]
    assert {
        (topic.topic_id, batch.last_offset)
        for row in stage.received
        if isinstance(row.request, ShareFetchRequest | ShareAcknowledgeRequest)
        for topic in row.request.topics
        for partition in topic.partitions
        for batch in partition.acknowledgement_batches
    } == {(former.id, 4), (successor.id, 2)}
