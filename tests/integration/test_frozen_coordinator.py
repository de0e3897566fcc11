"""A group coordinator that is frozen by SIGSTOP: the group continues with another one."""

from __future__ import annotations

import asyncio

import pytest

from kafka_async import Admin, Consumer, Producer, TopicPartition
from kafka_async.admin import NewTopic
from kafka_async.cluster.request_destinations import CoordinatorKind
from kafka_async.errors import CommitFailedError
from kafka_async.hooks import Hooks, RequestSent
from kafka_async.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafka_async.testing.backends import ApacheBackend

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]


async def test_group_continues_while_its_coordinator_is_frozen() -> None:
    cluster = ApacheBackend(brokers=3)
    await asyncio.to_thread(cluster.start)
    try:
        await _check_frozen_coordinator(cluster)
    finally:
        await asyncio.to_thread(cluster.stop)


async def _check_frozen_coordinator(cluster: ApacheBackend) -> None:
    hooks, looked_up = Hooks(), asyncio.Event()

    def sent(event: RequestSent) -> None:
        if event.api_key == FindCoordinatorRequest.API_KEY:
            looked_up.set()

    hooks.listen(RequestSent, sent)
    servers = cluster.bootstrap_servers
    async with Admin(servers) as admin:
        await admin.create_topics([NewTopic("t", 1, 3)])
    async with Producer(servers) as producer:
        await producer.send("t", b"value")
    async with Consumer(
        servers,
        topics=["t"],
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=500,
        hooks=hooks,
    ) as consumer:
        assert await consumer.poll(timeout=30)
        await consumer.commit()
        coordinator = await consumer.client.coordinator(CoordinatorKind.GROUP, "g", timeout=10)
        looked_up.clear()
        cluster.pause_broker(coordinator)
        try:
            async with asyncio.timeout(20):  # Takes about 6 s.
                await looked_up.wait()
            async with asyncio.timeout(90):
                await _commit(consumer)
            found = await consumer.client.coordinator(CoordinatorKind.GROUP, "g", timeout=10)
            assert found != coordinator
        finally:
            cluster.resume_broker(coordinator)


async def _commit(consumer: Consumer) -> None:
    """Commit, after rejoining the group if it has removed the member."""
    while True:
        await consumer.poll(timeout=1)
        try:
            await consumer.commit({TopicPartition("t", 0): 1}, timeout=60)
        except CommitFailedError:
            continue
        return
