"""Runs cases with this project's clients."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from importlib import import_module
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, Final

from benchmarks import payload
from benchmarks.peers.asyncio_peer import AsyncioPeer, in_lists, iterate
from benchmarks.peers.task import Figures, Stopwatch, Task, main, weigh_values
from benchmarks.tls import FETCH_BYTES, client_options
from kafka_async import Consumer, Producer, RecordBatch, TopicPartition
from kafka_async.errors import BufferFullError
from kafka_async.types import ProducerRecord

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

RUN: Final = 1_000
"""Values per call of `send_many`."""
BATCH_BYTES: Final = 131_072
WITHOUT_LINGER: Final = "linger_ms=0"
"""Call of a round trip with this option and otherwise the defaults."""
PATIENCE: Final = 30.0
"""Time-out of a poll in seconds, after which records are missing."""
MANY_TOPICS: Final[dict[str, Any]] = {"linger_ms": 1000, "buffer_memory": 1 << 30}
"""With 32 MiB, a batch of each of 5,000 topics would have only 60 records."""


async def _enqueue_nowait(producer: Producer, task: Task) -> None:
    """Append without waiting, and yield to the event loop after every thousand records."""
    topic, enqueue_nowait = task.topic, producer.enqueue_nowait
    values = task.values()
    while run := list(islice(values, RUN)):
        for value in run:
            try:
                enqueue_nowait(topic, value)
            except BufferFullError:
                await producer.enqueue(topic, value)
        await asyncio.sleep(0)


async def _send_many(producer: Producer, task: Task) -> None:
    topic, send_many = task.topic, producer.send_many
    values, keys = task.values(), cycle(payload.keys())
    while run := list(islice(values, RUN)):
        await send_many(topic, run, list(islice(keys, len(run))) if task.keyed else None)


def _send_batches(producer: Producer, task: Task) -> Awaitable[None]:
    """Encode batches of about 128 KiB for the partitions in turn; return the loop that sends."""
    values, keys = task.values(), cycle(payload.keys())
    per_batch = max(1, BATCH_BYTES // (task.size + (20 if task.keyed else 10)))
    partitions = cycle(_partitions(task))
    prepared: list[tuple[TopicPartition, RecordBatch]] = []
    while run := list(islice(values, per_batch)):
        records = [
            ProducerRecord(task.topic, value, key=next(keys) if task.keyed else None)
            for value in run
        ]
        prepared.append((next(partitions), RecordBatch.build(records, task.compression)))

    async def send() -> None:
        send_batch = producer.send_batch
        for partition, batch in prepared:
            await send_batch(partition, batch)

    return send()


async def _poll(consumer: Consumer, task: Task, _: int) -> tuple[int, int]:
    records = await consumer.poll(timeout=PATIENCE)
    return len(records), weigh_values(records, task.weigh)


async def _batches(consumer: Consumer, task: Task, _: int) -> tuple[int, int]:
    count = total = 0
    for batch in await consumer.poll_batches(timeout=PATIENCE):
        if task.verify:
            values = [record.value or b"" for record in batch.records()]
            count += len(values)
            total += payload.checksum(values)
        else:
            count += batch.next_offset - batch.start
            total += batch.size
    return count, total


async def _arrow(consumer: Consumer, task: Task, _: int) -> tuple[int, int]:
    count = total = 0
    for batch in await consumer.poll_batches(timeout=PATIENCE):
        table: Any = batch.to_arrow()
        count += table.num_rows
        if task.verify:
            total += payload.checksum(table.column("value").to_pylist())
        else:
            total += table.nbytes
    return count, total


def _partitions(task: Task) -> list[TopicPartition]:
    return [TopicPartition(task.topic, number) for number in range(task.partitions)]


class KafkaAsyncPeer(AsyncioPeer):
    """Peer with this project's clients."""

    reads = {  # noqa: RUF012
        "poll": in_lists(_poll),
        "iterate": iterate,
        "batches": in_lists(_batches),
        "arrow": in_lists(_arrow),
    }
    _sends: Final[dict[str, Callable[[Producer, Task], Awaitable[None]]]] = {
        "enqueue_nowait": _enqueue_nowait,
        "send_many": _send_many,
        "send_batch": _send_batches,
    }

    def producer_options(self, task: Task, linger_ms: int = 0) -> dict[str, Any]:
        options: dict[str, Any] = {"acks": "all"}
        if task.tuned:
            options |= {"linger_ms": linger_ms, "batch_size": BATCH_BYTES}
            options |= {"enable_idempotence": True}
        if task.compression != "none":
            options["compression_type"] = task.compression
        if task.way == WITHOUT_LINGER:
            options["linger_ms"] = 0
        return options

    def consumer_options(self, task: Task) -> dict[str, Any]:
        # The defaults are the fastest without TLS: larger fetches exceed the processor's cache.
        fetch_bytes = FETCH_BYTES if task.cafile else 1024 * 1024
        fast = {"max_poll_records": 500, "max_partition_fetch_bytes": fetch_bytes}
        return fast if task.tuned else {}

    @asynccontextmanager
    async def producer(self, task: Task, options: dict[str, Any]) -> AsyncGenerator[Producer]:
        given = client_options(task.cafile) | options
        async with Producer(task.bootstrap, **given) as producer:
            await producer.send(task.topic, payload.WARM_UP)
            yield producer

    @asynccontextmanager
    async def consumer(self, task: Task, options: dict[str, Any]) -> AsyncGenerator[Consumer]:
        if task.way == "arrow":
            import_module("pyarrow.compute")  # a tenth of a second, before the clock starts
        given = client_options(task.cafile) | options
        async with Consumer(task.bootstrap, **given) as consumer:
            await consumer.end_offsets(_partitions(task))
            yield consumer

    def group_consumer(self, task: Task) -> Consumer:
        return Consumer(
            task.bootstrap,
            topics=[task.topic],
            group_id=task.topic,
            auto_offset_reset="earliest",
        )

    async def assign(self, consumer: Consumer, task: Task) -> None:
        consumer.assign(_partitions(task))
        for partition in _partitions(task):
            consumer.seek(partition, 0)

    def send_call(self, producer: Producer) -> Callable[..., Awaitable[object]]:
        return producer.send

    def enqueue_call(self, producer: Producer) -> Callable[..., Awaitable[object]]:
        return producer.enqueue

    def send_all(self, producer: Producer, task: Task) -> Awaitable[object]:
        send = self._sends.get(task.way, super().send_all)
        return send(producer, task)

    def sent(self, producer: Producer, task: Task) -> int:
        return producer.statistics().record_send_total - 1

    # -- special cases, with this project's clients only

    async def many_topics(self, task: Task) -> Figures:
        """Enqueue the records to many topics in turn."""
        async with Producer(task.bootstrap, **MANY_TOPICS) as producer:
            for name in task.topic_names:
                await producer.enqueue(name, payload.WARM_UP)
            await producer.flush()
            enqueue = producer.enqueue
            with Stopwatch() as watch:
                for topic, value in zip(cycle(task.topic_names), task.values(), strict=False):
                    await enqueue(topic, value)
                await producer.flush()
        return watch.figures(task.records, MANY_TOPICS)

    async def memory_producer(self, task: Task) -> Figures:
        """Enqueue records to the topics in turn for the given time, and flush."""
        sent = 0
        names, values = cycle(task.topic_names), cycle(task.distinct_values)
        async with Producer(task.bootstrap, linger_ms=5, request_timeout_ms=60_000) as producer:
            enqueue = producer.enqueue
            end = time.monotonic() + task.seconds
            with Stopwatch() as watch:
                while time.monotonic() < end:
                    await enqueue(next(names), next(values))
                    sent += 1
            async with asyncio.timeout(2 * PATIENCE):
                await producer.flush()
        return watch.figures(sent)

    async def memory_consumer(self, task: Task) -> Figures:
        """Poll for the given time from the beginning, and from the beginning again at the end.

        In every fourth second it does not poll, so that prefetched records fill the memory limit.
        """
        seen = 0
        async with Consumer(
            task.bootstrap,
            topics=task.topic_names,
            auto_offset_reset="earliest",
            request_timeout_ms=60_000,
        ) as consumer:
            began = time.monotonic()
            with Stopwatch() as watch:
                while (passed := time.monotonic() - began) < task.seconds:
                    if int(passed) % 4 == 3:
                        await asyncio.sleep(0.1)
                        continue
                    records = await consumer.poll(max_records=5_000, timeout=0.2)
                    seen += len(records)
                    if not records:
                        await consumer.seek_to_beginning()
        return watch.figures(seen)


if __name__ == "__main__":
    main(KafkaAsyncPeer())
