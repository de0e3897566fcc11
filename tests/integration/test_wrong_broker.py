"""Clients that reach another broker than the one in their metadata (KIP-1242).

Kafka 4.4 responds with REBOOTSTRAP_REQUIRED when the connection is set up; the client rebootstraps
without an error for the application.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from kafka_async.client.client import Client, services_of
from kafka_async.consumer.consumer import Consumer
from kafka_async.hooks import Hooks, Rebootstrapped
from kafka_async.producer.producer import Producer
from kafka_async.types import TopicPartition
from tests.integration.helpers import create_topic

if TYPE_CHECKING:
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = pytest.mark.asyncio


class Setting:
    """Gives a client metadata in which a topic's leader, broker 3, has the address of broker 1."""

    def __init__(self, client: Client, partition: TopicPartition) -> None:
        self.client = client
        self.partition = partition
        self.reasons: list[str] = []
        client.hooks.listen(Rebootstrapped, lambda event: self.reasons.append(event.reason))

    async def misplace(self) -> None:
        await services_of(self.client).metadata.wait_for_topics(
            [self.partition.topic], timeout=30.0
        )
        first, third = (
            services_of(self.client).metadata.snapshot.brokers[node_id] for node_id in (1, 3)
        )
        metadata = services_of(self.client).metadata
        metadata.update_broker(third._replace(host=first.host, port=first.port))


@pytest_asyncio.fixture
async def setting(kafka_cluster: ClusterHandle) -> AsyncIterator[Setting]:
    name = await create_topic(kafka_cluster, assignments={0: [3]})
    async with Client(kafka_cluster.bootstrap_servers, hooks=Hooks()) as client:
        yield Setting(client, TopicPartition(name, 0))


async def test_producer_rebootstraps_and_delivers(setting: Setting) -> None:
    async with Producer(setting.client) as producer:
        await setting.misplace()
        async with asyncio.timeout(60):
            row = await producer.send(setting.partition.topic, b"v", partition=0)
    assert row.offset == 0
    assert any("another broker" in reason for reason in setting.reasons)


async def test_consumer_rebootstraps_and_reads(
    setting: Setting, kafka_cluster: ClusterHandle
) -> None:
    async with Producer(kafka_cluster.bootstrap_servers) as producer:
        await producer.send(setting.partition.topic, b"v", partition=0)
    await setting.misplace()
    partitions = [setting.partition]
    async with (
        Consumer(setting.client, partitions=partitions, auto_offset_reset="earliest") as consumer,
        asyncio.timeout(60),
    ):
        records = await consumer.poll(timeout=30.0)
        while not records:
            records = await consumer.poll(timeout=30.0)
    assert [record.value for record in records] == [b"v"]
    assert any("another broker" in reason for reason in setting.reasons)
