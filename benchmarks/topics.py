"""Creates, fills, reads and deletes the topics of the benchmark with this project's clients.

Filling sends the same encoded batches repeatedly, and reading counts distinct values in Arrow, so
that both are faster than the runs.
"""

from __future__ import annotations

import time
import uuid
import zlib
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import payload
from benchmarks.payload import WrongResultError
from benchmarks.tls import client_options
from kafka_async import Admin, Consumer, Producer, ProducerRecord, RecordBatch, TopicPartition
from kafka_async.admin import NewTopic

if TYPE_CHECKING:
    from benchmarks.tls import TlsListener

PARTITIONS: Final = 6
TOPICS_PER_REQUEST: Final = 500
BATCH_BYTES: Final = 120_000
READ_TIMEOUT: Final = 60.0
"""Seconds without records."""
POLL_TIMEOUT: Final = 1.0
"""Seconds."""


@dataclass(frozen=True)
class Tally:
    """Number and checksum of a topic's records, without warm-up records."""

    records: int
    checksum: int

    @classmethod
    def expected(cls, records: int, size: int, *, compressible: bool = False) -> Tally:
        """Return the tally of values that are sent in cyclic order."""
        return cls(records, payload.expected(records, size, compressible=compressible))


async def create(bootstrap: str, partitions: int = PARTITIONS, topics: int = 1) -> str:
    """Create a topic, or several whose names begin with it; return its name."""
    topic = f"bench-{uuid.uuid4().hex[:12]}"
    names = payload.topic_names(topic, topics)
    async with Admin(bootstrap) as admin:
        for at in range(0, topics, TOPICS_PER_REQUEST):
            chunk = [NewTopic(name, partitions) for name in names[at : at + TOPICS_PER_REQUEST]]
            await admin.create_topics(chunk, timeout=60)
    return topic


async def delete(bootstrap: str, *names: str) -> None:
    """Delete topics."""
    async with Admin(bootstrap) as admin:
        for at in range(0, len(names), TOPICS_PER_REQUEST):
            await admin.delete_topics(list(names[at : at + TOPICS_PER_REQUEST]), timeout=60)


async def fill(
    bootstrap: str,
    topic: str,
    records: int,
    size: int = 100,
    *,
    keyed: bool = False,
    compression: str = "none",
    cafile: str = "",
    timestamp: int | None = None,
) -> None:
    """Send values in cyclic order to all partitions; `records` must be a multiple of 1,000.

    The records have one timestamp, in ms; without one it is the present time.
    """
    cycles, rest = divmod(records, payload.DISTINCT)
    if rest:
        raise ValueError(f"{records} is not a multiple of {payload.DISTINCT} records")
    batches = _batches(size, timestamp, keyed=keyed, compression=compression)
    partitions = cycle(TopicPartition(topic, number) for number in range(PARTITIONS))
    async with Producer(bootstrap, **client_options(cafile)) as producer:
        for batch in islice(cycle(batches), cycles * len(batches)):
            await producer.send_batch(next(partitions), batch)
        await producer.flush()


async def warm_up(bootstrap: str, cycles: int, tls: TlsListener | None = None) -> None:
    """Send and read `cycles` thousand records per codec, to warm up the broker's JVM.

    With `tls` it sends and reads over that listener.
    """
    address, cafile = tls or (bootstrap, "")
    for compression in ("none", "lz4", "zstd"):
        topic = await create(bootstrap)
        records = cycles * payload.DISTINCT
        await fill(address, topic, records, compression=compression, cafile=cafile)
        await tally(address, topic, cafile=cafile)
        await delete(bootstrap, topic)


def _batches(
    size: int, timestamp: int | None, *, keyed: bool, compression: str
) -> list[RecordBatch]:
    """Return batches with all values once, as large as a producer's."""
    values = payload.values(size, compressible=compression != "none")
    keys = payload.keys()[: len(values)] if keyed else [None] * len(values)
    records = [
        ProducerRecord("", value=value, key=key) for value, key in zip(values, keys, strict=True)
    ]
    step = min(BATCH_BYTES // (size + 20), len(records))
    now = int(time.time() * 1000) if timestamp is None else timestamp
    return [
        RecordBatch.build(records[start : start + step], compression, timestamp=now)
        for start in range(0, len(records), step)
    ]


async def tally(
    bootstrap: str, *topics: str, partitions: int = PARTITIONS, cafile: str = ""
) -> Tally:
    """Read topics; return the number and the checksum of their records."""
    assigned = [TopicPartition(topic, n) for topic in topics for n in range(partitions)]
    counts: dict[bytes, int] = {}
    options = client_options(cafile)
    async with Consumer(bootstrap, partitions=assigned, **options) as consumer:
        await consumer.seek_to_beginning(assigned)
        ends = await consumer.end_offsets(assigned)
        remaining = {partition for partition, end in ends.items() if end}
        deadline = time.monotonic() + READ_TIMEOUT
        while remaining:
            for batch in await consumer.poll_batches(timeout=POLL_TIMEOUT):
                _count(batch.to_arrow(), counts)
                deadline = time.monotonic() + READ_TIMEOUT
            # Markers of transactions, which are no records, may be the last offsets.
            positions = {each: await consumer.position(each) for each in remaining}
            remaining = {each for each, at in positions.items() if at < ends[each]}
            if remaining and time.monotonic() > deadline:
                raise WrongResultError(f"{topics[0]}: {len(remaining)} partitions have more")
    counts.pop(payload.WARM_UP, None)
    checksum = sum(zlib.crc32(value) * count for value, count in counts.items())
    return Tally(sum(counts.values()), checksum)


def _count(rows: pa.RecordBatch, counts: dict[bytes, int]) -> None:
    compute: Any = pc
    for found in compute.value_counts(rows.column("value")).to_pylist():
        value: bytes = found["values"]
        counts[value] = counts.get(value, 0) + found["counts"]
