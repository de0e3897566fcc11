"""The condition of a producer, as `health` reports it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import kernel
from kafka_async.errors import DeliveryError, KafkaError
from kafka_async.producer.producer import Producer
from kafka_async.types import Health

if TYPE_CHECKING:
    from tests.consumer.conftest import Stage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


def producer_of(stage: Stage, **options: Any) -> Producer:
    return Producer(stage.cluster.bootstrap_servers, dialer=stage.network, **options)


async def test_reports_each_state_from_new_to_closed(stage: Stage) -> None:
    producer = producer_of(stage)
    assert producer.health() == Health(state="new", kernel=kernel.IMPLEMENTATION)
    fault = stage.cluster.faults.add(api="Metadata", hang=True)
    starting = asyncio.create_task(producer.start())
    await fault.wait()
    assert producer.health().state == "starting"
    fault.release()
    await starting
    assert producer.health().state == "running"
    stopping = asyncio.create_task(producer.stop())
    await asyncio.sleep(0)
    assert producer.health().state == "stopping"
    await stopping
    assert producer.health().state == "closed"


async def test_reports_requests_and_bytes_until_they_are_acknowledged(stage: Stage) -> None:
    await stage.topic("clicks")
    async with producer_of(stage) as producer:
        await producer.send("clicks", b"first")
        assert (producer.health().in_flight, producer.health().buffered_bytes) == (0, 0)
        fault = stage.cluster.faults.add(api="Produce", hang=True)
        delivery = await producer.enqueue("clicks", b"v" * 10_000)
        await fault.wait()
        health = producer.health()
        assert health.in_flight == 1
        assert health.buffered_bytes >= 10_000
        assert health.brokers_connected == tuple(stage.cluster.alive())
        assert health.last_error is None
        fault.release()
        await delivery
        assert (producer.health().in_flight, producer.health().buffered_bytes) == (0, 0)


async def test_is_degraded_without_a_cluster_and_says_why(stage: Stage) -> None:
    await stage.topic("clicks")
    producer = producer_of(stage)
    await producer.start()
    await producer.send("clicks", b"first")
    await stage.cluster.stop_broker(1)
    await producer.enqueue("clicks", b"later")
    await asyncio.sleep(5)
    health = producer.health()
    assert health.state == "degraded"
    assert health.brokers_connected == ()
    assert health.last_error is not None
    assert health.last_error.startswith("KafkaConnectionError: ")
    with pytest.raises(DeliveryError):
        await producer.stop(0)


async def test_a_fenced_transactional_producer_has_failed(stage: Stage) -> None:
    await stage.topic("clicks")
    async with producer_of(stage, transactional_id="t") as zombie:
        txn = await zombie.begin()
        await txn.send("clicks", b"1")
        async with producer_of(stage, transactional_id="t"):
            with pytest.raises(KafkaError):
                await txn.commit()
        health = zombie.health()
        assert health.state == "failed"
        assert health.last_error is not None
        assert health.last_error.startswith("ProducerFencedError: ")
