"""All paths with a budget: the kernel's functions, messages, producer and consumer.

Producer and consumer run with a cluster in memory on virtual time. A `CannedBroker` acknowledges
the records of a producer. A consumer has fetched all records before its path begins.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from kafka_async.consumer.consumer import Consumer
from kafka_async.embedded import EmbeddedCluster
from kafka_async.foundation.memory_network import MemoryNetwork
from kafka_async.kernel import (
    OpenBatch,
    Section,
    TopicOpenBatches,
    murmur2,
    parse_columns,
    parse_records,
)
from kafka_async.producer.producer import Producer
from kafka_async.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kafka_async.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kafka_async.records.arrow import to_arrow
from kafka_async.records.batch import RecordBatch, compress_batch, encode_header, iter_batches
from kafka_async.records.compression import Codec
from kafka_async.types import ProducerRecord, TopicPartition
from tools.instructions.canned_broker import CannedBroker

if TYPE_CHECKING:
    import pyarrow

TIME = 1_700_000_000_000
VALUE = b"v" * 100
KEY = b"key-000042"
HEADERS = (("trace-id", b"0123456789abcdef"), ("kind", b"click"))
UNICODE_HEADERS = (("trace-id", b"0123456789abcdef"), ("größe", b"10"))
"""Headers of Arrow rows; a name that is not ASCII is checked byte by byte."""
ROOM = 1 << 30
RECORDS = 1000
"""Records of 100 bytes per batch, as in a full batch of the default batch_size."""
HUNDRED = 100
"""Records per call of functions for many records; few enough that their memory is reused."""
MANY, FEW = 2000, 100
PRODUCE_VERSION, FETCH_VERSION = 13, 17

LARGE = 1 << 24
"""Batch size in bytes that no path reaches."""
TOPIC = "clicks"
TASKS = 50
DELIVERED = 5263
"""Number of records in 4.3 batches of the default size; twice as many are in 8.6, so that one more
byte per record does not need another batch."""

Headers: TypeAlias = tuple[tuple[str, bytes], ...]
Run: TypeAlias = Callable[[], object]
Work: TypeAlias = Callable[[], Awaitable[object]]
Write: TypeAlias = Callable[[Producer, int], Awaitable[object]]
Read: TypeAlias = Callable[[Consumer, int], Awaitable[object]]


@dataclass(frozen=True)
class Path:
    """Operation on a record, a batch or a message, whose instructions are counted.

    Attributes:
        prepare: prepares a number of operations, and yields the function that performs them; only
            that function is counted.
        operations: the number of operations; the count is the difference from twice as many.
    """

    name: str
    prepare: Callable[[int], AbstractAsyncContextManager[Work]]
    operations: int


def path(name: str, make: Callable[[int], Run], operations: int = MANY) -> Path:
    """Return a path of a function that does not wait."""

    @asynccontextmanager
    async def prepare(count: int) -> AsyncGenerator[Work]:
        function = make(count)

        async def work() -> None:
            function()

        yield work

    return Path(name, prepare, operations)


# -- writing --------------------------------------------------------------------------------------


def appending(key: bytes | None = None, headers: Headers = ()) -> Callable[[int], Run]:
    """Append records one by one."""

    def make(count: int) -> Run:
        append = OpenBatch(None, ROOM).append

        def run() -> None:
            for _ in range(count):
                append(TIME, key, VALUE, headers)

        return run

    return make


def append_many(count: int) -> Run:
    """Append records, a hundred per call."""
    batches, values = TopicOpenBatches(), [VALUE] * HUNDRED
    batches.partitions = 1
    batches.add(0, OpenBatch(None, ROOM))

    def run() -> None:
        for _ in range(count // HUNDRED):
            batches.append_many(TIME, values, partition=0)

    return run


def full_batches(count: int) -> list[OpenBatch]:
    """Return full open batches."""
    batches = [OpenBatch(None, ROOM) for _ in range(count)]
    for batch in batches:
        for _ in range(RECORDS):
            batch.append(TIME, None, VALUE)
    return batches


def close(count: int) -> Run:
    """Close batches."""
    batches = full_batches(count)

    def run() -> None:
        for batch in batches:
            batch.close()

    return run


def frame(count: int) -> Run:
    """Write the headers of batches with their CRC."""
    batches = [compress_batch(batch, Codec.none) for batch in full_batches(count)]

    def run() -> None:
        for batch in batches:
            encode_header(batch, 1, 0, 0, transactional=False)

    return run


def partition_keys(count: int) -> Run:
    """Hash keys of ten bytes.

    The hashes are kept: if each were freed at once, the layout of the heap would decide whether it
    takes the last block of the allocator's pool, which costs 5 % more instructions.
    """
    hashes = [0] * count

    def run() -> None:
        for index in range(count):
            hashes[index] = murmur2(KEY)

    return run


# -- reading --------------------------------------------------------------------------------------


def built(count: int, key: bytes | None = None, headers: Headers = ()) -> RecordBatch:
    """Return a batch of `count` equal records."""
    records = [ProducerRecord("", VALUE, key=key, headers=headers)] * count
    return RecordBatch.build(records, timestamp=TIME)


def written(count: int, key: bytes | None = None, headers: Headers = ()) -> bytes:
    """Return an encoded batch of `count` equal records."""
    return built(count, key, headers).frame()


def section(count: int, key: bytes | None = None, headers: Headers = ()) -> Section:
    """Return the record section of a batch, the input of the kernel."""
    (view,) = iter_batches(written(count, key, headers))
    return view.section()


def parsing(key: bytes | None = None, headers: Headers = ()) -> Callable[[int], Run]:
    """Parse batches into records."""

    def make(count: int) -> Run:
        records = section(HUNDRED, key, headers)

        def run() -> None:
            for _ in range(count // HUNDRED):
                parse_records(records, "clicks", 3)

        return run

    return make


def attributes(count: int) -> Run:
    """Read the attributes of records."""
    records = parse_records(section(count, KEY, HEADERS), "clicks", 3)

    def run() -> None:
        for record in records:
            _ = record.value, record.key, record.offset, record.timestamp, record.headers

    return run


def columns(count: int) -> Run:
    """Parse batches into columns."""
    sections = [section(HUNDRED, KEY)]

    def run() -> None:
        for _ in range(count // HUNDRED):
            parse_columns(sections, "clicks", 3)

    return run


def batches(count: int) -> Run:
    """Iterate over fetched buffers of one batch each, checking the CRC."""
    data = memoryview(written(RECORDS))

    def run() -> None:
        for _ in range(count):
            for view in iter_batches(data, topic="clicks", partition=3):
                view.section()

    return run


# -- messages -------------------------------------------------------------------------------------


def encode_produce(count: int) -> Run:
    """Encode a produce request with a batch for each of six partitions."""
    data = [PartitionProduceData(index=at, records=VALUE) for at in range(6)]
    topic = TopicProduceData(topic_id=uuid.UUID(int=7), partition_data=data)
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])

    def run() -> None:
        for _ in range(count):
            request.encode(PRODUCE_VERSION)

    return run


def decode_fetch(count: int) -> Run:
    """Decode a fetch response with records of six partitions."""
    rows = [
        PartitionData(partition_index=at, high_watermark=99, aborted_transactions=[], records=VALUE)
        for at in range(6)
    ]
    topic = FetchableTopicResponse(topic_id=uuid.UUID(int=7), partitions=rows)
    data = FetchResponse(session_id=1, responses=[topic]).encode(FETCH_VERSION)

    def run() -> None:
        for _ in range(count):
            FetchResponse.decode(data, FETCH_VERSION)

    return run


# -- producer --------------------------------------------------------------------------------------


@asynccontextmanager
async def cluster() -> AsyncGenerator[tuple[str, MemoryNetwork]]:
    """Start a broker in memory with an empty topic of one partition; yield address and network."""
    network = MemoryNetwork()
    async with EmbeddedCluster(network=network) as made:
        await made.create_topic(TOPIC, 1)
        yield made.bootstrap_servers, network


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


@cache
def arrow_rows(headers: Headers) -> pyarrow.RecordBatch:
    """Return keyed rows, as many as are in a full batch; the warm-up makes them."""
    views = iter_batches(written(RECORDS, KEY, headers), topic=TOPIC)
    rows = to_arrow(views, topic=TOPIC, partition=0, headers=bool(headers))
    return rows.select(["key", "value", *(["headers"] if headers else [])])


def sending_arrow(headers: Headers = ()) -> Write:
    """Send the rows of Arrow record batches, a thousand per call."""

    async def send(producer: Producer, count: int) -> None:
        rows = arrow_rows(headers)
        for _ in range(count // RECORDS):
            await producer.send_arrow(rows, TOPIC)

    return send


async def send_batches(producer: Producer, count: int) -> None:
    """Send encoded batches, and wait until all are acknowledged."""
    batch = built(RECORDS)
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


def reading(name: str, read: Read, key: bytes | None = None, headers: Headers = ()) -> Path:
    """Return a path of a consumer that has fetched all records, which are equal."""

    @asynccontextmanager
    async def prepare(count: int) -> AsyncGenerator[Work]:
        partition = TopicPartition(TOPIC, 0)
        async with cluster() as (address, network):
            async with Producer(address, dialer=network) as producer:
                for part in range(0, count, RECORDS):
                    batch = built(min(RECORDS, count - part), key, headers)
                    await producer.send_batch(partition, batch)
            async with Consumer(
                address, dialer=network, partitions=[partition], auto_offset_reset="earliest"
            ) as consumer:
                await asyncio.sleep(1)  # virtual time, in which the consumer fetches all records
                yield lambda: read(consumer, count)

    return Path(name, prepare, MANY)


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


async def poll_batches_with_headers(consumer: Consumer, count: int) -> None:
    """Poll batches and convert them to columns, with headers."""
    while count:
        for batch in await consumer.poll_batches():
            count -= batch.to_arrow(headers=True).num_rows


PATHS: tuple[Path, ...] = (
    path("append", appending()),
    path("append, keyed", appending(KEY)),
    path("append, keyed, 2 headers", appending(KEY, HEADERS)),
    path("append_many", append_many),
    path("close, a batch", close, FEW),
    path("frame, a batch", frame, FEW),
    # Counts of equal code range from 686 to 724: the integer that a call returns fills a block of
    # the allocator, or not, which depends on the layout of the heap.
    path("murmur2", partition_keys),
    path("parse_records", parsing()),
    path("parse_records, keyed, 2 headers", parsing(KEY, HEADERS)),
    path("attributes of a record", attributes),
    path("parse_columns, keyed", columns),
    path("check and open, a batch", batches, FEW),
    path("encode ProduceRequest", encode_produce, FEW),
    path("decode FetchResponse", decode_fetch, FEW),
    writing("enqueue", enqueue, linger_ms=1000, batch_size=LARGE),
    writing("enqueue, keyed", enqueue_keyed, linger_ms=1000, batch_size=LARGE),
    writing("enqueue to acknowledgement", deliver, DELIVERED, linger_ms=5),
    writing("send_many", send_many, linger_ms=1000, batch_size=LARGE),
    writing("send_batch to acknowledgement, a batch", send_batches, FEW // 4),
    writing("send_arrow, keyed", sending_arrow(), linger_ms=1000, batch_size=LARGE),
    writing(
        "send_arrow, keyed, 2 headers",
        sending_arrow(UNICODE_HEADERS),
        linger_ms=1000,
        batch_size=LARGE,
    ),
    writing("send, one at a time", round_trips, FEW),
    writing("send, 50 tasks at a time", concurrent_sends, linger_ms=5),
    # Counts of equal code range from 1,060 to 1,098. _PyObject_Malloc took 66 instructions per
    # record in one checkout and 85 in another, which depends on the layout of the heap.
    reading("poll", poll),
    reading("async for", iterate),
    reading("poll_batches to Arrow", poll_batches),
    reading(
        "poll_batches to Arrow, keyed, 2 headers", poll_batches_with_headers, KEY, UNICODE_HEADERS
    ),
)
