"""What comes next is decompressed ahead: many batches a call, within bounds, and none wrongly."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from kafka_async.consumer import decompress_ahead
from kafka_async.consumer.decompress_ahead import ALONE, CALLS, LEAST, ROOM, SIZE, Ahead, in_turn
from kafka_async.consumer.fetch_buffer import LARGE, Buffer, CompletedFetch
from kafka_async.errors import ClientClosedError, CorruptRecordError
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
EIGHTH = SIZE // 8
PAYLOAD = random.Random(5).randbytes(64) * (EIGHTH // 64)


def batch(codec: Codec = Codec.zstd, payload: bytes = PAYLOAD) -> bytes:
    """A batch of no sensible records, an eighth of a call large, and small when compressed."""
    packed = compress(codec, payload)
    return encode_batch(packed, codec=codec, count=1, base_timestamp=0, max_timestamp=0)


def views(*batches: bytes) -> list[BatchView]:
    data = b"".join(assign_offsets(each, offset, 0) for offset, each in enumerate(batches))
    return list(iter_batches(data, topic="t", partition=0))


class Threads:
    """In place of a supervisor's: calls wait until the test lets them go on."""

    def __init__(self) -> None:
        self.calls: list[tuple[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]] = []

    def submit(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.calls.append((future, function, args))
        return future

    async def run(self) -> int:
        """Do the calls there are; how many these were."""
        calls, self.calls = self.calls, []
        for future, function, args in calls:
            try:
                future.set_result(function(*args))
            except CorruptRecordError as error:
                future.set_exception(error)
        await asyncio.sleep(0)
        return len(calls)


class Desk:
    """An `Ahead` over a list of batches."""

    def __init__(self, upcoming: list[BatchView]) -> None:
        self.upcoming = upcoming
        self.threads: Any = Threads()
        self.ahead = Ahead(self.threads, lambda: self.upcoming)
        self.read = 0

    def go_on(self) -> None:
        for _ in range(2 * CALLS + 2):
            self.ahead.go_on(self.read)

    async def all_there_is(self) -> None:
        while True:
            self.go_on()
            if not await self.threads.run():
                return

    def take(self) -> bytes:
        view = self.upcoming.pop(0)
        section = view.section()
        self.read += view.decompressed_bytes
        return bytes(section[0])


def ready(upcoming: Iterable[BatchView]) -> list[bool]:
    return [not view.compressed_bytes for view in upcoming]


# -- how much ------------------------------------------------------------------------------------


async def test_a_call_has_as_many_batches_as_make_its_size() -> None:
    desk = Desk(views(*[batch()] * 20))
    desk.ahead.go_on(0)
    ((_, _, (frames, sizes)),) = desk.threads.calls
    assert len(frames) == 8
    assert sizes == [EIGHTH] * 8
    assert [view.awaited for view in desk.upcoming] == [True] * 8 + [False] * 12


async def test_no_more_calls_are_begun_than_keep_the_threads_busy() -> None:
    desk = Desk(views(*[batch()] * 8 * (CALLS + 2)))
    desk.go_on()
    assert len(desk.threads.calls) == CALLS


async def test_no_more_is_decompressed_than_may_wait_to_be_read() -> None:
    desk = Desk(views(*[batch()] * 200))
    most = ROOM // EIGHTH
    await desk.all_there_is()
    assert sum(ready(desk.upcoming)) == most
    for _ in range(7):
        desk.take()
    desk.go_on()
    assert desk.threads.calls == []  # which is not enough for a call
    desk.take()
    await desk.all_there_is()
    assert sum(ready(desk.upcoming)) == most


async def test_what_is_read_is_what_was_compressed() -> None:
    payloads = [bytes([n]) * EIGHTH for n in range(24)]
    desk = Desk(views(*(batch(payload=payload) for payload in payloads)))
    await desk.all_there_is()
    assert all(ready(desk.upcoming))
    assert [desk.take() for _ in payloads] == payloads


async def test_too_little_for_a_call_is_left() -> None:
    few = batch(payload=PAYLOAD[: LEAST // 2 - 1])
    desk = Desk(views(few, few))
    desk.go_on()
    assert desk.threads.calls == []
    desk.upcoming += views(few)
    desk.ahead.look()
    desk.go_on()
    assert len(desk.threads.calls) == 1


@pytest.mark.parametrize("codec", [Codec.none, Codec.gzip, Codec.snappy, Codec.lz4])
async def test_where_nothing_can_take_part_no_more_is_looked_at(codec: Codec) -> None:
    desk = Desk(views(*[batch(codec)] * ALONE, *[batch()] * 8))
    desk.go_on()
    assert desk.threads.calls == []


async def test_a_batch_that_cannot_take_part_is_passed_over() -> None:
    large = batch(payload=bytes(SIZE + 1))
    desk = Desk(views(batch(), batch(Codec.gzip), large, batch()))
    await desk.all_there_is()
    assert ready(desk.upcoming) == [True, False, False, True]


async def test_rows_are_gone_through_in_turn_and_begun_as_late_as_can_be() -> None:
    begun: list[int] = []

    def rows() -> Iterator[Iterator[int]]:
        for number, size in enumerate((2, 0, 3)):
            begun.append(number)
            yield iter(range(10 * number, 10 * number + size))

    found = in_turn(rows())
    assert next(found) == 0
    assert begun == [0]
    assert list(found) == [20, 1, 21, 22]


# -- what may go wrong ---------------------------------------------------------------------------


async def test_a_batch_whose_crc_is_wrong_says_so_in_its_place() -> None:
    upcoming = views(batch(), batch(), batch())
    spoilt = bytearray(upcoming[1].raw)
    spoilt[-1] ^= 1
    upcoming[1].raw = memoryview(bytes(spoilt))
    desk = Desk(upcoming)
    await desk.all_there_is()
    assert desk.take() == PAYLOAD
    with pytest.raises(CorruptRecordError, match="CRC") as caught:
        desk.take()
    assert caught.value.offset == 1
    assert desk.take() == PAYLOAD


async def test_one_damaged_frame_leaves_each_to_itself() -> None:
    packed = bytearray(compress(Codec.zstd, PAYLOAD))
    packed[-1] ^= 0xFF
    damaged = encode_batch(
        bytes(packed), codec=Codec.zstd, count=1, base_timestamp=0, max_timestamp=0
    )
    desk = Desk(views(batch(), damaged, batch()))
    desk.go_on()
    assert await desk.threads.run() == 1
    assert ready(desk.upcoming) == [False] * 3
    desk.go_on()
    assert desk.threads.calls == []
    assert desk.take() == PAYLOAD
    with pytest.raises(CorruptRecordError, match="is no zstd frame") as caught:
        desk.take()
    assert caught.value.offset == 1
    assert desk.take() == PAYLOAD


async def test_a_call_that_is_cancelled_leaves_each_to_itself() -> None:
    desk = Desk(views(batch(), batch()))
    desk.go_on()
    desk.threads.calls[0][0].cancel()
    await asyncio.sleep(0)
    assert [view.awaited for view in desk.upcoming] == [False, False]
    assert [desk.take(), desk.take()] == [PAYLOAD, PAYLOAD]


async def test_what_was_read_meanwhile_keeps_nothing() -> None:
    desk = Desk(views(batch(), batch()))
    view = desk.upcoming[0]
    desk.go_on()
    assert desk.take() == PAYLOAD
    await desk.threads.run()
    assert view.compressed_bytes  # it has nothing unpacked
    assert ready(desk.upcoming) == [True]


def filled(*batches: bytes) -> Buffer:
    data = b"".join(assign_offsets(each, offset, 0) for offset, each in enumerate(batches))
    fetched = CompletedFetch(P0, memoryview(data), 0, None)
    assert fetched.walk(100)
    made = Buffer(P0)
    made.clear(0)
    made.add(fetched)
    return made


async def test_a_paused_partition_keeps_nothing_decompressed() -> None:
    kept = filled(*[batch()] * 16)
    desk = Desk(list(kept.upcoming()))
    desk.ahead.go_on(0)
    await desk.threads.run()
    desk.ahead.go_on(0)
    kept.pack()
    await desk.threads.run()
    assert ready(desk.upcoming) == [False] * 16
    assert not any(view.awaited for view in desk.upcoming)


async def test_what_is_being_decompressed_is_not_opened_before() -> None:
    records = [ProducerRecord("", PAYLOAD[:1000])] * 200
    kept = filled(*[RecordBatch.build(records, "zstd", timestamp=0).frame()] * 2)
    desk = Desk(list(kept.upcoming()))
    desk.go_on()
    assert kept.packed is desk.upcoming[0]
    assert desk.ahead.until(desk.upcoming[0]) is desk.threads.calls[0][0]
    await desk.threads.run()
    assert kept.packed is None
    assert desk.ahead.until(desk.upcoming[0]) is None


# -- consumers -----------------------------------------------------------------------------------


async def stream(consumer: Consumer) -> AsyncIterator[Record[Any, Any]]:
    async for record in consumer:
        yield record


async def polls(consumer: Consumer) -> AsyncIterator[Record[Any, Any]]:
    while True:
        for record in await consumer.poll():
            yield record


def as_it_is(_topic: str, _headers: Headers, value: bytes | None) -> bytes | None:
    return value


RECORDS, BATCHES = 100, 40


@pytest_asyncio.fixture
async def partitions(stage: Stage) -> list[TopicPartition]:
    """Two, with four megabytes each; every value begins with its offset."""
    made = await stage.topic("t", 2)
    for number in range(BATCHES):
        first = number * RECORDS
        values = [b"%08d" % n + PAYLOAD[:1000] for n in range(first, first + RECORDS)]
        records = [ProducerRecord("", value) for value in values]
        for partition in made:
            await stage.append(partition, RecordBatch.build(records, "zstd", timestamp=0).frame())
    return made


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many batches each call had; all were done in a thread."""
    seen: list[int] = []

    def watched(frames: list[memoryview], sizes: list[int]) -> list[memoryview]:
        assert threading.current_thread() is not threading.main_thread()
        seen.append(len(frames))
        return compression.decompress_frames(frames, sizes)

    monkeypatch.setattr(decompress_ahead, "decompress_frames", watched)
    return seen


@pytest.mark.parametrize("read", [stream, polls])
@pytest.mark.parametrize("options", [{}, {"value_deserializer": as_it_is}])
async def test_a_consumer_gets_all_in_order_and_threads_decompress_it(
    stage: Stage,
    partitions: list[TopicPartition],
    together: list[int],
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
    assert sum(together) > BATCHES  # of twice as many
    assert max(together) > 2


def holding(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Calls that decompress say that they have begun, and then wait for leave to go on."""
    begun, go_on = threading.Event(), threading.Event()

    def held(frames: list[memoryview], sizes: list[int]) -> list[memoryview]:
        begun.set()
        assert go_on.wait(30)
        return compression.decompress_frames(frames, sizes)

    monkeypatch.setattr(decompress_ahead, "decompress_frames", held)
    return begun, go_on


async def test_a_partition_that_is_sought_while_it_is_decompressed_goes_on_there(
    stage: Stage, partitions: list[TopicPartition], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = holding(monkeypatch)
    async with stage.consumer(partitions=partitions[:1]) as consumer:
        polling = asyncio.ensure_future(consumer.poll(timeout=30))
        assert await asyncio.to_thread(begun.wait, 30)
        polling.cancel()
        await asyncio.wait({polling})
        consumer.seek(partitions[0], 1234)
        go_on.set()
        assert [record.offset for record in await consumer.poll(max_records=5, timeout=30)] == [
            1234,
            1235,
            1236,
            1237,
            1238,
        ]


async def test_a_consumer_is_closed_while_it_decompresses(
    stage: Stage, partitions: list[TopicPartition], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = holding(monkeypatch)
    async with stage.consumer(partitions=partitions) as consumer:
        polling = asyncio.ensure_future(consumer.poll(timeout=30))
        assert await asyncio.to_thread(begun.wait, 30)
        stopping = asyncio.ensure_future(consumer.stop())
        await asyncio.wait({stopping})
        go_on.set()
        with pytest.raises(ClientClosedError):
            await polling


async def test_a_batch_that_is_decompressed_alone_is_not_kept_by_a_pause(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    unpack, seen = BatchView.unpack, list[BatchView]()

    def held(view: BatchView) -> None:
        seen.append(view)
        begun.set()
        assert go_on.wait(30)
        unpack(view)

    monkeypatch.setattr(BatchView, "unpack", held)
    (partition,) = await stage.topic("t", 1)
    records = [ProducerRecord("", random.Random(5).randbytes(LARGE // 8))]
    await stage.append(partition, RecordBatch.build(records, "gzip", timestamp=0).frame())
    async with stage.consumer(partitions=[partition]) as consumer:
        polling = asyncio.ensure_future(consumer.poll(timeout=1))
        assert await asyncio.to_thread(begun.wait, 30)
        consumer.pause(partition)
        go_on.set()
        assert await polling == []
        assert [view.compressed_bytes > 0 for view in seen] == [True]
        consumer.resume(partition)
        assert [len(record.value or b"") for record in await consumer.poll(timeout=30)] == [
            LARGE // 8
        ]
