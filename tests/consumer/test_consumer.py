"""Records that a consumer returns, and its positions."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.client.client import services_of
from kafka_async.client.connection import broker_connection
from kafka_async.client.connection.broker_connection import ConnectionKind
from kafka_async.consumer.buffer.fetch_buffer import FetchBuffer
from kafka_async.consumer.consumer import Consumer
from kafka_async.errors import (
    ClientClosedError,
    CorruptRecordError,
    IllegalStateError,
    InvalidConfigurationError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    ProtocolError,
    RecordDeserializationError,
    UnknownTopicOrPartitionError,
)
from kafka_async.foundation.clock import LoopClock
from kafka_async.hooks import Fetched, Hooks
from kafka_async.kernel import Record
from kafka_async.protocol.messages.fetch import FetchRequest
from kafka_async.protocol.messages.metadata import MetadataRequest
from kafka_async.records.batch import RecordBatch
from kafka_async.types import (
    Headers,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    ProducerRecord,
    TopicPartition,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from tests.consumer.conftest import Stage, StartStage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


async def read(consumer: Consumer, count: int) -> list[Record]:
    """Return `count` records, with as many polls as needed."""
    records: list[Record] = []
    while len(records) < count:
        more = await consumer.poll(max_records=count - len(records), timeout=30)
        assert more, f"only {len(records)} of {count} records came"
        records += more
    return records


def offsets(records: Iterable[Record]) -> list[int]:
    return [record.offset for record in records]


# -- polling --------------------------------------------------------------------------------------


async def test_reads_manual_partitions_in_order(stage: Stage) -> None:
    partitions = await stage.topic("t", 3, records=10)
    async with stage.consumer(partitions=partitions) as consumer:
        records = await read(consumer, 30)
        for partition in partitions:
            mine = [r for r in records if r.partition == partition.partition]
            assert offsets(mine) == list(range(10))
            assert [r.value for r in mine] == [str(n).encode() for n in range(10)]
        assert consumer.assignment() == set(partitions)


async def test_poll_returns_at_most_max_records(stage: Stage) -> None:
    async with stage.reader(records=10, max_poll_records=4) as (consumer, _):
        assert offsets(await consumer.poll()) == [0, 1, 2, 3]
        assert offsets(await consumer.poll(max_records=1)) == [4]
        assert offsets(await consumer.poll(max_records=100)) == [5, 6, 7, 8, 9]
        with pytest.raises(ValueError, match=r"max_records must be 1 to .*, not 0"):
            await consumer.poll(max_records=0)


async def test_poll_returns_empty_at_timeout(stage: Stage) -> None:
    async with stage.reader() as (consumer, _):
        before = asyncio.get_running_loop().time()
        assert await consumer.poll(timeout=7) == []
        assert asyncio.get_running_loop().time() == pytest.approx(before + 7)
        assert await consumer.poll(timeout=0) == []


async def test_poll_returns_records_that_arrive_while_it_waits(stage: Stage) -> None:
    async with stage.reader() as (consumer, partition):
        polling = asyncio.create_task(consumer.poll(timeout=None))
        await asyncio.sleep(100)
        assert not polling.done()
        stage.produce(partition, ["late"])
        assert [record.value for record in await polling] == [b"late"]


async def test_fetches_next_records_before_buffer_is_empty(stage: Stage) -> None:
    partitions = await stage.topic("t")
    for start in range(10, 100, 10):
        stage.produce(partitions[0], range(start, start + 10))
    async with stage.consumer(partitions=partitions) as consumer:
        (whole,) = await consumer.poll_batches()
    part = whole.size // 3
    hooks, sizes, arrived = Hooks(), list[int](), asyncio.Event()
    hooks.listen(Fetched, lambda event: sizes.append(event.size))
    hooks.listen(Fetched, lambda _: arrived.set())
    async with stage.consumer(
        partitions=partitions, max_partition_fetch_bytes=part, hooks=hooks
    ) as consumer:
        assert offsets(await consumer.poll(max_records=10)) == list(range(10))
        assert sizes == [part]
        arrived.clear()
        await arrived.wait()
        await asyncio.sleep(60)
        assert sizes == [part, part]  # at most what the buffer has room for
        assert offsets(await read(consumer, 80)) == list(range(10, 90))


async def test_full_partition_does_not_starve_others(stage: Stage) -> None:
    busy, idle = await stage.topic("t", 2)
    for start in range(0, 5000, 1000):
        stage.produce(busy, range(start, start + 1000))
    async with stage.consumer(
        partitions=[busy, idle], max_partition_fetch_bytes=1000, fetch_buffer_memory=4000
    ) as consumer:
        await read(consumer, 10)
        stage.produce(idle, ["here"])
        await asyncio.sleep(1)
        seen = [r.partition for _ in range(3) for r in await consumer.poll(max_records=500)]
        assert 1 in seen


async def test_stream_returns_records_one_by_one(stage: Stage) -> None:
    partitions = await stage.topic("t", 2, records=5)
    async with stage.consumer(partitions=partitions) as consumer:
        seen: list[tuple[int, int]] = []
        async for record in consumer:
            seen.append((record.partition, record.offset))
            if len(seen) == 10:
                break
        assert sorted(seen) == [(p, n) for p in range(2) for n in range(5)]
        assert [await consumer.position(p) for p in partitions] == [5, 5]


async def test_next_stream_continues_after_broken_off_one(stage: Stage) -> None:
    async with stage.reader(records=6) as (consumer, _):
        async for record in consumer:
            if record.offset == 2:
                break
        assert offsets(await consumer.poll()) == [3, 4, 5]
        await consumer.seek_to_beginning()
        assert (await anext(consumer)).offset == 0
        assert (await anext(consumer)).offset == 1
        assert offsets(await consumer.poll()) == [2, 3, 4, 5]


async def test_stream_ends_when_consumer_stops(stage: Stage) -> None:
    (partition,) = await stage.topic("t", 1, records=2)
    consumer = stage.consumer(partitions=[partition])
    await consumer.start()

    async def read_all() -> list[int]:
        return [record.offset async for record in consumer]

    reading = asyncio.create_task(read_all())
    await asyncio.sleep(1)
    await consumer.stop()
    assert await reading == [0, 1]


@pytest.mark.may_block  # pyarrow reads files when it is imported
async def test_poll_batches_returns_batches_as_written(stage: Stage) -> None:
    (partition,) = await stage.topic("t")
    stage.produce(partition, ["a", "b"])
    stage.produce(partition, ["c"])
    async with stage.consumer(partitions=[partition]) as consumer:
        (batch,) = await consumer.poll_batches()
        assert (batch.topic_partition, batch.start, batch.next_offset) == (partition, 0, 3)
        assert [record.value for record in batch.records()] == [b"a", b"b", b"c"]
        assert batch.to_arrow().column("value").to_pylist() == [b"a", b"b", b"c"]
        assert batch.to_arrow(start=1, end=2).column("offset").to_pylist() == [1]
        assert await consumer.position(partition) == 3
        assert await consumer.poll_batches(timeout=1) == []


async def test_poll_batches_continues_after_poll(stage: Stage) -> None:
    async with stage.reader(records=5) as (consumer, _):
        assert offsets(await consumer.poll(max_records=2)) == [0, 1]
        (batch,) = await consumer.poll_batches()
        assert offsets(batch.records()) == [2, 3, 4]


# -- one poll at a time ---------------------------------------------------------------------------


async def test_second_task_cannot_poll_at_the_same_time(stage: Stage) -> None:
    async with stage.reader() as (consumer, _):
        first = asyncio.create_task(consumer.poll(timeout=None))
        await asyncio.sleep(1)
        with pytest.raises(IllegalStateError, match="exclude each other"):
            await consumer.poll()
        with pytest.raises(IllegalStateError, match="exclude each other"):
            await anext(aiter(consumer))
        first.cancel()
        await asyncio.wait({first})
        assert await consumer.poll(timeout=0) == []


async def test_poll_during_stream_raises(stage: Stage) -> None:
    async with stage.reader(records=3) as (consumer, _):
        async for record in consumer:
            with pytest.raises(IllegalStateError, match="async for"):
                await consumer.poll()
            with pytest.raises(IllegalStateError, match="async for"):
                await consumer.poll_batches()
            with pytest.raises(IllegalStateError, match="async for"):
                aiter(consumer)
            if record.offset == 1:
                break
        assert offsets(await consumer.poll()) == [2]


async def test_calls_before_start_and_after_stop_raise(stage: Stage) -> None:
    (partition,) = await stage.topic("t")
    consumer = stage.consumer(partitions=[partition])
    with pytest.raises(ClientClosedError, match="not started"):
        await consumer.poll()
    async with consumer:
        pass
    with pytest.raises(ClientClosedError, match="closed"):
        await consumer.poll()
    with pytest.raises(ClientClosedError, match="closed"):
        consumer.seek(partition, 0)
    await consumer.stop()


async def test_warns_when_never_stopped(stage: Stage) -> None:
    consumer = stage.consumer(partitions=await stage.topic("t"))
    await consumer.start()
    with pytest.warns(ResourceWarning, match="never stopped"):
        consumer.__del__()
    await consumer.stop()


async def test_shared_client_is_not_closed(stage: Stage) -> None:
    partitions = await stage.topic("t", 1, records=1)
    for _ in range(2):
        async with Consumer(
            stage.shared_client, partitions=partitions, auto_offset_reset="earliest"
        ) as consumer:
            assert len(await consumer.poll()) == 1
    with pytest.raises(InvalidConfigurationError, match="belongs to the shared Client"):
        Consumer(stage.shared_client, client_id="other")


# -- positions ------------------------------------------------------------------------------------


async def test_seek_drops_fetched_records(stage: Stage) -> None:
    async with stage.reader(records=10) as (consumer, partition):
        assert offsets(await consumer.poll(max_records=3)) == [0, 1, 2]
        consumer.seek(partition, 8)
        assert await consumer.position(partition) == 8
        assert offsets(await consumer.poll()) == [8, 9]
        consumer.seek(partition, OffsetAndMetadata(1, 0))
        assert offsets(await consumer.poll(max_records=1)) == [1]
        await consumer.seek_to_end(partition)
        assert await consumer.position(partition) == 10
        with pytest.raises(ValueError, match="offset must be 0 to"):
            consumer.seek(partition, -1)
        with pytest.raises(IllegalStateError, match=r"t-7 .*: call assign\(\) with it"):
            consumer.seek(TopicPartition("t", 7), 0)


async def test_seek_before_assignment_says_how_to_wait_for_it(stage: Stage) -> None:
    await stage.topic("t")
    async with stage.consumer("t") as consumer:
        advice = r"t-0 .*: make this call in a callback of on_assigned, .*; another member may"
        with pytest.raises(IllegalStateError, match=advice):
            consumer.seek(TopicPartition("t", 0), 0)
        with pytest.raises(IllegalStateError, match=r"u-0 .*: call assign\(\) with it"):
            await consumer.position(TopicPartition("u", 0))


async def test_retains_read_batch_of_one_partition_only(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = await stage.topic("t", 3, records=1)
    released: list[TopicPartition] = []

    def note(buffer: FetchBuffer) -> None:
        released.append(buffer.partition)

    monkeypatch.setattr(FetchBuffer, "release_batch", note)
    async with stage.consumer(partitions=partitions) as consumer:
        read = [(await anext(consumer)) for _ in partitions]
    assert released == [TopicPartition("t", record.partition) for record in read[:-1]]


async def test_seek_during_stream_takes_effect_at_once(stage: Stage) -> None:
    async with stage.reader(records=10) as (consumer, partition):
        seen: list[int] = []
        async for record in consumer:
            seen.append(record.offset)
            if seen == [0, 1]:
                consumer.seek(partition, 8)
            if record.offset == 9:
                break
        assert seen == [0, 1, 8, 9]


async def test_response_to_fetch_before_seek_is_dropped(stage: Stage) -> None:
    slow = stage.cluster.faults.add(api="Fetch", hang=True)
    async with stage.reader(records=10) as (consumer, partition):
        await slow.wait()
        consumer.seek(partition, 5)
        slow.release()
        assert offsets(await consumer.poll(timeout=10)) == [5, 6, 7, 8, 9]


async def test_seeks_by_time(stage: Stage) -> None:
    (partition,) = await stage.topic("t")
    for second in (10, 20, 30):
        record = ProducerRecord("", b"v", timestamp=second * 1000)
        stage.append(partition, RecordBatch.build([record]).frame())
    async with stage.consumer(partitions=[partition]) as consumer:
        await consumer.seek_to_time(15)
        assert offsets(await consumer.poll()) == [1, 2]
        await consumer.seek_to_time({partition: datetime.fromtimestamp(30, UTC)})
        assert offsets(await consumer.poll()) == [2]
        await consumer.seek_to_time(31)
        assert await consumer.position(partition) == 3
        found = await consumer.offsets_for_times({partition: 11.0})
        assert found == {partition: OffsetAndTimestamp(1, 20_000, 0)}
        assert await consumer.offsets_for_times({partition: 99.0}) == {partition: None}
        assert await consumer.beginning_offsets([partition]) == {partition: 0}
        assert await consumer.end_offsets(partition) == {partition: 3}


@pytest.mark.parametrize(("policy", "seen"), [("earliest", [0, 1, 2]), ("latest", [])])
async def test_starts_by_auto_offset_reset_without_committed_offset(
    stage: Stage, policy: str, seen: list[int]
) -> None:
    async with stage.reader(records=3, auto_offset_reset=policy) as (consumer, partition):
        assert offsets(await consumer.poll(timeout=2)) == seen
        assert await consumer.position(partition) == 3


@pytest.mark.parametrize(
    ("policy", "seen"),
    [
        ("by_duration:PT1H", [2, 3, 4]),
        ("by_duration:PT10M", [4]),
        ("by_duration:P1D", [0, 1, 2, 3, 4]),
        ("by_duration:P999999D", [0, 1, 2, 3, 4]),  # from before 1970
        ("by_duration:PT0S", []),
    ],
)
async def test_reset_by_duration_starts_at_the_first_record_since_then(
    stage: Stage, policy: str, seen: list[int]
) -> None:
    (partition,) = await stage.topic("t")
    now = LoopClock(asyncio.get_running_loop()).wall()
    for minutes_ago in (120, 61, 59, 11, 9):
        record = ProducerRecord("", b"value")
        timestamp = round((now - 60 * minutes_ago) * 1000)
        stage.append(partition, RecordBatch.build([record], timestamp=timestamp).frame())
    async with stage.consumer(partitions=[partition], auto_offset_reset=policy) as consumer:
        assert offsets(await consumer.poll(timeout=2)) == seen
        consumer.seek(partition, 99)  # out of range: the policy applies again
        assert offsets(await consumer.poll(timeout=2)) == seen


async def test_raises_without_committed_offset_and_reset_policy(stage: Stage) -> None:
    async with stage.reader(records=3, auto_offset_reset="none") as (consumer, partition):
        for _ in range(2):
            with pytest.raises(NoOffsetForPartitionError, match="t-0"):
                await consumer.poll()
        with pytest.raises(NoOffsetForPartitionError):
            await consumer.position(partition)
        consumer.seek(partition, 1)
        assert offsets(await consumer.poll()) == [1, 2]


async def test_raises_offset_out_of_range_without_reset_policy(stage: Stage) -> None:
    async with stage.reader(records=3, auto_offset_reset="none") as (consumer, partition):
        consumer.seek(partition, 99)
        with pytest.raises(OffsetOutOfRangeError, match="t-0"):
            await consumer.poll()
        consumer.seek(partition, 2)
        assert offsets(await consumer.poll()) == [2]


def reset_warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert not [r for r in caplog.records if "starting at offset" in r.getMessage()]
    return [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]


async def test_logs_and_counts_reset_of_offset_out_of_range(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kafka_async.consumer")
    async with stage.reader(records=9) as (consumer, partition):
        consumer.seek(partition, 99)
        assert offsets(await consumer.poll()) == list(range(9))
        text = "t-0: offset 99 is out of range: continuing at offset 0 (auto_offset_reset=earliest)"
        assert reset_warnings(caplog) == [text]
        assert consumer.statistics().offset_reset_total == 1
        stage.partition("t").log.delete_records_before(4)
        consumer.seek(partition, 1)
        assert offsets(await consumer.poll()) == [4, 5, 6, 7, 8]
        assert reset_warnings(caplog)[1] == (
            "t-0: offset 1 is out of range: continuing at offset 4 (auto_offset_reset=earliest): "
            "3 offsets are skipped"
        )
        consumer.seek(partition, 99)
        consumer.seek(partition, 8)
        assert offsets(await consumer.poll()) == [8]
        assert consumer.statistics().offset_reset_total == 2


async def read_stream(consumer: Consumer, count: int) -> list[Record]:
    """Return `count` records of the stream that `anext` continues."""
    return [await anext(consumer) for _ in range(count)]


@pytest.mark.parametrize("read", [read, read_stream])
async def test_returns_fetched_records_before_offset_reset(
    stage: Stage,
    caplog: pytest.LogCaptureFixture,
    read: Callable[[Consumer, int], Awaitable[list[Record]]],
) -> None:
    """The records are in the buffer, or lent to a stream."""
    async with stage.reader(records=5) as (consumer, partition):
        fault = stage.cluster.faults.add(api="Fetch", error="OFFSET_OUT_OF_RANGE", skip=1)
        assert offsets(await read(consumer, 1)) == [0]
        await fault.wait()
        await asyncio.sleep(1)
        assert offsets(await read(consumer, 4)) == [1, 2, 3, 4]
        stage.produce(partition, ["next"])
        assert offsets(await read(consumer, 1)) == [5]
        assert consumer.statistics().offset_reset_total == 0
        assert [r for r in caplog.records if r.levelname == "WARNING"] == []


async def test_paused_partition_keeps_its_position(stage: Stage) -> None:
    first, second = await stage.topic("t", 2, records=4)
    async with stage.consumer(partitions=[first, second]) as consumer:
        consumer.pause(first)
        assert {r.partition for r in await read(consumer, 4)} == {1}
        assert consumer.paused() == {first}
        assert await consumer.poll(timeout=1) == []
        consumer.resume()
        assert offsets(await read(consumer, 4)) == [0, 1, 2, 3]


async def filled(stage: Stage, partition: TopicPartition) -> None:
    """Fill a partition with small batches, more than `HARDLY_ANY` has room for."""
    for number in range(150):
        stage.produce(partition, [number])


HARDLY_ANY = 60_000  # bytes of fetch_buffer_memory


async def test_buffer_of_paused_partition_does_not_block_others(stage: Stage) -> None:
    first, second = await stage.topic("t", 2)
    await filled(stage, first)
    async with stage.consumer(
        partitions=[first, second], fetch_buffer_memory=HARDLY_ANY
    ) as consumer:
        assert offsets(await consumer.poll(max_records=1, timeout=5)) == [0]
        await asyncio.sleep(1)
        stage.produce(second, ["x"])
        consumer.pause(first)
        assert [r.partition for r in await consumer.poll(timeout=5)] == [1]
        consumer.resume(first)
        assert offsets(await consumer.poll(max_records=3, timeout=5)) == [1, 2, 3]


async def test_pause_during_stream_puts_records_back(stage: Stage) -> None:
    first, second = await stage.topic("t", 2, records=3)
    async with stage.consumer(partitions=[first]) as consumer:
        seen: list[tuple[int, int]] = []
        async for record in consumer:
            seen.append((record.partition, record.offset))
            if len(seen) == 1:
                consumer.assign([first, second])
                consumer.pause(first)
            if seen[-1] == (1, 2):
                consumer.resume(first)
            if seen[-1] == (0, 2):
                break
        assert seen == [(0, 0), (1, 0), (1, 1), (1, 2), (0, 1), (0, 2)]


async def test_reads_all_partitions_and_new_ones_without_group(stage: Stage) -> None:
    await stage.topic("t", 2, records=1)
    async with stage.consumer(topics=["t"], metadata_max_age_ms=1000) as consumer:
        assert {r.partition for r in await read(consumer, 2)} == {0, 1}
        await stage.cluster.add_partitions("t", 3)
        await asyncio.sleep(2)
        assert TopicPartition("t", 2) in consumer.assignment()


# -- records that cannot be read ------------------------------------------------------------------


async def test_buffer_of_failed_partition_does_not_block_others(stage: Stage) -> None:
    first, second = await stage.topic("t", 2)
    stage.append(first, corrupted(["x"]))
    await filled(stage, first)
    async with stage.consumer(
        partitions=[first, second], fetch_buffer_memory=HARDLY_ANY
    ) as consumer:
        await asyncio.sleep(1)
        stage.produce(second, ["x"])
        for _ in range(2):  # alone in the queue it is polled once more
            with pytest.raises(CorruptRecordError):
                await consumer.poll(timeout=5)
            await asyncio.sleep(1)
        assert [r.partition for r in await consumer.poll(timeout=5)] == [1]


def corrupted(values: list[str]) -> bytes:
    """Return a batch with a valid CRC and invalid records."""
    whole = RecordBatch.build([ProducerRecord("", v.encode()) for v in values])
    broken = bytearray(whole.payload)
    broken[0] = 0xFF
    return RecordBatch(
        bytes(broken), whole.codec, whole.count, whole.base_timestamp, whole.max_timestamp
    ).frame()


def number(topic: str, headers: Headers, data: bytes | None) -> int:
    return int(data or b"0")


@pytest.mark.parametrize("way", ["poll", "stream"])
async def test_deserialization_error_has_raw_record_and_can_be_skipped(
    stage: Stage, way: str
) -> None:
    (partition,) = await stage.topic("t")
    stage.produce(partition, ["1", "x", "3"])

    async def some(consumer: Consumer) -> list[object]:
        if way == "poll":
            return [record.value for record in await consumer.poll()]
        return [(await anext(consumer)).value]

    async with stage.consumer(partitions=[partition], value_deserializer=number) as consumer:
        assert await some(consumer) == [1]
        for _ in range(2):
            with pytest.raises(RecordDeserializationError, match="go past") as caught:
                await some(consumer)
            raw = caught.value.record
            assert isinstance(raw, Record)
            assert raw == Record("t", 0, 1, 1_000, 0, None, b"x", (), 0)
            assert isinstance(caught.value.__cause__, ValueError)
        assert await consumer.position(partition) == 1
        consumer.seek(partition, 2)
        assert await some(consumer) == [3]


# -- broker failures ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        *("NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION", "FENCED_LEADER_EPOCH"),
        *("UNKNOWN_LEADER_EPOCH", "OFFSET_NOT_AVAILABLE", "KAFKA_STORAGE_ERROR"),
        *("REPLICA_NOT_AVAILABLE", "UNKNOWN_SERVER_ERROR", "UNKNOWN_TOPIC_ID"),
    ],
)
async def test_retries_fetch_after_retriable_errors(stage: Stage, error: str) -> None:
    fault = stage.cluster.faults.add(api="Fetch", topic="t", partition=0, error=error, count=2)
    async with stage.reader(records=3) as (consumer, _):
        assert offsets(await read(consumer, 3)) == [0, 1, 2]
    assert fault.hits == 2


async def test_backs_off_from_partition_that_keeps_failing(stage: Stage) -> None:
    fault = stage.cluster.faults.add(
        api="Fetch", topic="t", partition=0, error="OFFSET_NOT_AVAILABLE", count=None
    )
    pace = {"retry_backoff_ms": 100, "retry_backoff_max_ms": 1000}
    async with stage.reader(records=1, **pace) as (consumer, _):
        assert await consumer.poll(timeout=20) == []
        assert 18 <= fault.hits <= 30  # 200 without backoff
        fault.remove()
        assert len(await consumer.poll(timeout=2)) == 1


async def test_backoff_ends_when_timer_fires_early(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvloop's timers have millisecond resolution and may fire up to a millisecond early."""
    loop = asyncio.get_running_loop()
    call_at = loop.call_at

    def early(when: float, *call: Any, **options: Any) -> asyncio.TimerHandle:
        soon = when - loop.time() < 0.01
        return call_at(when if soon else when - 0.0009, *call, **options)

    monkeypatch.setattr(loop, "call_at", early)
    stage.cluster.faults.add(api="Fetch", topic="t", partition=0, error="OFFSET_NOT_AVAILABLE")
    async with stage.reader(records=1) as (consumer, _):
        assert len(await consumer.poll(timeout=2)) == 1


