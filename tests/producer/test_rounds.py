"""The sender's look rounds: how few there are when nothing is due, and what a fault in one does."""

from __future__ import annotations

import asyncio

import pytest

from kafka_async.errors import TaskDiedError
from kafka_async.producer.accumulator import Accumulator
from kafka_async.producer.ledger import Ledger
from tests.producer.scripted import Bench

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
    async with Bench({"clicks": [1]}, linger_ms=5) as bench:
        loop = asyncio.get_running_loop()
        for _ in range(3):
            await bench.producer.send("clicks", b"v")
            await asyncio.sleep(1)
        patience = bench.config.delivery_timeout_ms / 1000
        looks = 0
        tick = Accumulator.tick

        def counted(accumulator: Accumulator, now: float) -> None:
            nonlocal looks
            looks += 1
            tick(accumulator, now)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Accumulator, "tick", counted)
            begun = loop.time()
            await asyncio.sleep(10 * patience)
            assert loop.time() - begun == pytest.approx(10 * patience)
        assert looks <= 3  # one for each batch, when its time would have been over
