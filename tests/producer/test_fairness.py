"""Loops of `enqueue` yield to the event loop."""

from __future__ import annotations

import asyncio
import time

import pytest

from kafka_async.foundation.clock import time_function
from kafka_async.producer.buffer.accumulator import Accumulator
from tests.embedded_client import IterationCounter
from tests.producer.bench import Bench, advance_with_each_reading, record_calls

pytestmark = pytest.mark.asyncio

RECORDS = 30_000
TASKS = 1_000
WIRE_SIZE = 107
MICROSECONDS_PER_RECORD = 10


@pytest.fixture
def slow_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Advance the clock with each reading, so that all machines yield equally often."""
    advance_with_each_reading(MICROSECONDS_PER_RECORD * 1e-6, monkeypatch)


@pytest.mark.virtual_clock
@pytest.mark.usefixtures("slow_clock")
@pytest.mark.parametrize("compression", ["none", "zstd"])
async def test_enqueue_yields_once_per_millisecond_and_batch(compression: str) -> None:
    async with Bench({"clicks": [1]}, compression_type=compression, linger_ms=1000) as bench:
        async with IterationCounter() as iterations:
            for number in range(RECORDS):
                await bench.producer.enqueue("clicks", b"%0100d" % number)
        milliseconds = RECORDS * MICROSECONDS_PER_RECORD / 1000
        batches = RECORDS * WIRE_SIZE / bench.config.batch_size
        assert milliseconds * 0.9 + batches * 0.9 <= iterations.count < RECORDS / 10
        await bench.producer.flush()


async def test_record_without_linger_is_sent_by_the_next_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Bench({"clicks": [1]}, linger_ms=0) as bench:
        await bench.producer.send("clicks", b"warm-up")
        calls = record_calls(monkeypatch, Accumulator, "tick")
        # uvloop's own clock does not advance within an iteration: a linger time would end later.
        for _ in range(10):
            await bench.producer.send("clicks", b"v")
        assert len(calls) <= 2 * 10 + 1


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


async def test_ticker_returns_the_time_of_the_loop() -> None:
    loop = asyncio.get_running_loop()
    assert abs(time_function(loop)() - loop.time()) < 1
    assert time_function(loop) is time.monotonic