@pytest.mark.parametrize(
    "error",
    [
        *("FETCH_SESSION_ID_NOT_FOUND", "INVALID_FETCH_SESSION_EPOCH"),
        *("FETCH_SESSION_TOPIC_ID_ERROR", "UNKNOWN_SERVER_ERROR"),
    ],
)
async def test_reopens_lost_fetch_session(stage: Stage, error: str) -> None:
    async with stage.reader(records=1) as (consumer, partition):
        await read(consumer, 1)
        fault = stage.cluster.faults.add(api="Fetch", error=error)
        await fault.wait()
        stage.produce(partition, ["after"])
        assert [r.value for r in await read(consumer, 1)] == [b"after"]


@pytest.mark.parametrize("api", ["Fetch", "ListOffsets", "Metadata"])
@pytest.mark.parametrize("disconnect", ["before", "after"])
async def test_reconnects_after_lost_connections(stage: Stage, api: str, disconnect: str) -> None:
    async with stage.reader(records=3) as (consumer, _):
        stage.cluster.faults.add(api=api, disconnect=disconnect, count=2)  # type: ignore[arg-type]  # one of the two
        services_of(consumer.client).metadata.request_update()
        assert offsets(await read(consumer, 3)) == [0, 1, 2]


@pytest.mark.parametrize("disconnect", ["before", "after"])
async def test_end_offsets_are_retried_after_a_lost_connection(
    stage: Stage, disconnect: str
) -> None:
    async with stage.reader(records=3) as (consumer, partition):
        await read(consumer, 3)
        stage.cluster.faults.add(api="ListOffsets", disconnect=disconnect, count=2)  # type: ignore[arg-type]  # one of the two
        assert await consumer.end_offsets([partition]) == {partition: 3}


