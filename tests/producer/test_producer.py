"""Appending records, and starting and stopping a producer, on an embedded cluster."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import Producer, ProducerRecord, RecordBatch, TopicPartition
from kafka_async.client.client import services_of
from kafka_async.errors import (
    BufferFullError,
    ClientClosedError,
    DeliveryError,
    IllegalStateError,
    InvalidConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    SerializationError,
    UnknownTopicOrPartitionError,
)
from kafka_async.hooks import BatchAcknowledged, BatchClosed, BatchFailed, ClientEvent, RequestSent
from kafka_async.protocol.messages.metadata import MetadataRequest
from kafka_async.protocol.messages.produce import ProduceRequest
from tests.embedded_client import InMemory, now, settle
from tests.producer.bench import Bench

if TYPE_CHECKING:
    from kafka_async.embedded.faults import Fault

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

TOPICS = {"clicks": [1]}
KIB = 1024


# -- what is taken --------------------------------------------------------------------------------


async def test_create_time_is_the_time_of_the_client_clock(bench: Bench) -> None:
    for _ in range(3):
        before = int(services_of(bench.producer.client).clock.wall() * 1000)
        receipt = await bench.producer.send("clicks", b"v")
        assert abs(receipt.timestamp - before) <= 2
        await asyncio.sleep(100)


async def test_arguments_by_position_are_in_the_order_of_aiokafka() -> None:
    async with Bench({"clicks": [1, 1]}) as bench:
        producer = bench.producer
        given = (b"value", b"key", 1, 77, [("h", b"x")])
        receipts = [
            await producer.send("clicks", *given),
            await (await producer.enqueue("clicks", *given)),
            await producer.enqueue_nowait("clicks", *given),
        ]
        assert [(r.partition, r.timestamp) for r in receipts] == [(1, 77)] * 3
        written = [(row.key, row.value, row.headers) for row in bench.records("clicks", 1)]
        assert written == [(b"key", b"value", (("h", b"x"),))] * 3


@pytest.mark.parametrize(
    ("timestamp", "kind", "message"),
    [
        (-2, ValueError, "timestamp"),
        (1 << 63, ValueError, "timestamp"),
        (1_700_000_000.5, TypeError, "whole milliseconds since the epoch.*float: 17000000"),
    ],
)
async def test_refuses_an_unusable_timestamp(
    bench: Bench, timestamp: Any, kind: type[Exception], message: str
) -> None:
    for _ in range(2):  # before and after a batch is open
        with pytest.raises(kind, match=message):
            await bench.producer.enqueue("clicks", b"v", timestamp=timestamp)
        await bench.producer.enqueue("clicks", b"v", timestamp=1)


async def test_send_many_keeps_order() -> None:
    async with Bench(TOPICS, linger_ms=5) as bench:
        values = [b"%d" % n for n in range(30_000)]
        deliveries = await bench.producer.send_many("clicks", values)
        await bench.producer.flush()
        assert bench.values("clicks") == values
        assert [delivery.result().offset for delivery in deliveries] == list(range(30_000))


async def test_send_many_writes_each_value_with_its_key() -> None:
    async with Bench({"clicks": [1, 2]}) as bench:
        keys = [b"a", b"b", None, b"d"]
        deliveries = await bench.producer.send_many("clicks", [b"1", b"2", b"3", b"4"], keys)
        receipts = [await delivery for delivery in deliveries]
        written = [
            bench.records("clicks", receipt.partition)[receipt.offset] for receipt in receipts
        ]
        assert [(row.key, row.value) for row in written] == list(
            zip(keys, [b"1", b"2", b"3", b"4"], strict=True)
        )
        with pytest.raises(ValueError, match="3 keys for 4 values"):
            await bench.producer.send_many("clicks", [b""] * 4, [b""] * 3)


async def test_send_records_writes_to_several_topics() -> None:
    async with Bench({"clicks": [1], "audit": [2]}) as bench:
        records = [
            ProducerRecord("clicks", b"1", key=b"k", headers=[("h", None)]),
            ProducerRecord("audit", b"2", partition=0, timestamp=77),
        ]
        first, second = await bench.producer.send_records(records)
        assert (await first).topic == "clicks"
        assert (await second).timestamp == 77


async def test_ready_made_batch_keeps_its_position_among_records() -> None:
    async with Bench(TOPICS, linger_ms=1000) as bench:
        await bench.producer.send("clicks", b"0")
        await bench.producer.enqueue("clicks", b"1")
        batch = RecordBatch.build([ProducerRecord("", b"2"), ProducerRecord("", b"3")], "lz4")
        delivery = await bench.producer.send_batch(TopicPartition("clicks", 0), batch)
        await bench.producer.enqueue("clicks", b"4")
        assert (await delivery).offset == 2
        await bench.producer.flush()
        assert bench.values("clicks") == [b"0", b"1", b"2", b"3", b"4"]


async def test_serializes_keys_and_values() -> None:
    seen: list[tuple[str, Any, Any]] = []

    def serialize(topic: str, headers: Any, value: str | None) -> bytes | None:
        seen.append((topic, headers, value))
        return None if value is None else value.encode()

    async with Bench(TOPICS, key_serializer=serialize, value_serializer=serialize) as bench:
        producer: Producer[Any, Any] = bench.producer
        receipt = await producer.send("clicks", "värde", key="nyckel", headers=[("h", b"1")])
        (written,) = bench.records("clicks", receipt.partition)
        assert (written.key, written.value) == (b"nyckel", "värde".encode())
        assert [value for _, _, value in seen] == ["nyckel", "värde"]


async def test_enqueue_raises_the_error_of_a_serializer() -> None:
    def refuse(*_: object) -> bytes:
        raise LookupError("no schema")

    async with Bench(TOPICS, value_serializer=refuse) as bench:
        with pytest.raises(SerializationError, match="value's serializer") as caught:
            await bench.producer.enqueue("clicks", b"v")
        assert isinstance(caught.value.__cause__, LookupError)


async def test_calls_custom_partitioner_once_per_record() -> None:
    calls: list[tuple[str, bytes | None, int]] = []

    def partitioner(topic: str, key: bytes | None, partitions: int) -> int:
        calls.append((topic, key, partitions))
        return 1

    async with Bench({"clicks": [1, 1]}, partitioner=partitioner) as bench:
        for number in range(5):
            assert (await bench.producer.send("clicks", b"v", key=b"%d" % number)).partition == 1
        assert calls == [("clicks", b"%d" % number, 2) for number in range(5)]


async def test_refuses_partition_out_of_range_from_partitioner() -> None:
    def wrong(*_: object) -> int:
        return 99

    async with Bench(TOPICS, partitioner=wrong) as bench:
        for call in (bench.producer.send, bench.producer.enqueue):
            with pytest.raises(InvalidConfigurationError, match="chose 99"):
                await call("clicks", b"v")
        await bench.producer.flush()


@pytest.mark.parametrize("size", [200, 100_000])
async def test_enqueue_refuses_record_over_max_request_size(size: int) -> None:
    async with Bench(TOPICS, max_request_size=size) as bench:
        with pytest.raises(RecordTooLargeError, match=f"max_request_size={size}"):
            await bench.producer.enqueue("clicks", b"x" * size)
        await bench.producer.send("clicks", b"x" * (size // 3))


async def test_sends_record_larger_than_batch_size_alone() -> None:
    async with Bench(TOPICS, batch_size=1000, linger_ms=50) as bench:
        for value in (b"a", b"b" * 50_000, b"c"):
            await bench.producer.enqueue("clicks", value)
        await bench.producer.flush()
        assert [len(value or b"") for value in bench.values("clicks")] == [1, 50_000, 1]


async def test_batches_stay_within_batch_size() -> None:
    async with Bench(TOPICS, batch_size=10 * KIB, linger_ms=50) as bench:
        await bench.producer.send_many("clicks", [b"x" * 100] * 2000)
        await bench.producer.flush()
        sizes = [batch.raw.nbytes for batch in bench.batches("clicks")]
        assert max(sizes) <= 10 * KIB + 61
        assert len(sizes) < 30


async def test_batch_size_0_makes_one_batch_per_record() -> None:
    async with Bench(TOPICS, batch_size=0) as bench:
        await bench.producer.send_many("clicks", [b"x"] * 10)
        await bench.producer.flush()
        batches = bench.batches("clicks")
        assert [batch.is_transactional for batch in batches] == [False] * 10


@pytest.mark.parametrize("bad", ["text", 7, object()])
async def test_refuses_values_that_are_not_bytes(bench: Bench, bad: Any) -> None:
    await bench.producer.send("clicks", b"v")
    with pytest.raises(TypeError, match="value must be bytes or None"):
        await bench.producer.enqueue("clicks", bad)
    with pytest.raises(TypeError, match="key must be bytes or None"):
        await bench.producer.enqueue("clicks", b"v", key=bad)
    with pytest.raises(TypeError, match="a topic's name must be str"):
        await bench.producer.enqueue(b"clicks", b"v")  # type: ignore[arg-type]
    for headers in ({"a": b"1"}, [("a", "1")], [b"a"], [("a", b"1", b"2")], 5):
        with pytest.raises(TypeError, match=r"headers? must be"):
            await bench.producer.enqueue("clicks", b"v", headers=headers)  # type: ignore[arg-type]
    await bench.producer.flush()
    assert bench.values("clicks") == [b"v"]
    assert bench.memory_in_use == 0


# -- memory ---------------------------------------------------------------------------------------


async def fill_buffer(bench: Bench) -> Fault:
    """Fill the buffer with records to which the broker does not respond yet."""
    await bench.producer.send("clicks", b"warm-up")
    hold = bench.hold()
    enqueue_until_full(bench, "clicks")
    return hold


def enqueue_until_full(bench: Bench, topic: str) -> int:
    """Enqueue until the buffer is full, and return the number of records."""
    for count in range(10_000):
        try:
            bench.producer.enqueue_nowait(topic, b"x" * KIB)
        except BufferFullError:
            return count
    raise AssertionError("the buffer is never full")


async def test_enqueue_waits_while_the_buffer_is_full() -> None:
    async with Bench(TOPICS, buffer_memory=64 * KIB) as bench:
        hold = await fill_buffer(bench)
        task = asyncio.ensure_future(bench.producer.enqueue("clicks", b"x" * KIB))
        await asyncio.sleep(1)
        assert not task.done()
        assert bench.producer.statistics().waiting_threads == 1
        hold.release()
        delivery = await task
        assert (await delivery).offset > 0
        await bench.producer.flush()
        assert bench.memory_in_use == 0


async def test_enqueue_raises_after_max_block_ms() -> None:
    async with Bench(TOPICS, buffer_memory=64 * KIB, max_block_ms=3_000) as bench:
        hold = await fill_buffer(bench)
        began = now()
        with pytest.raises(KafkaTimeoutError, match="buffer_memory"):
            await bench.producer.enqueue("clicks", b"x" * KIB)
        assert now() - began == pytest.approx(3, abs=0.01)
        hold.release()


async def test_cancelling_send_does_not_withdraw_the_record(bench: Bench) -> None:
    hold = bench.hold()
    task = asyncio.ensure_future(bench.producer.send("clicks", b"v"))
    await settle()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    hold.release()
    await bench.producer.flush()
    assert bench.values("clicks") == [b"v"]


async def test_partition_without_leader_leaves_memory_for_others() -> None:
    async with Bench({"stuck": [-1], "clicks": [1]}, buffer_memory=64 * KIB) as bench:
        await bench.producer.send("clicks", b"v")
        enqueue_until_full(bench, "stuck")
        for _ in range(200):
            await bench.producer.send("clicks", b"x" * KIB)


async def test_records_of_an_unknown_topic_count_against_buffer_memory() -> None:
    async with Bench({"clicks": [1]}, buffer_memory=64 * KIB) as bench:
        assert 15 < enqueue_until_full(bench, "unknown") < 20
        await bench.producer.send("clicks", b"v")


# -- life -----------------------------------------------------------------------------------------


async def test_calls_before_start_raise_client_closed() -> None:
    producer = Producer("127.0.0.1:1")
    with pytest.raises(ClientClosedError, match="was not started"):
        await producer.enqueue("clicks", b"v")
    with pytest.raises(ClientClosedError, match="was not started"):
        producer.enqueue_nowait("clicks", b"v")
    with pytest.raises(ClientClosedError, match="was not started"):
        await producer.send("clicks", b"v")
    with pytest.raises(ClientClosedError, match="was not started"):
        await producer.flush()
    await producer.stop()


async def test_calls_after_stop_raise_and_connections_are_closed(bench: Bench) -> None:
    await bench.producer.send("clicks", b"v")
    await bench.producer.stop()
    await bench.producer.stop()
    for call in (bench.producer.enqueue("clicks", b"v"), bench.producer.flush()):
        with pytest.raises(ClientClosedError):
            await call
    await settle()
    assert await bench.cluster.disconnect() == 0, "a connection is open"


async def test_stop_does_not_close_a_shared_client() -> None:
    async with InMemory() as memory, memory.client() as client:
        await memory.cluster.create_topic("clicks")
        connections = memory.cluster.brokers[1].connections
        before = len(connections)
        producer = Producer(client)
        await producer.start()
        await producer.send("clicks", b"v")
        assert len(connections) == before + 1
        await services_of(client).metadata.refresh()
        assert [topic.name for topic in memory.requests(MetadataRequest)[-1].topics] == ["clicks"]
        await producer.stop()
        await settle()
        assert len(connections) == before
        await services_of(client).metadata.refresh()
        assert not memory.requests(MetadataRequest)[-1].topics, "a topic is tracked still"


async def test_stop_sends_nothing_after_its_timeout() -> None:
    many = 6_000  # enough that responses arrive before the last has failed
    async with Bench({"clicks": [1] * many}) as bench:
        await bench.producer.send("clicks", b"first", partition=0)
        hold = bench.hold()
        deliveries = [
            await bench.producer.enqueue("clicks", b"v", partition=n) for n in range(many)
        ]
        await settle()
        sent = bench.events(RequestSent)
        assert bench.producer.statistics().requests_in_flight == 5

        async def respond_once_some_have_failed() -> None:
            with pytest.raises(KafkaTimeoutError):
                await deliveries[0]
            hold.release()

        answering = asyncio.ensure_future(respond_once_some_have_failed())
        with pytest.raises(DeliveryError):
            await bench.producer.stop(0.01)
        await answering
        await settle()
        assert [event for event in sent if event.api_key == ProduceRequest.API_KEY] == []


async def test_stop_raises_in_calls_that_wait_for_memory() -> None:
    async with Bench(TOPICS, buffer_memory=64 * KIB) as bench:
        await fill_buffer(bench)
        waiting = asyncio.ensure_future(bench.producer.enqueue("clicks", b"x" * KIB))
        await settle()
        with pytest.raises(DeliveryError):
            await bench.producer.stop(1)
        with pytest.raises(ClientClosedError):
            await waiting


async def test_warns_of_a_producer_that_is_not_stopped() -> None:
    async with InMemory() as memory, memory.client() as client:
        producer = Producer(client)
        await producer.start()
        supervisor = producer._supervisor  # pyright: ignore[reportPrivateUsage]  # to clean up
        gc.collect()
        with pytest.warns(ResourceWarning, match="Producer .* never stopped"):
            del producer
        await supervisor.stop()


async def test_refuses_calls_from_another_thread(bench: Bench) -> None:
    await bench.producer.send("clicks", b"v")
    errors: list[Exception] = []

    def in_thread() -> None:
        try:
            asyncio.run(bench.producer.flush())
        except KafkaError as error:
            errors.append(error)

    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    assert isinstance(errors[0], IllegalStateError)
    assert "event loop" in str(errors[0])


async def test_emits_events_for_each_batch(bench: Bench) -> None:
    events: list[ClientEvent] = []
    for kind in (BatchClosed, BatchAcknowledged, BatchFailed):
        bench.producer.client.hooks.listen(kind, events.append)
    await bench.producer.send("clicks", b"v")
    bench.refuse("TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(KafkaError):
        await bench.producer.send("clicks", b"v")
    assert [type(event) for event in events] == [
        BatchClosed,
        BatchAcknowledged,
        BatchClosed,
        BatchFailed,
    ]


async def test_warns_once_of_a_topic_that_records_wait_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Bench({}, max_block_ms=10_000) as bench:
        delivery = await bench.producer.enqueue("missing", b"v", partition=99)
        await asyncio.sleep(1)
        assert not caplog.records
        await asyncio.sleep(1.6)
        assert "metadata of these topics (1): missing" in caplog.text
        assert "max_block_ms (10 s)" in caplog.text
        with pytest.raises(UnknownTopicOrPartitionError):
            await delivery
        assert len([row for row in caplog.records if "topics (1): missing" in row.message]) == 1
