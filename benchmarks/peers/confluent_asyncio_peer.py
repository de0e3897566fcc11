"""Runs cases with confluent-kafka's asyncio classes, which call librdkafka in a thread pool.

The producer collects records until it has `batch_size` of them or is flushed, and a future of a
record completes only at a poll or a flush. So a task flushes continuously; otherwise only the
buffer's time-out of at least 0.1 seconds would.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import TopicPartition
from confluent_kafka.aio import AIOConsumer, AIOProducer

from benchmarks import payload
from benchmarks.peers.asyncio_peer import AsyncioPeer, in_lists
from benchmarks.peers.confluent_peer import (
    PATIENCE,
    READ_AT_ONCE,
    consumer_options,
    producer_options,
    value_of,
    weigh_all,
)
from benchmarks.peers.task import Task, main

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

FLUSH: Final = 0.005
"""Time-out of each flush in seconds, in tasks that flush continuously."""


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


async def _send(producer: AIOProducer, task: Task) -> None:
    produce, topic, values = producer.produce, task.topic, task.values()

    async def client() -> None:
        for value in values:
            await (await produce(topic, value))

    async with _flushed(producer):
        await asyncio.gather(*(client() for _ in range(task.concurrency)))


async def _poll(consumer: AIOConsumer, task: Task, wanted: int) -> tuple[int, int]:
    messages = await consumer.consume(min(READ_AT_ONCE, wanted), PATIENCE)
    return len(messages), weigh_all(messages, task.weigh)


async def _iterate(consumer: AIOConsumer, task: Task) -> tuple[int, int]:
    poll, weigh = consumer.poll, task.weigh
    total = 0
    for number in range(task.records):
        message = await poll(PATIENCE)
        if message is None or message.error():
            raise RuntimeError(f"record {number}: {message and message.error()}")
        total += weigh(message.value())
    return task.records, total


class ConfluentAsyncioPeer(AsyncioPeer):
    """Peer with confluent-kafka's asyncio clients."""

    reads = {"poll": in_lists(_poll), "iterate": _iterate}  # noqa: RUF012

    def producer_options(self, task: Task, linger_ms: int = 0) -> dict[str, Any]:
        """Return the options of librdkafka, with delivery reports, and the records per call."""
        options = producer_options(task, linger_ms, reports=True)
        if task.tuned:
            by_kind = {"end_to_end": 1, "round_trip": 1_000}
            options["batch_size"] = by_kind.get(task.kind, 500 if task.way == "send" else 1_000)
        return options

    def consumer_options(self, task: Task) -> dict[str, Any]:
        return consumer_options(task)

    @asynccontextmanager
    async def producer(self, task: Task, options: dict[str, Any]) -> AsyncGenerator[AIOProducer]:
        given = {"bootstrap.servers": task.bootstrap, **options}
        batch_size = given.pop("batch_size", None)
        own: dict[str, Any] = {} if batch_size is None else {"batch_size": batch_size}
        producer = AIOProducer(given, **own)
        try:
            sent = await producer.produce(task.topic, payload.WARM_UP)
            await producer.flush()
            await sent
            yield producer
        finally:
            await producer.close()

    @asynccontextmanager
    async def consumer(self, task: Task, options: dict[str, Any]) -> AsyncGenerator[AIOConsumer]:
        given = {"bootstrap.servers": task.bootstrap, **options}
        consumer = AIOConsumer(given, max_workers=2)
        try:
            await consumer.list_topics(task.topic, timeout=PATIENCE)
            yield consumer
        finally:
            await consumer.close()

    async def assign(self, consumer: AIOConsumer, task: Task) -> None:
        numbers = range(task.partitions)
        await consumer.assign([TopicPartition(task.topic, number, 0) for number in numbers])

    def send_call(self, producer: AIOProducer) -> Callable[..., Awaitable[object]]:
        async def send(topic: str, value: bytes) -> None:
            sent = await producer.produce(topic, value)
            await producer.flush()
            await sent

        return send

    def enqueue_call(self, producer: AIOProducer) -> Callable[..., Awaitable[object]]:
        return producer.produce

    def send_all(self, producer: AIOProducer, task: Task) -> Awaitable[object]:
        return _send(producer, task) if task.way == "send" else super().send_all(producer, task)

    async def received(self, consumer: AIOConsumer) -> AsyncIterator[bytes]:
        while True:
            yield value_of(await consumer.poll(PATIENCE))


if __name__ == "__main__":
    main(ConfluentAsyncioPeer())
