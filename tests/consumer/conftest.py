"""Consumers of an embedded cluster in memory, on virtual time."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

import pytest_asyncio

from kafka_async.records.batch import BatchHeader, BatchView, RecordBatch
from kafka_async.records.compression import Codec, compress
from kafka_async.types import ProducerRecord, TopicPartition
from tests.embedded_client import InMemory

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
    from typing import Self

    from kafka_async.consumer.consumer import Consumer

for _codec in Codec:
    compress(_codec, b"")  # loaded here, not while a test watches its event loop


class Stage(InMemory):
    """Provides a cluster in memory with a started client, its consumers and topics.

    Its consumers start at the beginning, do not commit automatically, and are in group "g".
    """

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.shared_client = self.client(client_id="stage")
        await self.shared_client.start()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self.shared_client.stop()
        await super().__aexit__(*raised)

    def consumer(self, *topics: str, **options: Any) -> Consumer:
        given: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
        if topics:
            given["group_id"] = "g"
        return super().consumer(*topics, **given | options)

    @asynccontextmanager
    async def reader(
        self, records: int = 0, **options: Any
    ) -> AsyncGenerator[tuple[Consumer, TopicPartition]]:
        """Start a consumer that is assigned the only partition of a new topic "t"."""
        (partition,) = await self.topic("t", 1, records)
        async with self.consumer(partitions=[partition], **options) as consumer:
            yield consumer, partition

    @asynccontextmanager
    async def member(
        self, records: int = 0, **options: Any
    ) -> AsyncGenerator[tuple[Consumer, TopicPartition]]:
        """Start a member of group "g", which subscribes to a new topic "t" of one partition."""
        (partition,) = await self.topic("t", 1, records)
        async with self.consumer("t", **options) as consumer:
            yield consumer, partition

    async def topic(self, name: str, partitions: int = 1, records: int = 0) -> list[TopicPartition]:
        """Create a topic with `records` records in each partition, valued by their offsets."""
        await self.cluster.create_topic(name, partitions)
        made = [TopicPartition(name, number) for number in range(partitions)]
        for partition in made:
            if records:
                self.produce(partition, range(records))
        return made

    def produce(
        self, partition: TopicPartition, values: Iterable[object], compression: str = "none"
    ) -> None:
        """Append one batch of these values."""
        encoded = [each if isinstance(each, bytes) else str(each).encode() for each in values]
        records = [ProducerRecord("", value) for value in encoded]
        self.append(partition, RecordBatch.build(records, compression, timestamp=1_000).frame())

    def append(self, partition: TopicPartition, batch: bytes) -> None:
        """Append an encoded batch to the log without a broker's checks."""
        found, raw = self.partition(*partition), memoryview(batch)
        view = BatchView(BatchHeader.unpack(raw), raw, None, None)
        found.log.write(view, self.cluster.scheduler.now_ms())
        found.notify_listeners()


async def poll_until(
    condition: Callable[[], object], *consumers: Consumer, timeout: float = 200
) -> None:
    """Poll consumers in turn until a condition holds; fail after a timeout in seconds."""
    async with asyncio.timeout(timeout):
        while not condition():
            for consumer in consumers:
                await consumer.poll(timeout=0.1)


class StartStage(Protocol):
    async def __call__(self, brokers: int = 1, **settings: Any) -> Stage: ...


@pytest_asyncio.fixture
async def start_stage() -> AsyncIterator[StartStage]:
    async def start(brokers: int = 1, **settings: Any) -> Stage:
        return await stack.enter_async_context(Stage(brokers, **settings))

    async with AsyncExitStack() as stack:
        yield start


@pytest_asyncio.fixture
async def stage(start_stage: StartStage) -> Stage:
    """Start one broker."""
    return await start_stage()
