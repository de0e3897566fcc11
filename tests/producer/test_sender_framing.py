"""Large batches are summed up in a thread, and nothing overtakes them meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kafka_async.errors import KafkaError
from kafka_async.producer.batch import ProducerBatch
from kafka_async.producer.sender import LARGE
from kafka_async.supervisor import Supervisor
from tests.producer.scripted import Answer, Bench, turns

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

ROOM = {"batch_size": 4 * LARGE, "max_request_size": 5 * LARGE, "buffer_memory": 32 * LARGE}
HEADER_AND_FIELDS = 100


class Threads:
    """Jobs wait for `go`; `jobs` counts them."""

    def __init__(self) -> None:
        self.jobs = 0
        self.go = asyncio.Event()


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    threads = Threads()
    offload = Supervisor.offload

    async def held(supervisor: Supervisor, function: Callable[..., Any], *args: Any) -> Any:
        if getattr(getattr(function, "func", None), "__name__", "") == "header":
            threads.jobs += 1
            await threads.go.wait()
        return await offload(supervisor, function, *args)

    monkeypatch.setattr(Supervisor, "offload", held)
    return threads


async def test_only_a_large_batch_is_framed_in_a_thread(threads: Threads) -> None:
    threads.go.set()
    async with Bench({"clicks": [1]}, **ROOM) as bench:
        await bench.producer.send("clicks", bytes(LARGE - HEADER_AND_FIELDS))
        assert threads.jobs == 0
        await bench.producer.send("clicks", bytes(LARGE))
        assert threads.jobs == 1


async def test_nothing_overtakes_a_large_batch(threads: Threads) -> None:
    async with Bench({"clicks": [1, 1]}, **ROOM) as bench:
        large = await bench.producer.enqueue("clicks", bytes(LARGE), partition=0)
        await turns()
        assert threads.jobs == 1
        values = [b"%d" % number for number in range(5)]
        small = [
            await bench.producer.enqueue("clicks", value, partition=number % 2)
            for number, value in enumerate(values)
        ]
        await turns()
        assert not any(delivery.done() for delivery in (large, *small))
        threads.go.set()
        await bench.producer.flush()
        assert bench.cluster.log("clicks").values == [bytes(LARGE), b"0", b"2", b"4"]
        assert bench.cluster.log("clicks", 1).values == [b"1", b"3"]


async def test_a_large_batch_that_is_sent_again_is_not_framed_again(threads: Threads) -> None:
    threads.go.set()
    async with Bench({"clicks": [1]}, **ROOM) as bench:
        bench.cluster.script.append(Answer(lose=True))
        await bench.producer.send("clicks", bytes(LARGE))
        assert threads.jobs == 1
        assert len(bench.cluster.log("clicks").values) == 1


async def test_a_large_batch_is_settled_when_the_producer_stops(threads: Threads) -> None:
    async with Bench({"clicks": [1]}, **ROOM) as bench:
        delivery = await bench.producer.enqueue("clicks", bytes(LARGE))
        await turns()
        assert threads.jobs == 1
        with pytest.raises(KafkaError):
            await bench.producer.stop(0)
        assert isinstance(delivery.exception(), KafkaError)


async def test_the_bytes_are_those_that_the_loop_would_have_made(
    threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads.go.set()
    frames: list[tuple[bytes, bytes]] = []
    framed = ProducerBatch.framed

    def noted(batch: ProducerBatch, header: bytes) -> tuple[bytes, bytes]:
        frames.append((header, batch.framing(transactional=False)()))
        return framed(batch, header)

    monkeypatch.setattr(ProducerBatch, "framed", noted)
    async with Bench({"clicks": [1]}, **ROOM) as bench:
        await bench.producer.send("clicks", bytes(LARGE))
        assert threads.jobs == 1
        assert frames[0][0] == frames[0][1]
