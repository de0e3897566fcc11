"""Tests of the delay and the requests that a frozen broker causes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from kafka_async.client.client import services_of
from kafka_async.client.connection.broker_connection import CONNECT_HEDGE_AFTER, ConnectionKind
from kafka_async.client.metadata.coordinator_lookup import CoordinatorKind
from kafka_async.client.metadata.metadata_updater import HEDGE_AFTER
from kafka_async.client.metadata.request_router import AnyBroker, Broker
from kafka_async.errors import KafkaConnectionError, KafkaTimeoutError
from kafka_async.producer.producer import Producer
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest
from kafka_async.protocol.messages.list_groups import ListGroupsRequest
from kafka_async.protocol.messages.metadata import MetadataRequest
from kafka_async.types import TopicPartition
from tests.embedded_client import InMemory, now

if TYPE_CHECKING:
    from kafka_async.client.connection.brokers import KnownBroker

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

REQUEST = ListGroupsRequest()
"""A request that every broker can handle."""
P0 = TopicPartition("t", 0)


def metadata_requests(memory: InMemory) -> list[int]:
    """Return the number of metadata requests of each broker."""
    return [len(memory.requests(MetadataRequest, broker)) for broker in memory.cluster.brokers]


async def test_sends_one_metadata_request_while_brokers_respond() -> None:
    async with InMemory(3) as memory, memory.client() as client:
        before = sum(metadata_requests(memory))
        for _ in range(10):
            await services_of(client).metadata.refresh()
        assert sum(metadata_requests(memory)) - before == 10


async def test_sends_metadata_request_to_second_broker_after_hedge_delay() -> None:
    async with InMemory(2) as memory, memory.client(1) as client:
        await client.request(REQUEST, to=Broker(1))  # the only one that is connected
        before, start = metadata_requests(memory), now()
        memory.hang("Metadata", 1)
        await services_of(client).metadata.refresh()
        assert now() - start == pytest.approx(HEDGE_AFTER)
        assert [b - a for a, b in zip(before, metadata_requests(memory), strict=True)] == [1, 1]


async def test_uses_first_metadata_response() -> None:
    async with InMemory(2) as memory, memory.client(1) as client:
        await client.request(REQUEST, to=Broker(1))
        first, second = (memory.hang("Metadata", broker) for broker in (1, 2))
        start = now()
        updating = asyncio.create_task(services_of(client).metadata.refresh())
        await second.wait()
        await asyncio.sleep(1)
        assert not updating.done()
        first.remove()
        await updating
        assert now() - start == pytest.approx(HEDGE_AFTER + 1)
        second.remove()
        await services_of(client).metadata.refresh()


async def test_metadata_waits_for_the_only_broker() -> None:
    async with InMemory() as memory, memory.client() as client:
        frozen = memory.hang("Metadata")
        updating = asyncio.create_task(services_of(client).metadata.refresh())
        await asyncio.sleep(5)
        assert not updating.done()
        frozen.remove()
        await updating
        assert metadata_requests(memory) == [2]


async def test_broker_with_overdue_request_is_the_last_choice() -> None:
    async with InMemory(2) as memory, memory.client(1) as client:
        frozen = memory.hang("Heartbeat", 1)
        with pytest.raises(KafkaTimeoutError):
            await client.request(
                HeartbeatRequest(group_id="g"), to=Broker(1), timeout=5.0, retry=False
            )
        before, start = metadata_requests(memory), now()
        for _ in range(5):
            await services_of(client).metadata.refresh()
            await client.request(REQUEST, to=AnyBroker())
        assert now() == start
        assert [b - a for a, b in zip(before, metadata_requests(memory), strict=True)] == [0, 5]
        frozen.remove()
        await client.request(REQUEST, to=Broker(1))  # it responds again
        await memory.cluster.stop_broker(2)
        await services_of(client).metadata.refresh()
        assert metadata_requests(memory)[0] > before[0]


# -- brokers that are frozen before they are connected --------------------------------------------


async def test_request_timeout_limits_connection_attempt() -> None:
    async with InMemory(2) as memory, memory.client(2, request_timeout_ms=3_000) as client:
        memory.hang(broker=1)
        connection = services_of(client).brokers.connection(1, ConnectionKind.PRODUCE, object())
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
        memory.hang(broker=frozen)
        start = now()
        assert await services_of(client).coordinators.find(CoordinatorKind.GROUP, "g", timeout=60.0)
        assert CONNECT_HEDGE_AFTER <= now() - start < CONNECT_HEDGE_AFTER + 0.5
        assert memory.attempts(frozen) == 1


# -- partitions of a frozen leader ----------------------------------------------------------------

REQUEST_TIMEOUT = 10.0
NEW_LEADER_AFTER = 6.0


@pytest_asyncio.fixture
async def memory() -> AsyncIterator[InMemory]:
    """Run three brokers; broker 1 leads partition t-0."""
    async with InMemory(3) as running:
        await running.cluster.create_topic("t", assignments={0: [1, 2, 3]})
        yield running
        running.cluster.faults.clear()


async def change_leader_after(memory: InMemory, seconds: float) -> None:
    """Make broker 2 the leader after some time, as when the session of broker 1 expires."""
    await asyncio.sleep(seconds)
    await memory.cluster.move_leader(P0, 2)


AFTER_ELECTION = 2.0
"""Seconds after the election in which clients with default options continue."""


async def frozen_leader(memory: InMemory) -> asyncio.Task[None]:
    """Freeze the leader; return a task that ends when another broker leads the partition."""
    memory.hang(broker=1)
    changing = asyncio.create_task(change_leader_after(memory, NEW_LEADER_AFTER))
    await asyncio.sleep(0)
    return changing


@pytest.mark.parametrize("transactional_id", [None, "x"])
async def test_producer_continues_within_two_seconds_of_election(
    memory: InMemory, transactional_id: str | None
) -> None:
    """Batches in flight move with their sequence numbers, so that no record is written twice."""
    async with memory.producer(
        **({} if transactional_id is None else {"transactional_id": transactional_id}),
        batch_size=2_000,
    ) as producer:
        txn = await producer.begin() if transactional_id else None
        send = producer.enqueue if txn is None else txn.enqueue
        await (await send("t", b"before", partition=0))
        changing = await frozen_leader(memory)
        sent = [await send("t", b"%01000d" % n, partition=0) for n in range(20)]
        await changing
        elected_at = now()
        receipts = await asyncio.gather(*sent)
        assert now() - elected_at <= AFTER_ELECTION
        memory.cluster.faults.clear()  # the former leader handles the requests that it has
        last = await (await send("t", b"last", partition=0))
        assert [receipt.offset for receipt in [*receipts, last]] == [*range(1, 22)]
        if txn is not None:
            await txn.commit()


async def test_producer_continues_when_former_leader_froze_after_the_election(
    memory: InMemory,
) -> None:
    async with memory.producer() as producer:
        await producer.send("t", b"before", partition=0)
        memory.hang(broker=1)
        await memory.cluster.move_leader(P0, 2)
        start = now()
        assert (await producer.send("t", b"after", partition=0)).offset == 1
        assert now() - start <= AFTER_ELECTION


async def test_producer_without_sequences_waits_for_the_former_leader(memory: InMemory) -> None:
    """The former leader may have written the batch, and the new one could not know."""
    async with memory.producer(
        enable_idempotence=False, request_timeout_ms=REQUEST_TIMEOUT * 1000
    ) as producer:
        await producer.send("t", b"before", partition=0)
        changing = await frozen_leader(memory)
        start = now()
        await producer.send("t", b"after", partition=0)
        assert REQUEST_TIMEOUT <= now() - start <= REQUEST_TIMEOUT + 2
        await changing


async def test_consumer_continues_within_two_seconds_of_election(memory: InMemory) -> None:
    async with (
        memory.producer() as producer,
        memory.consumer(partitions=[P0], auto_offset_reset="earliest") as consumer,
    ):
        await producer.send("t", b"before", partition=0)
        assert [record.value for record in await consumer.poll(timeout=5.0)] == [b"before"]
        polling = asyncio.create_task(consumer.poll(timeout=60.0))
        changing = await frozen_leader(memory)
        sending = asyncio.create_task(producer.send("t", b"after", partition=0))
        await changing
        elected_at = now()
        assert [record.value for record in await polling] == [b"after"]
        assert now() - elected_at <= AFTER_ELECTION
        await sending
        memory.cluster.faults.clear()


async def test_nothing_more_is_sent_while_brokers_respond(memory: InMemory) -> None:
    """A slow broker is not asked about either, once its latency is usual."""
    async with (
        memory.producer() as producer,
        memory.consumer(partitions=[P0], auto_offset_reset="earliest") as consumer,
    ):
        await producer.send("t", b"first", partition=0)
        await consumer.poll(timeout=5.0)
        before = sum(metadata_requests(memory))
        for number in range(30):
            if number == 10:  # the delay stays below four times the usual latency
                memory.cluster.faults.add(api="Produce", delay=0.9, count=None)
            await producer.send("t", b"v", partition=0)
            await consumer.poll(timeout=1.0)
        assert sum(metadata_requests(memory)) == before
        memory.cluster.faults.clear()


async def test_nothing_more_is_sent_while_a_broker_throttles(memory: InMemory) -> None:
    """The broker reads a request that it has received only after the throttle time."""
    async with memory.producer(linger_ms=0) as producer:
        await producer.send("t", b"first", partition=0)
        before = sum(metadata_requests(memory))
        memory.cluster.faults.add(api="Produce", delay=0.2, throttle=5.0)
        start = now()
        first = await producer.enqueue("t", b"a", partition=0)
        await asyncio.sleep(0.1)
        second = await producer.enqueue("t", b"b", partition=0)
        await asyncio.gather(first, second)
        assert now() - start >= 5.0
        assert sum(metadata_requests(memory)) == before


async def test_only_broker_is_not_asked_about_itself() -> None:
    async with InMemory() as memory, memory.producer() as producer:
        await producer.send("t", b"first", partition=0)
        before = metadata_requests(memory)
        fault = memory.hang("Produce")
        sending = asyncio.create_task(producer.send("t", b"v", partition=0))
        await asyncio.sleep(10)
        assert metadata_requests(memory) == before
        fault.remove()
        await sending


@pytest.mark.parametrize("acks", ["all", 1])
async def test_producer_recovers_within_request_timeout(memory: InMemory, acks: str | int) -> None:
    async with memory.producer(request_timeout_ms=REQUEST_TIMEOUT * 1000, acks=acks) as producer:
        await producer.send("t", b"before", partition=0)
        memory.hang(broker=1)
        changing = asyncio.create_task(change_leader_after(memory, NEW_LEADER_AFTER))
        await asyncio.sleep(1)
        start = now()
        await producer.send("t", b"after", partition=0)
        assert now() - start <= REQUEST_TIMEOUT + 2
        await changing


async def test_consumer_recovers_within_request_timeout(memory: InMemory) -> None:
    async with (
        memory.producer() as producer,
        memory.consumer(
            partitions=[P0],
            auto_offset_reset="earliest",
            request_timeout_ms=REQUEST_TIMEOUT * 1000,
        ) as consumer,
    ):
        await producer.send("t", b"before", partition=0)
        assert [record.value for record in await consumer.poll(timeout=5.0)] == [b"before"]
        start = now()
        memory.hang(broker=1)
        await change_leader_after(memory, NEW_LEADER_AFTER)
        await services_of(producer.client).metadata.refresh(topics=["t"])
        await producer.send("t", b"after", partition=0)
        records = await consumer.poll(timeout=120.0)
        assert [record.value for record in records] == [b"after"]
        assert now() - start <= REQUEST_TIMEOUT + 2
        memory.cluster.faults.clear()


async def test_producer_recovers_from_leader_that_froze_before_it_was_connected(
    memory: InMemory,
) -> None:
    memory.hang(broker=1)
    async with (
        memory.client(2, request_timeout_ms=3_000) as client,
        Producer(client) as producer,
    ):
        start = now()
        changing = asyncio.create_task(change_leader_after(memory, 2.0))
        await producer.send("t", b"v", partition=0)
        assert now() - start <= 3 + 2
        await changing
