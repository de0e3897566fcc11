"""A tight loop over buffered records lets other tasks run."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.consumer.buffer import completed_fetch
from kafka_async.consumer.fetch import fetcher
from kafka_async.records import compression
from kafka_async.records.batch import RecordBatch, assign_offsets
from kafka_async.types import ProducerRecord
from tests.embedded_client import IterationCounter
from tests.hostile.scripted_fetch import BAD, GOOD, Reader, ScriptedFetch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from typing_extensions import Buffer

    from kafka_async.consumer.consumer import Consumer
    from kafka_async.records.batch import BatchView
    from kafka_async.records.compression import Codec, Decompressed
    from tests.consumer.conftest import Stage

pytestmark = pytest.mark.asyncio

RECORDS = 20_000


async def stream(consumer: Consumer) -> AsyncIterator[int]:
    async for record in consumer:
        yield record.offset


async def polls(consumer: Consumer) -> AsyncIterator[int]:
    while True:
        for record in await consumer.poll(max_records=1):
            yield record.offset


async def wide_polls(consumer: Consumer) -> AsyncIterator[int]:
    while True:
        for record in await consumer.poll(max_records=500):
            yield record.offset


def unchanged(topic: str, headers: object, data: bytes) -> bytes:
    return data


@pytest.mark.virtual_clock
@pytest.mark.parametrize("options", [{}, {"value_deserializer": unchanged}])
async def test_large_poll_returns_what_was_parsed_in_time(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    partitions = await stage.topic("t", 1, records=RECORDS)
    loop = asyncio.get_running_loop()
    async with stage.consumer(partitions=partitions, **options) as consumer:
        offsets = [(await consumer.poll(max_records=1))[0].offset]
        time, clock_reads = loop.time, itertools.count(0, 0.001)
        monkeypatch.setattr(loop, "time", lambda: time() + next(clock_reads))
        while len(offsets) < RECORDS:
            records = await consumer.poll(max_records=RECORDS)
            # Half of the time may have passed before the parsing begins.
            assert 500 <= len(records) <= 2_500 or records[-1].offset == RECORDS - 1
            offsets += [record.offset for record in records]
    assert offsets == list(range(RECORDS))


# -- small batches --------------------------------------------------------------------------------


@pytest.mark.virtual_clock
async def test_response_with_many_small_batches_does_not_hold_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    single = RecordBatch.build([ProducerRecord("", b"value")], timestamp=1_000).frame()
    feed = ScriptedFetch()
    for partition in (BAD, GOOD):  # neither of which is
        data = b"".join(assign_offsets(single, offset, 0) for offset in range(5_000))
        feed.data[partition] = {0: data}
    iterations, seen = IterationCounter(), Counter[int]()
    walk = completed_fetch.iter_batches

    def watched(data: Buffer, *, topic: str, partition: int) -> Iterator[BatchView]:
        for view in walk(data, topic=topic, partition=partition):
            seen[iterations.count] += 1
            if view.last_offset == 4_999:
                found.release()
            yield view

    found = asyncio.Semaphore(0)
    monkeypatch.setattr(completed_fetch, "iter_batches", watched)
    async with feed.consumer() as consumer:
        loop = asyncio.get_running_loop()
        time, clock_reads = loop.time, itertools.count(0, 0.001)
        monkeypatch.setattr(loop, "time", lambda: time() + next(clock_reads))
        async with iterations:
            for _ in range(2):
                await found.acquire()
        monkeypatch.setattr(loop, "time", time)
        assert sum(seen.values()) == 10_000
        assert max(seen.values()) <= 500
        reader = Reader(consumer)
        for partition in (BAD, GOOD):
            await reader.until(partition, list(range(5_000)))


@pytest.mark.virtual_clock
async def test_seek_while_response_is_scanned_fetches_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    single = RecordBatch.build([ProducerRecord("", b"value")], timestamp=1_000).frame()
    feed = ScriptedFetch()
    data = b"".join(assign_offsets(single, offset, 0) for offset in range(1_000))
    feed.data[BAD] = {0: data, 990: data}
    begun = asyncio.Event()
    walk = completed_fetch.iter_batches

    def watched(data: Buffer, *, topic: str, partition: int) -> Iterator[BatchView]:
        begun.set()
        yield from walk(data, topic=topic, partition=partition)

    monkeypatch.setattr(completed_fetch, "iter_batches", watched)
    monkeypatch.setattr(fetcher, "MAX_SCAN_SECONDS", 0.0)
    async with feed.consumer() as consumer:
        await begun.wait()
        consumer.seek(BAD, 990)
        reader = Reader(consumer)
        await reader.until(BAD, list(range(990, 1_000)))


# -- large batches --------------------------------------------------------------------------------

LARGE_BATCH_EFFORT, SMALL = 100_000, 100


@pytest.fixture
def decompressions(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, bool]]:
    """Collect for each decompressed batch whether it is large and whether a thread did it."""
    seen: list[tuple[bool, bool]] = []
    decompress = compression.decompress

    def watched(codec: Codec, data: Buffer, limit: int) -> Decompressed:
        aside = threading.current_thread() is not threading.main_thread()
        seen.append((memoryview(data).nbytes > SMALL * 10, aside))
        return decompress(codec, data, limit)

    monkeypatch.setattr(compression, "decompress", watched)
    return seen


@pytest.mark.parametrize("read", [stream, polls, wide_polls])
async def test_decompresses_large_batches_in_thread_in_order(
    stage: Stage,
    decompressions: list[tuple[bool, bool]],
    read: Callable[[Consumer], AsyncIterator[int]],
) -> None:
    (partition,) = await stage.topic("t")
    for size in (LARGE_BATCH_EFFORT, SMALL, LARGE_BATCH_EFFORT, LARGE_BATCH_EFFORT):
        stage.produce(partition, [random.randbytes(size // 2) for _ in range(2)], "gzip")
    async with stage.consumer(partitions=[partition]) as consumer:
        offsets = read(consumer)
        assert [await anext(offsets) for _ in range(8)] == list(range(8))
    assert decompressions == [(True, True), (False, False), (True, True), (True, True)]
