"""Compression of batches in the event loop or in a thread, in order."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kafka_async.errors import KafkaError
from kafka_async.foundation.fairness import IN_LOOP_BUDGET_FACTOR, MAX_IN_LOOP_BYTES_HIGH_LEVEL
from kafka_async.foundation.supervisor import Supervisor
from kafka_async.hooks import BatchClosed
from kafka_async.producer.buffer import batch_compressor
from kafka_async.producer.buffer.batch_compressor import MAX_IN_LOOP_BYTES
from kafka_async.records.compression import Codec
from tests.embedded_client import IterationCounter
from tests.producer.bench import Bench

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

SMALL = MAX_IN_LOOP_BYTES[Codec.gzip]
ABOVE = 1_000
"""Bytes by which a batch is above or below the limit: more than its overhead."""


@pytest.fixture
def offloaded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of batches of each job of a thread."""
    jobs: list[int] = []
    offload = Supervisor.offload

    async def recorded(supervisor: Supervisor, function: Callable[..., Any], *args: Any) -> Any:
        jobs.extend(len(batches) for batches in args)  # the preload has no arguments
        return await offload(supervisor, function, *args)

    monkeypatch.setattr(Supervisor, "offload", recorded)
    return jobs


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_batches_are_compressed_and_keep_their_order(codec: str) -> None:
    async with Bench({"clicks": [1]}, compression_type=codec, linger_ms=5) as bench:
        values = [b"%06d" % n * 20 for n in range(5000)]
        await bench.producer.send_many("clicks", values)
        await bench.producer.flush()
        assert bench.values("clicks") == values
        statistics = bench.producer.statistics()
        assert statistics.byte_total < sum(map(len, values)) / 2
        assert statistics.buffer_available_bytes == statistics.buffer_total_bytes


@pytest.mark.parametrize(
    ("codec", "level", "limit"),
    [
        ("gzip", None, MAX_IN_LOOP_BYTES[Codec.gzip]),
        ("snappy", None, MAX_IN_LOOP_BYTES[Codec.snappy]),
        ("lz4", None, MAX_IN_LOOP_BYTES[Codec.lz4]),
        ("zstd", None, MAX_IN_LOOP_BYTES[Codec.zstd]),
        ("zstd", 1, MAX_IN_LOOP_BYTES[Codec.zstd]),
        ("zstd", 19, MAX_IN_LOOP_BYTES_HIGH_LEVEL),
        ("lz4", 9, MAX_IN_LOOP_BYTES_HIGH_LEVEL),
    ],
)
async def test_only_large_batches_are_compressed_in_a_thread(
    codec: str, level: int | None, limit: int, offloaded: list[int]
) -> None:
    async with Bench(
        {"clicks": [1]}, compression_type=codec, compression_level=level, batch_size=1 << 20
    ) as bench:
        await bench.producer.send("clicks", bytes(limit - ABOVE))
        assert not offloaded
        await bench.producer.send("clicks", bytes(limit + ABOVE))
        assert offloaded == [1]


async def test_thread_compresses_several_batches_per_job(offloaded: list[int]) -> None:
    topics = {"clicks": [1] * 20}
    async with Bench(topics, compression_type="gzip", linger_ms=60_000) as bench:
        for partition in range(20):
            await bench.producer.enqueue("clicks", bytes(SMALL + ABOVE), partition=partition)
        await bench.producer.flush()
        assert sum(offloaded) == 20
        assert len(offloaded) <= 3


async def test_compression_in_the_loop_is_bounded_per_iteration(
    monkeypatch: pytest.MonkeyPatch, offloaded: list[int]
) -> None:
    compressed_bytes: Counter[int] = Counter()
    iterations = IterationCounter()
    compress = batch_compressor.compress

    def counted(codec: Codec, data: Any, level: int | None) -> bytes:
        compressed_bytes[iterations.count] += len(data)
        return compress(codec, data, level)

    monkeypatch.setattr(batch_compressor, "compress", counted)
    topics = {"clicks": [1] * 20}
    async with Bench(topics, compression_type="gzip", linger_ms=60_000) as bench:
        for partition in range(20):
            await bench.producer.enqueue("clicks", bytes(SMALL - ABOVE), partition=partition)
        async with iterations:
            await bench.producer.flush()
        assert not offloaded
        assert sum(compressed_bytes.values()) >= 20 * (SMALL - ABOVE)
        assert max(compressed_bytes.values()) <= (IN_LOOP_BUDGET_FACTOR + 1) * SMALL


@pytest.mark.parametrize("size", [SMALL - ABOVE, SMALL + ABOVE])
async def test_batches_behind_one_that_cannot_be_compressed_are_sent(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec_fails = itertools.chain([True], itertools.repeat(False))
    compress = batch_compressor.compress

    def failing_first(*args: Any) -> bytes:
        if next(codec_fails):
            raise KafkaError("the codec has no memory")
        return compress(*args)

    monkeypatch.setattr(batch_compressor, "compress", failing_first)
    async with Bench(
        {"clicks": [1]}, compression_type="gzip", linger_ms=60_000, batch_size=size + 100
    ) as bench:
        values = [(b"%d" % number) * size for number in range(4)]
        first, *others = await bench.producer.send_many("clicks", values)
        async with asyncio.timeout(1):
            with pytest.raises(KafkaError, match="no memory"):
                await first
            await others[0]
            await others[1]
        await bench.producer.flush()
        assert bench.values("clicks") == values[1:]


async def test_batch_behind_others_fills_up_until_they_are_sent() -> None:
    async with Bench({"clicks": [1]}, compression_type="lz4", linger_ms=5) as bench:
        await bench.producer.send("clicks", b"first")
        closed = bench.events(BatchClosed)
        hold = bench.hold()
        max_in_flight = bench.config.max_in_flight_requests_per_connection
        for _ in range(50):
            await bench.producer.enqueue("clicks", b"v")
            await asyncio.sleep(0.01)
        hold.release()
        await bench.producer.flush()
        # The batches in flight, one that was compressed ahead, and one with all other records.
        assert [event.records for event in closed] == [1] * (max_in_flight + 1) + [
            50 - max_in_flight - 1
        ]
