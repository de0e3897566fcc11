"""A broker frozen by SIGSTOP: it accepts connections and requests, and does not respond.

The bounds are generous; tests/client/test_frozen_broker.py measures in virtual time.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from kafka_async import Consumer, Producer, TopicPartition
from kafka_async.client.client import services_of
from kafka_async.client.metadata.coordinator_lookup import CoordinatorKind
from kafka_async.errors import CommitFailedError
from kafka_async.hooks import Hooks, RequestSent
from kafka_async.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafka_async.testing.backends import ApacheBackend, EmbeddedBackend
from tests.integration.helpers import create_topic

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

FROZEN = 3
BOUND = 25.0
"""Seconds: the election and a question to another broker; a request time-out (30 s) is too long."""


@asynccontextmanager
async def frozen(backend: ApacheBackend, broker: int) -> AsyncGenerator[None]:
    await asyncio.to_thread(backend.pause_broker, broker)
    try:
        yield
    finally:
        await asyncio.to_thread(backend.resume_broker, broker)


@asynccontextmanager
async def frozen_leader(cluster: ClusterHandle, partition: TopicPartition) -> AsyncGenerator[None]:
    """Freeze the leader of a partition, so that the leadership moves."""
    backend = cluster.cluster
    if isinstance(backend, ApacheBackend):
        async with frozen(backend, FROZEN):
            yield
    elif isinstance(backend, EmbeddedBackend):
        fault = backend.cluster.faults.add(broker=FROZEN, hang=True, count=None)
        backend.cluster.move_leader(partition, 1)
        try:
            yield
        finally:
            fault.remove()
    else:
        pytest.skip(f"{backend.name} cannot freeze a broker")


async def test_producer_and_consumer_continue_with_the_new_leader(
    kafka_cluster: ClusterHandle,
) -> None:
    topic = await create_topic(kafka_cluster, assignments={0: [FROZEN, 1, 2]})
    partition = TopicPartition(topic, 0)
    servers = kafka_cluster.bootstrap_servers
    async with (
        Producer(servers) as producer,
        Consumer(servers, partitions=[partition], auto_offset_reset="earliest") as consumer,
    ):
        await producer.send(topic, b"before", partition=0)
        assert [record.value for record in await consumer.poll(timeout=30.0)] == [b"before"]
        async with frozen_leader(kafka_cluster, partition), asyncio.timeout(BOUND):
            await producer.send(topic, b"after", partition=0)
            records = await consumer.poll(timeout=BOUND)
            while not records:
                records = await consumer.poll(timeout=BOUND)
        assert [record.value for record in records] == [b"after"]


async def test_group_continues_while_its_coordinator_is_frozen(
    kafka_cluster: ClusterHandle,
) -> None:
    backend = kafka_cluster.cluster
    if not isinstance(backend, ApacheBackend):
        pytest.skip("on Apache Kafka another broker becomes the coordinator")
    hooks, looked_up = Hooks(), asyncio.Event()

    def sent(event: RequestSent) -> None:
        if event.api_key == FindCoordinatorRequest.API_KEY:
            looked_up.set()

    hooks.listen(RequestSent, sent)
    topic, group = await create_topic(kafka_cluster), kafka_cluster.group()
    await kafka_cluster.produce(topic, [b"value"])
    async with Consumer(
        kafka_cluster.bootstrap_servers,
        topics=[topic],
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=500,
        hooks=hooks,
    ) as consumer:
        coordinators = services_of(consumer.client).coordinators
        assert await consumer.poll(timeout=30)
        await consumer.commit()
        before = await coordinators.find(CoordinatorKind.GROUP, group, timeout=10)
        looked_up.clear()
        async with frozen(backend, before):
            async with asyncio.timeout(20):  # Takes about 6 s.
                await looked_up.wait()
            async with asyncio.timeout(90):
                await _commit(consumer, TopicPartition(topic, 0))
            assert await coordinators.find(CoordinatorKind.GROUP, group, timeout=10) != before


async def _commit(consumer: Consumer, partition: TopicPartition) -> None:
    """Commit, after rejoining the group if it has removed the member."""
    while True:
        await consumer.poll(timeout=1)
        try:
            await consumer.commit({partition: 1}, timeout=60)
        except CommitFailedError:
            continue
        return
