"""Runs cases with aiokafka, whose `send` returns when the record is in a batch."""

from __future__ import annotations

import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from benchmarks import payload
from benchmarks.peers.asyncio_peer import AsyncioPeer, in_lists, iterate
from benchmarks.peers.task import Task, main, weigh_values

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

PATIENCE_MS: Final = 30_000


async def _poll(consumer: Any, task: Task, _: int) -> tuple[int, int]:
    found = await consumer.getmany(timeout_ms=PATIENCE_MS)
    weights = [weigh_values(records, task.weigh) for records in found.values()]
    return sum(map(len, found.values())), sum(weights)


def _partitions(task: Task) -> list[TopicPartition]:
    return [TopicPartition(task.topic, number) for number in range(task.partitions)]


def cluster_options(task: Task) -> dict[str, Any]:
    """Return the options with the address of the cluster and for TLS."""
    given: dict[str, Any] = {"bootstrap_servers": task.bootstrap}
    if task.cafile:
        context = ssl.create_default_context(cafile=task.cafile)
        given |= {"security_protocol": "SSL", "ssl_context": context}
    return given


class AiokafkaPeer(AsyncioPeer):
    """Peer with aiokafka's clients."""

    reads = {"poll": in_lists(_poll), "iterate": iterate}  # noqa: RUF012

    def producer_options(self, task: Task, linger_ms: int = 0) -> dict[str, Any]:
        options: dict[str, Any] = {"acks": "all"}
        if task.tuned:
            options |= {"linger_ms": linger_ms, "max_batch_size": 131_072}
            options |= {"enable_idempotence": True}
        if task.compression != "none":
            options["compression_type"] = task.compression
        return options

    def consumer_options(self, task: Task) -> dict[str, Any]:
        fast = {"max_partition_fetch_bytes": 4 * 1024 * 1024, "check_crcs": True}  # like all others
        return fast if task.tuned else {}

    @asynccontextmanager
    async def producer(self, task: Task, options: dict[str, Any]) -> AsyncGenerator[Any]:
        producer: Any = AIOKafkaProducer(**cluster_options(task), **options)
        async with producer:
            await producer.send_and_wait(task.topic, payload.WARM_UP)
            yield producer

    @asynccontextmanager
    async def consumer(self, task: Task, options: dict[str, Any]) -> AsyncGenerator[Any]:
        given: dict[str, Any] = {"auto_offset_reset": "earliest", **options}
        consumer: Any = AIOKafkaConsumer(**cluster_options(task), **given)
        async with consumer:
            await consumer.end_offsets(_partitions(task))
            yield consumer

    def group_consumer(self, task: Task) -> Any:
        options: dict[str, Any] = {"group_id": task.topic, "auto_offset_reset": "earliest"}
        return AIOKafkaConsumer(task.topic, bootstrap_servers=task.bootstrap, **options)

    async def assign(self, consumer: Any, task: Task) -> None:
        consumer.assign(_partitions(task))
        for partition in _partitions(task):
            consumer.seek(partition, 0)

    def send_call(self, producer: Any) -> Callable[..., Awaitable[object]]:
        return producer.send_and_wait

    def enqueue_call(self, producer: Any) -> Callable[..., Awaitable[object]]:
        return producer.send


if __name__ == "__main__":
    main(AiokafkaPeer())
