"""The orchestrator with plain functions as jobs: effects once, control, triggers, fail-over."""

from __future__ import annotations

import asyncio
import functools
import gc
import json
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import Admin, Consumer, Producer, TopicPartition
from kafka_async.errors import InvalidConfigurationError
from kafka_async.spark.orchestrator import (
    DriverFencedError,
    JobCancelledError,
    JobContext,
    JobFailedError,
    JobTimeoutError,
    OffsetRange,
    Orchestrator,
    PoisonRecordError,
    RetryPolicy,
)
from kafka_async.spark.orchestrator.job_ledger import JobState
from kafka_async.spark.orchestrator.ledger_writer import read_ledger
from tests.integration.helpers import create_topic, read_values

if TYPE_CHECKING:
    from kafka_async.spark.orchestrator.events import EventStream
    from kafka_async.spark.orchestrator.job_ledger import LedgerState
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.any_broker,
    pytest.mark.mainly_on("embedded", reason="uses clients, which have tests on both backends"),
]

FAST = RetryPolicy(initial_delay=0.01, max_delay=0.05)


class World:
    """A test's cluster, with the topics of an orchestrator and of its jobs.

    Attributes:
        source: A topic with two partitions.
        target: The topic of output events.
        replies: The topic of replies.
        name: The orchestrator's name.
    """

    def __init__(self, cluster: ClusterHandle) -> None:
        self.cluster = cluster
        self.servers = cluster.bootstrap_servers
        self.name = cluster.group("driver")
        self.source = self.target = self.replies = ""

    async def create(self, records: int = 0) -> None:
        self.source = await create_topic(self.cluster, "source", 2)
        self.target = await create_topic(self.cluster, "target")
        self.replies = await create_topic(self.cluster, "replies")
        await self.produce(0, records)

    async def produce(self, start: int, end: int, partition: int = 0) -> None:
        async with Producer(self.servers) as producer:
            values = [b"%d" % number for number in range(start, end)]
            await producer.send_many(self.source, values, partition=partition)

    def orchestrator(self, **options: Any) -> Orchestrator:
        names: dict[str, Any] = {
            name: self.cluster.topic(name.removesuffix("_topic"))
            for name in ("control_topic", "ledger_topic", "dead_letter_topic")
        }
        options = {"retry": FAST, **names, **options}
        return Orchestrator(self.servers, None, name=self.name, **options)

    def ranges(self, start: int, end: int, partition: int = 0) -> list[OffsetRange]:
        return [OffsetRange(self.source, partition, start, end)]

    def job(self, context: JobContext) -> int:
        """Emit an event for every offset of the ranges, and return their number."""
        for part in context.ranges:
            for offset in range(part.start, part.end):
                context.emit(self.target, b"%d" % offset)
        return sum(part.size for part in context.ranges)

    async def control(self, *messages: dict[str, Any]) -> None:
        async with Producer(self.servers) as producer:
            for message in messages:
                value = json.dumps({"reply_topic": self.replies, **message}).encode()
                await producer.send(self.cluster.topic("control"), value)

    async def emitted(self) -> list[int]:
        return sorted(int(value or b"") for value in await read_values(self.cluster, self.target))

    async def ledger(self, orchestrator: Orchestrator) -> LedgerState:
        await read_values(self.cluster, self.cluster.topic("ledger"))  # waits for the markers
        return await read_ledger(orchestrator._client, self.cluster.topic("ledger"))  # pyright: ignore[reportPrivateUsage]

    async def replied(self, *ended: str) -> list[dict[str, Any]]:
        """Return the replies once each of the ids has a reply other than "accepted"."""
        found: list[dict[str, Any]] = []
        async with asyncio.timeout(60), self.reader(self.replies) as consumer:
            while set(ended) - {one["id"] for one in found if one["status"] != "accepted"}:
                records = await consumer.poll(timeout=0.5)
                found += [json.loads(record.value or b"") for record in records]
        return found

    def reader(self, topic: str) -> Consumer:
        return Consumer(
            self.servers,
            partitions=[TopicPartition(topic, 0)],
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )


@pytest.fixture
def world(kafka_cluster: ClusterHandle) -> World:
    return World(kafka_cluster)


