"""Topics that a producer uses no more are not refreshed for ever (KIP-526)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from kafka_async.errors import InvalidConfigurationError
from kafka_async.producer.producer import Producer
from kafka_async.protocol.messages.metadata import MetadataRequest
from tests.embedded_client import InMemory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

OPTIONS: dict[str, Any] = {"metadata_max_age_ms": 1_000, "metadata_max_idle_ms": 10_000}


@pytest_asyncio.fixture
async def world() -> AsyncIterator[InMemory]:
    async with InMemory(1) as world:
        await world.cluster.create_topic("busy", 1)
        await world.cluster.create_topic("rare", 1)
        yield world


async def refreshed(world: InMemory, seconds: float) -> set[str | None]:
    """Return the topics that are named by metadata requests within a time."""
    before = len(world.received)
    await asyncio.sleep(seconds)
    requests = [row.request for row in world.received[before:]]
    return {
        topic.name
        for request in requests
        if isinstance(request, MetadataRequest)
        for topic in request.topics or ()
    }


async def send_busy(producer: Producer) -> None:
    while True:
        await producer.send("busy", b"v")
        await asyncio.sleep(1)


async def test_idle_topic_is_refreshed_until_it_expires_and_again_once_used(
    world: InMemory,
) -> None:
    async with world.producer(**OPTIONS) as producer:
        await producer.send("rare", b"0")
        busy = asyncio.create_task(send_busy(producer))
        assert await refreshed(world, 8) == {"busy", "rare"}
        await asyncio.sleep(6)
        assert await refreshed(world, 30) == {"busy"}
        metadata = await producer.send("rare", b"1")
        assert metadata.offset == 1
        assert await refreshed(world, 5) == {"busy", "rare"}
        busy.cancel()


async def test_idle_topic_of_a_shared_client_is_refreshed_for_its_other_users(
    world: InMemory,
) -> None:
    async with (
        world.client(metadata_max_age_ms=1_000) as client,
        Producer(client, metadata_max_idle_ms=10_000) as producer,
        Producer(client, metadata_max_idle_ms=60_000) as other,
    ):
        await other.send("rare", b"0")
        await producer.send("rare", b"1")
        assert await refreshed(world, 20) == {"rare"}
        assert (await producer.send("rare", b"2")).offset == 2
        await asyncio.sleep(50)
        assert (await other.send("rare", b"3")).offset == 3


async def test_records_that_wait_keep_their_topic(world: InMemory) -> None:
    async with world.producer(**OPTIONS, delivery_timeout_ms=100_000) as producer:
        await producer.send("rare", b"0")
        fault = world.cluster.faults.add(api="Produce", delay=60, count=1)
        delivery = await producer.enqueue("rare", b"1")
        await fault.wait()
        assert await refreshed(world, 30) == {"rare"}
        assert (await delivery).offset == 1


async def test_shorter_time_than_javas_minimum_is_refused() -> None:
    with pytest.raises(InvalidConfigurationError, match="metadata_max_idle_ms"):
        Producer("localhost:9092", metadata_max_idle_ms=4_999)
