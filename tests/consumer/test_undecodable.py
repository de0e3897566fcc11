"""Records that cannot be read, in `Consumer.process` and `partition_streams`."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.consumer.consumer import RebalanceListener
from kafka_async.errors import (
    CorruptRecordError,
    IllegalStateError,
    InvalidConfigurationError,
    KafkaTimeoutError,
    RecordDeserializationError,
)
from kafka_async.records.batch import RecordBatch
from kafka_async.types import ProducerRecord, TopicPartition
from tests.embedded_client import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine

    from kafka_async.consumer.consumer import Consumer
    from kafka_async.consumer.delivery.undecodable import OnUndecodable
    from kafka_async.kernel import Record
    from tests.consumer.conftest import Stage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

OPTIONS: dict[str, Any] = {
    "enable_auto_commit": True,
    "auto_commit_interval_ms": 1000,
    "value_deserializer": int,
}
BAD = 5
"""Offset of the record that cannot be deserialized."""


class Handler:
    """Records the offsets that it handles, each once `release` is set."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.done: list[int] = []
        self.release = asyncio.Event()

    async def __call__(self, record: Record[Any, Any]) -> None:
        self.begun.append(record.offset)
        await self.release.wait()
        self.done.append(record.offset)


def committed(stage: Stage, partition: TopicPartition) -> int | None:
    found = stage.cluster.groups.offsets.committed("g").get(partition)
    return None if found is None else found.offset


@asynccontextmanager
async def poisoned(stage: Stage, **options: Any) -> AsyncGenerator[tuple[Consumer, TopicPartition]]:
    """Start a member whose partition has ten records, one of which is not a number."""
    async with stage.member(**OPTIONS | options) as (consumer, partition):
        values = [b"%d" % number for number in range(10)]
        values[BAD] = b"no number"
        stage.produce(partition, values)
        yield consumer, partition


def in_process(
    consumer: Consumer, handler: Handler, on_undecodable: OnUndecodable
) -> Coroutine[Any, Any, None]:
    return consumer.process(handler, concurrency=20, on_undecodable=on_undecodable)


async def in_streams(consumer: Consumer, handler: Handler, on_undecodable: OnUndecodable) -> None:
    async def read(stream: Any) -> None:
        async for record in stream:
            await handler(record)

    async with consumer.partition_streams(on_undecodable=on_undecodable) as streams:
        async for stream in streams:
            stream.start_soon(read, stream)


both = pytest.mark.parametrize("read", [in_process, in_streams])


@both
async def test_raises_after_all_records_before_are_done_so_that_a_seek_loses_none(
    stage: Stage, read: Any
) -> None:
    async with poisoned(stage) as (consumer, partition):
        handler = Handler()
        reading = asyncio.create_task(read(consumer, handler, "raise"))
        await until(lambda: bool(handler.begun))
        await asyncio.sleep(5)
        assert not reading.done()  # It waits for the handlers.
        assert committed(stage, partition) == 0
        handler.release.set()
        with pytest.raises(RecordDeserializationError, match="on_undecodable") as raised:
            await reading
        assert raised.value.offset == BAD
        assert sorted(handler.done) == list(range(BAD))
        await asyncio.sleep(5)
        assert committed(stage, partition) == await consumer.position(partition) == BAD
        consumer.seek(partition, BAD + 1)
        reading = asyncio.create_task(read(consumer, handler, "raise"))
        await asyncio.sleep(5)
        assert sorted(handler.done) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
        assert committed(stage, partition) == 10
        await consumer.stop()
        await reading


@both
async def test_raises_the_same_record_again_without_a_seek(stage: Stage, read: Any) -> None:
    async with poisoned(stage) as (consumer, _):
        handler = Handler()
        handler.release.set()
        for _ in range(2):
            with pytest.raises(RecordDeserializationError):
                await read(consumer, handler, "raise")
        assert handler.done == list(range(BAD))


