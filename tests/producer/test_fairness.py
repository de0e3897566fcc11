"""Loops of `enqueue` yield to the event loop."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest

from kafka_async.clock import time_function
from kafka_async.producer import writer
from kafka_async.producer.accumulator import Accumulator
from tests.producer.bench import Bench

pytestmark = pytest.mark.asyncio

RECORDS = 30_000
TASKS = 1_000
WIRE_SIZE = 107
MICROSECONDS_PER_RECORD = 10


async def count_iterations(iterations: list[int]) -> None:
    """Count event loop iterations."""
    while True:
        await asyncio.sleep(0)
        iterations[0] += 1


@pytest.fixture
def slow_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Advance the clock with each reading, so that all machines yield equally often."""

    def ticking(loop: asyncio.AbstractEventLoop) -> object:
        calls = itertools.count(0, MICROSECONDS_PER_RECORD * 1e-6)
        return lambda: loop.time() + next(calls)

    monkeypatch.setattr(writer, "time_function", ticking)


@pytest.mark.virtual_clock
@pytest.mark.usefixtures("slow_clock")
@pytest.mark.parametrize("compression", ["none", "zstd"])
async def test_enqueue_yields_once_per_millisecond_and_batch(compression: str) -> None:
    async with Bench({"clicks": [1]}, compression_type=compression, linger_ms=1000) as bench:
        iterations = [0]
        counter = asyncio.ensure_future(count_iterations(iterations))
        for number in range(RECORDS):
            await bench.producer.enqueue("clicks", b"%0100d" % number)
        counter.cancel()
        await asyncio.wait({counter})
        milliseconds = RECORDS * MICROSECONDS_PER_RECORD / 1000
        batches = RECORDS * WIRE_SIZE / bench.config.batch_size
        assert milliseconds * 0.9 + batches * 0.9 <= iterations[0] < RECORDS / 10
        await bench.producer.flush()


async def test_record_without_linger_is_sent_by_the_next_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = 0
    tick = Accumulator.tick

    def counted(accumulator: Accumulator, now: float) -> bool:
        nonlocal calls
        calls += 1
        return tick(accumulator, now)

    async with Bench({"clicks": [1]}, linger_ms=0) as bench:
        await bench.producer.send("clicks", b"warm-up")
        monkeypatch.setattr(Accumulator, "tick", counted)
        # uvloop's own clock does not advance within an iteration: a linger time would end later.
        for _ in range(10):
            await bench.producer.send("clicks", b"v")
        assert calls <= 2 * 10 + 1


@pytest.mark.virtual_clock
@pytest.mark.usefixtures("slow_clock")
async def test_one_of_many_tasks_yields_for_all() -> None:
    async with Bench({"clicks": [1]}, linger_ms=1000) as bench:
        await bench.producer.enqueue("clicks", b"first")
        tasks = [
            asyncio.ensure_future(bench.producer.enqueue("clicks", b"v")) for _ in range(TASKS)
        ]
        await asyncio.sleep(0)
        milliseconds = TASKS * MICROSECONDS_PER_RECORD / 1000
        assert milliseconds * 0.9 <= sum(not task.done() for task in tasks) <= milliseconds * 2
        await asyncio.wait(tasks)
        await bench.producer.flush()


@pytest.mark.virtual_clock
async def test_enqueue_does_not_yield_after_the_caller_has_waited() -> None:
    async with Bench({"clicks": [1]}, linger_ms=1000) as bench:
        await bench.producer.enqueue("clicks", b"opens the batch")
        await asyncio.sleep(1)
        with pytest.raises(StopIteration):
            next(bench.producer.enqueue("clicks", b"v").__await__())
        await bench.producer.flush()


@pytest.mark.virtual_clock
async def test_enqueue_yields_after_closing_a_batch() -> None:
    async with Bench({"clicks": [1]}, linger_ms=1000, batch_size=200) as bench:
        await bench.producer.enqueue("clicks", b"x" * 150)
        await asyncio.sleep(0)
        with pytest.raises(StopIteration):
            next(bench.producer.enqueue("clicks", b"closes that batch" * 9).__await__())
        third = bench.producer.enqueue("clicks", b"v").__await__()
        assert next(third) is None
        with pytest.raises(StopIteration):
            next(third)
        await bench.producer.flush()


async def test_linger_ms_holds_while_a_task_enqueues_without_pause() -> None:
    async with Bench({"clicks": [1], "audit": [1]}, linger_ms=5) as bench:
        await bench.producer.send("clicks", b"warm-up")
        early = await bench.producer.enqueue("audit", b"v")
        while not early.done():
            await bench.producer.enqueue("clicks", b"x")
        await bench.producer.flush()


@pytest.mark.parametrize("keyed", [True, False])
async def test_send_many_yields(keyed: bool) -> None:
    async with Bench({"clicks": [1]}) as bench:
        iterations = [0]
        counter = asyncio.ensure_future(count_iterations(iterations))
        keys = [b""] * RECORDS if keyed else None
        await bench.producer.send_many("clicks", [b"x" * 100] * RECORDS, keys)
        counter.cancel()
        await asyncio.wait({counter})
        assert iterations[0] >= RECORDS * WIRE_SIZE / bench.config.batch_size
        await bench.producer.flush()


async def test_ticker_returns_the_time_of_the_loop() -> None:
    loop = asyncio.get_running_loop()
    assert abs(time_function(loop)() - loop.time()) < 1
    assert time_function(loop) is time.monotonic