async def test_end_offsets_wait_for_a_new_partition(stage: Stage) -> None:
    async with stage.reader(records=3) as (consumer, partition):
        new = partition._replace(partition=1)
        reason = f"{new}: no such partition: the topic has 1 partition"
        with pytest.raises(KafkaTimeoutError, match=reason) as raised:
            await consumer.end_offsets([new], timeout=5)
        assert isinstance(raised.value.__cause__, UnknownTopicOrPartitionError)
        found = asyncio.create_task(consumer.end_offsets([new], timeout=60))
        await asyncio.sleep(10)
        assert not found.done()
        await stage.cluster.add_partitions(new.topic, 2)
        assert await found == {new: 0}


async def test_authorization_error_is_raised_and_fetch_retried(stage: Stage) -> None:
    stage.cluster.faults.add(
        api="Fetch", topic="t", partition=0, error="TOPIC_AUTHORIZATION_FAILED"
    )
    async with stage.reader(records=3) as (consumer, _):
        with pytest.raises(InvalidConfigurationError):
            await consumer.poll(timeout=10)
        assert offsets(await consumer.poll(timeout=10)) == [0, 1, 2]


# -- limits and statistics ------------------------------------------------------------------------


async def test_response_too_large_is_raised_and_fetch_retried(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(broker_connection.MAX_FRAME_SIZES, ConnectionKind.FETCH, 1000)
    async with stage.reader(records=1000) as (consumer, _):
        for _ in range(2):
            with pytest.raises(ProtocolError, match="raise max_partition_fetch_bytes") as caught:
                await consumer.poll(timeout=60)
            assert "a frame claims" in str(caught.value)
        monkeypatch.undo()
        assert offsets(await read(consumer, 1000)) == list(range(1000))


MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("options", "cap"),
    [
        ({}, 66 * MIB),
        ({"fetch_max_bytes": 1}, 16 * MIB + 1),
        ({"max_partition_fetch_bytes": 40 * MIB}, 90 * MIB),
        ({"fetch_max_bytes": 100 * MIB}, 100 * MIB),
    ],
)
async def test_response_may_exceed_fetch_max_bytes_by_one_batch(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], cap: int
) -> None:
    caps: list[int] = []
    made = broker_connection.Connection

    def record(*arguments: Any, max_frame_size: int, **rest: Any) -> Any:
        caps.append(max_frame_size)
        return made(*arguments, max_frame_size=max_frame_size, **rest)

    monkeypatch.setattr(broker_connection, "Connection", record)
    async with stage.reader(records=10, **options) as (consumer, _):
        assert offsets(await consumer.poll(timeout=60)) == list(range(10))
    assert caps[-1] == cap
    assert caps[0] == 16 * MIB


