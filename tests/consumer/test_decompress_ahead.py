"""Decompressing ahead: calls of many batches, their limits and their failures."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from kafka_async.consumer.buffer import decompress_ahead
from kafka_async.consumer.buffer.completed_fetch import CompletedFetch
from kafka_async.consumer.buffer.decompress_ahead import (
    MAX_CALLS,
    MAX_READY_BYTES,
    MAX_UNSUITABLE_BATCHES,
    AheadDecompressor,
    round_robin,
)
from kafka_async.consumer.buffer.fetch_buffer import LARGE_BATCH_COST, FetchBuffer
from kafka_async.errors import ClientClosedError, CorruptRecordError
from kafka_async.foundation.fairness import (
    DECOMPRESSED_BYTES_PER_CALL,
    MIN_DECOMPRESSED_BYTES_PER_CALL,
)
from kafka_async.records import compression
from kafka_async.records.batch import (
    BatchView,
    RecordBatch,
    assign_offsets,
    encode_batch,
    iter_batches,
)
from kafka_async.records.compression import Codec, compress
from kafka_async.types import ProducerRecord, TopicPartition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from kafka_async.consumer.consumer import Consumer
    from kafka_async.kernel import Record
    from kafka_async.types import Headers
    from tests.consumer.conftest import Stage

pytestmark = pytest.mark.asyncio

P0 = TopicPartition("t", 0)
EIGHTH = DECOMPRESSED_BYTES_PER_CALL // 8
PAYLOAD = random.Random(5).randbytes(64) * (EIGHTH // 64)


def batch(codec: Codec = Codec.zstd, payload: bytes = PAYLOAD) -> bytes:
    """Return a compressible batch without valid records, an eighth of a call in size."""
    packed = compress(codec, payload)
    return encode_batch(packed, codec=codec, count=1, base_timestamp=0, max_timestamp=0)


def views(*batches: bytes) -> list[BatchView]:
    data = b"".join(assign_offsets(each, offset, 0) for offset, each in enumerate(batches))
    return list(iter_batches(data, topic="t", partition=0))


class ManualThreads:
    """Replaces a supervisor: submitted calls run when the test says so."""

    def __init__(self) -> None:
        self.calls: list[tuple[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]] = []

    def submit(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.calls.append((future, function, args))
        return future

    async def run(self) -> int:
        """Run the submitted calls; return their number."""
        calls, self.calls = self.calls, []
        for future, function, args in calls:
            try:
                future.set_result(function(*args))
            except CorruptRecordError as error:
                future.set_exception(error)
        await asyncio.sleep(0)
        return len(calls)


class BatchReader:
    """Reads a list of batches with an `AheadDecompressor`."""

    def __init__(self, upcoming: list[BatchView]) -> None:
        self.upcoming = upcoming
        self.threads: Any = ManualThreads()
        self.ahead = AheadDecompressor(self.threads, lambda: self.upcoming)
        self.read = 0

    def start_calls(self) -> None:
        for _ in range(2 * MAX_CALLS + 2):
            self.ahead.start_calls(self.read)

    async def run_all_calls(self) -> None:
        while True:
            self.start_calls()
            if not await self.threads.run():
                return

    def read_next(self) -> bytes:
        view = self.upcoming.pop(0)
        section = view.section()
        self.read += view.decompressed_bytes
        return bytes(section[0])


def ready(upcoming: Iterable[BatchView]) -> list[bool]:
    return [not view.compressed_bytes for view in upcoming]


# -- limits ---------------------------------------------------------------------------------------


async def test_fills_each_call_up_to_its_size() -> None:
    reader = BatchReader(views(*[batch()] * 20))
    reader.ahead.start_calls(0)
    ((_, _, (frames, sizes)),) = reader.threads.calls
    assert len(frames) == 8
    assert sizes == [EIGHTH] * 8
    assert [view.decompressing for view in reader.upcoming] == [True] * 8 + [False] * 12


async def test_limits_calls_in_flight() -> None:
    reader = BatchReader(views(*[batch()] * 8 * (MAX_CALLS + 2)))
    reader.start_calls()
    assert len(reader.threads.calls) == MAX_CALLS


async def test_limits_decompressed_bytes_waiting_to_be_read() -> None:
    reader = BatchReader(views(*[batch()] * 200))
    most = MAX_READY_BYTES // EIGHTH
    await reader.run_all_calls()
    assert sum(ready(reader.upcoming)) == most
    for _ in range(7):
        reader.read_next()
    reader.start_calls()
    assert reader.threads.calls == []  # too little for a call
    reader.read_next()
    await reader.run_all_calls()
    assert sum(ready(reader.upcoming)) == most


async def test_does_not_start_calls_below_minimum_size() -> None:
    few = batch(payload=PAYLOAD[: MIN_DECOMPRESSED_BYTES_PER_CALL // 2 - 1])
    reader = BatchReader(views(few, few))
    reader.start_calls()
    assert reader.threads.calls == []
    reader.upcoming += views(few)
    reader.ahead.on_new_batches()
    reader.start_calls()
    assert len(reader.threads.calls) == 1


@pytest.mark.parametrize("codec", [Codec.none, Codec.gzip, Codec.snappy, Codec.lz4])
async def test_stops_scanning_after_unsuitable_batches(codec: Codec) -> None:
    reader = BatchReader(views(*[batch(codec)] * MAX_UNSUITABLE_BATCHES, *[batch()] * 8))
    reader.start_calls()
    assert reader.threads.calls == []


async def test_skips_unsuitable_batch() -> None:
    large = batch(payload=bytes(DECOMPRESSED_BYTES_PER_CALL + 1))
    reader = BatchReader(views(batch(), batch(Codec.gzip), large, batch()))
    await reader.run_all_calls()
    assert ready(reader.upcoming) == [True, False, False, True]


async def test_round_robin_starts_rows_lazily() -> None:
    begun: list[int] = []

    def rows() -> Iterator[Iterator[int]]:
        for number, size in enumerate((2, 0, 3)):
            begun.append(number)
            yield iter(range(10 * number, 10 * number + size))

    found = round_robin(rows())
    assert next(found) == 0
    assert begun == [0]
    assert list(found) == [20, 1, 21, 22]


# -- failures ------------------------------------------------------------------------------------


async def test_wrong_crc_is_raised_when_the_batch_is_read() -> None:
    upcoming = views(batch(), batch(), batch())
    spoilt = bytearray(upcoming[1].raw)
    spoilt[-1] ^= 1
    upcoming[1].raw = memoryview(bytes(spoilt))
    reader = BatchReader(upcoming)
    await reader.run_all_calls()
    assert reader.read_next() == PAYLOAD
    with pytest.raises(CorruptRecordError, match="CRC") as caught:
        reader.read_next()
    assert caught.value.offset == 1
    assert reader.read_next() == PAYLOAD


async def test_corrupt_frame_makes_batches_decompress_alone() -> None:
    packed = bytearray(compress(Codec.zstd, PAYLOAD))
    packed[-1] ^= 0xFF
    damaged = encode_batch(
        bytes(packed), codec=Codec.zstd, count=1, base_timestamp=0, max_timestamp=0
    )
    reader = BatchReader(views(batch(), damaged, batch()))
    reader.start_calls()
    assert await reader.threads.run() == 1
    assert ready(reader.upcoming) == [False] * 3
    reader.start_calls()
    assert reader.threads.calls == []
    assert reader.read_next() == PAYLOAD
    with pytest.raises(CorruptRecordError, match="is no zstd frame") as caught:
        reader.read_next()
    assert caught.value.offset == 1
    assert reader.read_next() == PAYLOAD


async def test_cancelled_call_makes_batches_decompress_alone() -> None:
    reader = BatchReader(views(batch(), batch()))
    reader.start_calls()
    reader.threads.calls[0][0].cancel()
    await asyncio.sleep(0)
    assert [view.decompressing for view in reader.upcoming] == [False, False]
    assert [reader.read_next(), reader.read_next()] == [PAYLOAD, PAYLOAD]


async def test_batch_read_meanwhile_drops_the_result() -> None:
    reader = BatchReader(views(batch(), batch()))
    view = reader.upcoming[0]
    reader.start_calls()
    assert reader.read_next() == PAYLOAD
    await reader.threads.run()
    assert view.compressed_bytes  # it keeps nothing decompressed
    assert ready(reader.upcoming) == [True]


def filled(*batches: bytes) -> FetchBuffer:
    data = b"".join(assign_offsets(each, offset, 0) for offset, each in enumerate(batches))
    fetched = CompletedFetch(P0, memoryview(data), 0, None)
    assert fetched.find_batches(100)
    made = FetchBuffer(P0)
    made.clear(0)
    made.add(fetched)
    return made


async def test_paused_partition_drops_decompressed_data() -> None:
    kept = filled(*[batch()] * 16)
    reader = BatchReader(list(kept.upcoming()))
    reader.ahead.start_calls(0)
    await reader.threads.run()
    reader.ahead.start_calls(0)
    kept.drop_decompressed()
    await reader.threads.run()
    assert ready(reader.upcoming) == [False] * 16
    assert not any(view.decompressing for view in reader.upcoming)


async def test_batch_being_decompressed_is_not_opened() -> None:
    records = [ProducerRecord("", PAYLOAD[:1000])] * 200
    kept = filled(*[RecordBatch.build(records, "zstd", timestamp=0).frame()] * 2)
    reader = BatchReader(list(kept.upcoming()))
    reader.start_calls()
    assert kept.next_compressed is reader.upcoming[0]
    assert reader.ahead.call_for(reader.upcoming[0]) is reader.threads.calls[0][0]
    await reader.threads.run()
    assert kept.next_compressed is None
    assert reader.ahead.call_for(reader.upcoming[0]) is None


# -- consumers -----------------------------------------------------------------------------------


async def stream(consumer: Consumer) -> AsyncIterator[Record[Any, Any]]:
    async for record in consumer:
        yield record


async def polls(consumer: Consumer) -> AsyncIterator[Record[Any, Any]]:
    while True:
        for record in await consumer.poll():
            yield record


def identity(_topic: str, _headers: Headers, value: bytes | None) -> bytes | None:
    return value


RECORDS, BATCHES = 100, 40


@pytest_asyncio.fixture
async def partitions(stage: Stage) -> list[TopicPartition]:
    """Return two partitions of four megabytes each; every value begins with its offset."""
    made = await stage.topic("t", 2)
    for number in range(BATCHES):
        first = number * RECORDS
        values = [b"%08d" % n + PAYLOAD[:1000] for n in range(first, first + RECORDS)]
        for partition in made:
            stage.produce(partition, values, "zstd")
    return made


@pytest.fixture
def thread_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect the number of batches of each call; all calls ran in a thread."""
    seen: list[int] = []

    def watched(frames: list[memoryview], sizes: list[int]) -> list[memoryview]:
        assert threading.current_thread() is not threading.main_thread()
        seen.append(len(frames))
        return compression.decompress_frames(frames, sizes)

    monkeypatch.setattr(decompress_ahead, "decompress_frames", watched)
    return seen


