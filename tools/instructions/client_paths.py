"""Paths of a producer and a consumer, with a cluster in memory on virtual time.

A `CannedBroker` acknowledges the records of a producer. A consumer has fetched all records before
its path begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from kafka_async.clock import MemoryNetwork
from kafka_async.consumer.consumer import Consumer
from kafka_async.embedded import EmbeddedCluster
from kafka_async.producer.producer import Producer
from kafka_async.records.batch import RecordBatch
from kafka_async.types import ProducerRecord, TopicPartition
from tools.instructions.canned_broker import CannedBroker
from tools.instructions.kernel_paths import FEW, HUNDRED, KEY, MANY, RECORDS, TIME, VALUE
from tools.instructions.path import Path, Work

LARGE = 1 << 24
"""Batch size in bytes that no path reaches."""
TOPIC = "clicks"
TASKS = 50
DELIVERED = 5263
"""Number of records in 4.3 batches of the default size; twice as many are in 8.6, so that one more
byte per record does not need another batch."""

Write = Callable[[Producer, int], Awaitable[object]]
Read = Callable[[Consumer, int], Awaitable[object]]


@asynccontextmanager
async def cluster() -> AsyncGenerator[tuple[str, MemoryNetwork]]:
    """Start a broker in memory with an empty topic of one partition; yield address and network."""
    network = MemoryNetwork()
    async with EmbeddedCluster(network=network) as made:
        await made.create_topic(TOPIC, 1)
        yield made.bootstrap_servers, network


# -- producer -------------------------------------------------------------------------------------


def writing(name: str, write: Write, operations: int = MANY, **options: Any) -> Path:
    """Return a path of a connected producer that has sent a record."""

    @asynccontextmanager
    async def prepare(count: int) -> AsyncGenerator[Work]:
        async with (
            cluster() as (address, network),
            Producer(address, dialer=CannedBroker(network), **options) as producer,
        ):
            await producer.send(TOPIC, b"warm-up")
            await producer.enqueue(TOPIC, b"opens the batch")
            yield lambda: write(producer, count)

    return Path(name, prepare, operations)


async def enqueue(producer: Producer, count: int) -> None:
    """Enqueue records without a key, one per call."""
    call = producer.enqueue
    for _ in range(count):
        await call(TOPIC, VALUE)


async def enqueue_keyed(producer: Producer, count: int) -> None:
    """Enqueue records with a key, one per call."""
    call = producer.enqueue
    for _ in range(count):
        await call(TOPIC, VALUE, key=KEY)


async def deliver(producer: Producer, count: int) -> None:
    """Enqueue records, one per call, and wait until all are acknowledged."""
    await enqueue(producer, count)
    await producer.flush()


async def send_many(producer: Producer, count: int) -> None:
    """Send records, a hundred per call."""
    values = [VALUE] * HUNDRED
    for _ in range(count // HUNDRED):
        await producer.send_many(TOPIC, values)


async def send_batches(producer: Producer, count: int) -> None:
    """Send encoded batches, and wait until all are acknowledged."""
    batch = RecordBatch.build([ProducerRecord("", VALUE)] * RECORDS, timestamp=TIME)
    for _ in range(count):
        await producer.send_batch(TopicPartition(TOPIC, 0), batch)
    await producer.flush()


async def round_trips(producer: Producer, count: int) -> None:
    """Send records one after the other, waiting for each acknowledgement."""
    for _ in range(count):
        await producer.send(TOPIC, VALUE)


async def concurrent_sends(producer: Producer, count: int) -> None:
    """Send records in tasks that wait for each acknowledgement, as in a web service."""

    async def one() -> None:
        for _ in range(count // TASKS):
            await producer.send(TOPIC, VALUE)

    async with asyncio.TaskGroup() as group:
        for _ in range(TASKS):
            group.create_task(one())


# -- consumer -------------------------------------------------------------------------------------


def reading(name: str, read: Read, operations: int = MANY) -> Path:
    """Return a path of a consumer that has fetched all records."""

    @asynccontextmanager
    async def prepare(count: int) -> AsyncGenerator[Work]:
        partition = TopicPartition(TOPIC, 0)
        async with cluster() as (address, network):
            async with Producer(address, dialer=network) as producer:
                for part in range(0, count, RECORDS):
                    records = [ProducerRecord("", VALUE)] * min(RECORDS, count - part)
                    await producer.send_batch(partition, RecordBatch.build(records, timestamp=TIME))
            async with Consumer(
                address, dialer=network, partitions=[partition], auto_offset_reset="earliest"
            ) as consumer:
                await asyncio.sleep(1)  # virtual time, in which the consumer fetches all records
                yield lambda: read(consumer, count)

    return Path(name, prepare, operations)


async def poll(consumer: Consumer, count: int) -> None:
    """Poll lists of records."""
    while count:
        count -= len(await consumer.poll(max_records=RECORDS))


async def iterate(consumer: Consumer, count: int) -> None:
    """Iterate over records."""
    async for _ in consumer:
        count -= 1
        if not count:
            return


async def poll_batches(consumer: Consumer, count: int) -> None:
    """Poll batches and convert them to columns."""
    while count:
        for batch in await consumer.poll_batches():
            count -= batch.to_arrow().num_rows


CLIENT_PATHS: tuple[Path, ...] = (
    writing("enqueue", enqueue, linger_ms=1000, batch_size=LARGE),
    writing("enqueue, keyed", enqueue_keyed, linger_ms=1000, batch_size=LARGE),
    writing("enqueue to acknowledgement", deliver, DELIVERED, linger_ms=5),
    writing("send_many", send_many, linger_ms=1000, batch_size=LARGE),
    writing("send_batch to acknowledgement, a batch", send_batches, FEW // 4),
    writing("send, one at a time", round_trips, FEW),
    writing("send, 50 tasks at a time", concurrent_sends, linger_ms=5),
    # Counts of equal code range from 1,060 to 1,097. _PyObject_Malloc took 66 instructions per
    # record in one checkout and 85 in another, which depends on the layout of the heap.
    reading("poll", poll),
    reading("async for", iterate),
    reading("poll_batches to Arrow", poll_batches),
)
