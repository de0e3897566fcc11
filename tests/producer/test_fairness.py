"""A tight loop of enqueue leaves the event loop to others."""

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
MICROSECONDS_A_RECORD = 10


async def count_turns(turns: list[int]) -> None:
    """Count the turns that the loop makes."""
    while True:
        await asyncio.sleep(0)
        turns[0] += 1


@pytest.fixture
def slow_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock takes its time, so the same number of turns is due on any machine."""

    def ticking(loop: asyncio.AbstractEventLoop) -> object:
        looks = itertools.count(0, MICROSECONDS_A_RECORD * 1e-6)
        return lambda: loop.time() + next(looks)

    monkeypatch.setattr(writer, "time_function", ticking)


@pytest.mark.virtual_clock
@pytest.mark.usefixtures("slow_clock")
@pytest.mark.parametrize("compression", ["none", "zstd"])
async def test_the_loop_turns_once_a_millisecond_and_once_a_batch(compression: str) -> None:
    async with Bench({"clicks": [1]}, compression_type=compression, linger_ms=1000) as bench:
        turns = [0]
        pulse = asyncio.ensure_future(count_turns(turns))
        for number in range(RECORDS):
            await bench.producer.enqueue("clicks", b"%0100d" % number)
        pulse.cancel()
        await asyncio.wait({pulse})
        milliseconds = RECORDS * MICROSECONDS_A_RECORD / 1000
        batches = RECORDS * WIRE_SIZE / bench.config.batch_size
        assert milliseconds * 0.9 + batches * 0.9 <= turns[0] < RECORDS / 10
        await bench.producer.flush()


async def test_a_record_that_need_not_linger_leaves_in_the_next_look_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = 0
    tick = Accumulator.tick

    def counted(accumulator: Accumulator, now: float) -> bool:
        nonlocal looks
        looks += 1
        return tick(accumulator, now)

    async with Bench({"clicks": [1]}, linger_ms=0) as bench:
        await bench.producer.send("clicks", b"warm-up")
        monkeypatch.setattr(Accumulator, "tick", counted)
        # uvloop's own time stands still within a turn: by that, records come from the future.
        for _ in range(10):
            await bench.producer.send("clicks", b"v")
        assert looks <= 2 * 10 + 1


@pytest.mark.virtual_clock
@pytest.mark.usefixtures("slow_clock")
async def test_of_many_tasks_that_enqueue_one_gives_up_the_loop_for_all() -> None:
    async with Bench({"clicks": [1]}, linger_ms=1000) as bench:
        await bench.producer.enqueue("clicks", b"first")
        tasks = [
            asyncio.ensure_future(bench.producer.enqueue("clicks", b"v")) for _ in range(TASKS)
        ]
        await asyncio.sleep(0)
        milliseconds = TASKS * MICROSECONDS_A_RECORD / 1000
        assert milliseconds * 0.9 <= sum(not task.done() for task in tasks) <= milliseconds * 2
        await asyncio.wait(tasks)
        await bench.producer.flush()


@pytest.mark.virtual_clock
async def test_who_waited_for_something_else_does_not_give_up_the_loop_once_more() -> None:
    async with Bench({"clicks": [1]}, linger_ms=1000) as bench:
        await bench.producer.enqueue("clicks", b"opens the batch")
        await asyncio.sleep(1)
        with pytest.raises(StopIteration):
            next(bench.producer.enqueue("clicks", b"v").__await__())
        await bench.producer.flush()


@pytest.mark.virtual_clock
async def test_who_closed_a_batch_gives_up_the_loop_although_it_has_waited_before() -> None:
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


async def test_linger_is_kept_by_who_enqueues_without_a_pause() -> None:
    async with Bench({"clicks": [1], "audit": [1]}, linger_ms=5) as bench:
        await bench.producer.send("clicks", b"warm-up")
        early = await bench.producer.enqueue("audit", b"v")
        while not early.done():
            await bench.producer.enqueue("clicks", b"x")
        await bench.producer.flush()


@pytest.mark.parametrize("keyed", [True, False])
async def test_send_many_gives_up_the_loop_too(keyed: bool) -> None:
    async with Bench({"clicks": [1]}) as bench:
        turns = [0]
        pulse = asyncio.ensure_future(count_turns(turns))
        keys = [b""] * RECORDS if keyed else None
        await bench.producer.send_many("clicks", [b"x" * 100] * RECORDS, keys)
        pulse.cancel()
        await asyncio.wait({pulse})
        assert turns[0] >= RECORDS * WIRE_SIZE / bench.config.batch_size
        await bench.producer.flush()


async def test_a_ticker_keeps_the_loops_time() -> None:
    loop = asyncio.get_running_loop()
    assert abs(time_function(loop)() - loop.time()) < 1
    assert time_function(loop) is time.monotonic
