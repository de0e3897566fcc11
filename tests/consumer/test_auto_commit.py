"""Automatic commits end at the position, also where it passes offsets without records."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import pytest

from kafka_async.records.batch import RecordBatch
from kafka_async.types import ProducerRecord
from tests.compacted_batch import end_later

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kafka_async.consumer.consumer import Consumer
    from kafka_async.types import TopicPartition
    from tests.consumer.conftest import Stage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]


async def _poll(consumer: Consumer, timeout: float | None) -> None:
    while True:
        await consumer.poll(timeout=timeout)


async def _poll_batches(consumer: Consumer) -> None:
    while True:
        await consumer.poll_batches(timeout=None)


async def _iterate(consumer: Consumer) -> None:
    async for _ in consumer:
        pass


async def _process(consumer: Consumer) -> None:
    async def handle(record: object) -> None: ...

    await consumer.process(handle, concurrency=2)


async def _streams(consumer: Consumer) -> None:
    async def read(stream: Any) -> None:
        async for _ in stream:
            pass

    async with consumer.partition_streams() as streams:
        async for stream in streams:
            stream.start_soon(read, stream)


READING_CALLS: Final[dict[str, Callable[[Consumer], Coroutine[Any, Any, None]]]] = {
    "poll": lambda consumer: _poll(consumer, 1),
    "poll without timeout": lambda consumer: _poll(consumer, None),
    "poll_batches": _poll_batches,
    "async for": _iterate,
    "process": _process,
    "partition_streams": _streams,
}


def committed(stage: Stage, partition: TopicPartition) -> int | None:
    """Return the group's committed offset, from the coordinator's state."""
    found = stage.cluster.groups.offsets.committed("g").get(partition)
    return None if found is None else found.offset


@pytest.mark.parametrize("how", READING_CALLS)
async def test_commits_the_position_behind_markers_aborted_records_and_gaps(
    stage: Stage, how: str
) -> None:
    options: dict[str, Any] = {
        "enable_auto_commit": True,
        "auto_commit_interval_ms": 200,
        "isolation_level": "read_committed",
    }
    async with (
        stage.member(**options) as (consumer, partition),
        stage.producer(transactional_id="x") as producer,
    ):
        reading = asyncio.ensure_future(READING_CALLS[how](consumer))
        try:
            await asyncio.sleep(5)
            assert committed(stage, partition) == 0
            async with producer.transaction() as transaction:
                await transaction.send(partition.topic, b"committed", partition=0)
            await asyncio.sleep(5)
            assert committed(stage, partition) == 2
            transaction = await producer.begin()
            await transaction.send(partition.topic, b"aborted", partition=0)
            await transaction.abort()
            await asyncio.sleep(5)
            assert committed(stage, partition) == 4
            gap = RecordBatch.build([ProducerRecord("", b"v")], "none", timestamp=1_000).frame()
            stage.append(partition, end_later(gap, 9))
            await asyncio.sleep(5)
            assert committed(stage, partition) == await consumer.position(partition) == 14
        finally:
            reading.cancel()
            await asyncio.wait({reading})


@pytest.mark.parametrize("how", READING_CALLS)
async def test_restart_at_latest_loses_nothing_after_retention_has_deleted_aborted_records(
    stage: Stage, how: str
) -> None:
    options: dict[str, Any] = {
        "auto_offset_reset": "latest",
        "enable_auto_commit": True,
        "auto_commit_interval_ms": 200,
        "isolation_level": "read_committed",
    }
    (partition,) = await stage.topic("t")
    async with stage.producer(transactional_id="x") as producer:
        crashed = stage.consumer("t", client_id="crashed", **options)
        await crashed.start()
        reading = asyncio.ensure_future(READING_CALLS[how](crashed))
        await asyncio.sleep(5)
        transaction = await producer.begin()
        await transaction.send("t", b"aborted", partition=0)
        await transaction.abort()
        await asyncio.sleep(5)
        stage.cluster.faults.add(
            when=lambda context, _: context.client_id == "crashed", hang=True, count=None
        )
        reading.cancel()
        await asyncio.wait({reading})
        await crashed.stop(0.1)
        log = stage.partition(*partition).log
        log.delete_records_before(log.end_offset)
        stage.produce(partition, ["new"])
        async with stage.consumer("t", **options) as restarted:
            found = await restarted.poll(timeout=100)
    assert [record.value for record in found] == [b"new"]
