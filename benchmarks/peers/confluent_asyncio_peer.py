"""Runs cases with confluent-kafka's asyncio classes, which call librdkafka in a thread pool.

The producer collects records until it has `batch_size` of them or is flushed, and a future of a
record completes only at a poll or a flush. So a task flushes continuously; otherwise only the
buffer's time-out of at least 0.1 seconds would.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager
from itertools import cycle, islice
from time import perf_counter
from typing import TYPE_CHECKING, Any

from confluent_kafka import TopicPartition
from confluent_kafka.aio import AIOConsumer, AIOProducer

from benchmarks import payload
from benchmarks.peers.asyncio_pacing import paced, round_trips
from benchmarks.peers.confluent_settings import (
    PATIENCE,
    READ_AT_ONCE,
    consumer_settings,
    producer_settings,
    value_of,
    weigh_all,
)
from benchmarks.peers.reading import weigh
from benchmarks.peers.task import Figures, Stopwatch, Task, main, percentiles

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator

TIME = struct.Struct(">d")
FLUSH = 0.005
"""Time-out of each flush in seconds, in tasks that flush continuously."""


def _settings(task: Task, linger_ms: int = 5) -> dict[str, Any]:
    """Return the options of librdkafka, with delivery reports, which complete the futures."""
    return producer_settings(task, linger_ms, reports=True)


@asynccontextmanager
async def _producer(
    task: Task, settings: dict[str, Any], batch_size: int = 1_000
) -> AsyncGenerator[AIOProducer]:
    options = {"bootstrap.servers": task.bootstrap, **settings}
    producer = AIOProducer(options, batch_size=batch_size) if task.tuned else AIOProducer(options)
    try:
        sent = await producer.produce(task.topic, payload.WARM_UP)
        await producer.flush()
        await sent
        yield producer
    finally:
        await producer.close()


@asynccontextmanager
async def _flushed(producer: AIOProducer) -> AsyncGenerator[None]:
    """Run a task that flushes continuously, until the end of the block."""

    async def flush() -> None:
        while True:
            await producer.flush(FLUSH)

    task = asyncio.create_task(flush())
    try:
        yield
    finally:
        task.cancel()


async def produce(task: Task) -> Figures:
    """Send all records, and wait until they are acknowledged."""
    send, batch_size, linger_ms = _WAYS[task.way]
    settings = _settings(task, linger_ms)
    values = payload.values(task.size, compressible=task.compression != "none")
    async with _producer(task, settings, batch_size) as producer:
        with Stopwatch() as watch:
            await send(producer, task, islice(cycle(values), task.records))
            await producer.flush()
    settings |= {"batch_size": batch_size} if task.tuned else {}
    return Figures(watch.seconds, watch.cpu_seconds, task.records, settings=settings)


async def _enqueue(producer: AIOProducer, task: Task, values: Iterator[bytes]) -> None:
    produce, topic = producer.produce, task.topic
    if task.keyed:
        for value, key in zip(values, cycle(payload.keys()), strict=False):
            await produce(topic, value, key)
    else:
        for value in values:
            await produce(topic, value)


async def _send(producer: AIOProducer, task: Task, values: Iterator[bytes]) -> None:
    produce, topic = producer.produce, task.topic

    async def client() -> None:
        for value in values:
            await (await produce(topic, value))

    async with _flushed(producer):
        await asyncio.gather(*(client() for _ in range(task.concurrency)))


# The function, the records per call of librdkafka, and linger_ms.
_WAYS: dict[str, tuple[Callable[..., Awaitable[None]], int, int]] = {
    "enqueue": (_enqueue, 1_000, 5),
    "send": (_send, 500, 0),
}


@asynccontextmanager
async def _consumer(task: Task, settings: dict[str, Any]) -> AsyncGenerator[AIOConsumer]:
    """Connect without an assignment, which would start fetching."""
    consumer = AIOConsumer({"bootstrap.servers": task.bootstrap, **settings}, max_workers=2)
    try:
        await consumer.list_topics(task.topic, timeout=PATIENCE)
        yield consumer
    finally:
        await consumer.close()


async def _assign(consumer: AIOConsumer, task: Task) -> None:
    numbers = range(task.partitions)
    await consumer.assign([TopicPartition(task.topic, number, 0) for number in numbers])


async def consume(task: Task) -> Figures:
    """Read from the beginning; the measurement starts before the assignment."""
    settings = consumer_settings(task)
    read = _READS[task.way]
    async with _consumer(task, settings) as consumer:
        with Stopwatch() as watch:
            await _assign(consumer, task)
            count, total = await read(consumer, task)
    checksum = total if task.verify else None
    return Figures(watch.seconds, watch.cpu_seconds, count, checksum, settings=settings)


async def _read_lists(consumer: AIOConsumer, task: Task) -> tuple[int, int]:
    fetch, count, total, touch = consumer.consume, 0, 0, weigh(task)
    while count < task.records:
        messages = await fetch(min(READ_AT_ONCE, task.records - count), PATIENCE)
        if not messages:
            raise TimeoutError(f"{count} of {task.records} records, then none for {PATIENCE:g} s")
        count += len(messages)
        total += weigh_all(messages, touch)
    return count, total


async def _read_one_by_one(consumer: AIOConsumer, task: Task) -> tuple[int, int]:
    poll, total, touch = consumer.poll, 0, weigh(task)
    for number in range(task.records):
        message = await poll(PATIENCE)
        if message is None or message.error():
            raise RuntimeError(f"record {number}: {message and message.error()}")
        total += touch(message.value())
    return task.records, total


_READS = {"poll": _read_lists, "iterate": _read_one_by_one}


async def round_trip(task: Task) -> Figures:
    """Send records one after the other, waiting for each future."""
    settings = _settings(task, linger_ms=0)
    values = islice(cycle(payload.values(task.size)), task.records)
    async with _producer(task, settings) as producer:

        async def send(value: bytes) -> None:
            sent = await producer.produce(task.topic, value)
            await producer.flush()
            await sent

        with Stopwatch() as watch:
            taken = await round_trips(send, values, task)
    latency = percentiles(taken)
    return Figures(
        watch.seconds, watch.cpu_seconds, len(taken), latency_us=latency, settings=settings
    )


async def end_to_end(task: Task) -> Figures:
    """Send at a rate and receive in this process; each value begins with the time of sending."""
    sending = _settings(task, linger_ms=0)
    reading = consumer_settings(task)
    values = islice(cycle(payload.values(task.size)), task.records)
    taken: list[float] = []
    async with _producer(task, sending, 1) as producer, _consumer(task, reading) as consumer:
        await _assign(consumer, task)
        value_of(await consumer.poll(PATIENCE))  # the warm-up record

        async def receive() -> None:
            while len(taken) < task.records:
                value = value_of(await consumer.poll(PATIENCE))
                taken.append(perf_counter() - TIME.unpack_from(value)[0])

        with Stopwatch() as watch:
            receiver = asyncio.create_task(receive())
            async for value in paced(values, task.rate):
                timed = TIME.pack(perf_counter()) + value[TIME.size :]
                await producer.produce(task.topic, timed)
            await receiver
    return Figures(
        watch.seconds,
        watch.cpu_seconds,
        len(taken),
        latency_us=percentiles(taken),
        settings=sending | reading,
    )


RUNS = {
    "produce": produce,
    "consume": consume,
    "round_trip": round_trip,
    "end_to_end": end_to_end,
}

if __name__ == "__main__":
    main(RUNS)
