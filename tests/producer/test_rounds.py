"""The sender's look rounds: how few there are when nothing is due, and what a fault in one does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafka_async.errors import TaskDiedError
from kafka_async.producer.accumulator import Accumulator
from kafka_async.producer.incomplete_batches import Ledger
from tests.producer.bench import Bench

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


@pytest.mark.parametrize("broken", [(Accumulator, "tick"), (Ledger, "acknowledge")])
async def test_a_fault_in_the_sender_ends_the_producer_at_once(
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


async def test_an_idle_producer_sleeps() -> None:
    forever: Any = {"metadata_max_age_ms": 86_400_000}  # metadata that changed is looked at
    async with Bench({"clicks": [1]}, linger_ms=5, **forever) as bench:
        loop = asyncio.get_running_loop()
        for _ in range(3):
            await bench.producer.send("clicks", b"v")
            await asyncio.sleep(1)
        patience = bench.config.delivery_timeout_ms / 1000
        looks = 0
        tick = Accumulator.tick

        def counted(accumulator: Accumulator, now: float) -> bool:
            nonlocal looks
            looks += 1
            return tick(accumulator, now)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Accumulator, "tick", counted)
            begun = loop.time()
            await asyncio.sleep(10 * patience)
            assert loop.time() - begun == pytest.approx(10 * patience)
        assert looks <= 3  # one for each batch, when its time would have been over


async def test_a_throttled_broker_is_looked_at_again_when_it_may_be_asked(
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
