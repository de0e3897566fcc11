"""The condition of a producer, as `health`, `statistics` and its events report it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import kernel
from kafka_async.errors import DeliveryError, KafkaError
from kafka_async.hooks import BatchAcknowledged, BatchFailed, Hooks
from kafka_async.producer.producer import Producer
from kafka_async.types import Health, TopicPartition
from tests.embedded_client import settle
from tests.producer.bench import Bench

if TYPE_CHECKING:
    from tests.consumer.conftest import Stage, StartStage

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
        assert health.brokers_connected == tuple(stage.cluster.alive_broker_ids())
        assert health.last_error is None
        fault.release()
        await delivery
        assert (producer.health().in_flight, producer.health().buffered_bytes) == (0, 0)


async def test_is_degraded_without_a_cluster(stage: Stage) -> None:
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


async def test_is_degraded_five_seconds_after_its_broker_froze(stage: Stage) -> None:
    await stage.topic("clicks")
    async with producer_of(stage) as producer:
        await producer.send("clicks", b"first")
        frozen = stage.cluster.faults.add(hang=True, count=None)
        delivery = await producer.enqueue("clicks", b"later")
        await frozen.wait()
        await asyncio.sleep(4)
        assert producer.health().state == "running"
        await asyncio.sleep(2)
        health = producer.health()
        assert health.state == "degraded"
        assert "(broker 1) has not responded for 6 s" in str(health.last_error)
        frozen.remove()
        await delivery
        assert producer.health().state == "running"


async def test_names_the_refused_connection_when_all_brokers_are_down(
    start_stage: StartStage,
) -> None:
    """Not only that the partition's leader, which stopped first, is missing in the metadata."""
    stage = await start_stage(3, min_insync_replicas=1)
    await stage.cluster.create_topic("clicks", assignments={0: [1]})
    producer = producer_of(stage)
    await producer.start()
    await producer.send("clicks", b"first")
    await producer.enqueue("clicks", b"later")
    for broker in (1, 2, 3):
        await stage.cluster.stop_broker(broker)
        await asyncio.sleep(3)  # the other brokers report that it has stopped
    for _ in range(30):
        await asyncio.sleep(1)
        assert "connection refused" in str(producer.health().last_error)
        assert "connection refused" in str(producer.client.health().last_error)
    with pytest.raises(DeliveryError):
        await producer.stop(0)


async def test_is_failed_after_fencing(stage: Stage) -> None:
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


async def test_counts_expired_records_and_emits_an_event(stage: Stage) -> None:
    """Records of a partition that lost its leader, and of a missing topic."""
    await stage.topic("clicks")
    failed: list[BatchFailed] = []
    hooks = Hooks()
    hooks.listen(BatchFailed, failed.append)
    async with producer_of(
        stage, hooks=hooks, delivery_timeout_ms=3_000, request_timeout_ms=1_000, max_block_ms=3_000
    ) as producer:
        await producer.send("clicks", b"first")
        add = stage.cluster.faults.add
        add(api="Produce", count=None, error="NOT_LEADER_OR_FOLLOWER", topic="clicks", partition=0)
        add(api="Metadata", count=None, error="UNKNOWN_TOPIC_OR_PARTITION", topic="missing")
        deliveries = await producer.send_many("clicks", [b"v"] * 3)
        deliveries.append(await producer.enqueue("missing", b"v"))
        with pytest.raises(DeliveryError):
            await producer.flush()
        assert all(delivery.exception() is not None for delivery in deliveries)
        assert producer.statistics().record_error_total == 4
    assert sorted((event.partition, event.records) for event in failed) == [
        (TopicPartition("clicks", 0), 3),
        (TopicPartition("missing", -1), 1),
    ]


async def test_statistics_have_the_throttle_time() -> None:
    async with Bench({"clicks": [1]}) as bench:
        bench.faults.add(api="Produce", skip=1, throttle=0.3)
        for _ in range(3):
            await bench.producer.send("clicks", b"v")
        statistics = bench.producer.statistics()
        assert statistics.produce_throttle_time_avg == 100.0
        assert statistics.produce_throttle_time_max == 300


async def test_seconds_of_an_acknowledged_batch_exclude_its_linger() -> None:
    async with Bench({"clicks": [1]}, linger_ms=500) as bench:
        seconds: list[float] = []
        hooks = bench.producer.client.hooks
        hooks.listen(BatchAcknowledged, lambda event: seconds.append(event.seconds))
        hold = bench.hold()
        delivery = await bench.producer.enqueue("clicks", b"v")
        await asyncio.sleep(2.5)
        hold.release()
        await settle()
        assert delivery.done()
        assert seconds == [pytest.approx(2.0, abs=0.05)]
