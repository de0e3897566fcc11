"""Cancellation of every call, at each event loop iteration."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kafka_async.errors import TaskDiedError
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafka_async.consumer.consumer import Consumer
    from tests.consumer.conftest import Stage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]

ITERATIONS = range(0, 60, 3)


async def cancelled_after(iterations: int, call: Callable[[], Awaitable[object]]) -> None:
    """Cancel `call` after `iterations` event loop iterations; return its exception."""

    async def run() -> None:
        await call()

    task = asyncio.create_task(run())
    for _ in range(iterations):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()


async def rest(consumer: Consumer, count: int) -> list[int]:
    offsets: list[int] = []
    while len(offsets) < count:
        records = await consumer.poll(timeout=60)
        assert records
        offsets += [record.offset for record in records]
    return offsets


@pytest.mark.parametrize("iterations", ITERATIONS)
async def test_cancelled_poll_loses_no_records(stage: Stage, iterations: int) -> None:
    async with stage.member(records=8) as (consumer, _):
        offsets: list[int] = []

        async def poll() -> None:
            offsets.extend([record.offset for record in await consumer.poll(timeout=60)])

        await cancelled_after(iterations, poll)
        assert offsets + await rest(consumer, 8 - len(offsets)) == list(range(8))


@pytest.mark.parametrize("iterations", ITERATIONS)
async def test_cancelled_stream_loses_no_records(stage: Stage, iterations: int) -> None:
    seen: list[int] = []
    async with stage.member(records=8) as (consumer, _):

        async def read() -> None:
            async for record in consumer:
                seen.append(record.offset)
                await asyncio.sleep(0)

        await cancelled_after(iterations, read)
        assert seen + await rest(consumer, 8 - len(seen)) == list(range(8))


@pytest.mark.parametrize("iterations", ITERATIONS)
async def test_consumer_is_usable_after_cancelled_commit(stage: Stage, iterations: int) -> None:
    async with stage.member(records=8) as (consumer, _):
        await consumer.poll(max_records=4, timeout=60)
        await cancelled_after(iterations, consumer.commit)
        await consumer.commit()
        committed = await consumer.committed()
        assert [row.offset for row in committed.values() if row] == [4]


@pytest.mark.parametrize("iterations", ITERATIONS)
async def test_cancelled_start_and_stop_leave_no_connections_or_tasks(
    stage: Stage, iterations: int
) -> None:
    await stage.topic("t", 1, records=8)
    consumer = stage.consumer("t", enable_auto_commit=True)
    await cancelled_after(iterations, consumer.start)
    await consumer.stop()
    consumer = stage.consumer("t", enable_auto_commit=True)
    await consumer.start()
    await consumer.poll(timeout=60)
    await cancelled_after(iterations, consumer.stop)
    await consumer.stop()


@pytest.mark.parametrize("iterations", ITERATIONS)
async def test_consumer_is_usable_after_cancelled_seeks_and_lookups(
    stage: Stage, iterations: int
) -> None:
    async with stage.member(records=8) as (consumer, partition):
        await consumer.poll(timeout=60)
        calls: list[Callable[[], Awaitable[object]]] = [
            consumer.seek_to_beginning,
            consumer.seek_to_committed,
            lambda: consumer.position(partition),
            lambda: consumer.end_offsets([partition]),
            lambda: consumer.poll_batches(timeout=1),
        ]
        for call in calls:
            await cancelled_after(iterations, call)
        consumer.seek(partition, 2)
        assert await rest(consumer, 6) == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("iterations", ITERATIONS)
async def test_cancelled_unsubscribe_can_be_repeated(stage: Stage, iterations: int) -> None:
    async with stage.member(records=8) as (consumer, _):
        await consumer.poll(timeout=60)
        await cancelled_after(iterations, consumer.unsubscribe)
        await consumer.unsubscribe()
        assert consumer.assignment() == frozenset()
        consumer.subscribe(["t"])
        await consumer.poll(timeout=60)
        assert consumer.assignment() == {TopicPartition("t", 0)}


async def test_error_of_failed_task_is_raised_by_poll(stage: Stage) -> None:
    """A bug in a background task ends every wait at once."""
    await stage.topic("t", 1)
    consumer = stage.consumer("t")
    await consumer.start()
    polling = asyncio.create_task(consumer.poll(timeout=None))
    await asyncio.sleep(1)

    async def die() -> None:
        raise ZeroDivisionError("a bug")

    consumer._supervisor.spawn(die, name="task with a bug")  # pyright: ignore[reportPrivateUsage]
    await asyncio.wait({polling})
    assert isinstance(polling.exception(), TaskDiedError)
    with pytest.raises(TaskDiedError, match="a bug"):
        await consumer.poll()
    await consumer.stop()
