"""Runs cases with aiokafka, whose `send` returns when the record is in a batch."""

from __future__ import annotations

import asyncio
import struct
from itertools import cycle, islice
from time import perf_counter
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.partitioner import DefaultPartitioner

from benchmarks import payload
from benchmarks.peers.asyncio_pacing import paced, round_trips
from benchmarks.peers.reading import one_by_one, weigh
from benchmarks.peers.task import Figures, Stopwatch, Task, main, percentiles

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

PATIENCE_MS = 30_000
TIME = struct.Struct(">d")


def produce_options(task: Task, linger_ms: int = 5) -> dict[str, Any]:
    """Return the options of the producer, without the cluster."""
    options: dict[str, Any] = {"acks": "all"}
    if task.tuned:
        options |= {"linger_ms": linger_ms, "max_batch_size": 131_072, "enable_idempotence": True}
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
    send = _PRODUCE[task.way]
    producer: Any = AIOKafkaProducer(bootstrap_servers=task.bootstrap, **options)
    async with producer:
        await producer.send_and_wait(task.topic, payload.WARM_UP)
        with Stopwatch() as watch:
            sent = await send(producer, task)
            await producer.flush()
    return Figures(watch.seconds, watch.cpu_seconds, sent, settings=options)


async def _send(producer: Any, task: Task) -> int:
    topic, send = task.topic, producer.send
    if task.keyed:
        for value, key in zip(values_of(task), cycle(payload.keys()), strict=False):
            await send(topic, value, key)
    else:
        for value in values_of(task):
            await send(topic, value)
    return task.records


async def _send_batches(producer: Any, task: Task) -> int:
    """Fill batches outside of the partition queues, and send them when they are full."""
    topic = task.topic
    partitions: list[int] = sorted(await producer.partitions_for(topic))
    choose: Any = DefaultPartitioner()
    rotation = cycle(partitions)
    keys = cycle(payload.keys()) if task.keyed else cycle([None])
    builders = {partition: producer.create_batch() for partition in partitions}
    current = next(rotation)
    for value, key in zip(values_of(task), keys, strict=False):
        partition: int = current if key is None else choose(key, partitions, partitions)
        if builders[partition].append(key=key, value=value, timestamp=None) is None:
            await producer.send_batch(builders[partition], topic, partition=partition)
            builder = builders[partition] = producer.create_batch()
            builder.append(key=key, value=value, timestamp=None)
            current = next(rotation) if key is None else current
    for partition, builder in builders.items():
        if builder.record_count():
            await producer.send_batch(builder, topic, partition=partition)
    return task.records


async def _send_and_wait(producer: Any, task: Task) -> int:
    topic, send = task.topic, producer.send_and_wait
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
    return task.records


_PRODUCE: dict[str, Callable[[Any, Task], Awaitable[int]]] = {
    "enqueue": _send,
    "send_many": _send_batches,
    "send": _send_and_wait,
}


def consume_options(task: Task) -> dict[str, Any]:
    """Return the options of the consumer, without the cluster and the partitions."""
    if not task.tuned:
        return {}
    return {"max_partition_fetch_bytes": 4 * 1024 * 1024, "check_crcs": True}  # like all others


async def consume(task: Task) -> Figures:
    """Read the records of the task from the beginning of the topic."""
    options = consume_options(task)
    read = _CONSUME[task.way]
    partitions = [TopicPartition(task.topic, number) for number in range(task.partitions)]
    consumer: Any = AIOKafkaConsumer(
        bootstrap_servers=task.bootstrap, auto_offset_reset="earliest", **options
    )
    async with consumer:
        await consumer.end_offsets(partitions)
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, 0)
        # No fetch has started, because no other task has run since.
        with Stopwatch() as watch:
            records, total = await read(consumer, task)
    checksum = total if task.verify else None
    return Figures(watch.seconds, watch.cpu_seconds, records, checksum, settings=options)


async def _poll(consumer: Any, task: Task) -> tuple[int, int]:
    touch = weigh(task)
    seen = total = 0
    getmany, count = consumer.getmany, task.records
    while seen < count:
        found = await getmany(timeout_ms=PATIENCE_MS)
        if not found:
            raise RuntimeError(f"no records for {PATIENCE_MS:g} ms")
        for records in found.values():
            for record in records:
                total += touch(record.value)
            seen += len(records)
    return seen, total


_CONSUME: dict[str, Callable[[Any, Task], Awaitable[tuple[int, int]]]] = {
    "poll": _poll,
    "iterate": one_by_one,
}


async def round_trip(task: Task) -> Figures:
    """Send records one after the other, waiting for each acknowledgement."""
    options = produce_options(task, linger_ms=0)
    producer: Any = AIOKafkaProducer(bootstrap_servers=task.bootstrap, **options)
    async with producer:
        await producer.send_and_wait(task.topic, payload.WARM_UP)
        topic, send = task.topic, producer.send_and_wait
        with Stopwatch() as watch:
            times = await round_trips(lambda value: send(topic, value), values_of(task), task)
    latency = percentiles(times)
    return Figures(
        watch.seconds, watch.cpu_seconds, len(times), latency_us=latency, settings=options
    )


async def end_to_end(task: Task) -> Figures:
    """Send at a rate, and receive in the same process."""
    sending = produce_options(task, linger_ms=0)
    producer: Any = AIOKafkaProducer(bootstrap_servers=task.bootstrap, **sending)
    consumer: Any = AIOKafkaConsumer(bootstrap_servers=task.bootstrap, auto_offset_reset="earliest")
    latencies: list[float] = []
    async with producer, consumer:
        await producer.send_and_wait(task.topic, payload.WARM_UP)
        consumer.assign([TopicPartition(task.topic, n) for n in range(task.partitions)])
        await consumer.getone()

        async def receive() -> None:
            async for record in consumer:
                latencies.append(perf_counter() - TIME.unpack_from(record.value)[0])
                if len(latencies) == task.records:
                    return

        with Stopwatch() as watch:
            async with asyncio.TaskGroup() as group:
                group.create_task(receive())
                async for value in paced(values_of(task), task.rate):
                    timed = TIME.pack(perf_counter()) + value[TIME.size :]
                    await producer.send(task.topic, timed)
    return Figures(
        watch.seconds,
        watch.cpu_seconds,
        len(latencies),
        latency_us=percentiles(latencies),
        settings=sending | {"auto_offset_reset": "earliest"},
    )


RUNS = {
    "produce": produce,
    "consume": consume,
    "round_trip": round_trip,
    "end_to_end": end_to_end,
}

if __name__ == "__main__":
    main(RUNS)