@pytest.mark.parametrize("records_before", [0, 3])
@pytest.mark.parametrize("tasks", ["none", "returned"])
async def test_is_raised_although_the_application_does_not_read_the_stream(
    stage: Stage, records_before: int, tasks: str
) -> None:
    async def return_at_once() -> None:
        pass

    async def run() -> None:
        async with consumer.partition_streams() as streams:
            async for stream in streams:
                if tasks == "returned":
                    stream.start_soon(return_at_once)

    async with stage.member(records_before, **OPTIONS) as (consumer, partition):
        stage.produce(partition, [b"no number"])
        with pytest.raises(RecordDeserializationError):
            await asyncio.wait_for(run(), 60)
        assert await consumer.position(partition) == 0
        await asyncio.sleep(5)
        assert committed(stage, partition) in (None, 0)


@pytest.mark.parametrize("reads_in_task", [True, False])
async def test_waits_for_a_slow_reader_that_began_before_the_next_stream_was_requested(
    stage: Stage, reads_in_task: bool
) -> None:
    seen: list[int] = []

    async def read(stream: Any) -> None:
        async for record in stream:
            seen.append(record.offset)  # kept when the stream ends with an error
            await asyncio.sleep(5)

    async def run() -> None:
        async with consumer.partition_streams() as streams:
            async for stream in streams:
                await asyncio.sleep(5)
                if reads_in_task:
                    stream.start_soon(read, stream)
                else:
                    await read(stream)

    async with poisoned(stage) as (consumer, _):
        with pytest.raises(RecordDeserializationError):
            await asyncio.wait_for(run(), 60)
    assert seen == list(range(BAD))


async def test_no_commit_passes_records_that_a_revocation_has_dropped_before_the_error(
    stage: Stage,
) -> None:
    """The application seeks past the error as soon as that is raised, while it may."""
    handler = Handler()

    async def read(consumer: Consumer) -> None:
        while True:
            try:
                await consumer.process(handler, concurrency=1)
            except RecordDeserializationError:
                if partition in consumer.assignment():
                    consumer.seek(partition, BAD + 1)
            except IllegalStateError:  # It has no subscription any more.
                return
            else:
                return

    class Listener(RebalanceListener):
        async def on_revoked(self, partitions: Any) -> None:
            await asyncio.sleep(1)
            await consumer.commit()

    async with poisoned(stage, listener=Listener()) as (consumer, partition):
        reading = asyncio.create_task(read(consumer))
        await until(lambda: bool(handler.begun))
        await asyncio.sleep(1)
        leaving = asyncio.create_task(consumer.unsubscribe())
        await asyncio.sleep(1)
        handler.release.set()
        await leaving
        assert handler.done == [0]
        assert committed(stage, partition) == 1
        await consumer.stop()
        await reading


