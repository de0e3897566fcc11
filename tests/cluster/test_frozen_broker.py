"""Tests of the delay and the requests that a frozen broker causes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from kafka_async.clock import MemoryNetwork
from kafka_async.cluster.broker_connection import CONNECT_HEDGE_AFTER, ConnectionKind
from kafka_async.cluster.metadata_updater import HEDGE_AFTER
from kafka_async.cluster.request_destinations import AnyBroker, Broker, CoordinatorKind
from kafka_async.consumer.consumer import Consumer
from kafka_async.embedded import EmbeddedCluster
from kafka_async.errors import KafkaConnectionError, KafkaTimeoutError
from kafka_async.producer.producer import Producer
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest
from kafka_async.protocol.messages.list_groups import ListGroupsRequest
from kafka_async.protocol.messages.metadata import MetadataRequest
from kafka_async.types import TopicPartition
from tests.embedded_client import InMemory, until

if TYPE_CHECKING:
    from kafka_async.cluster.brokers import KnownBroker

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

REQUEST = ListGroupsRequest()
"""A request that every broker can handle."""
P0 = TopicPartition("t", 0)


def now() -> float:
    return asyncio.get_running_loop().time()


def metadata_requests(memory: InMemory) -> list[int]:
    """Return the number of metadata requests of each broker."""
    return [len(memory.requests(MetadataRequest, broker)) for broker in memory.cluster.brokers]


async def test_sends_one_metadata_request_while_brokers_respond() -> None:
    async with InMemory(3) as memory, memory.client() as client:
        before = sum(metadata_requests(memory))
        for _ in range(10):
            await client.refresh_metadata()
        assert sum(metadata_requests(memory)) - before == 10


async def test_sends_metadata_request_to_second_broker_after_hedge_delay() -> None:
    async with InMemory(2) as memory, memory.client(1) as client:
        await client.request(REQUEST, to=Broker(1))  # the only one that is connected
        before, start = metadata_requests(memory), now()
        memory.cluster.faults.add(api="Metadata", broker=1, hang=True, count=None)
        await client.refresh_metadata()
        assert now() - start == pytest.approx(HEDGE_AFTER)
        assert [b - a for a, b in zip(before, metadata_requests(memory), strict=True)] == [1, 1]


async def test_uses_first_metadata_response() -> None:
    async with InMemory(2) as memory, memory.client(1) as client:
        await client.request(REQUEST, to=Broker(1))
        first, second = (
            memory.cluster.faults.add(api="Metadata", broker=broker, hang=True, count=None)
            for broker in (1, 2)
        )
        start = now()
        updating = asyncio.create_task(client.refresh_metadata())
        await second.wait()
        await asyncio.sleep(1)
        assert not updating.done()
        first.remove()
        await updating
        assert now() - start == pytest.approx(HEDGE_AFTER + 1)
        second.remove()
        await client.refresh_metadata()


async def test_metadata_waits_for_the_only_broker() -> None:
    async with InMemory() as memory, memory.client() as client:
        frozen = memory.cluster.faults.add(api="Metadata", hang=True, count=None)
        updating = asyncio.create_task(client.refresh_metadata())
        await asyncio.sleep(5)
        assert not updating.done()
        frozen.remove()
        await updating
        assert metadata_requests(memory) == [2]


async def test_broker_with_overdue_request_is_the_last_choice() -> None:
    async with InMemory(2) as memory, memory.client(1) as client:
        frozen = memory.cluster.faults.add(api="Heartbeat", broker=1, hang=True, count=None)
        with pytest.raises(KafkaTimeoutError):
            await client.request(
                HeartbeatRequest(group_id="g"), to=Broker(1), timeout=5.0, retry=False
            )
        before, start = metadata_requests(memory), now()
        for _ in range(5):
            await client.refresh_metadata()
            await client.request(REQUEST, to=AnyBroker())
        assert now() == start
        assert [b - a for a, b in zip(before, metadata_requests(memory), strict=True)] == [0, 5]
        frozen.remove()
        await client.request(REQUEST, to=Broker(1))  # it responds again
        await memory.cluster.stop_broker(2)
        await client.refresh_metadata()
        assert metadata_requests(memory)[0] > before[0]


# -- brokers that are frozen before they are connected --------------------------------------------


def accept_only(cluster: EmbeddedCluster, broker: int) -> None:
    """Make a broker accept connections and never respond, not even to the handshake."""
    cluster.faults.add(broker=broker, hang=True, count=None)


async def test_request_timeout_limits_connection_attempt() -> None:
    async with InMemory(2) as memory, memory.client(2, request_timeout_ms=3_000) as client:
        accept_only(memory.cluster, 1)
        connection = client.connection(1, ConnectionKind.PRODUCE, object())
        start = now()
        with pytest.raises(KafkaConnectionError):
            await connection.connect(60.0)
        assert now() - start == pytest.approx(3.0)
        await connection.close()


@pytest.mark.parametrize("frozen", [1, 2])
async def test_looks_coordinator_up_at_another_broker_after_hedge_delay(
    frozen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def frozen_first(brokers: list[KnownBroker]) -> None:
        brokers.sort(key=lambda broker: broker.general.node_id != frozen)

    monkeypatch.setattr(random, "shuffle", frozen_first)
    async with InMemory(2) as memory, memory.client(3 - frozen) as client:
        accept_only(memory.cluster, frozen)
        start = now()
        assert await client.coordinator(CoordinatorKind.GROUP, "g", timeout=60.0)
        assert CONNECT_HEDGE_AFTER <= now() - start < CONNECT_HEDGE_AFTER + 0.5
        assert memory.attempts(frozen) == 1


# -- partitions of a frozen leader ----------------------------------------------------------------


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork()


@pytest_asyncio.fixture
async def cluster(network: MemoryNetwork) -> AsyncIterator[EmbeddedCluster]:
    """Three brokers; broker 1 leads partition t-0."""
    async with EmbeddedCluster(3, network=network) as running:
        await running.create_topic("t", 1)
        await running.move_leader(P0, 1)
        yield running


REQUEST_TIMEOUT = 10.0
NEW_LEADER_AFTER = 6.0


async def freeze_leader(cluster: EmbeddedCluster) -> None:
    """Freeze broker 1; after some time broker 2 becomes the leader, as when a session expires."""
    cluster.faults.add(broker=1, hang=True, count=None)
    await asyncio.sleep(NEW_LEADER_AFTER)
    await cluster.move_leader(P0, 2)


@pytest.mark.parametrize("acks", ["all", 1])
async def test_producer_recovers_within_request_timeout(
    cluster: EmbeddedCluster, network: MemoryNetwork, acks: str | int
) -> None:
    async with Producer(
        cluster.bootstrap_servers,
        dialer=network,
        request_timeout_ms=REQUEST_TIMEOUT * 1000,
        acks=acks,  # type: ignore[arg-type]  # one of its values
        enable_idempotence=acks == "all",
    ) as producer:
        await producer.send("t", b"before", partition=0)
        freezing = asyncio.create_task(freeze_leader(cluster))
        await asyncio.sleep(1)
        start = now()
        await producer.send("t", b"after", partition=0)
        assert now() - start <= REQUEST_TIMEOUT + 2
        await freezing
    cluster.faults.clear()


async def test_consumer_recovers_within_request_timeout(
    cluster: EmbeddedCluster, network: MemoryNetwork
) -> None:
    async with (
        Producer(cluster.bootstrap_servers, dialer=network) as producer,
        Consumer(
            cluster.bootstrap_servers,
            dialer=network,
            partitions=[P0],
            auto_offset_reset="earliest",
            request_timeout_ms=REQUEST_TIMEOUT * 1000,
        ) as consumer,
    ):
        await producer.send("t", b"before", partition=0)
        assert [record.value for record in await consumer.poll(timeout=5.0)] == [b"before"]
        start = now()
        freezing = asyncio.create_task(freeze_leader(cluster))
        await until(freezing.done)
        await producer.client.refresh_metadata(topics=["t"])
        await producer.send("t", b"after", partition=0)
        records = await consumer.poll(timeout=120.0)
        assert [record.value for record in records] == [b"after"]
        assert now() - start <= REQUEST_TIMEOUT + 2
        cluster.faults.clear()


async def test_producer_recovers_from_leader_that_froze_before_it_was_connected(
    cluster: EmbeddedCluster, network: MemoryNetwork
) -> None:
    accept_only(cluster, 1)
    async with Producer(
        cluster.bootstrap_servers.split(",")[1], dialer=network, request_timeout_ms=3_000
    ) as producer:
        start = now()
        moving = asyncio.create_task(freeze_leader_for(cluster, 2.0))
        await producer.send("t", b"v", partition=0)
        assert now() - start <= 3 + 2
        await moving
    cluster.faults.clear()


async def freeze_leader_for(cluster: EmbeddedCluster, seconds: float) -> None:
    await asyncio.sleep(seconds)
    await cluster.move_leader(P0, 2)
