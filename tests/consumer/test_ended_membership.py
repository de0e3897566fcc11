"""No record is returned under a membership that has ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.types import TopicPartition
from tests.consumer.conftest import poll_until
from tests.recording_listener import RecordingListener

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafka_async import Consumer
    from kafka_async.kernel import Record
    from tests.consumer.conftest import Stage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]

RECORDS = 100
P0 = TopicPartition("t", 0)
KINDS: list[dict[str, Any]] = [
    {"partition_assignment_strategy": ["range"]},
    {"partition_assignment_strategy": ["cooperative-sticky"]},
    {"group_protocol": "consumer"},
]
INTERVAL: dict[str, Any] = {"max_poll_interval_ms": 60_000}


async def poll(consumer: Consumer) -> list[int]:
    return [record.offset for record in await consumer.poll(timeout=5)]


async def poll_some(consumer: Consumer) -> list[int]:
    return [record.offset for record in await consumer.poll(max_records=1, timeout=5)]


async def take_next(consumer: Consumer) -> list[int]:
    try:
        return [(await asyncio.wait_for(anext(consumer), 5)).offset]
    except TimeoutError:
        return []


async def poll_batches(consumer: Consumer) -> list[int]:
    found = await consumer.poll_batches(timeout=5)
    return [record.offset for batch in found for record in batch.records()]


@pytest.mark.parametrize("options", KINDS, ids=["range", "cooperative-sticky", "consumer"])
@pytest.mark.parametrize("read", [poll, poll_some, take_next, poll_batches])
async def test_member_without_polls_returns_nothing_that_another_member_has_committed(
    stage: Stage, options: dict[str, Any], read: Callable[[Consumer], Awaitable[list[int]]]
) -> None:
    await stage.topic("t", 1, records=RECORDS)
    listener = RecordingListener()
    async with stage.consumer("t", **INTERVAL, **options, listener=listener) as first:
        assert (await poll_some(first) if read is not take_next else await take_next(first)) == [0]
        async with stage.consumer("t", **options) as second:
            seen: list[Any] = []

            async def read_all() -> None:
                while not seen or seen[-1].offset < RECORDS - 1:
                    seen.extend(await second.poll(timeout=1))
                await second.commit()

            await asyncio.wait_for(read_all(), 200)
        assert [await read(first) for _ in range(3)] == [[], [], []]
        assert ("lost", [0]) in listener.lines
        stage.produce(P0, ["last"])
        assert await read(first) == [RECORDS]


@pytest.mark.parametrize("options", KINDS, ids=["range", "cooperative-sticky", "consumer"])
async def test_body_of_async_for_gets_nothing_of_an_ended_membership(
    stage: Stage, options: dict[str, Any]
) -> None:
    await stage.topic("t", 1, records=RECORDS)
    offsets: list[int] = []
    async with stage.consumer("t", **INTERVAL, **options) as first:
        async for record in first:
            offsets.append(record.offset)
            if record.offset == 1:
                async with stage.consumer("t", **options) as second:
                    await poll_until(lambda: second.assignment(), second)
                    await second.commit({P0: RECORDS - 1})
            if record.offset == RECORDS - 1:
                break
    assert offsets == [0, 1, RECORDS - 1]


@pytest.mark.parametrize("options", KINDS, ids=["range", "cooperative-sticky", "consumer"])
async def test_hung_task_of_a_stream_leaves_the_group_until_it_continues(
    stage: Stage, options: dict[str, Any]
) -> None:
    """The task of partition 0 hangs; partition 1, which has no more records, is idle."""
    await stage.topic("t", 2, records=3)
    listener, resume = RecordingListener(), asyncio.Event()
    seen: list[tuple[int, int]] = []

    async def handle(stream: Any) -> None:
        async for record in stream:
            seen.append((record.partition, record.offset))
            if record.partition == 0 and not resume.is_set():
                await resume.wait()

    async def run(consumer: Consumer) -> None:
        async with consumer.partition_streams() as streams:
            async for stream in streams:
                stream.start_soon(handle, stream)

    first = stage.consumer("t", **INTERVAL, **options, listener=listener)
    async with first:
        running = asyncio.create_task(run(first))
        await asyncio.sleep(70)
        async with stage.consumer("t", **options) as second:
            await poll_until(lambda: len(second.assignment()) == 2, second)
            await asyncio.sleep(200)  # as long as it hangs, it does not join again
            assert len(second.assignment()) == 2
            await second.commit({P0: 3, TopicPartition("t", 1): 3})
            before = sorted(seen)
            resume.set()
            await poll_until(lambda: len(first.assignment()) == 1, second)
        await asyncio.sleep(30)
        assert len(first.assignment()) == 2
        await first.stop()
        await running
    assert before == [(0, 0), (1, 0), (1, 1), (1, 2)]
    assert sorted(seen) == before
    assert ("lost", [0, 1]) in listener.lines


async def test_slow_task_of_a_stream_keeps_its_membership(stage: Stage) -> None:
    await stage.topic("t", 1, records=4)
    listener = RecordingListener()

    async def handle(stream: Any) -> None:
        async for record in stream:
            await asyncio.sleep(50)
            if record.offset == 3:
                asyncio.create_task(first.stop())  # noqa: RUF006  # ends the loop below

    first = stage.consumer("t", **INTERVAL, listener=listener)
    async with first, first.partition_streams() as streams:
        async for stream in streams:
            stream.start_soon(handle, stream)
    assert [kind for kind, _ in listener.lines] == ["assigned", "revoked"]


async def test_full_queue_of_handlers_gets_no_record_of_an_ended_membership(stage: Stage) -> None:
    """A handler hangs until another member has read and committed the rest."""
    await stage.topic("t", 1, records=RECORDS * 3)
    seen: list[int] = []
    resume = asyncio.Event()

    async def handle(record: Record[bytes, bytes]) -> None:
        seen.append(record.offset)
        if record.offset == 1:
            await resume.wait()

    async with stage.consumer("t", **INTERVAL) as first:
        running = asyncio.create_task(first.process(handle, ordering="partition", concurrency=1))
        await asyncio.sleep(70)
        async with stage.consumer("t") as second:
            await poll_until(lambda: second.assignment(), second)
            await second.commit({P0: RECORDS * 3})
        resume.set()
        await asyncio.sleep(30)
        await first.stop()
        await running
    assert seen == [0, 1]