@both
async def test_skips_with_a_warning_and_a_count(
    stage: Stage, read: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with poisoned(stage) as (consumer, partition):
        handler = Handler()
        handler.release.set()
        with caplog.at_level(logging.WARNING, "kafka_async.consumer"):
            reading = asyncio.create_task(read(consumer, handler, "skip"))
            await asyncio.sleep(5)
        [warning] = [row.getMessage() for row in caplog.records if "skipped" in row.getMessage()]
        assert warning.startswith("t-0 at offset 5 is skipped: ValueError(")
        assert "to go past" not in warning
        assert handler.done == [0, 1, 2, 3, 4, 6, 7, 8, 9]
        assert consumer.statistics().records_undecodable_total == 1
        assert committed(stage, partition) == 10
        await consumer.stop()
        await reading


@both
async def test_function_gets_the_raw_record_and_is_committed_once_it_returns(
    stage: Stage, read: Any
) -> None:
    given: list[Any] = []
    stored = asyncio.Event()

    async def store(error: RecordDeserializationError) -> None:
        given.append(error.record)
        await stored.wait()

    async with poisoned(stage) as (consumer, partition):
        handler = Handler()
        handler.release.set()
        reading = asyncio.create_task(read(consumer, handler, store))
        await asyncio.sleep(5)
        assert [record.value for record in given] == [b"no number"]
        assert committed(stage, partition) == BAD
        assert consumer.health().lag == {partition: 5}
        stored.set()
        await asyncio.sleep(5)
        assert handler.done == [0, 1, 2, 3, 4, 6, 7, 8, 9]
        assert committed(stage, partition) == 10
        assert consumer.statistics().records_undecodable_total == 1
        await consumer.stop()
        await reading


@both
async def test_exception_of_the_function_is_raised_and_the_record_read_again(
    stage: Stage, read: Any
) -> None:
    async def fail(error: RecordDeserializationError) -> None:
        raise LookupError("no dead letter topic")

    async with poisoned(stage) as (consumer, partition):
        handler = Handler()
        handler.release.set()
        for calls in (1, 2):
            with pytest.raises(LookupError):
                await read(consumer, handler, fail)
            assert consumer.statistics().records_undecodable_total == calls
        await asyncio.sleep(5)
        assert committed(stage, partition) == BAD


async def test_function_is_called_in_the_order_of_its_key(stage: Stage) -> None:
    order: list[int] = []

    async def handle(record: Record[Any, Any]) -> None:
        await asyncio.sleep(1)
        order.append(record.offset)

    async def store(error: RecordDeserializationError) -> None:
        order.append(error.offset or 0)

    async with stage.member(**OPTIONS) as (consumer, partition):
        rows = [ProducerRecord("", value, key=b"k") for value in (b"0", b"bad", b"2")]
        stage.append(partition, RecordBatch.build(rows, timestamp=1_000).frame())
        reading = asyncio.create_task(consumer.process(handle, concurrency=5, on_undecodable=store))
        await until(lambda: len(order) == 3)
        assert order == [0, 1, 2]
        await consumer.stop()
        await reading


@both
async def test_corrupt_batch_is_raised_after_all_records_before_are_done(
    stage: Stage, read: Any
) -> None:
    async with stage.member(5, **OPTIONS) as (consumer, partition):
        frame = bytearray(RecordBatch.build([ProducerRecord("", b"5")]).frame())
        frame[-1] ^= 1
        stage.append(partition, bytes(frame))
        handler = Handler()
        reading = asyncio.create_task(read(consumer, handler, "raise"))
        await until(lambda: bool(handler.begun))
        await asyncio.sleep(5)
        assert not reading.done()
        handler.release.set()
        with pytest.raises(CorruptRecordError):
            await reading
        assert sorted(handler.done) == list(range(5))


@both
async def test_other_partitions_lose_nothing_either(stage: Stage, read: Any) -> None:
    bad, good = await stage.topic("t", 2)
    stage.produce(bad, [b"0", b"x", b"2"])
    stage.produce(good, range(50))
    handled: set[tuple[int, int]] = set()
    handler = Handler()
    handler.release.set()

    class Note(Handler):
        async def __call__(self, record: Record[Any, Any]) -> None:
            handled.add((record.partition, record.offset))

    async with stage.consumer("t", **OPTIONS) as consumer:
        with pytest.raises(RecordDeserializationError):
            await read(consumer, Note(), "raise")
        consumer.seek(bad, 2)
        reading = asyncio.create_task(read(consumer, Note(), "raise"))
        await asyncio.sleep(5)
        assert handled == {(0, 0), (0, 2), *((1, offset) for offset in range(50))}
        assert (committed(stage, bad), committed(stage, good)) == (3, 50)
        await consumer.stop()
        await reading


@both
async def test_deserializer_that_returns_a_coroutine_is_named(stage: Stage, read: Any) -> None:
    async def decode(data: bytes) -> int:
        return int(data)

    def call_async(data: bytes) -> Any:
        return decode(data)

    options: dict[str, Any] = OPTIONS | {"value_deserializer": call_async}
    async with stage.member(1, **options) as (consumer, _):
        for call in (consumer.poll(), read(consumer, Handler(), "skip"), anext(consumer)):
            with pytest.raises(
                InvalidConfigurationError, match="value_deserializer returned a coroutine"
            ):
                await call


async def test_unknown_value_is_refused(stage: Stage) -> None:
    wrong: Any = "drop"
    async with stage.member(1) as (consumer, _):
        with pytest.raises(ValueError, match="on_undecodable must be"):
            await consumer.process(Handler(), concurrency=1, on_undecodable=wrong)
        with pytest.raises(ValueError, match="on_undecodable must be"):
            consumer.partition_streams(on_undecodable=wrong)


async def test_keys_are_ordered_by_their_bytes(stage: Stage) -> None:
    running: set[int] = set()
    together: list[set[int]] = []

    async def handle(record: Record[Any, Any]) -> None:
        running.add(record.offset)
        together.append(set(running))
        await asyncio.sleep(1)
        running.remove(record.offset)

    def to_list(data: bytes) -> Any:
        return [data]  # It does not hash.

    options: dict[str, Any] = OPTIONS | {"key_deserializer": to_list}
    async with stage.member(**options) as (consumer, partition):
        rows = [ProducerRecord("", b"0", key=key) for key in (b"a", b"a", b"b")]
        stage.append(partition, RecordBatch.build(rows, timestamp=1_000).frame())
        reading = asyncio.create_task(consumer.process(handle, concurrency=5))
        await until(lambda: len(together) == 3)
        assert together == [{0}, {0, 2}, {1}]
        await consumer.stop()
        await reading


async def test_handler_timeout_names_the_record_which_is_read_again(stage: Stage) -> None:
    begun: list[int] = []

    async def handle(record: Record[Any, Any]) -> None:
        begun.append(record.offset)
        if record.offset == 2:
            await asyncio.sleep(3600)

    async with stage.member(4, **OPTIONS) as (consumer, partition):
        for _ in range(2):
            with pytest.raises(
                KafkaTimeoutError, match=r"t-0 at offset 2: .* within 30 s"
            ) as raised:
                await consumer.process(
                    handle, concurrency=1, ordering="partition", handler_timeout=30
                )
            assert (raised.value.partition, raised.value.offset) == (0, 2)
            await asyncio.sleep(2)
            assert committed(stage, partition) == 2
    assert begun == [0, 1, 2, 2]


@both
async def test_health_shows_what_is_not_done(stage: Stage, read: Any) -> None:
    async with stage.member(10, **OPTIONS) as (consumer, partition):
        handler = Handler()
        reading = asyncio.create_task(read(consumer, handler, "raise"))
        await until(lambda: bool(handler.begun))
        await asyncio.sleep(60)
        health = consumer.health()
        assert health.lag == health.in_progress == {partition: 10}
        assert consumer.statistics().records_lag == {partition: 10}
        assert health.oldest_unfinished_s[partition] == pytest.approx(60, abs=1)
        handler.release.set()
        await asyncio.sleep(1)
        health = consumer.health()
        assert health.lag == {partition: 0}
        assert health.in_progress == health.oldest_unfinished_s == {}
        await consumer.stop()
        await reading


@both
async def test_health_forgets_handlers_that_were_cancelled(stage: Stage, read: Any) -> None:
    async with stage.member(10, **OPTIONS) as (consumer, _):
        handler = Handler()
        reading = asyncio.create_task(read(consumer, handler, "raise"))
        await until(lambda: bool(handler.begun))
        reading.cancel()
        await asyncio.wait({reading})
        health = consumer.health()
        assert health.in_progress == health.oldest_unfinished_s == {}


@both
@pytest.mark.parametrize("target", [8, 10, 3])
async def test_seek_commits_nothing_that_a_handler_has_not_done(
    stage: Stage, read: Any, target: int
) -> None:
    async with stage.member(10, **OPTIONS) as (consumer, partition):
        handler = Handler()
        reading = asyncio.create_task(read(consumer, handler, "raise"))
        await until(lambda: bool(handler.begun))
        consumer.seek(partition, target)
        await asyncio.sleep(5)
        assert committed(stage, partition) == 0
        handler.release.set()
        await asyncio.sleep(5)
        assert committed(stage, partition) == await consumer.position(partition) == 10
        assert consumer.health().in_progress == {}
        assert set(range(target, 10)) <= set(handler.done)
        await consumer.stop()
        await reading
