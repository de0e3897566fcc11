"""Consumers of an embedded cluster in memory, on virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pytest_asyncio

from kafka_async.clock import MemoryNetwork
from kafka_async.cluster.client import Client
from kafka_async.cluster.request_destinations import Leader
from kafka_async.consumer.consumer import Consumer
from kafka_async.consumer.runtime import ConsumerRuntime
from kafka_async.embedded import EmbeddedCluster
from kafka_async.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kafka_async.records.batch import BatchHeader, BatchView, RecordBatch
from kafka_async.records.compression import Codec, compress
from kafka_async.types import ProducerRecord, TopicPartition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

assert ConsumerRuntime  # loaded here with the codecs, not while a test watches its event loop
for _codec in Codec:
    compress(_codec, b"")


class Stage:
    """Provides an embedded cluster, its consumers and topics.

    Its consumers start at the beginning, do not commit automatically, and are in group "g".
    """

    def __init__(self, cluster: EmbeddedCluster, network: MemoryNetwork) -> None:
        self.cluster = cluster
        self.network = network
        self.client = Client(cluster.bootstrap_servers, dialer=network, client_id="stage")

    def consumer(self, *topics: str, **options: Any) -> Consumer:
        given: dict[str, Any] = {
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            **({"topics": topics, "group_id": "g"} if topics else {}),
            **options,
        }
        return Consumer(self.cluster.bootstrap_servers, dialer=self.network, **given)

    async def topic(self, name: str, partitions: int = 1, records: int = 0) -> list[TopicPartition]:
        """Create a topic with `records` records in each partition, valued by their offsets."""
        await self.cluster.create_topic(name, partitions)
        made = [TopicPartition(name, number) for number in range(partitions)]
        for partition in made:
            if records:
                await self.produce(partition, range(records))
        return made

    async def produce(self, partition: TopicPartition, values: Iterable[object]) -> None:
        """Produce one batch of these values."""
        records = [ProducerRecord("", str(value).encode()) for value in values]
        await self.append(partition, RecordBatch.build(records, timestamp=1_000).frame())

    async def append(self, partition: TopicPartition, batch: bytes) -> None:
        """Append an encoded batch."""
        topic_id = (await self.client.metadata_for([partition.topic], timeout=5)).topic_id(
            partition.topic
        )
        row = PartitionProduceData(index=partition.partition, records=batch)
        topic = TopicProduceData(name=partition.topic, topic_id=topic_id, partition_data=[row])
        request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
        response = await self.client.request(request, to=Leader(partition), timeout=5)
        code = response.responses[0].partition_responses[0].error_code
        assert code == 0, code

    def store(self, partition: TopicPartition, batch: bytes) -> None:
        """Append a batch to the log without Produce's checks, as a failing disk might."""
        found = self.cluster.topics.partition(partition)
        assert found is not None
        raw = memoryview(batch)
        view = BatchView(BatchHeader.unpack(raw), raw, None, None)
        found.log.write(view, self.cluster.now_ms())
        found.notify_listeners()


class StartStage(Protocol):
    async def __call__(self, brokers: int = 1, **settings: Any) -> Stage: ...


@pytest_asyncio.fixture
async def start_stage() -> AsyncIterator[StartStage]:
    stages: list[Stage] = []

    async def start(brokers: int = 1, **settings: Any) -> Stage:
        network = MemoryNetwork()
        cluster = EmbeddedCluster(brokers, network=network, **settings)
        await cluster.start()
        stage = Stage(cluster, network)
        await stage.client.start()
        stages.append(stage)
        return stage

    yield start
    for stage in stages:
        await stage.client.stop()
        await stage.cluster.stop()
        assert stage.cluster.failures == []


@pytest_asyncio.fixture
async def stage(start_stage: StartStage) -> Stage:
    """Start one broker."""
    return await start_stage()
