"""`Consumer.partition_streams`: tasks for each partition, what is committed, and rebalances."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter, defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.consumer.delivery.partition_streams import MAX_RECORDS_PER_STREAM, RECORDS_PER_POLL
from kafka_async.errors import ClientClosedError, IllegalStateError
from kafka_async.types import TopicPartition
from tests.embedded_client import IterationCounter, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from kafka_async.consumer.consumer import Consumer
    from kafka_async.consumer.delivery.partition_streams import PartitionStream
    from kafka_async.kernel import Record
    from tests.consumer.conftest import Stage, StartStage

    Handle = Callable[[PartitionStream], Awaitable[object]]

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

AUTO_COMMIT: dict[str, Any] = {"enable_auto_commit": True, "auto_commit_interval_ms": 1000}


class Tasks:
    """Functions for streams; `hold` makes them wait with each record until `release` is set.

    Attributes:
        begun: Offsets by partition, in the order in which they were returned.
        ended: Partitions whose stream ended before their task returned.
        cancelled: Partitions whose task was cancelled.
    """

    def __init__(self, *, hold: bool = True) -> None:
        self.begun: defaultdict[int, list[int]] = defaultdict(list)
        self.ended: list[int] = []
        self.cancelled: list[int] = []
        self.release = asyncio.Event()
        if not hold:
            self.release.set()

    async def __call__(self, stream: PartitionStream) -> None:
        number = stream.partition.partition
        try:
            async for record in stream:
                self.begun[number].append(record.offset)
                await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise
        self.ended.append(number)

    @property
    def count(self) -> int:
        return sum(map(len, self.begun.values()))


async def run_streams(consumer: Consumer, handle: Handle, drain_timeout: float = 10.0) -> None:
    async with consumer.partition_streams(drain_timeout=drain_timeout) as streams:
        async for stream in streams:
            stream.start_soon(handle, stream)


@asynccontextmanager
async def streaming(
    consumer: Consumer, handle: Handle, drain_timeout: float = 10.0
) -> AsyncGenerator[asyncio.Task[None]]:
    """Run `handle` for each stream in a task, which is cancelled at the end."""
    task = asyncio.create_task(run_streams(consumer, handle, drain_timeout))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})


async def committed(consumer: Consumer, partition: TopicPartition) -> int | None:
    found = (await consumer.committed([partition]))[partition]
    return None if found is None else found.offset


async def committed_in(stage: Stage, partition: TopicPartition) -> int | None:
    async with stage.consumer("other") as reader:
        return await committed(reader, partition)


async def test_each_partition_has_a_stream_with_its_records_in_order(
    start_stage: StartStage,
) -> None:
    stage, tasks = await start_stage(), Tasks(hold=False)
    await stage.topic("t", 3, 50)
    async with stage.consumer("t") as consumer, streaming(consumer, tasks):
        await until(lambda: tasks.count == 150)
    assert tasks.begun == {number: list(range(50)) for number in range(3)}


async def test_streams_come_for_partitions_without_records(start_stage: StartStage) -> None:
    stage = await start_stage()
    partitions = await stage.topic("t", 2)
    async with stage.consumer("t") as consumer, consumer.partition_streams() as streams:
        found = {(await anext(streams)).partition for _ in partitions}
    assert found == set(partitions)


async def test_callback_of_the_event_loop_can_start_a_task(start_stage: StartStage) -> None:
    """There anyio makes no objects where sniffio is installed; `tests/conftest.py` sees to it."""
    stage, tasks = await start_stage(), Tasks(hold=False)
    await stage.topic("t", 1, 50)
    loop = asyncio.get_running_loop()
    async with stage.consumer("t") as consumer, consumer.partition_streams() as streams:
        stream = await anext(streams)
        loop.call_soon(stream.start_soon, tasks, stream)
        async with asyncio.timeout(60):
            await until(lambda: tasks.count == 50)


async def test_a_waiting_task_delays_no_other_partition_and_its_partition_is_not_polled(
    start_stage: StartStage,
) -> None:
    stage, tasks = await start_stage(), Tasks(hold=False)
    slow, fast = await stage.topic("t", 2, 4 * MAX_RECORDS_PER_STREAM)

    async def handle(stream: PartitionStream) -> None:
        if stream.partition == slow:
            await go_on.wait()
        await tasks(stream)

    go_on = asyncio.Event()
    async with stage.consumer("t") as consumer, streaming(consumer, handle) as task:
        await until(lambda: len(tasks.begun[fast.partition]) == 4 * MAX_RECORDS_PER_STREAM)
        assert not tasks.begun[slow.partition]
        go_on.set()
        await until(lambda: tasks.count == 8 * MAX_RECORDS_PER_STREAM)
        assert not task.done()
        assert consumer.paused() == frozenset()
    assert tasks.begun[fast.partition] == tasks.begun[slow.partition]


async def test_partition_whose_stream_is_full_is_not_polled_until_half_was_taken(
    start_stage: StartStage,
) -> None:
    stage, tasks = await start_stage(), Tasks()
    async with (
        stage.member(4 * MAX_RECORDS_PER_STREAM) as (consumer, partition),
        streaming(consumer, tasks),
    ):
        await until(lambda: tasks.count == 1)
        await asyncio.sleep(5)
        position = await consumer.position(partition)
        assert position <= MAX_RECORDS_PER_STREAM + RECORDS_PER_POLL
        tasks.release.set()
        await until(lambda: tasks.count == 4 * MAX_RECORDS_PER_STREAM)
    assert tasks.begun[0] == list(range(4 * MAX_RECORDS_PER_STREAM))


async def test_full_partition_is_returned_again_after_the_block_was_cancelled(
    start_stage: StartStage,
) -> None:
    stage, held, tasks = await start_stage(), Tasks(), Tasks(hold=False)
    async with stage.member(3 * MAX_RECORDS_PER_STREAM) as (consumer, _):
        async with streaming(consumer, held):
            await until(lambda: held.count == 1)
            await asyncio.sleep(5)  # the stream is full
        assert held.cancelled == [0]
        begun = [record.offset for record in await consumer.poll(timeout=30)]
        assert begun
        async with streaming(consumer, tasks):
            await until(lambda: len(begun) + tasks.count == 3 * MAX_RECORDS_PER_STREAM)
    assert begun + tasks.begun[0] == list(range(3 * MAX_RECORDS_PER_STREAM))


async def test_partition_whose_stream_has_many_bytes_is_not_polled(
    start_stage: StartStage,
) -> None:
    stage, tasks = await start_stage(), Tasks()
    async with stage.member() as (consumer, partition):
        for _ in range(20):
            stage.produce(partition, [b"x" * 300_000])
        async with streaming(consumer, tasks):
            await until(lambda: tasks.count == 1)
            await asyncio.sleep(5)
            assert await consumer.position(partition) < 10
            tasks.release.set()
            await until(lambda: tasks.count == 20)


async def test_auto_commit_ends_before_the_record_of_a_task(start_stage: StartStage) -> None:
    stage = await start_stage()
    at, go_on = [0], asyncio.Event()

    async def handle(stream: PartitionStream) -> None:
        async for record in stream:
            at[0] = record.offset
            if record.offset == 2:
                await go_on.wait()

    async with (
        stage.member(5, **AUTO_COMMIT) as (consumer, partition),
        streaming(consumer, handle),
    ):
        await until(lambda: at[0] == 2)
        await asyncio.sleep(3)
        assert await committed(consumer, partition) == 2
        go_on.set()
        await asyncio.sleep(3)
        assert await committed(consumer, partition) == 5


async def test_two_tasks_of_a_stream_commit_up_to_the_first_record_that_is_not_done(
    start_stage: StartStage,
) -> None:
    stage = await start_stage()
    held, seen = asyncio.Event(), list[int]()

    async def handle(stream: PartitionStream) -> None:
        async for record in stream:
            seen.append(record.offset)
            if record.offset == 1:
                await held.wait()

    async with (
        stage.member(6, **AUTO_COMMIT) as (consumer, partition),
        consumer.partition_streams() as streams,
    ):
        stream = await anext(streams)
        for _ in range(2):
            stream.start_soon(handle, stream)
        await until(lambda: len(seen) == 6)
        await asyncio.sleep(3)
        assert await committed(consumer, partition) == 1
        held.set()
        await asyncio.sleep(3)
        assert await committed(consumer, partition) == 6
    assert sorted(seen) == list(range(6))


async def test_commit_of_a_stream_includes_the_record_of_its_task(start_stage: StartStage) -> None:
    stage = await start_stage()
    commits: list[int | None] = []

    async def handle(stream: PartitionStream) -> None:
        async for _ in stream:
            await consumer.commit(stream.partition)
            before = await committed(consumer, stream.partition)
            await stream.commit()
            commits.extend([before, await committed(consumer, stream.partition)])

    async with stage.member(2) as (consumer, _), streaming(consumer, handle):
        await until(lambda: len(commits) == 4)
    assert commits == [0, 1, 1, 2]


async def test_exception_of_a_task_cancels_the_others_and_ends_the_block(
    start_stage: StartStage,
) -> None:
    stage, tasks = await start_stage(), Tasks()
    _, other = await stage.topic("t", 2, 3)

    async def handle(stream: PartitionStream) -> None:
        if stream.partition == other:
            await tasks(stream)
        await until(lambda: tasks.count == 1)
        async for record in stream:
            if record.offset == 2:
                raise ArithmeticError("no quotient")

    async with stage.consumer("t", **AUTO_COMMIT) as consumer:
        with pytest.raises(ArithmeticError, match="no quotient"):
            await run_streams(consumer, handle)
        assert tasks.cancelled == [1]
        left = sorted((r.partition, r.offset) for r in await consumer.poll(max_records=10))
        assert left == [(0, 2), (1, 0), (1, 1), (1, 2)]
        await consumer.stop()
    assert await committed_in(stage, TopicPartition("t", 0)) == 2
    assert await committed_in(stage, other) == 0


async def test_exceptions_of_tasks_that_fail_together_are_logged(
    start_stage: StartStage, caplog: pytest.LogCaptureFixture
) -> None:
    stage, barrier = await start_stage(), asyncio.Barrier(2)
    await stage.topic("t", 2, 1)

    async def fail(stream: PartitionStream) -> None:
        await barrier.wait()
        raise ArithmeticError(str(stream.partition))

    async with stage.consumer("t") as consumer:
        with pytest.raises(ArithmeticError) as raised:
            await run_streams(consumer, fail)
    logged = [row.exc_info[1] for row in caplog.records if row.exc_info is not None]
    assert {str(error) for error in [raised.value, *logged]} == {"t-0", "t-1"}
    assert len(logged) == 1


async def test_cancelled_error_of_a_task_that_is_not_cancelled_is_an_error(
    start_stage: StartStage,
) -> None:
    stage = await start_stage()
    lookup = asyncio.create_task(asyncio.sleep(60))
    lookup.cancel()

    async def handle(stream: PartitionStream) -> None:
        async for record in stream:
            if record.offset == 1:
                await lookup

    async with stage.member(3) as (consumer, _):
        with pytest.raises(RuntimeError, match="a handler of t-0 raised CancelledError"):
            await run_streams(consumer, handle)
        assert [record.offset for record in await consumer.poll()] == [1, 2]


async def test_exception_of_a_task_cancels_a_block_that_does_not_iterate(
    start_stage: StartStage,
) -> None:
    stage = await start_stage()

    async def fail(stream: PartitionStream) -> None:
        raise ArithmeticError(str(stream.partition))

    async def run(consumer: Consumer) -> None:
        async with consumer.partition_streams() as streams:
            stream = await anext(streams)
            stream.start_soon(fail, stream)
            await asyncio.Event().wait()

    async with stage.member(1) as (consumer, _):
        with pytest.raises(ArithmeticError, match="t-0"):
            await run(consumer)


async def test_exception_of_the_block_is_raised_as_it_is(start_stage: StartStage) -> None:
    stage, tasks = await start_stage(), Tasks()

    async def run(consumer: Consumer) -> None:
        async with consumer.partition_streams() as streams:
            stream = await anext(streams)
            stream.start_soon(tasks, stream)
            await until(lambda: tasks.count == 1)
            raise ArithmeticError("mine")

    async with stage.member(1) as (consumer, _):
        with pytest.raises(ArithmeticError, match="mine"):
            await run(consumer)
    assert tasks.cancelled == [0]


async def test_end_of_the_block_ends_the_streams_and_waits_for_tasks(
    start_stage: StartStage,
) -> None:
    stage, tasks = await start_stage(), Tasks()
    async with stage.member(3) as (consumer, _):
        async with consumer.partition_streams() as streams:
            stream = await anext(streams)
            stream.start_soon(tasks, stream)
            await until(lambda: tasks.count == 1)
            asyncio.get_running_loop().call_later(5, tasks.release.set)
        assert (tasks.ended, tasks.cancelled) == ([0], [])
        assert [record.offset for record in await consumer.poll()] == [1, 2]
        with pytest.raises(IllegalStateError, match="has ended"):
            stream.start_soon(tasks, stream)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_revoked_partition_is_drained_and_committed_before_another_member_owns_it(
    start_stage: StartStage, strategy: str
) -> None:
    stage, tasks = await start_stage(), Tasks()
    await stage.topic("t", 2, 2)
    options = {**AUTO_COMMIT, "partition_assignment_strategy": [strategy]}
    async with (
        stage.consumer("t", **options) as first,
        streaming(first, tasks),
        stage.consumer("t", **options) as second,
    ):
        await until(lambda: tasks.count == 2)
        polling = asyncio.create_task(second.poll(timeout=60))
        await asyncio.sleep(6)  # the first member's heartbeats have told it of the rebalance
        assert second.assignment() == frozenset()
        tasks.release.set()
        (record,) = await polling
        assert (record.partition, record.offset) == (1, 1)
        await until(lambda: tasks.begun[0] == [0, 1])
    assert tasks.begun[1] == [0]
    assert 1 in tasks.ended


async def test_tasks_of_a_revoked_partition_are_cancelled_after_the_drain_timeout(
    start_stage: StartStage, caplog: pytest.LogCaptureFixture
) -> None:
    stage, tasks = await start_stage(), Tasks()
    await stage.topic("t", 2, 2)
    options = {**AUTO_COMMIT, "partition_assignment_strategy": ["cooperative-sticky"]}
    async with (
        stage.consumer("t", **options) as first,
        streaming(first, tasks, drain_timeout=3.0),
        stage.consumer("t", **options) as second,
    ):
        await until(lambda: tasks.count == 2)
        with caplog.at_level(logging.WARNING):
            records = await second.poll(timeout=60)
        assert [(r.partition, r.offset) for r in records] == [(1, 0), (1, 1)]
        assert tasks.cancelled == [1]
    assert "1 handlers of t-1 did not end within 3 s" in caplog.text


async def test_task_commits_within_the_drain_without_auto_commit(start_stage: StartStage) -> None:
    stage, done = await start_stage(), list[int]()
    await stage.topic("t", 2, 3)

    async def handle(stream: PartitionStream) -> None:
        async for _ in stream:
            await asyncio.sleep(5)
            done.append(stream.partition.partition)
        await stream.commit()

    async with (
        stage.consumer("t") as first,
        streaming(first, handle),
        stage.consumer("t") as second,
    ):
        await until(lambda: len(done) == 2)
        records = await second.poll(timeout=60)
    assert {r.partition for r in records} == {1}
    assert records[0].offset == done.count(1) > 0


@pytest.mark.parametrize("delayed", ["SyncGroup", "OffsetCommit"])
@pytest.mark.parametrize("concurrent", ["partition_streams", "process"])
async def test_commit_of_a_task_that_a_rebalance_overtakes_does_not_delay_the_rebalance(
    start_stage: StartStage, concurrent: str, delayed: str, caplog: pytest.LogCaptureFixture
) -> None:
    stage, handled = await start_stage(), Counter[int]()
    await stage.topic("t", 2, 500)
    options = {**AUTO_COMMIT, "partition_assignment_strategy": ["cooperative-sticky"]}

    async def handle(record: Record[bytes, bytes]) -> None:
        await asyncio.sleep(0.05)
        handled[record.partition] += 1
        await first.commit()

    async def handle_all(stream: PartitionStream) -> None:
        async for _ in stream:
            await asyncio.sleep(0.05)
            handled[stream.partition.partition] += 1
            await stream.commit()

    async def run() -> None:
        if concurrent == "process":
            await first.process(handle, concurrency=2, ordering="partition")
        else:
            await run_streams(first, handle_all)

    async with stage.consumer("t", **options) as first:
        running = asyncio.create_task(run())
        await until(lambda: handled.total() > 20)
        # Commits are sent between JoinGroup and SyncGroup, or arrive in the next generation.
        stage.cluster.faults.add(api=delayed, delay=0.5, count=None)
        with caplog.at_level(logging.WARNING):
            async with stage.consumer("t", **options) as second:
                began = asyncio.get_running_loop().time()
                records = await second.poll(timeout=60)
                assert asyncio.get_running_loop().time() - began < 10
        assert not running.done()
        running.cancel()
        await asyncio.wait({running})
    assert "did not end within" not in caplog.text
    assert records[0].offset == handled[records[0].partition]


async def test_tasks_of_lost_partitions_are_cancelled_at_once_without_a_commit(
    start_stage: StartStage,
) -> None:
    stage, tasks = await start_stage(), Tasks()
    async with (
        stage.member(1, **AUTO_COMMIT) as (consumer, partition),
        streaming(consumer, tasks, drain_timeout=1000.0),
    ):
        await until(lambda: tasks.count == 1)
        stage.cluster.faults.add(api="Heartbeat", error="UNKNOWN_MEMBER_ID")
        await until(lambda: tasks.cancelled == [0])
        assert await committed(consumer, partition) == 0
        await until(lambda: tasks.count == 2)  # a new stream, once assigned again
        tasks.release.set()
        await asyncio.sleep(2)
        assert await committed(consumer, partition) == 1


async def test_stop_ends_the_streams_and_commits_what_is_done(start_stage: StartStage) -> None:
    stage, tasks = await start_stage(), Tasks()
    async with stage.member(5, **AUTO_COMMIT) as (consumer, partition):
        running = asyncio.create_task(run_streams(consumer, tasks))
        await until(lambda: tasks.count == 1)
        stopping = asyncio.create_task(consumer.stop())
        await asyncio.sleep(1)
        assert not stopping.done()
        tasks.release.set()
        await stopping
        await running
    assert (tasks.begun[0], tasks.ended, tasks.cancelled) == ([0], [0], [])
    assert await committed_in(stage, partition) == 1


async def test_stop_in_a_task_does_not_wait_for_the_task(start_stage: StartStage) -> None:
    stage, begun = await start_stage(), list[int]()
    loop = asyncio.get_running_loop()
    async with stage.member(5, **AUTO_COMMIT) as (consumer, partition):

        async def handle(stream: PartitionStream) -> None:
            async for record in stream:
                begun.append(record.offset)
                if record.offset == 2:
                    called_at = loop.time()
                    await consumer.stop()
                    assert loop.time() - called_at < 1

        await run_streams(consumer, handle)
        assert consumer.health().state == "closed"  # once the block has ended
    assert begun == [0, 1, 2]
    assert await committed_in(stage, partition) == 3


async def test_task_commits_after_stop_has_ended_its_stream(start_stage: StartStage) -> None:
    stage = await start_stage()
    streams: list[PartitionStream] = []
    got = asyncio.Event()
    async with stage.member(5) as (consumer, partition):

        async def handle(stream: PartitionStream) -> None:
            streams.append(stream)
            async for record in stream:
                if record.offset == 4:
                    got.set()
            await stream.commit()

        async with streaming(consumer, handle) as task:
            await got.wait()
            await consumer.stop()
            await task
            with pytest.raises(
                ClientClosedError, match="in on_revoked, or in a handler of process"
            ):
                await streams[0].commit()
    assert await committed_in(stage, partition) == 5


async def awaited_in_another_task(stream: PartitionStream) -> Record[bytes, bytes]:
    """Do what `asyncio.wait_for(anext(stream), 10)` does on Python 3.11."""
    return await asyncio.create_task(anext(stream))


async def requested_in_another_task(stream: PartitionStream) -> Record[bytes, bytes]:
    async def request() -> Record[bytes, bytes]:
        return await anext(stream)

    return await asyncio.create_task(request())


@pytest.mark.parametrize("get", [awaited_in_another_task, requested_in_another_task])
async def test_commit_includes_a_record_that_came_through_another_task(
    start_stage: StartStage,
    get: Callable[[PartitionStream], Awaitable[Record[bytes, bytes]]],
) -> None:
    stage, seen, offsets = await start_stage(), list[int](), list[int | None]()

    async def handle(stream: PartitionStream) -> None:
        for _ in range(3):
            seen.append((await get(stream)).offset)
        await stream.commit()
        offsets.append(await committed(consumer, stream.partition))
        seen.append((await get(stream)).offset)

    async with (
        stage.member(5, **AUTO_COMMIT) as (consumer, partition),
        streaming(consumer, handle),
    ):
        await until(lambda: len(seen) == 4)
        await asyncio.sleep(3)
        assert await committed(consumer, partition) == 4
    assert (seen, offsets) == ([0, 1, 2, 3], [3])


async def test_records_requested_at_the_same_time_are_done_at_the_next_request(
    start_stage: StartStage,
) -> None:
    stage, seen, go_on = await start_stage(), list[int](), asyncio.Event()

    async def handle(stream: PartitionStream) -> None:
        while True:
            pair = await asyncio.gather(anext(stream), anext(stream))
            seen.extend(record.offset for record in pair)
            await go_on.wait()
            go_on.clear()

    async with (
        stage.member(4, **AUTO_COMMIT) as (consumer, partition),
        streaming(consumer, handle),
    ):
        await until(lambda: len(seen) == 2)
        await asyncio.sleep(3)
        assert await committed(consumer, partition) == 0
        go_on.set()
        await until(lambda: len(seen) == 4)
        await asyncio.sleep(3)
        assert await committed(consumer, partition) == 2
    assert seen == [0, 1, 2, 3]


async def test_record_of_a_running_task_is_not_done_when_the_task_that_created_it_commits(
    start_stage: StartStage,
) -> None:
    stage, held, tasks = await start_stage(), asyncio.Event(), Tasks()

    async def handle(stream: PartitionStream) -> None:
        child = asyncio.create_task(tasks(stream))
        try:
            await until(lambda: tasks.count == 1)
            await stream.commit()
            held.set()
            await child
        finally:
            child.cancel()

    async with stage.member(3) as (consumer, partition), streaming(consumer, handle):
        await held.wait()
        assert await committed(consumer, partition) == 0
        tasks.release.set()
        await until(lambda: tasks.count == 3)


async def run_child_that_outlives_its_parent(
    stream: PartitionStream, work: Callable[[], Awaitable[object]]
) -> asyncio.Task[None]:
    """Start a task of the stream that creates one, which takes a record; return the latter."""
    child: asyncio.Future[asyncio.Task[None]] = asyncio.get_running_loop().create_future()
    taken = asyncio.Event()

    async def take() -> None:
        await anext(stream)
        taken.set()
        await work()

    async def create() -> None:
        child.set_result(asyncio.create_task(take()))
        await taken.wait()

    stream.start_soon(create)
    return await child


async def test_record_of_a_task_that_outlives_its_creator_is_done_when_it_returns(
    start_stage: StartStage,
) -> None:
    stage, tasks, release = await start_stage(), Tasks(hold=False), asyncio.Event()

    async def handle(stream: PartitionStream) -> None:
        await run_child_that_outlives_its_parent(stream, release.wait)
        await tasks(stream)

    async with (
        stage.member(3, **AUTO_COMMIT, max_poll_interval_ms=60_000) as (consumer, partition),
        streaming(consumer, handle),
    ):
        await until(lambda: tasks.count == 2)
        await asyncio.sleep(3)
        assert await committed(consumer, partition) == 0
        release.set()
        await asyncio.sleep(3)
        assert await committed(consumer, partition) == 3
        generation = consumer.group_metadata().generation_id
        await asyncio.sleep(200)
        assert consumer.group_metadata().generation_id == generation
    assert tasks.begun[0] == [1, 2]


async def test_member_joins_again_once_a_task_that_outlives_its_creator_has_ended(
    start_stage: StartStage, caplog: pytest.LogCaptureFixture
) -> None:
    stage, tasks, release = await start_stage(), Tasks(hold=False), asyncio.Event()

    async def handle(stream: PartitionStream) -> None:
        if release.is_set():
            await tasks(stream)
        else:
            await run_child_that_outlives_its_parent(stream, release.wait)

    async with (
        stage.member(3, **AUTO_COMMIT, max_poll_interval_ms=60_000) as (consumer, partition),
        streaming(consumer, handle),
    ):
        await asyncio.sleep(200)
        assert "leaves the group" in caplog.text
        release.set()
        await asyncio.sleep(20)
        assert await committed(consumer, partition) == 3
    assert tasks.begun[0] == [0, 1, 2]


async def test_exception_of_a_task_that_outlives_its_creator_ends_the_block(
    start_stage: StartStage,
) -> None:
    stage, tasks = await start_stage(), Tasks(hold=False)

    async def fail() -> None:
        await until(lambda: tasks.count == 2)
        raise LookupError("no such order")

    async def handle(stream: PartitionStream) -> None:
        await run_child_that_outlives_its_parent(stream, fail)
        await tasks(stream)

    async with stage.member(3, **AUTO_COMMIT) as (consumer, partition):
        with pytest.raises(LookupError):
            await run_streams(consumer, handle)
        assert await consumer.position(partition) == 0
        await asyncio.sleep(3)
        assert await committed(consumer, partition) == 0


async def test_record_of_a_cancelled_task_that_outlived_its_creator_is_not_committed(
    start_stage: StartStage, caplog: pytest.LogCaptureFixture
) -> None:
    stage, tasks = await start_stage(), Tasks(hold=False)

    async def handle(stream: PartitionStream) -> None:
        child = await run_child_that_outlives_its_parent(stream, asyncio.Event().wait)
        child.get_loop().call_later(1, child.cancel)
        await tasks(stream)

    async with (
        stage.member(3, **AUTO_COMMIT, max_poll_interval_ms=60_000) as (consumer, partition),
        streaming(consumer, handle),
    ):
        await asyncio.sleep(5)
        assert "commits end at its record" in caplog.text
        await asyncio.sleep(200)
        assert consumer.assignment() == {partition}
        assert await committed(consumer, partition) == 0
        assert consumer.health().oldest_unfinished_s == {}
    assert tasks.begun[0] == [1, 2]


async def test_seek_drops_the_records_that_a_stream_has(start_stage: StartStage) -> None:
    stage, tasks = await start_stage(), Tasks()
    async with stage.member(10) as (consumer, partition), streaming(consumer, tasks):
        await until(lambda: tasks.count == 1)
        consumer.seek(partition, 8)
        tasks.release.set()
        await until(lambda: tasks.count == 3)
    assert tasks.begun[0] == [0, 8, 9]


async def test_stream_of_a_partition_that_is_not_assigned_any_more_ends(
    start_stage: StartStage,
) -> None:
    stage, tasks = await start_stage(), Tasks()
    partition, other = await stage.topic("t", 2, 3)
    async with (
        stage.consumer(partitions=[partition, other]) as consumer,
        streaming(consumer, tasks),
    ):
        await until(lambda: tasks.count == 2)
        consumer.assign([other])
        tasks.release.set()
        await until(lambda: tasks.ended == [0])
        consumer.assign([partition, other])
        await until(lambda: tasks.count == 7)
    assert tasks.begun == {0: [0, 0, 1, 2], 1: [0, 1, 2]}


async def test_partition_revoked_by_the_group_but_assigned_manually_is_read_on(
    start_stage: StartStage,
) -> None:
    stage, tasks = await start_stage(), Tasks()
    async with stage.member(3) as (consumer, partition):
        consumer.assign([partition])
        async with streaming(consumer, tasks):
            await until(lambda: tasks.count == 1)
            leaving = asyncio.create_task(consumer.unsubscribe())
            await asyncio.sleep(1)
            tasks.release.set()
            await leaving
            await until(lambda: tasks.count == 3)
    assert tasks.begun[0] == [0, 1, 2]


async def test_warns_of_a_stream_without_a_task(
    start_stage: StartStage, caplog: pytest.LogCaptureFixture
) -> None:
    stage = await start_stage()

    async def first_only(stream: PartitionStream) -> None:
        await anext(stream)

    with caplog.at_level(logging.WARNING):
        async with stage.member(3) as (consumer, _), streaming(consumer, first_only):
            await until(lambda: "all tasks of the stream of t-0 have returned" in caplog.text)


def warnings_of_nested_loops(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in caplog.messages if "are not read as long as" in text]


async def test_warns_once_of_a_nested_loop_that_lets_other_streams_wait(
    start_stage: StartStage, caplog: pytest.LogCaptureFixture
) -> None:
    stage = await start_stage()
    partitions = await stage.topic("t", 3, 3)
    async with stage.consumer("t") as consumer, consumer.partition_streams() as streams:
        stream = await anext(streams)
        assert [(await anext(stream)).offset for _ in range(3)] == [0, 1, 2]
    (warning,) = warnings_of_nested_loops(caplog)
    waiting = ", ".join(str(each) for each in partitions if each != stream.partition)
    assert warning.startswith(f"the records of {waiting} are not read as long as")
    assert f"those of {stream.partition} in its body" in warning
    assert "stream.start_soon(handle, stream)" in warning


async def test_warns_of_a_stream_that_comes_while_a_nested_loop_waits_for_records(
    start_stage: StartStage, caplog: pytest.LogCaptureFixture
) -> None:
    stage = await start_stage()
    partition, other = await stage.topic("t", 2)

    async def read_in_nested_loops() -> None:
        async with consumer.partition_streams() as streams:
            async for stream in streams:
                async for _ in stream:
                    pass

    async with stage.consumer(partitions=[partition]) as consumer:
        reading = asyncio.create_task(read_in_nested_loops())
        await asyncio.sleep(1)
        assert not warnings_of_nested_loops(caplog)
        consumer.assign([partition, other])
        await until(lambda: len(warnings_of_nested_loops(caplog)) == 1)
        await consumer.stop()
        await reading


async def test_does_not_warn_of_tasks_that_read_streams(
    start_stage: StartStage, caplog: pytest.LogCaptureFixture
) -> None:
    stage, tasks = await start_stage(), Tasks(hold=False)
    await stage.topic("t", 3, 3)
    async with stage.consumer("t") as consumer, streaming(consumer, tasks):
        await until(lambda: tasks.count == 9)
    assert not warnings_of_nested_loops(caplog)


async def test_polls_and_process_are_refused_meanwhile(start_stage: StartStage) -> None:
    stage, tasks = await start_stage(), Tasks()

    async def handle(record: Record[bytes, bytes]) -> None:
        raise AssertionError(record)

    async with stage.member(1) as (consumer, _), streaming(consumer, tasks):
        await until(lambda: tasks.count == 1)
        with pytest.raises(IllegalStateError, match="partition_streams runs already"):
            await consumer.process(handle, concurrency=1)
        with pytest.raises(IllegalStateError, match="exclude each other"):
            await consumer.poll()


async def test_function_that_is_no_coroutine_function_is_refused(start_stage: StartStage) -> None:
    stage = await start_stage()
    plain: Any = print
    async with stage.member(1) as (consumer, _):
        with pytest.raises(
            TypeError, match=r"^the function of start_soon must be `async def`: <built"
        ):
            await run_streams(consumer, plain)
        with pytest.raises(ValueError, match="drain_timeout is 0 seconds"):
            consumer.partition_streams(drain_timeout=-1)


async def test_streams_that_never_wait_let_other_tasks_run(
    start_stage: StartStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, per_iteration = await start_stage(), Counter[int]()
    loop = asyncio.get_running_loop()
    await stage.topic("t", 2, 300)
    async with stage.consumer("t") as consumer, IterationCounter() as iterations:

        async def handle(stream: PartitionStream) -> None:
            async for _ in stream:
                per_iteration[iterations.count] += 1

        time, clock_reads = loop.time, itertools.count(0, 0.001)
        monkeypatch.setattr(loop, "time", lambda: time() + next(clock_reads))
        async with streaming(consumer, handle):
            await until(lambda: per_iteration.total() == 600)
    # The clock moves by 1 ms with each reading, so once per record.
    assert max(per_iteration.values()) <= 8