@pytest.mark.parametrize("read", [stream, polls])
@pytest.mark.parametrize("options", [{}, {"value_deserializer": identity}])
async def test_consumer_reads_in_order_while_threads_decompress(
    stage: Stage,
    partitions: list[TopicPartition],
    thread_calls: list[int],
    read: Callable[[Consumer], AsyncIterator[Record[Any, Any]]],
    options: dict[str, Any],
) -> None:
    async with stage.consumer(partitions=partitions, **options) as consumer:
        seen = {partition.partition: list[int]() for partition in partitions}
        records = read(consumer)
        for _ in range(2 * RECORDS * BATCHES):
            record = await anext(records)
            assert record.value is not None
            assert int(record.value[:8]) == record.offset
            seen[record.partition].append(record.offset)
    whole = list(range(RECORDS * BATCHES))
    assert seen == {0: whole, 1: whole}
    assert sum(thread_calls) > BATCHES  # of 2 * BATCHES
    assert max(thread_calls) > 2


def hold_calls(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> tuple[threading.Event, threading.Event, list[Any]]:
    """Make calls of a function set the first event and wait for the second; list arguments."""
    begun, proceed, seen = threading.Event(), threading.Event(), list[Any]()
    call = getattr(owner, name)

    def held(*arguments: Any) -> Any:
        seen.append(arguments[0])
        begun.set()
        assert proceed.wait(30)
        return call(*arguments)

    monkeypatch.setattr(owner, name, held)
    return begun, proceed, seen


async def test_seek_during_decompression_takes_effect(
    stage: Stage, partitions: list[TopicPartition], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, proceed, _ = hold_calls(monkeypatch, decompress_ahead, "decompress_frames")
    async with stage.consumer(partitions=partitions[:1]) as consumer:
        polling = asyncio.ensure_future(consumer.poll(timeout=30))
        assert await asyncio.to_thread(begun.wait, 30)
        polling.cancel()
        await asyncio.wait({polling})
        consumer.seek(partitions[0], 1234)
        proceed.set()
        records = await consumer.poll(max_records=5, timeout=30)
        assert [record.offset for record in records] == list(range(1234, 1239))


async def test_consumer_closes_during_decompression(
    stage: Stage, partitions: list[TopicPartition], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, proceed, _ = hold_calls(monkeypatch, decompress_ahead, "decompress_frames")
    async with stage.consumer(partitions=partitions) as consumer:
        polling = asyncio.ensure_future(consumer.poll(timeout=30))
        assert await asyncio.to_thread(begun.wait, 30)
        stopping = asyncio.ensure_future(consumer.stop())
        await asyncio.wait({stopping})
        proceed.set()
        with pytest.raises(ClientClosedError):
            await polling


async def test_pause_drops_batch_decompressed_alone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, proceed, seen = hold_calls(monkeypatch, BatchView, "decompress")
    (partition,) = await stage.topic("t", 1)
    stage.produce(partition, [random.Random(5).randbytes(LARGE_BATCH_COST // 8)], "gzip")
    async with stage.consumer(partitions=[partition]) as consumer:
        polling = asyncio.ensure_future(consumer.poll(timeout=1))
        assert await asyncio.to_thread(begun.wait, 30)
        consumer.pause(partition)
        proceed.set()
        assert await polling == []
        assert [view.compressed_bytes > 0 for view in seen] == [True]
        consumer.resume(partition)
        assert [len(record.value or b"") for record in await consumer.poll(timeout=30)] == [
            LARGE_BATCH_COST // 8
        ]
