"""Runs cases with this project's clients."""

from __future__ import annotations

import asyncio
import struct
from itertools import cycle, islice
from time import perf_counter
from typing import TYPE_CHECKING, Any

from benchmarks import payload
from benchmarks.peers import kafka_async_consume
from benchmarks.peers.asyncio_pacing import paced, round_trips
from benchmarks.peers.task import Figures, Stopwatch, Task, main, percentiles
from kafka_async import Consumer, Producer, RecordBatch, TopicPartition
from kafka_async.errors import BufferFullError
from kafka_async.types import ProducerRecord

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

RUN = 1_000
"""Values per call of `send_many`."""
BATCH_BYTES = 131_072
TIME = struct.Struct(">d")


def produce_options(task: Task, linger_ms: int = 5) -> dict[str, Any]:
    """Return the options of the producer, without the cluster."""
    options: dict[str, Any] = {"acks": "all"}
    if task.tuned:
        options |= {"linger_ms": linger_ms, "batch_size": BATCH_BYTES, "enable_idempotence": True}
    if task.compression != "none":
        options["compression_type"] = task.compression
    return options


def values_of(task: Task) -> Iterator[bytes]:
    """Return the values to send."""
    compressible = task.compression != "none"
    return islice(cycle(payload.values(task.size, compressible=compressible)), task.records)


async def produce(task: Task) -> Figures:
    """Send all records, and wait until they are acknowledged."""
    # Lingering only delays tasks that wait for their acknowledgement: they cannot fill the batch.
    options = produce_options(task, linger_ms=0 if task.way == "send" else 5)
    send = _WAYS[task.way]
    async with Producer(task.bootstrap, **options) as producer:
        await producer.send(task.topic, payload.WARM_UP)
        prepared = list(_batches(task)) if task.way == "send_batch" else []
        with Stopwatch() as watch:
            await send(producer, task, prepared)
            await producer.flush()
        sent = producer.statistics().record_send_total - 1
    return Figures(watch.seconds, watch.cpu_seconds, sent, settings=options)


async def _enqueue(producer: Producer, task: Task, _: object) -> None:
    topic, enqueue = task.topic, producer.enqueue
    if task.keyed:
        for value, key in zip(values_of(task), cycle(payload.keys()), strict=False):
            await enqueue(topic, value, key)
    else:
        for value in values_of(task):
            await enqueue(topic, value)


async def _enqueue_nowait(producer: Producer, task: Task, _: object) -> None:
    """Append without waiting, and yield to the event loop after every thousand records."""
    topic, enqueue_nowait = task.topic, producer.enqueue_nowait
    values = values_of(task)
    while run := list(islice(values, RUN)):
        for value in run:
            try:
                enqueue_nowait(topic, value)
            except BufferFullError:
                await producer.enqueue(topic, value)
        await asyncio.sleep(0)


async def _send_many(producer: Producer, task: Task, _: object) -> None:
    topic, send_many = task.topic, producer.send_many
    values, keys = values_of(task), cycle(payload.keys())
    while run := list(islice(values, RUN)):
        await send_many(topic, run, list(islice(keys, len(run))) if task.keyed else None)


async def _send(producer: Producer, task: Task, _: object) -> None:
    topic, send = task.topic, producer.send
    pairs = zip(values_of(task), cycle(payload.keys()), strict=False)

    async def client() -> None:
        if task.keyed:
            for value, key in pairs:
                await send(topic, value, key)
        else:
            for value, _ in pairs:
                await send(topic, value)

    async with asyncio.TaskGroup() as group:
        for _number in range(task.concurrency):
            group.create_task(client())


async def _send_batch(
    producer: Producer, task: Task, prepared: list[tuple[TopicPartition, RecordBatch]]
) -> None:
    send_batch = producer.send_batch
    for partition, batch in prepared:
        await send_batch(partition, batch)


def _batches(task: Task) -> Iterator[tuple[TopicPartition, RecordBatch]]:
    """Send encoded batches of about 128 KiB to the partitions in turn."""
    values, keys = values_of(task), cycle(payload.keys())
    per_batch = max(1, BATCH_BYTES // (task.size + (20 if task.keyed else 10)))
    partitions = cycle(range(task.partitions))
    while run := list(islice(values, per_batch)):
        records = [
            ProducerRecord(task.topic, value, key=next(keys) if task.keyed else None)
            for value in run
        ]
        batch = RecordBatch.build(records, task.compression)
        yield TopicPartition(task.topic, next(partitions)), batch


_WAYS: dict[str, Callable[[Producer, Task, Any], Awaitable[None]]] = {
    "enqueue": _enqueue,
    "enqueue_nowait": _enqueue_nowait,
    "send_many": _send_many,
    "send": _send,
    "send_batch": _send_batch,
}


async def round_trip(task: Task) -> Figures:
    """Send records one after the other, waiting for each acknowledgement."""
    options = produce_options(task, linger_ms=0)
    if task.way == "linger_ms=0":
        options["linger_ms"] = 0
    async with Producer(task.bootstrap, **options) as producer:
        await producer.send(task.topic, payload.WARM_UP)
        topic, send = task.topic, producer.send
        with Stopwatch() as watch:
            times = await round_trips(lambda value: send(topic, value), values_of(task), task)
    latency = percentiles(times)
    return Figures(
        watch.seconds, watch.cpu_seconds, len(times), latency_us=latency, settings=options
    )


async def end_to_end(task: Task) -> Figures:
    """Send at a rate, and receive in the same process."""
    sending = produce_options(task, linger_ms=0)
    partitions = [TopicPartition(task.topic, number) for number in range(task.partitions)]
    latencies: list[float] = []
    async with (
        Producer(task.bootstrap, **sending) as producer,
        Consumer(task.bootstrap, partitions=partitions, auto_offset_reset="earliest") as consumer,
    ):
        await producer.send(task.topic, payload.WARM_UP)
        await anext(aiter(consumer))

        async def receive() -> None:
            async for record in consumer:
                latencies.append(perf_counter() - TIME.unpack_from(record.value or b"")[0])
                if len(latencies) == task.records:
                    return

        with Stopwatch() as watch:
            async with asyncio.TaskGroup() as group:
                group.create_task(receive())
                async for value in paced(values_of(task), task.rate):
                    timed = TIME.pack(perf_counter()) + value[TIME.size :]
                    await producer.enqueue(task.topic, timed)
    return Figures(
        watch.seconds,
        watch.cpu_seconds,
        len(latencies),
        latency_us=percentiles(latencies),
        settings=sending | {"auto_offset_reset": "earliest"},
    )


RUNS = {
    "produce": produce,
    "consume": kafka_async_consume.consume,
    "round_trip": round_trip,
    "end_to_end": end_to_end,
}

if __name__ == "__main__":
    main(RUNS)
