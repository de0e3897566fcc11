"""Paths of the kernel, of batches and of message codecs, without a client."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from kafka_async.kernel import (
    OpenBatch,
    Section,
    TopicOpenBatches,
    murmur2,
    parse_columns,
    parse_records,
)
from kafka_async.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from kafka_async.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kafka_async.records.batch import RecordBatch, iter_batches
from kafka_async.records.compression import Codec
from kafka_async.types import ProducerRecord
from tools.instructions.path import Path, Work

TIME = 1_700_000_000_000
VALUE = b"v" * 100
KEY = b"key-000042"
HEADERS = (("trace-id", b"0123456789abcdef"), ("kind", b"click"))
ROOM = 1 << 30
RECORDS = 1000
"""Records of 100 bytes per batch, as in a full batch of the default batch_size."""
HUNDRED = 100
"""Records per call of functions for many records; few enough that their memory is reused."""
MANY, FEW = 2000, 100
PRODUCE_VERSION, FETCH_VERSION = 13, 17

Function = Callable[[int], Callable[[], object]]


def path(name: str, make: Function, operations: int = MANY) -> Path:
    """Return a path of a function that does not wait."""

    @asynccontextmanager
    async def prepare(count: int) -> AsyncGenerator[Work]:
        function = make(count)

        async def work() -> None:
            function()

        yield work

    return Path(name, prepare, operations)


# -- writing --------------------------------------------------------------------------------------


def appending(
    key: bytes | None = None, headers: tuple[tuple[str, bytes], ...] = ()
) -> Callable[[int], Callable[[], object]]:
    """Append records one by one."""

    def make(count: int) -> Callable[[], object]:
        append = OpenBatch(None, ROOM).append

        def run() -> None:
            for _ in range(count):
                append(TIME, key, VALUE, headers)

        return run

    return make


def append_many(count: int) -> Callable[[], object]:
    """Append records, a hundred per call."""
    batches, values = TopicOpenBatches(), [VALUE] * HUNDRED
    batches.partitions = 1
    batches.open(0, OpenBatch(None, ROOM))

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


def close(count: int) -> Callable[[], object]:
    """Close batches."""
    batches = full_batches(count)

    def run() -> None:
        for batch in batches:
            batch.close()

    return run


def frame(count: int) -> Callable[[], object]:
    """Write the headers of batches with their CRC."""
    batches = [RecordBatch.from_open_batch(batch, Codec.none) for batch in full_batches(count)]

    def run() -> None:
        for batch in batches:
            batch.header(1, 0, 0, transactional=False)

    return run


def partition_keys(count: int) -> Callable[[], object]:
    """Hash keys of ten bytes."""

    def run() -> None:
        for _ in range(count):
            murmur2(KEY)

    return run


# -- reading --------------------------------------------------------------------------------------


def written(count: int, key: bytes | None, headers: tuple[tuple[str, bytes], ...]) -> bytes:
    """Return an encoded batch with `count` records."""
    records = [ProducerRecord("", VALUE, key=key, headers=headers)] * count
    return RecordBatch.build(records, timestamp=TIME).frame()


def section(
    count: int, key: bytes | None = None, headers: tuple[tuple[str, bytes], ...] = ()
) -> Section:
    """Return the record section of a batch, the input of the kernel."""
    (view,) = iter_batches(written(count, key, headers))
    return view.section()


def parsing(
    key: bytes | None = None, headers: tuple[tuple[str, bytes], ...] = ()
) -> Callable[[int], Callable[[], object]]:
    """Parse batches into records."""

    def make(count: int) -> Callable[[], object]:
        records = section(HUNDRED, key, headers)

        def run() -> None:
            for _ in range(count // HUNDRED):
                parse_records(records, "clicks", 3)

        return run

    return make


def attributes(count: int) -> Callable[[], object]:
    """Read the attributes of records."""
    records = parse_records(section(count, KEY, HEADERS), "clicks", 3)

    def run() -> None:
        for record in records:
            _ = record.value, record.key, record.offset, record.timestamp, record.headers

    return run


def columns(count: int) -> Callable[[], object]:
    """Parse batches into columns."""
    sections = [section(HUNDRED, KEY)]

    def run() -> None:
        for _ in range(count // HUNDRED):
            parse_columns(sections, "clicks", 3)

    return run


def batches(count: int) -> Callable[[], object]:
    """Iterate over fetched buffers of one batch each, checking the CRC."""
    data = memoryview(written(RECORDS, None, ()))

    def run() -> None:
        for _ in range(count):
            for view in iter_batches(data, topic="clicks", partition=3):
                view.section()

    return run


# -- messages -------------------------------------------------------------------------------------


def encode_produce(count: int) -> Callable[[], object]:
    """Encode a produce request with a batch for each of six partitions."""
    data = [PartitionProduceData(index=at, records=VALUE) for at in range(6)]
    topic = TopicProduceData(topic_id=uuid.UUID(int=7), partition_data=data)
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])

    def run() -> None:
        for _ in range(count):
            request.encode(PRODUCE_VERSION)

    return run


def decode_fetch(count: int) -> Callable[[], object]:
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


KERNEL_PATHS: tuple[Path, ...] = (
    path("append", appending()),
    path("append, keyed", appending(KEY)),
    path("append, keyed, 2 headers", appending(KEY, HEADERS)),
    path("append_many", append_many),
    path("close, a batch", close, FEW),
    path("frame, a batch", frame, FEW),
    path("murmur2", partition_keys),
    path("parse_records", parsing()),
    path("parse_records, keyed, 2 headers", parsing(KEY, HEADERS)),
    path("attributes of a record", attributes),
    path("parse_columns, keyed", columns),
    path("check and open, a batch", batches, FEW),
    path("encode ProduceRequest", encode_produce, FEW),
    path("decode FetchResponse", decode_fetch, FEW),
)
