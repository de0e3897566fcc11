"""`Consumer.process`: concurrent handlers, what is committed, and rebalances."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.errors import IllegalStateError
from tests.embedded_client import IterationCounter, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from kafka_async.consumer.consumer import Consumer
    from kafka_async.kernel import Record
    from kafka_async.types import TopicPartition
    from tests.consumer.conftest import StartStage

    Handle = Callable[[Record[bytes, bytes]], Awaitable[None]]

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

AUTO_COMMIT: dict[str, Any] = {"enable_auto_commit": True, "auto_commit_interval_ms": 1000}


class Handlers:
    """Handlers that wait until the test lets the one of an offset return.

    Attributes:
        begun: Offsets in the order in which their handlers began.
        done: Offsets in the order in which their handlers returned.
        cancelled: Offsets whose handlers were cancelled.
        most: The largest number of handlers that ran at a time.
    """

    def __init__(self, *, hold: bool = True) -> None:
        self.begun: list[int] = []
        self.done: list[int] = []
        self.cancelled: list[int] = []
        self.most = 0
        self._hold = hold
        self._running: dict[tuple[int, int], asyncio.Event] = {}
        self._changed = asyncio.Event()

    async def __call__(self, record: Record[bytes, bytes]) -> None:
        self.begun.append(record.offset)
        place = record.partition, record.offset
        finish = self._running[place] = asyncio.Event()
        self.most = max(self.most, len(self._running))
        self._changed.set()
        try:
            if self._hold:
                await finish.wait()
            self.done.append(record.offset)
        except asyncio.CancelledError:
            self.cancelled.append(record.offset)
            self._changed.set()
            raise
        finally:
            del self._running[place]

    def finish_all(self) -> None:
        for finish in self._running.values():
            finish.set()

    def finish(self, *offsets: int) -> None:
        for offset in offsets:
            self._running[0, offset].set()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def wait_until_begun(self, count: int) -> None:
        await self.wait_until(lambda: len(self.begun) >= count)


async def committed(consumer: Consumer, partition: TopicPartition) -> int | None:
    found = (await consumer.committed([partition]))[partition]
    return None if found is None else found.offset


@asynccontextmanager
async def processing(
    consumer: Consumer, handle: Handle, **options: Any
) -> AsyncGenerator[asyncio.Task[None]]:
    """Run `process` in a task, which the test ends by stopping the consumer."""
    options = {"concurrency": 4, **options}
    task = asyncio.create_task(consumer.process(handle, **options))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_commits_a_partition_that_is_done_while_another_prevents_polls(
    start_stage: StartStage,
) -> None:
    stage, done, held = await start_stage(), list[int](), asyncio.Event()
    slow, quick = await stage.topic("t", 2, 3)

    async def handle(record: Record[bytes, bytes]) -> None:
        if record.partition == slow.partition:
            await held.wait()
        else:
            done.append(record.offset)

    async with (
        stage.consumer("t", **AUTO_COMMIT) as consumer,
        processing(consumer, handle, ordering="partition", max_bytes=1),
    ):
        await asyncio.sleep(10)
        assert done == [0, 1, 2]
        assert await committed(consumer, slow) in (None, 0)
        assert await committed(consumer, quick) == 3
        held.set()


async def test_handlers_run_concurrently_up_to_the_concurrency(
    start_stage: StartStage,
) -> None:
    stage, handlers = await start_stage(), Handlers()
    async with stage.member(10) as (consumer, _), processing(consumer, handlers, concurrency=3):
        await handlers.wait_until_begun(3)
        await asyncio.sleep(1)
        assert handlers.begun == [0, 1, 2]
        handlers.finish(1)
        await handlers.wait_until_begun(4)
        assert handlers.begun == [0, 1, 2, 3]
    assert handlers.most == 3


async def test_records_of_a_partition_are_handled_in_order(start_stage: StartStage) -> None:
    stage, handlers = await start_stage(), Handlers(hold=False)
    async with (
        stage.member(1000) as (consumer, _),
        processing(consumer, handlers, ordering="partition"),
    ):
        await handlers.wait_until_begun(1000)
    assert handlers.done == list(range(1000))
    assert handlers.most == 1


async def test_commits_end_at_the_first_record_that_is_not_done(start_stage: StartStage) -> None:
    stage, handlers = await start_stage(), Handlers()
    async with (
        stage.member(4, **AUTO_COMMIT) as (consumer, partition),
        processing(consumer, handlers),
    ):
        await handlers.wait_until_begun(4)
        handlers.finish(0, 2, 3)
        await asyncio.sleep(3)
        assert handlers.done == [0, 2, 3]
        assert await committed(consumer, partition) == 1
        handlers.finish(1)
        await asyncio.sleep(3)
        assert await committed(consumer, partition) == 4


async def test_explicit_commit_ends_at_the_first_record_that_is_not_done(
    start_stage: StartStage,
) -> None:
    stage, handlers = await start_stage(), Handlers()
    async with stage.member(3) as (consumer, partition), processing(consumer, handlers):
        await handlers.wait_until_begun(3)
        handlers.finish(0, 2)
        await asyncio.sleep(1)
        await consumer.commit()
        assert await committed(consumer, partition) == 1


async def test_exception_of_a_handler_ends_process_and_cancels_the_others(
    start_stage: StartStage,
) -> None:
    stage, handlers = await start_stage(), Handlers()

    async def fail(record: Record[bytes, bytes]) -> None:
        if record.offset == 1:
            raise ArithmeticError("no quotient")
        await handlers(record)

    async with stage.member(3) as (consumer, _):
        with pytest.raises(ArithmeticError, match="no quotient"):
            await consumer.process(fail, concurrency=3)
        assert handlers.done == []


async def test_exceptions_of_handlers_that_fail_together_are_logged(
    start_stage: StartStage, caplog: pytest.LogCaptureFixture
) -> None:
    stage, barrier = await start_stage(), asyncio.Barrier(3)

    async def fail(record: Record[bytes, bytes]) -> None:
        await barrier.wait()
        raise ArithmeticError(f"no quotient of {record.offset}")

    async with stage.member(3) as (consumer, _):
        with pytest.raises(ArithmeticError) as raised:
            await consumer.process(fail, concurrency=3)
    logged = [row.exc_info[1] for row in caplog.records if row.exc_info is not None]
    assert {str(error) for error in [raised.value, *logged]} == {
        f"no quotient of {offset}" for offset in range(3)
    }
    assert len(logged) == 2


@pytest.mark.parametrize("cancelled", ["awaited task", "task of the handler"])
async def test_cancelled_error_of_a_handler_that_is_not_cancelled_is_an_error(
    start_stage: StartStage, cancelled: str
) -> None:
    stage = await start_stage()
    lookup = asyncio.create_task(asyncio.sleep(60))
    lookup.cancel()

    async def handle(record: Record[bytes, bytes]) -> None:
        if record.offset == 1:
            task = lookup if cancelled == "awaited task" else asyncio.current_task()
            assert task is not None
            task.cancel()
            await lookup

    async with stage.member(3, **AUTO_COMMIT) as (consumer, partition):
        with pytest.raises(RuntimeError, match="a handler of t-0 raised CancelledError") as raised:
            await consumer.process(handle, concurrency=1, ordering="partition")
        assert isinstance(raised.value.__cause__, asyncio.CancelledError)
        await asyncio.sleep(2)
        assert await committed(consumer, partition) == 1
        assert [record.offset for record in await consumer.poll()] == [1, 2]


async def test_process_continues_at_the_first_record_that_was_not_done(
    start_stage: StartStage,
) -> None:
    stage, handlers = await start_stage(), Handlers(hold=False)

    async def fail_once(record: Record[bytes, bytes]) -> None:
        if record.offset == 2 and 2 not in handlers.begun:
            handlers.begun.append(2)
            raise ArithmeticError
        await handlers(record)

    async with stage.member(5, **AUTO_COMMIT) as (consumer, partition):
        with pytest.raises(ArithmeticError):
            await consumer.process(fail_once, concurrency=1, ordering="partition")
        async with processing(consumer, fail_once, concurrency=1, ordering="partition"):
            await handlers.wait_until_begun(6)
            await asyncio.sleep(2)
            assert handlers.done == [0, 1, 2, 3, 4]
            assert await committed(consumer, partition) == 5


async def test_cancelled_process_leaves_the_consumer_usable(start_stage: StartStage) -> None:
    stage, handlers = await start_stage(), Handlers()
    async with stage.member(3) as (consumer, _):
        async with processing(consumer, handlers):
            await handlers.wait_until_begun(3)
            handlers.finish(0)
            await asyncio.sleep(0.1)
        assert sorted(handlers.cancelled) == [1, 2]
        assert [record.offset for record in await consumer.poll()] == [1, 2]


async def test_stop_waits_for_running_handlers_and_commits(start_stage: StartStage) -> None:
    stage, handlers = await start_stage(), Handlers()
    async with (
        stage.member(5, **AUTO_COMMIT) as (consumer, partition),
        processing(consumer, handlers, concurrency=2) as task,
    ):
        await handlers.wait_until_begun(2)
        stopping = asyncio.create_task(consumer.stop())
        await asyncio.sleep(1)
        assert not stopping.done()
        handlers.finish(0, 1)
        await stopping
        await task  # it returns, since the consumer was stopped
    assert (handlers.begun, handlers.done, handlers.cancelled) == ([0, 1], [0, 1], [])
    async with stage.consumer("t") as reader:
        assert await committed(reader, partition) == 2


async def directly(stop: Callable[[], Awaitable[None]]) -> None:
    await stop()


async def in_another_task(stop: Callable[[], Awaitable[None]]) -> None:
    async def stop_in_task() -> None:
        await stop()

    await asyncio.create_task(stop_in_task())


@pytest.mark.parametrize("call", [directly, in_another_task])
async def test_stop_in_a_handler_does_not_wait_for_the_handler(
    start_stage: StartStage, call: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]
) -> None:
    stage, begun = await start_stage(), list[int]()
    loop = asyncio.get_running_loop()
    async with stage.member(10, **AUTO_COMMIT) as (consumer, partition):

        async def handle(record: Record[bytes, bytes]) -> None:
            begun.append(record.offset)
            if record.offset == 3:
                called_at = loop.time()
                await call(consumer.stop)
                assert loop.time() - called_at < 1

        await consumer.process(handle, concurrency=1)
        assert consumer.health().state == "closed"  # once process has returned
    assert begun == [0, 1, 2, 3]  # no further handler has begun
    async with stage.consumer("t") as reader:
        assert await committed(reader, partition) == 4


async def test_stop_in_a_handler_waits_for_another_consumer(start_stage: StartStage) -> None:
    stage, handled = await start_stage(), list[str]()
    await stage.topic("u", 1, 1)
    async with stage.member(1) as (consumer, _), stage.consumer("u", group_id="h") as other:

        async def handle(_: Record[bytes, bytes]) -> None:
            await other.stop()
            handled.append(other.health().state)
            await consumer.stop()

        await consumer.process(handle, concurrency=1)
    assert handled == ["closed"]


async def test_failed_commit_of_a_stop_in_a_handler_is_raised_by_process(
    start_stage: StartStage,
) -> None:
    stage = await start_stage()

    def fail(_: object) -> None:
        raise ValueError("from on_revoked")

    async with stage.member(1, **AUTO_COMMIT) as (consumer, _):
        consumer.on_revoked(fail)

        async def handle(_: Record[bytes, bytes]) -> None:
            await consumer.stop()

        with pytest.raises(ValueError, match="from on_revoked"):
            await consumer.process(handle, concurrency=1)


async def test_stop_after_a_handler_is_not_that_of_the_handler(start_stage: StartStage) -> None:
    """A task that a handler has created, and that outlives it, waits until all is closed."""
    stage, tasks = await start_stage(), list[asyncio.Task[str]]()
    ended = asyncio.Event()
    async with stage.member(1) as (consumer, _):

        async def stop_later() -> str:
            await ended.wait()
            await consumer.stop()
            return consumer.health().state

        async def handle(_: Record[bytes, bytes]) -> None:
            tasks.append(asyncio.create_task(stop_later()))

        async with processing(consumer, handle):
            await until(lambda: len(tasks) == 1)
            ended.set()
            assert await tasks[0] == "closed"


async def test_handler_commits_while_stop_waits_for_it(start_stage: StartStage) -> None:
    stage, begun = await start_stage(), asyncio.Event()
    async with stage.member(1) as (consumer, partition):

        async def handle(_: Record[bytes, bytes]) -> None:
            begun.set()
            await asyncio.sleep(1)
            await consumer.commit({partition: 1})

        async with processing(consumer, handle) as task:
            await begun.wait()
            await consumer.stop()
            await task
    async with stage.consumer("t") as reader:
        assert await committed(reader, partition) == 1


async def test_stop_cancels_handlers_that_do_not_end_in_time(
    start_stage: StartStage, caplog: pytest.LogCaptureFixture
) -> None:
    stage, handlers = await start_stage(), Handlers()
    async with (
        stage.member(3, **AUTO_COMMIT) as (consumer, partition),
        processing(consumer, handlers, drain_timeout=2.0) as task,
    ):
        await handlers.wait_until_begun(3)
        handlers.finish(0)
        await asyncio.sleep(0.1)
        began = asyncio.get_running_loop().time()
        with caplog.at_level(logging.WARNING):
            await consumer.stop()
        assert asyncio.get_running_loop().time() - began < 3
        await task
    assert sorted(handlers.cancelled) == [1, 2]
    assert "2 handlers of t-0 did not end within 2 s" in caplog.text
    async with stage.consumer("t") as reader:
        assert await committed(reader, partition) == 1


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_revoked_partition_is_handled_and_committed_before_another_member_owns_it(
    start_stage: StartStage, strategy: str
) -> None:
    stage, handlers = await start_stage(), Handlers()
    for partition, number in zip(await stage.topic("t", 2), (1, 2), strict=True):
        stage.produce(partition, range(number))  # offset 1 is in partition 1 only
    options = {**AUTO_COMMIT, "partition_assignment_strategy": [strategy]}
    async with (
        stage.consumer("t", **options) as first,
        processing(first, handlers, ordering="partition"),
        stage.consumer("t", **options) as second,
    ):
        await handlers.wait_until_begun(2)
        polling = asyncio.create_task(second.poll(timeout=60))
        await asyncio.sleep(6)  # the first member's heartbeats have told it of the rebalance
        assert second.assignment() == frozenset()
        handlers.finish_all()
        (record,) = await polling
        assert (record.partition, record.offset) == (1, 1)
    assert handlers.done[:2] == [0, 0]


async def test_handlers_of_lost_partitions_are_cancelled_at_once(start_stage: StartStage) -> None:
    stage, handlers = await start_stage(), Handlers()
    async with (
        stage.member(1, **AUTO_COMMIT) as (consumer, partition),
        processing(consumer, handlers, drain_timeout=1000.0),
    ):
        await handlers.wait_until_begun(1)
        stage.cluster.faults.add(api="Heartbeat", error="UNKNOWN_MEMBER_ID")
        await handlers.wait_until(lambda: bool(handlers.cancelled))
        await handlers.wait_until_begun(2)  # the partition is assigned again
        handlers.finish(0)
        await asyncio.sleep(2)
        assert await committed(consumer, partition) == 1


async def test_polls_stop_while_too_many_bytes_are_unfinished(start_stage: StartStage) -> None:
    stage, handlers = await start_stage(), Handlers()
    async with stage.member(0) as (consumer, partition):
        stage.produce(partition, [b"x" * 100])
        stage.produce(partition, [b"x" * 100])
        async with processing(consumer, handlers, max_bytes=100):
            await handlers.wait_until_begun(1)
            await asyncio.sleep(1)
            polled = await consumer.position(partition)
            handlers.finish(0)
            await handlers.wait_until_begun(2)
    assert polled <= 2


async def test_polls_and_a_second_process_are_refused_meanwhile(start_stage: StartStage) -> None:
    stage, handlers = await start_stage(), Handlers()
    async with stage.member(1) as (consumer, _), processing(consumer, handlers):
        await handlers.wait_until_begun(1)
        with pytest.raises(IllegalStateError, match="partition_streams runs already"):
            await consumer.process(handlers, concurrency=1)
        with pytest.raises(IllegalStateError, match="exclude each other"):
            await consumer.poll()


async def test_handler_that_is_no_coroutine_function_is_refused(start_stage: StartStage) -> None:
    stage = await start_stage()
    plain: Any = print
    async with stage.member(1) as (consumer, _):
        with pytest.raises(
            TypeError,
            match=r"^handler must be `async def`: <built-in function print> returned NoneType$",
        ):
            await consumer.process(plain, concurrency=1)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"concurrency": 0}, ValueError, "concurrency must be 1 to"),
        ({"concurrency": 1, "ordering": "keys"}, ValueError, "ordering must be"),
        ({"concurrency": 1, "max_bytes": 0}, ValueError, "max_bytes must be 1 to"),
        ({"concurrency": 1, "drain_timeout": -1}, ValueError, "drain_timeout is 0 seconds"),
        ({"concurrency": 1, "orderings": "key"}, TypeError, "orderings"),
    ],
)
async def test_wrong_arguments_of_process(
    start_stage: StartStage, options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    stage = await start_stage()
    async with stage.member(1) as (consumer, _):
        with pytest.raises(kind, match=message):
            await consumer.process(Handlers(), **options)


async def test_handlers_that_never_wait_let_other_tasks_run(
    start_stage: StartStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, per_iteration = await start_stage(), Counter[int]()
    loop = asyncio.get_running_loop()
    async with stage.member(500) as (consumer, _), IterationCounter() as iterations:
        done = asyncio.Event()

        async def handle(record: Record[bytes, bytes]) -> None:
            per_iteration[iterations.count] += 1
            if record.offset == 499:
                done.set()

        time, clock_reads = loop.time, itertools.count(0, 0.001)
        monkeypatch.setattr(loop, "time", lambda: time() + next(clock_reads))
        async with processing(consumer, handle, ordering="none", concurrency=1):
            await done.wait()
    # The clock moves by 1 ms with each reading, so once per record.
    assert max(per_iteration.values()) <= 6
