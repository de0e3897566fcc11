"""Producing does a bounded amount of work in each event loop iteration."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.hooks import BatchClosed
from kafka_async.producer import runtime
from kafka_async.producer.producer import Producer
from kafka_async.records.batch import RecordBatch
from kafka_async.types import ProducerRecord, TopicPartition
from tests.fairness.conftest import FAST, RECORDS, USUAL, VALUE
from tests.fairness.work import MAX_STEPS, SLICE, Meter, check, steps
from tests.producer.bench import Bench

if TYPE_CHECKING:
    from kafka_async.embedded import BlockingCluster
    from kafka_async.testing import VirtualClockEventLoop

pytestmark = pytest.mark.asyncio

KEYS = [b"key-%06d" % number for number in range(1000)]
KIB = bytes(range(256)) * 4
TASKS = 1000
STARTED = 100
"""Tasks that the application starts per event loop iteration; a response may wake more."""
TASKS_PER_BATCH = 3000
"""Tasks that wait for the same batch."""
LARGEST = (16 if FAST else 8) << 20
"""Bytes of the largest batches: the kernel in plain Python copies what it closes."""
LARGEST_VALUE = VALUE * (LARGEST // len(VALUE) - 10)
LARGEST_BATCH = RecordBatch.build([ProducerRecord("", VALUE * 100)] * (LARGEST // 10_100))
LARGE_LIMITS = {"batch_size": LARGEST, "max_request_size": 1 << 26, "buffer_memory": 1 << 28}
LINGER = 10
MICROSECONDS_PER_READING = 10

Write = Callable[[Producer, Meter], Awaitable[object]]


def enqueue(
    count: int, value: bytes = VALUE, keys: Sequence[bytes | None] = (None,), topic: str = "clicks"
) -> Write:
    async def write(producer: Producer, meter: Meter) -> None:
        for key in itertools.islice(itertools.cycle(keys), count):
            await producer.enqueue(topic, value, key=key)
            meter.now.records += 1

    return write


def send_many(value: bytes, keys: list[bytes] | None = None) -> Write:
    return lambda producer, _: producer.send_many("clicks", [value] * RECORDS, keys)


async def send_records(producer: Producer, meter: Meter) -> None:
    def records() -> Iterator[ProducerRecord]:
        for _ in range(RECORDS):
            meter.now.records += 1
            yield ProducerRecord("clicks", VALUE)

    await producer.send_records(records())


async def send_batch(producer: Producer, meter: Meter) -> None:
    batch = RecordBatch.build([ProducerRecord("", VALUE)] * USUAL)
    for number in range(RECORDS // USUAL * 2):
        await producer.send_batch(TopicPartition("clicks", number % 6), batch)


def concurrent_sends(count: int, partition: int | None = None) -> Write:
    async def write(producer: Producer, meter: Meter) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(producer.send("clicks", VALUE, partition=partition))
                if number % STARTED == 0:
                    await asyncio.sleep(0)

    return write


async def large_batches(producer: Producer, meter: Meter) -> None:
    for _ in range(3):
        await producer.send_batch(TopicPartition("large", 0), LARGEST_BATCH)
        await asyncio.sleep(0)


async def round_trips(producer: Producer, meter: Meter) -> None:
    for _ in range(100):
        await producer.send("clicks", VALUE)


large_values = enqueue(RECORDS // 5, KIB)
fill_large_batches = enqueue(2 * LARGEST // len(VALUE * 100), VALUE * 100, topic="large")
CASES: dict[str, tuple[Write, dict[str, Any]]] = {
    "enqueue": (enqueue(RECORDS), {}),
    "1 MiB batches": (enqueue(RECORDS), {"batch_size": 1 << 20}),
    "zstd": (enqueue(RECORDS), {"compression_type": "zstd"}),
    "gzip": (enqueue(RECORDS), {"compression_type": "gzip", "batch_size": 32_000}),
    "keyed": (enqueue(RECORDS, keys=KEYS), {}),
    "keyed lz4": (enqueue(RECORDS, keys=KEYS), {"compression_type": "lz4"}),
    "keyed zstd": (enqueue(RECORDS, keys=KEYS), {"compression_type": "zstd"}),
    "large values": (large_values, {}),
    "large values zstd": (large_values, {"compression_type": "zstd"}),
    "send_many": (send_many(VALUE), {}),
    "send_many keyed": (send_many(VALUE, KEYS * (RECORDS // len(KEYS))), {}),
    "send_many empty": (send_many(b""), {"batch_size": 1 << 20}),
    "send_records": (send_records, {}),
    "send_batch": (send_batch, {}),
    "sends": (concurrent_sends(TASKS), {"linger_ms": 0}),
    "one batch": (
        concurrent_sends(TASKS_PER_BATCH, 0),
        {"linger_ms": 300, "batch_size": 1 << 20},
    ),
    "large batches": (large_batches, LARGE_LIMITS),
    "filled large batches": (fill_large_batches, {**LARGE_LIMITS, "linger_ms": 1000}),
    "large records": (enqueue(3, LARGEST_VALUE, topic="large"), LARGE_LIMITS),
    "round trips": (round_trips, {"linger_ms": 0}),
}


@pytest.mark.parametrize(("write", "options"), CASES.values(), ids=CASES)
async def test_producing_bounds_the_work_of_an_iteration(
    cluster: BlockingCluster, meter: Meter, write: Write, options: dict[str, Any]
) -> None:
    given: dict[str, Any] = {"linger_ms": 5, **options}
    async with Producer(cluster.bootstrap_servers, **given) as producer:
        await producer.send("clicks", b"warm-up")
        async with meter:
            await write(producer, meter)
            await producer.flush()
        check(meter)


@pytest.mark.parametrize("keyed", [False, True])
async def test_timeout_around_a_tight_loop_fires(
    cluster: BlockingCluster, meter: Meter, keyed: bool
) -> None:
    async with Producer(cluster.bootstrap_servers, batch_size=1 << 20) as producer:
        await producer.send("clicks", b"warm-up")

        async def step() -> None:
            await producer.enqueue("clicks", VALUE, key=b"k" if keyed else None)
            meter.now.records += 1

        assert await steps(meter, step) <= MAX_STEPS


@pytest.fixture
def slow_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Advance virtual time with each reading of the clock, so with each record."""

    def ticking(loop: VirtualClockEventLoop) -> Callable[[], float]:
        def read_clock() -> float:
            loop._advance(MICROSECONDS_PER_READING * 1e-6)  # pyright: ignore[reportPrivateUsage]  # else only a sleep does
            return loop.time()

        return read_clock

    monkeypatch.setattr(runtime, "time_function", ticking)


@pytest.mark.virtual_clock
@pytest.mark.usefixtures("slow_clock")
@pytest.mark.parametrize("keyed", [False, True])
async def test_linger_is_kept_within_5_ms_beside_a_tight_loop(keyed: bool) -> None:
    loop = asyncio.get_running_loop()
    closed: list[float] = []

    def on_batch_closed(event: BatchClosed) -> None:
        if event.partition.topic == "audit":
            closed.append(loop.time())

    topics = {"clicks": [1], "audit": [1]}
    async with Bench(topics, linger_ms=LINGER, batch_size=1 << 24) as bench:
        await bench.producer.send("clicks", VALUE)  # connects first
        bench.producer.client.hooks.listen(BatchClosed, on_batch_closed)
        begun = loop.time()
        await bench.producer.enqueue("audit", VALUE)
        while not closed and loop.time() < begun + 1:
            await bench.producer.enqueue("clicks", VALUE, key=b"k" if keyed else None)
        assert LINGER <= (closed[0] - begun) * 1000 <= LINGER + SLICE * 1000
        await bench.producer.flush()