async def next_event(events: EventStream, kind: str) -> dict[str, Any]:
    async with asyncio.timeout(60):
        async for event in events:
            if event.kind == kind:
                return dict(event.details)
    raise AssertionError(f"the stream has ended without {kind}")


class Gate:
    """A job that waits until the test lets it pass, or until it is cancelled."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.entered = asyncio.Event()
        self.open = threading.Event()
        self.stopped = 0

    def __call__(self, context: JobContext) -> str:
        self._loop.call_soon_threadsafe(self.entered.set)
        while not self.open.is_set():
            if context.wait_for_stop(0.01):
                self.stopped += 1
                raise RuntimeError("stopped")
        return "passed"


def gate_of(orchestrator: Orchestrator, name: str = "gate") -> Gate:
    gate = Gate(asyncio.get_running_loop())
    orchestrator.job(gate, name)
    return gate


# -- ranges take effect once -----------------------------------------------------------------------


async def test_commits_events_ledger_and_offsets_together(world: World) -> None:
    await world.create(20)
    async with world.orchestrator() as orchestrator:
        result = await orchestrator.run(world.job, ranges=world.ranges(0, 12))
        assert (result.value, result.attempts, result.skipped) == (12, 1, False)
        again = await orchestrator.run(world.job, ranges=world.ranges(0, 12))
        assert again.skipped
        overlap = await orchestrator.run(world.job, ranges=world.ranges(5, 15))
        assert overlap.value == 3
        state = await world.ledger(orchestrator)
        assert state.jobs[result.job_id].value == 12
    assert await world.emitted() == list(range(15))
    async with Admin(world.servers) as admin:
        offsets = await admin.list_group_offsets(f"{world.name}-job", require_stable=True)
    assert offsets[TopicPartition(world.source, 0)].offset == 15


async def test_overlapping_jobs_at_the_same_time_take_effect_once(world: World) -> None:
    await world.create(40)
    barrier = threading.Barrier(4)

    def job(context: JobContext) -> None:
        if context.attempt == 1 and not barrier.broken:
            try:
                barrier.wait(10)  # all four have computed what remains
            except threading.BrokenBarrierError:
                pass
            barrier.abort()
        world.job(context)

    async with world.orchestrator() as orchestrator:
        orchestrator.job(job, "overlapping")
        await asyncio.gather(
            *(
                orchestrator.run("overlapping", ranges=world.ranges(start, start + 25))
                for start in (0, 5, 10, 15)
            )
        )
    assert await world.emitted() == list(range(40))


async def test_discards_events_of_failed_attempts(world: World) -> None:
    await world.create(5)

    def job(context: JobContext) -> int:
        world.job(context)
        if context.attempt < 3:
            raise ConnectionResetError("executor lost")
        return context.attempt

    async with world.orchestrator() as orchestrator:
        orchestrator.job(job, "flaky")
        result = await orchestrator.run("flaky", ranges=world.ranges(0, 5))
    assert (result.value, result.attempts) == (3, 3)
    assert await world.emitted() == list(range(5))


async def test_fails_a_job_that_emits_to_a_missing_topic(world: World) -> None:
    await world.create(1)

    def job(context: JobContext) -> None:
        context.emit(world.cluster.topic("missing"), b"v")

    async with world.orchestrator(retry=RetryPolicy(max_attempts=2, initial_delay=0)) as driver:
        driver.job(job, "lost")
        with pytest.raises(JobFailedError, match="does not exist: create missing"):
            await driver.run("lost", ranges=world.ranges(0, 1))
        # It has not blocked the ledger.
        assert not (await driver.run(world.job, ranges=world.ranges(0, 1))).skipped


async def test_event_that_is_too_large_fails_its_job_alone(world: World) -> None:
    await world.create(10)

    def large(context: JobContext) -> None:
        context.emit(world.target, bytes(2**21))

    async with world.orchestrator() as orchestrator:
        orchestrator.job(large, "large")
        results = await asyncio.gather(
            orchestrator.run("large", ranges=world.ranges(0, 5)),
            orchestrator.run(world.job, ranges=world.ranges(0, 5)),
            return_exceptions=True,
        )
    assert isinstance(results[0], JobFailedError)
    assert "RecordTooLargeError" in str(results[0]) or "max_request_size" in str(results[0])
    assert await world.emitted() == list(range(5))


# -- errors of records -----------------------------------------------------------------------------


async def test_bisects_to_poison_records_and_writes_them_as_dead_letters(world: World) -> None:
    await world.create(100)
    poison = {17, 63}

    def job(context: JobContext) -> None:
        for part in context.ranges:
            if poison & set(range(part.start, part.end)):
                raise PoisonRecordError("not a number")
        world.job(context)

    async with world.orchestrator() as orchestrator:
        orchestrator.job(job, "parse")
        result = await orchestrator.run("parse", ranges=world.ranges(0, 100))
        assert result.dead_letters == 2
        assert (await orchestrator.run("parse", ranges=world.ranges(0, 100))).skipped
    assert await world.emitted() == [n for n in range(100) if n not in poison]
    letters = await world.cluster.read(world.cluster.topic("dead_letter"))
    assert [letter.value for letter in letters] == [b"17", b"63"]
    headers = dict(letters[0].headers)
    assert headers["orchestrator.offset"] == b"17"
    assert headers["orchestrator.topic"] == world.source.encode()
    assert headers["orchestrator.error"] == b"PoisonRecordError: not a number"


async def test_writes_no_dead_letter_if_too_many_records_fail(world: World) -> None:
    await world.create(64)
    calls: list[int] = []

    def wrong(context: JobContext) -> None:
        calls.append(sum(part.size for part in context.ranges))
        raise ValueError("wrong column")

    policy = RetryPolicy(max_dead_letters=2)
    async with world.orchestrator(retry=policy) as orchestrator:
        orchestrator.job(wrong, "wrong")
        with pytest.raises(JobFailedError, match="max_dead_letters=2") as caught:
            await orchestrator.run("wrong", ranges=world.ranges(0, 64))
        assert isinstance(caught.value.__cause__, ValueError)
        state = await world.ledger(orchestrator)
        assert state.remaining("wrong", tuple(world.ranges(0, 64))) == [tuple(world.ranges(0, 64))]
    assert calls[:7] == [64, 32, 16, 8, 4, 2, 1]
    assert await world.cluster.read(world.cluster.topic("dead_letter")) == []


async def test_fails_at_once_for_an_error_of_the_program(world: World) -> None:
    await world.create(8)
    calls: list[int] = []

    def wrong(context: JobContext) -> None:
        calls.append(1)
        raise TypeError("not callable")

    async with world.orchestrator() as orchestrator:
        orchestrator.job(wrong, "wrong")
        with pytest.raises(JobFailedError, match="TypeError: not callable"):
            await orchestrator.run("wrong", ranges=world.ranges(0, 8))
        (job,) = (await world.ledger(orchestrator)).jobs.values()
        assert (job.state, job.error) == (JobState.FAILED, "TypeError: not callable")
    assert calls == [1]


# -- cancellation and limits -----------------------------------------------------------------------


async def test_cancels_by_tag_and_joins_the_thread(world: World) -> None:
    await world.create(4)
    async with world.orchestrator() as orchestrator:
        gate = gate_of(orchestrator)
        running = asyncio.create_task(
            orchestrator.run("gate", ranges=world.ranges(0, 4), tag="nightly")
        )
        await asyncio.wait_for(gate.entered.wait(), 60)
        (job_id,) = await orchestrator.cancel("nightly")
        assert gate.stopped == 1
        with pytest.raises(JobCancelledError):
            await running
        state = await world.ledger(orchestrator)
        assert state.jobs[job_id].state is JobState.CANCELLED
        gate.open.set()
        assert (await orchestrator.run("gate", ranges=world.ranges(0, 4))).value == "passed"


async def test_cancelled_caller_and_timeout_stop_the_thread(world: World) -> None:
    await world.create(4)
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    async with world.orchestrator() as orchestrator:
        gate = gate_of(orchestrator)
        running = asyncio.create_task(orchestrator.run("gate", ranges=world.ranges(0, 4)))
        await asyncio.wait_for(gate.entered.wait(), 60)
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()
        assert gate.stopped == 1
        with pytest.raises(JobTimeoutError, match=r"within 0\.2 s"):
            await orchestrator.run("gate", ranges=world.ranges(0, 4), timeout=0.2)
        assert orchestrator._threads.running == 0  # pyright: ignore[reportPrivateUsage]
    del running, gate, orchestrator
    gc.collect()
    assert unhandled == [], "the error of every task is retrieved"


async def test_runs_at_most_max_concurrency_jobs_at_a_time(world: World) -> None:
    await world.create(20)
    running, most, lock = 0, 0, threading.Lock()

    def job(context: JobContext) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        context.wait_for_stop(0.02)
        with lock:
            running -= 1

    async with world.orchestrator(max_concurrency=3) as orchestrator:
        orchestrator.job(job, "job")
        await asyncio.gather(
            *(orchestrator.run("job", ranges=world.ranges(n, n + 1)) for n in range(20))
        )
    assert most == 3


async def test_event_loop_runs_while_64_jobs_wait(world: World) -> None:
    await world.create(64)
    release = threading.Event()

    def job(context: JobContext) -> bool:
        return release.wait(60)

    async with world.orchestrator(max_concurrency=64) as orchestrator:
        orchestrator.job(job, "job")
        runs = [
            asyncio.create_task(orchestrator.run("job", ranges=world.ranges(n, n + 1)))
            for n in range(64)
        ]
        async with asyncio.timeout(60):
            while orchestrator._threads.running < 64:  # noqa: ASYNC110  # pyright: ignore[reportPrivateUsage]
                await asyncio.sleep(0.01)
        release.set()
        results = await asyncio.gather(*runs)
    assert all(result.value is True for result in results)


# -- control topic ---------------------------------------------------------------------------------


async def test_control_topic_runs_jobs_and_replies(world: World) -> None:
    await world.create(10)
    async with world.orchestrator() as orchestrator:
        orchestrator.job(world.job, "copy")
        ranges = {world.source: {"0": [0, 10]}}
        run = {"type": "run", "id": "r", "job": "copy", "ranges": ranges}
        await world.control(
            run,
            {"type": "run", "id": "x", "job": "unknown"},
            {**run, "id": "s"},
            {"type": "backfill", "id": "b", "job": "copy", "ranges": ranges},
        )
        replies = await world.replied("r", "x", "s", "b")
        await world.control(run, {"type": "pause", "id": "p"}, {"type": "resume", "id": "q"})
        repeated = await world.replied("p", "q")
    by_id = {one["id"]: one for one in replies if one["status"] != "accepted"}
    assert {by_id["r"]["status"], by_id["s"]["status"], by_id["b"]["status"]} == {"succeeded"}
    assert by_id["b"]["value"] == 10
    assert "no job 'unknown'" in by_id["x"]["error"]
    assert [one["status"] for one in repeated if one["id"] == "r"] == [
        "accepted",
        "succeeded",
        "succeeded",
    ]
    # Once for the two runs, and once for the backfill.
    assert Counter(await world.emitted()) == dict.fromkeys(range(10), 2)


async def test_control_topic_cancels_pauses_and_resumes(world: World) -> None:
    await world.create(10)
    async with world.orchestrator() as orchestrator:
        gate = gate_of(orchestrator)
        orchestrator.job(world.job, "copy")
        await world.control({"type": "run", "id": "g", "job": "gate", "tag": "t"})
        await asyncio.wait_for(gate.entered.wait(), 60)
        await world.control(
            {"type": "pause", "id": "p"},
            {"type": "run", "id": "w", "job": "copy"},
            {"type": "run", "id": "v", "job": "copy", "tag": "t"},
            {"type": "cancel", "id": "c", "tag": "t"},
        )
        replies = await world.replied("g", "c", "v")
        status = {one["id"]: one["status"] for one in replies}
        assert status == {
            "g": "cancelled",
            "v": "cancelled",
            "c": "done",
            "p": "done",
            "w": "accepted",
        }
        assert gate.stopped == 1
        assert (await world.ledger(orchestrator)).paused
    # The switch is in the ledger, so the next driver is paused too.
    async with world.orchestrator() as orchestrator:
        orchestrator.job(world.job, "copy")
        gate_of(orchestrator)
        await orchestrator.wait_active(60)
        events = orchestrator.events()
        waiting = asyncio.create_task(orchestrator.run("copy", ranges=world.ranges(0, 1)))
        await world.control({"type": "resume", "id": "r"})
        await world.replied("w", "r")
        assert (await waiting).value == 1
        assert (await next_event(events, "job_started"))["job"] == "copy"


async def test_messages_that_are_no_json_do_not_stop_the_driver(world: World) -> None:
    await world.create(1)
    async with world.orchestrator() as orchestrator:
        orchestrator.job(world.job, "copy")
        async with Producer(world.servers) as producer:
            for value in (b"", b"\xff", b"[]", b'{"id": "1"}', None):
                await producer.send(world.cluster.topic("control"), value)
        await world.control(
            {"type": "run", "id": "a", "job": "copy", "reply_topic": world.cluster.topic("none")},
            {"type": "run", "id": "b", "job": "copy"},
        )
        assert (await world.replied("b"))[-1]["status"] == "succeeded"


# -- drivers ---------------------------------------------------------------------------------------


async def test_next_driver_continues_accepted_jobs(world: World) -> None:
    await world.create(10)
    async with world.orchestrator() as orchestrator:
        gate = gate_of(orchestrator, "copy")
        ranges = {world.source: {"0": [0, 10]}}
        await world.control({"type": "run", "id": "r", "job": "copy", "ranges": ranges})
        await asyncio.wait_for(gate.entered.wait(), 60)
    async with world.orchestrator() as orchestrator:
        orchestrator.job(world.job, "copy")
        replies = await world.replied("r")
    assert [one["status"] for one in replies] == ["accepted", "succeeded"]
    assert await world.emitted() == list(range(10))


async def test_one_of_several_drivers_is_active(world: World) -> None:
    await world.create(30)
    drivers = [world.orchestrator() for _ in range(3)]
    for driver in drivers:
        driver.job(world.job, "copy")
    async with drivers[0]:
        await drivers[0].wait_active(60)
        async with drivers[1], drivers[2]:
            result = await drivers[0].run("copy", ranges=world.ranges(0, 10))
            assert result.value == 10
            assert [driver.active for driver in drivers] == [True, False, False]
            with pytest.raises(JobTimeoutError):
                await drivers[1].run("copy", ranges=world.ranges(0, 1), timeout=0.1)
            waiting = [
                asyncio.create_task(driver.run("copy", ranges=world.ranges(0, 20)))
                for driver in drivers[1:]
            ]
            await drivers[0].stop()
            done, _ = await asyncio.wait(waiting, timeout=60, return_when="FIRST_COMPLETED")
            assert [task.result().value for task in done] == [10]
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
    assert await world.emitted() == list(range(20))


async def test_fenced_driver_writes_nothing_and_joins_again(world: World) -> None:
    await world.create(20)
    async with world.orchestrator() as orchestrator:
        orchestrator.job(world.job, "copy")
        gate = gate_of(orchestrator)
        running = asyncio.create_task(orchestrator.run("gate", ranges=world.ranges(0, 10)))
        await asyncio.wait_for(gate.entered.wait(), 60)
        # A driver that takes over starts a producer with the same transactional id.
        async with Producer(world.servers, transactional_id=f"orchestrator-{world.name}"):
            pass
        events = orchestrator.events()
        with pytest.raises(DriverFencedError):
            await orchestrator.run("copy", ranges=world.ranges(0, 10))
        with pytest.raises(DriverFencedError):
            await running
        assert gate.stopped == 1
        await next_event(events, "driver_active")
        assert await world.emitted() == []
        assert (await orchestrator.run("copy", ranges=world.ranges(0, 10))).value == 10
    assert await world.emitted() == list(range(10))


async def test_refuses_a_control_topic_with_several_partitions(world: World) -> None:
    await world.create()
    orchestrator = world.orchestrator(control_topic=world.source)
    with pytest.raises(InvalidConfigurationError, match="2 partitions"):
        await orchestrator.start()


# -- triggers --------------------------------------------------------------------------------------


async def test_trigger_runs_jobs_for_new_rows(world: World) -> None:
    await world.create(25)
    orchestrator = world.orchestrator()
    orchestrator.job(world.job, "copy")
    orchestrator.trigger("copy", world.source, rows=10, max_rows=10)
    async with orchestrator:
        events = orchestrator.events()
        for _ in range(2):
            await next_event(events, "job_succeeded")
        await world.produce(25, 35)
        await next_event(events, "job_succeeded")
    assert await world.emitted() == list(range(30))
    async with orchestrator_of(world) as second:
        events = second.events()
        await world.produce(35, 40)
        await next_event(events, "job_succeeded")
    assert await world.emitted() == list(range(40))


def orchestrator_of(world: World, **conditions: Any) -> Orchestrator:
    orchestrator = world.orchestrator()
    orchestrator.job(world.job, "copy")
    conditions = {"rows": 10, **conditions}
    orchestrator.trigger("copy", world.source, **conditions)
    return orchestrator


@pytest.mark.parametrize("conditions", [{"lag": 0.5}, {"interval": 0.5}])
async def test_trigger_runs_by_time(world: World, conditions: dict[str, float]) -> None:
    await world.create(3)
    async with orchestrator_of(world, rows=None, **conditions) as orchestrator:
        events = orchestrator.events()
        await next_event(events, "job_succeeded")
        await world.produce(3, 5)
        await next_event(events, "job_succeeded")
    assert await world.emitted() == list(range(5))


async def test_trigger_keeps_its_latest_start_across_drivers(world: World) -> None:
    await world.create(5)
    async with orchestrator_of(world, rows=3, starting="latest") as orchestrator:
        await orchestrator.wait_active(60)
        async with asyncio.timeout(60):
            while not (await world.ledger(orchestrator)).progress:
                pass
    await world.produce(5, 8)
    async with orchestrator_of(world, rows=3, starting="latest") as orchestrator:
        await next_event(orchestrator.events(), "job_succeeded")
    assert await world.emitted() == [5, 6, 7]


# -- plans and events ------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["rows", "bytes"])
async def test_plans_cover_a_topic_once(world: World, by: Any) -> None:
    await world.create(100)
    await world.produce(0, 60, partition=1)
    async with world.orchestrator() as orchestrator:
        plans = await orchestrator.plan(world.source, by, 40)
        offsets = Counter(
            (part.partition, at)
            for plan in plans
            for part in plan
            for at in range(part.start, part.end)
        )
        assert offsets == dict.fromkeys(
            [*((0, n) for n in range(100)), *((1, n) for n in range(60))], 1
        )
        if by == "rows":
            assert [sum(part.size for part in plan) for plan in plans] == [40] * 4
        for plan in plans[:2]:
            await orchestrator.run(world.job, ranges=plan)
        rest = await orchestrator.plan(world.source, by, 10**9, job="job")
        done = sum(part.size for plan in plans[:2] for part in plan)
        assert sum(part.size for plan in rest for part in plan) == 160 - done
        with pytest.raises(ValueError, match="rows"):
            await orchestrator.plan(world.source, "records")  # pyright: ignore[reportArgumentType]


async def test_writes_events_to_a_topic(world: World) -> None:
    await world.create(3)
    topic = world.cluster.topic("events")
    async with world.orchestrator(events_topic=topic) as orchestrator:
        stream = orchestrator.events()
        await orchestrator.run(world.job, ranges=world.ranges(0, 3))
    kinds = [event.kind async for event in stream]
    written = [json.loads(record.value or b"") for record in await world.cluster.read(topic)]
    assert [one["kind"] for one in written] == kinds
    assert kinds == ["driver_active", "job_started", "job_succeeded", "driver_standby"]


async def test_refuses_calls_that_cannot_be_meant(world: World) -> None:
    await world.create()
    orchestrator = world.orchestrator()
    with pytest.raises(ValueError, match="pass name="):
        orchestrator.job(functools.partial(world.job))
    orchestrator.job(world.job, "copy")
    with pytest.raises(ValueError, match="another function"):
        orchestrator.job(Gate(asyncio.get_running_loop()), "copy")
    with pytest.raises(ValueError, match="no job 'other'"):
        orchestrator.trigger("other", world.source, rows=1)
    async with orchestrator:
        with pytest.raises(ValueError, match="commas"):
            await orchestrator.run("copy", tag="a,b")
        with pytest.raises(ValueError, match="two ranges"):
            await orchestrator.run("copy", ranges=world.ranges(0, 1) * 2)
