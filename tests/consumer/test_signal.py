"""A signal that stops the program lets running handlers end, and commits what is done."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import kafka_async
from kafka_async.runner import stopped_by_signal
from tests.consumer.conftest import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kafka_async.consumer.consumer import Consumer
    from kafka_async.kernel import Record
    from kafka_async.types import TopicPartition

    Read = Callable[[Consumer, "Handler"], Coroutine[Any, Any, None]]

RUNNING, RECORDS = 4, 20


class Handler:
    """Stops the program once several handlers run; they end some time after that."""

    def __init__(self, *, ends: bool = True) -> None:
        self.begun: list[int] = []
        self.done: list[int] = []
        self._ends = ends

    async def __call__(self, record: Record[Any, Any]) -> None:
        self.begun.append(record.offset)
        if len(self.begun) == RUNNING:
            os.kill(os.getpid(), signal.SIGTERM)
        while not stopped_by_signal() or not self._ends:  # noqa: ASYNC110
            await asyncio.sleep(0)
        for _ in range(10):  # A cancellation would arrive in the meantime.
            await asyncio.sleep(0)
        self.done.append(record.offset)


async def in_process(consumer: Consumer, handler: Handler) -> None:
    await consumer.process(handler, concurrency=RUNNING)


async def in_process_of_a_task_group(consumer: Consumer, handler: Handler) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(consumer.process(handler, concurrency=RUNNING))


async def in_process_of_a_cancel_scope(consumer: Consumer, handler: Handler) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(in_process, consumer, handler)


async def in_streams(consumer: Consumer, handler: Handler) -> None:
    async def read(stream: Any) -> None:
        async for record in stream:
            await handler(record)

    async with consumer.partition_streams() as streams:
        async for stream in streams:
            for _ in range(RUNNING):
                stream.start_soon(read, stream)


def committed(stage: Stage, partition: TopicPartition) -> int:
    return stage.cluster.groups.offsets.committed("g")[partition].offset


@pytest.mark.parametrize(
    "read",
    [in_process, in_process_of_a_task_group, in_process_of_a_cancel_scope, in_streams],
)
def test_handlers_end_and_are_committed_before_the_cancellation_arrives(read: Read) -> None:
    handler = Handler()

    async def main() -> None:
        async with (
            Stage() as stage,
            stage.member(RECORDS, enable_auto_commit=True) as (consumer, partition),
        ):
            try:
                await read(consumer, handler)
            finally:
                assert sorted(handler.done) == handler.begun == list(range(RUNNING))
                assert committed(stage, partition) == RUNNING

    with pytest.raises(SystemExit, match="143"):
        kafka_async.run(main())
    assert len(handler.done) == RUNNING


def test_handlers_that_do_not_end_in_time_are_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    handler = Handler(ends=False)

    async def main() -> None:
        async with (
            Stage() as stage,
            stage.member(RECORDS, enable_auto_commit=True) as (consumer, _),
        ):
            await consumer.process(handler, concurrency=RUNNING, drain_timeout=0)

    with pytest.raises(SystemExit, match="143"):
        kafka_async.run(main())
    assert handler.done == []
    assert "4 handlers of t-0 did not end within 0 s" in caplog.text


@pytest.mark.asyncio
async def test_cancellation_without_a_signal_cancels_handlers_at_once(stage: Stage) -> None:
    cancelled: list[int] = []
    begun = asyncio.Event()

    async def handle(record: Record[Any, Any]) -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(record.offset)
            raise

    async with stage.member(1) as (consumer, _):
        task = asyncio.create_task(consumer.process(handle, concurrency=1))
        await begun.wait()
        task.cancel()
        await asyncio.wait({task})
    assert task.cancelled()
    assert cancelled == [0]
