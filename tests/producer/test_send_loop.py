"""Runs of the send loop: few while nothing is due, and an exception in one stops the producer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafka_async.errors import TaskDiedError
from kafka_async.producer.accumulator import Accumulator
from kafka_async.producer.incomplete_batches import IncompleteBatches
from tests.producer.bench import Bench

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


@pytest.mark.parametrize("broken", [(Accumulator, "tick"), (IncompleteBatches, "acknowledge")])
async def test_exception_in_the_sender_stops_the_producer(
    broken: tuple[type[object], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError("a fault")

    async with Bench({"clicks": [1]}) as bench:
        await bench.producer.send("clicks", b"v")
        monkeypatch.setattr(*broken, fails)
        with pytest.raises(TaskDiedError, match="a fault"):
            await bench.producer.send("clicks", b"v")
        with pytest.raises(TaskDiedError, match="a fault"):
            await bench.producer.enqueue("clicks", b"v")


async def test_idle_producer_does_not_run_the_send_loop() -> None:
    no_refresh: Any = {"metadata_max_age_ms": 86_400_000}  # new metadata runs the send loop
    async with Bench({"clicks": [1]}, linger_ms=5, **no_refresh) as bench:
        loop = asyncio.get_running_loop()
        for _ in range(3):
            await bench.producer.send("clicks", b"v")
            await asyncio.sleep(1)
        timeout = bench.config.delivery_timeout_ms / 1000
        runs = 0
        tick = Accumulator.tick

        def counted(accumulator: Accumulator, now: float) -> bool:
            nonlocal runs
            runs += 1
            return tick(accumulator, now)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Accumulator, "tick", counted)
            started = loop.time()
            await asyncio.sleep(10 * timeout)
            assert loop.time() - started == pytest.approx(10 * timeout)
        assert runs <= 3  # one per batch, at its deadline


async def test_sends_to_a_throttled_broker_after_the_throttle_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Bench({"clicks": [1]}) as bench:
        await bench.producer.send("clicks", b"v")
        loop: Any = asyncio.get_running_loop()
        bench.faults.add(api="Produce", throttle=10)
        await bench.producer.send("clicks", b"v")
        until = loop.time() + 10
        timers: list[float] = []
        call_at = loop.call_at

        def counted(when: float, *args: Any, **options: Any) -> asyncio.TimerHandle:
            timers.append(when)
            return call_at(when, *args, **options)

        monkeypatch.setattr(loop, "call_at", counted)
        delivery = await bench.producer.enqueue("clicks", b"v")
        for _ in range(50):
            await bench.producer.enqueue("clicks", b"v")
            for _ in range(3):
                await asyncio.sleep(0)
        assert timers == [until]
        await delivery
        assert loop.time() == until
