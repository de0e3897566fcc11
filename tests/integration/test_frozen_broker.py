"""A leader frozen by SIGSTOP: it accepts connections and requests, and does not respond.

The bounds are generous; tests/cluster/test_frozen_broker.py measures in virtual time.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from kafka_async.admin import Admin, NewTopic
from kafka_async.consumer.consumer import Consumer
from kafka_async.producer.producer import Producer
from kafka_async.testing.backends.apache import ApacheBackend
from kafka_async.testing.backends.embedded import EmbeddedBackend
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = pytest.mark.asyncio

FROZEN = 3
BOUND = 45.0
"""Seconds: one request time-out (30 s), the election and the retry; two time-outs are too long."""


@asynccontextmanager
async def frozen(cluster: ClusterHandle, partition: TopicPartition) -> AsyncGenerator[None]:
    """Freeze broker 3, so that the leadership of the partition moves."""
    backend = cluster.cluster
    if isinstance(backend, ApacheBackend):
        await asyncio.to_thread(backend.pause_broker, FROZEN)
        try:
            yield
        finally:
            await asyncio.to_thread(backend.resume_broker, FROZEN)
    elif isinstance(backend, EmbeddedBackend):
        fault = backend.cluster.faults.add(broker=FROZEN, hang=True, count=None)
        backend.cluster.move_leader(partition, 1)
        try:
            yield
        finally:
            fault.remove()
    else:
        pytest.skip(f"{backend.name} cannot freeze a broker")


@pytest_asyncio.fixture
async def partition(kafka_cluster: ClusterHandle) -> TopicPartition:
    name = kafka_cluster.topic()
    async with Admin(kafka_cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name, assignments={0: [FROZEN, 1, 2]})])
    return TopicPartition(name, 0)


@pytest.mark.slow
async def test_producer_and_consumer_continue_with_the_new_leader(
    kafka_cluster: ClusterHandle, partition: TopicPartition
) -> None:
    servers = kafka_cluster.bootstrap_servers
    async with (
        Producer(servers) as producer,
        Consumer(servers, partitions=[partition], auto_offset_reset="earliest") as consumer,
    ):
        await producer.send(partition.topic, b"before", partition=0)
        assert [record.value for record in await consumer.poll(timeout=30.0)] == [b"before"]
        async with frozen(kafka_cluster, partition), asyncio.timeout(BOUND):
            sending = asyncio.create_task(producer.send(partition.topic, b"after", partition=0))
            while producer.health().state == "running":  # noqa: ASYNC110  # There is no event.
                await asyncio.sleep(0.1)
            assert "(broker 3) has not responded for" in str(producer.health().last_error)
            assert not sending.done()
            await sending
            records = await consumer.poll(timeout=BOUND)
            while not records:
                records = await consumer.poll(timeout=BOUND)
        assert [record.value for record in records] == [b"after"]
