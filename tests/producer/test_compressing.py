"""Batches are compressed in the loop or in a thread, in order, and none is left behind."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kafka_async.errors import KafkaError
from kafka_async.hooks import BatchClosed
from kafka_async.producer import batch_compressor
from kafka_async.producer.batch_compressor import (
    COMPRESSED_IN_LOOP,
    COMPRESSED_IN_LOOP_ABOVE,
    IN_A_TURN,
)
from kafka_async.records.compression import Codec
from kafka_async.supervisor import Supervisor
from tests.producer.bench import Bench

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

SMALL = COMPRESSED_IN_LOOP[Codec.gzip]
ABOVE = 1_000
"""Bytes above what is compressed in the loop: more than a batch has beside its records."""


@pytest.fixture
def offloaded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many batches each job of a thread had."""
    jobs: list[int] = []
    offload = Supervisor.offload

    async def noted(supervisor: Supervisor, function: Callable[..., Any], *args: Any) -> Any:
        jobs.extend(len(batches) for batches in args)  # the preload has none
        return await offload(supervisor, function, *args)

    monkeypatch.setattr(Supervisor, "offload", noted)
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
        ("gzip", None, COMPRESSED_IN_LOOP[Codec.gzip]),
        ("snappy", None, COMPRESSED_IN_LOOP[Codec.snappy]),
        ("lz4", None, COMPRESSED_IN_LOOP[Codec.lz4]),
        ("zstd", None, COMPRESSED_IN_LOOP[Codec.zstd]),
        ("zstd", 1, COMPRESSED_IN_LOOP[Codec.zstd]),
        ("zstd", 19, COMPRESSED_IN_LOOP_ABOVE),
        ("lz4", 9, COMPRESSED_IN_LOOP_ABOVE),
    ],
)
async def test_only_what_takes_long_goes_to_a_thread(
    codec: str, level: int | None, limit: int, offloaded: list[int]
) -> None:
    async with Bench(
        {"clicks": [1]}, compression_type=codec, compression_level=level, batch_size=1 << 20
    ) as bench:
        await bench.producer.send("clicks", bytes(limit - ABOVE))
        assert not offloaded
        await bench.producer.send("clicks", bytes(limit + ABOVE))
        assert offloaded == [1]


async def test_a_thread_gets_many_batches_at_once(offloaded: list[int]) -> None:
    topics = {"clicks": [1] * 20}
    async with Bench(topics, compression_type="gzip", linger_ms=60_000) as bench:
        for partition in range(20):
            await bench.producer.enqueue("clicks", bytes(SMALL + ABOVE), partition=partition)
        await bench.producer.flush()
        assert sum(offloaded) == 20
        assert len(offloaded) <= 3


async def test_one_turn_compresses_no_more_than_its_share(
    monkeypatch: pytest.MonkeyPatch, offloaded: list[int]
) -> None:
    a_turn: Counter[int] = Counter()
    turn = 0
    compress = batch_compressor.compress

    def counted(codec: Codec, data: Any, level: int | None) -> bytes:
        a_turn[turn] += len(data)
        return compress(codec, data, level)

    async def count() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(batch_compressor, "compress", counted)
    topics = {"clicks": [1] * 20}
    async with Bench(topics, compression_type="gzip", linger_ms=60_000) as bench:
        for partition in range(20):
            await bench.producer.enqueue("clicks", bytes(SMALL - ABOVE), partition=partition)
        counting = asyncio.ensure_future(count())
        await bench.producer.flush()
        counting.cancel()
        assert not offloaded
        assert sum(a_turn.values()) >= 20 * (SMALL - ABOVE)
        assert max(a_turn.values()) <= (IN_A_TURN + 1) * SMALL


@pytest.mark.parametrize("size", [SMALL - ABOVE, SMALL + ABOVE])
async def test_what_waited_behind_a_batch_that_cannot_be_compressed_leaves(
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


async def test_a_batch_behind_others_fills_up_until_it_is_its_turn() -> None:
    async with Bench({"clicks": [1]}, compression_type="lz4", linger_ms=5) as bench:
        closed: list[int] = []
        await bench.producer.send("clicks", b"first")
        bench.producer.client.hooks.listen(BatchClosed, lambda event: closed.append(event.records))
        hold = bench.hold()
        most = bench.config.max_in_flight_requests_per_connection
        for _ in range(50):
            await bench.producer.enqueue("clicks", b"v")
            await asyncio.sleep(0.01)
        hold.release()
        await bench.producer.flush()
        # Those under way, one that was compressed ahead, and all the others together.
        assert closed == [1] * (most + 1) + [50 - most - 1]