@pytest.mark.parametrize(
    ("fetch_max_bytes", "requested"), [(50 * MIB, 50 * MIB), (100 * MIB, 99 * MIB)]
)
async def test_fetch_requests_less_than_largest_frame(
    stage: Stage, fetch_max_bytes: int, requested: int
) -> None:
    """The response has other fields than the records, and must fit into a frame of 100 MiB."""
    options = {"fetch_max_bytes": fetch_max_bytes, "fetch_buffer_memory": 512 * MIB}
    async with stage.reader(records=1, **options) as (consumer, _):
        assert await consumer.poll(timeout=10)
    assert stage.requests(FetchRequest)[0].max_bytes == requested


async def test_reads_batch_above_fetch_max_bytes(stage: Stage) -> None:
    (partition,) = await stage.topic("t")
    value = bytes(900_000)
    stage.produce(partition, [value])
    async with stage.consumer(
        partitions=[partition], fetch_max_bytes=1, max_partition_fetch_bytes=1
    ) as consumer:
        (record,) = await consumer.poll(timeout=60)
        assert record.value == value


async def test_permanent_connection_error_is_raised_by_poll(
    start_stage: StartStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = await start_stage(2)
    partitions = await stage.topic("t", 2, records=10)
    forbidden = InvalidConfigurationError("allowed_broker_hosts does not permit it")
    connect = broker_connection.BrokerConnection.connect

    async def refuse(self: broker_connection.BrokerConnection, timeout: float) -> None:
        if self.kind is ConnectionKind.FETCH and self.node_id == 2:
            raise forbidden
        await connect(self, timeout)

    monkeypatch.setattr(broker_connection.BrokerConnection, "connect", refuse)
    async with stage.consumer(partitions=partitions) as consumer:
        raised: list[Exception] = []
        seen: list[int] = []

        async def poll() -> None:
            try:
                seen.extend(offsets(await consumer.poll(timeout=1)))
            except InvalidConfigurationError as error:
                raised.append(error)

        for _ in range(20):
            await poll()
        assert len(raised) > 1
        assert set(raised) == {forbidden}
        assert seen == list(range(10))  # the other broker's
        monkeypatch.undo()
        while len(seen) < 20:
            await poll()
        assert seen == [*range(10), *range(10)]


async def test_statistics_count_records_fetches_and_commits(stage: Stage) -> None:
    async with stage.reader(records=10) as (consumer, partition):
        await consumer.poll(max_records=4)
        figures = consumer.statistics()
        assert figures.records_consumed_total == 4
        assert figures.records_lag == {partition: 6}
        assert figures.records_lag_max == 6
        assert figures.assigned_partitions == 1
        assert figures.bytes_consumed_total > 0
        assert await consumer.topics() == {"t"}
        assert await consumer.partitions_for("t") == [0]


async def test_statistics_have_the_throttle_time_of_fetches(stage: Stage) -> None:
    (partition,) = await stage.topic("clicks", records=1)
    stage.cluster.faults.add(api="Fetch", throttle=0.3, skip=1)
    async with stage.consumer("clicks") as consumer:
        await consumer.poll(timeout=5)
        while consumer.statistics().fetch_total < 2:
            stage.produce(partition, ["later"])
            await consumer.poll(timeout=5)
        statistics = consumer.statistics()
        assert statistics.fetch_throttle_time_max == 300
        assert statistics.fetch_throttle_time_avg == 300 / statistics.fetch_total


async def test_partitions_for_an_unknown_topic_raises_after_one_response(stage: Stage) -> None:
    async with stage.consumer() as consumer:
        with pytest.raises(UnknownTopicOrPartitionError, match="missing: the topic does not exist"):
            await consumer.partitions_for("missing")
        assert len([each for each in stage.requests(MetadataRequest) if each.topics]) == 1
        await stage.cluster.create_topic("missing", 2)
        assert await consumer.partitions_for("missing") == [0, 1]
