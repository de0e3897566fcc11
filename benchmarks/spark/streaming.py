"""Measures the latency of streaming queries that copy a topic, at a fixed rate of records.

A record's value begins with the time at which it was sent. The latency is the time until a consumer
receives the copy, in the same process, so there is one clock.
"""

from __future__ import annotations

import asyncio
import json
import struct
import tempfile
import time
from contextlib import contextmanager
from statistics import quantiles
from typing import TYPE_CHECKING, Any, Final

from benchmarks import topics
from benchmarks.payload import WrongResultError
from benchmarks.spark.goals import PYTHON
from benchmarks.spark.jobs import FORMATS
from kafka_async import Consumer, Producer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

RATE: Final = 1_000
"""Records per second."""
SIZE: Final = 100
"""Bytes of a value."""
TICK: Final = 0.01
"""Seconds between the moments at which records are sent."""
WARM_UP: Final = 10.0
"""Seconds whose records do not count; the first micro-batches take longest."""
TIMEOUT: Final = 120.0
"""Seconds until the last copies arrive."""


def copy_latencies(
    session: SparkSession, client: str, bootstrap: str, seconds: float
) -> list[float]:
    """Copy records for some seconds; return the milliseconds of each, without warm-up.

    Raises:
        WrongResultError: A record was not copied.
    """
    source, target = (asyncio.run(topics.create(bootstrap)) for _ in range(2))
    server = {"kafka.bootstrap.servers": bootstrap}
    frame = session.readStream.format(FORMATS[client]).options(**server)
    frame = frame.option("subscribe", source).option("startingOffsets", "earliest").load()
    writer = frame.select("value").writeStream.format(FORMATS[client]).options(**server)
    with _running(writer.option("topic", target)) as query:
        latencies = asyncio.run(_send_and_receive(bootstrap, source, target, seconds, query))
    asyncio.run(topics.delete(bootstrap, source, target))
    return latencies


def batch_durations(session: SparkSession, client: str, seconds: float) -> list[float]:
    """Run a query that copies nothing for some seconds; return the milliseconds of its batches."""
    if client == PYTHON:
        frame = session.readStream.format("empty_batches").load()
        writer = frame.writeStream.format("empty_batches")
    else:
        frame = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        writer = frame.writeStream.format("noop")
    durations: dict[int, float] = {}
    with _running(writer) as query:
        end = time.monotonic() + WARM_UP + seconds
        while time.monotonic() < end:
            time.sleep(0.5)
            if time.monotonic() > end - seconds:
                for progress in query.recentProgress:
                    report: dict[str, Any] = json.loads(progress.json)
                    durations[report["batchId"]] = report["durationMs"]["triggerExecution"]
    return [duration for number, duration in sorted(durations.items()) if number]


def percentiles(values: Sequence[float]) -> tuple[float, float]:
    """Return p50 and p99."""
    cuts = quantiles(values, n=100)
    return cuts[49], cuts[98]


@contextmanager
def _running(writer: Any) -> Generator[StreamingQuery]:
    with tempfile.TemporaryDirectory() as checkpoint:
        query: StreamingQuery = writer.option("checkpointLocation", checkpoint).start()
        try:
            yield query
        finally:
            query.stop()
            query.awaitTermination(60)


async def _send_and_receive(
    bootstrap: str, source: str, target: str, seconds: float, query: StreamingQuery
) -> list[float]:
    count = int(RATE * (WARM_UP + seconds))
    assigned = [TopicPartition(target, number) for number in range(topics.PARTITIONS)]
    latencies: list[tuple[int, float]] = []
    async with (
        Producer(bootstrap, linger_ms=0) as producer,
        Consumer(bootstrap, partitions=assigned) as consumer,
    ):
        await consumer.seek_to_beginning(assigned)
        sending = asyncio.create_task(_send(producer, source, count))
        deadline = time.monotonic() + WARM_UP + seconds + TIMEOUT
        while len(latencies) < count and time.monotonic() < deadline:
            for record in await consumer.poll(timeout=1):
                number, sent = struct.unpack_from("qd", record.value or b"")
                latencies.append((number, (time.perf_counter() - sent) * 1_000))
            if not query.isActive:
                break
        await sending
    if {number for number, _ in latencies} != set(range(count)):
        raise WrongResultError(
            f"{len(latencies)} of {count} records were copied: {query.exception()}"
        )
    return [latency for number, latency in latencies if number >= RATE * WARM_UP]


async def _send(producer: Producer, topic: str, count: int) -> None:
    """Send numbered records at the rate, some every tick."""
    begun = time.perf_counter()
    sent = 0
    while sent < count:
        due = min(count, int((time.perf_counter() - begun) * RATE))
        values = [
            struct.pack("qd", number, time.perf_counter()).ljust(SIZE, b".")
            for number in range(sent, due)
        ]
        if values:
            await producer.send_many(topic, values)
        sent = max(sent, due)
        await asyncio.sleep(TICK)
    await producer.flush()
