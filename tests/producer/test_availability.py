"""Records without a key avoid brokers that accept no batches (KIP-794)."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from kafka_async.config import ProducerConfig
from tests.embedded_client import settle
from tests.producer.bench import Bench

pytestmark = pytest.mark.virtual_clock

LEADERS = {"clicks": [1, 1, 2, 2]}
OPTIONS: dict[str, Any] = {"batch_size": 1, "max_in_flight_requests_per_connection": 1}
"""Each record is a batch and chooses a partition."""


async def fill(bench: Bench, records: int) -> Counter[int]:
    """Append records, one per millisecond, and return how many each broker leads."""
    led: Counter[int] = Counter()
    for _ in range(records):
        delivery = await bench.producer.enqueue("clicks", b"v" * 1_000)  # no other fits in
        outcome: Any = delivery.outcome
        led[LEADERS["clicks"][outcome.partition]] += 1
        await settle()
    return led


@pytest.mark.asyncio
async def test_broker_that_accepts_no_batches_is_left_out_after_the_timeout() -> None:
    async with Bench(LEADERS, partitioner_availability_timeout_ms=500, **OPTIONS) as bench:
        assert set(await fill(bench, 50)) == {1, 2}
        held = bench.hold(broker=2, count=None)
        assert (await fill(bench, 100))[2] > 1  # one in flight, the others wait
        await asyncio.sleep(0.6)
        await fill(bench, 1)  # may be the last one of the partition chosen before
        assert set(await fill(bench, 50)) == {1}
        held.remove()
        await bench.producer.flush()
        assert set(await fill(bench, 50)) == {1, 2}


@pytest.mark.asyncio
async def test_unreachable_broker_is_left_out_until_it_is_back() -> None:
    async with Bench(LEADERS, partitioner_availability_timeout_ms=500, **OPTIONS) as bench:
        await fill(bench, 50)
        await bench.memory.cut_off(2)
        await fill(bench, 50)
        await asyncio.sleep(0.6)
        await fill(bench, 1)  # may be the last one of the partition chosen before
        assert set(await fill(bench, 50)) == {1}
        bench.memory.reconnect(2)
        await bench.producer.flush()
        assert set(await fill(bench, 50)) == {1, 2}


@pytest.mark.asyncio
async def test_all_brokers_are_used_if_none_accepts_batches() -> None:
    async with Bench(LEADERS, partitioner_availability_timeout_ms=500, **OPTIONS) as bench:
        await fill(bench, 50)
        bench.hold(count=None)
        await fill(bench, 50)
        await asyncio.sleep(0.6)
        assert set(await fill(bench, 50)) == {1, 2}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {
            "partitioner_availability_timeout_ms": 500,
            "partitioner_adaptive_partitioning_enable": False,
        },
    ],
)
@pytest.mark.asyncio
async def test_without_the_options_no_broker_is_left_out(options: dict[str, Any]) -> None:
    async with Bench(LEADERS, **options, **OPTIONS) as bench:
        await fill(bench, 50)
        bench.hold(broker=2, count=None)
        await fill(bench, 20)
        await asyncio.sleep(0.6)
        assert (await fill(bench, 200))[2] > 0


def test_options_have_the_names_and_defaults_of_java() -> None:
    config = ProducerConfig("a:1")
    assert config.partitioner_availability_timeout_ms == 0
    assert config.partitioner_adaptive_partitioning_enable
    read = ProducerConfig.from_properties(
        {
            "bootstrap.servers": "a:1",
            "partitioner.availability.timeout.ms": "500",
            "partitioner.adaptive.partitioning.enable": "false",
        }
    )
    assert read.partitioner_availability_timeout_ms == 500
    assert not read.partitioner_adaptive_partitioning_enable
