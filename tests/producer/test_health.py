"""The condition of a producer, as `health`, `statistics` and its events report it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafka_async.errors import DeliveryError, KafkaError
from kafka_async.hooks import BatchAcknowledged, BatchFailed
from kafka_async.types import TopicPartition
from tests.embedded_client import check_states, settle
from tests.producer.bench import Bench

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


async def test_reports_each_state_from_new_to_closed(bench: Bench) -> None:
    await bench.producer.stop()
    bench.renew()
    await check_states(bench.producer, bench.hold("Metadata"))


async def test_reports_requests_and_bytes_until_they_are_acknowledged(bench: Bench) -> None:
    producer = bench.producer
    await producer.send("clicks", b"first")
    assert (producer.health().in_flight, producer.health().buffered_bytes) == (0, 0)
    fault = bench.hold()
    delivery = await producer.enqueue("clicks", b"v" * 10_000)
    await fault.wait()
    health = producer.health()
    assert health.in_flight == 1
    assert health.buffered_bytes >= 10_000
    assert health.brokers_connected == (1,)
    assert health.last_error is None
    fault.release()
    await delivery
    assert (producer.health().in_flight, producer.health().buffered_bytes) == (0, 0)


async def test_is_degraded_without_a_cluster(bench: Bench) -> None:
    await bench.producer.send("clicks", b"first")
    await bench.cluster.stop_broker(1)
    await bench.producer.enqueue("clicks", b"later")
    await asyncio.sleep(5)
    health = bench.producer.health()
    assert health.state == "degraded"
    assert health.brokers_connected == ()
    assert health.last_error is not None
    assert health.last_error.startswith("KafkaConnectionError: ")


async def test_is_degraded_five_seconds_after_its_broker_froze(bench: Bench) -> None:
    producer = bench.producer
    await producer.send("clicks", b"first")
    frozen = bench.faults.add(hang=True, count=None)
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


async def test_names_the_refused_connection_when_all_brokers_are_down() -> None:
    """Not only that the partition's leader, which stopped first, is missing in the metadata."""
    settings = {"min_insync_replicas": 1}
    async with Bench({"clicks": [1], "audit": [3]}, settings=settings, linger_ms=5) as bench:
        await bench.producer.send("clicks", b"first")
        await bench.producer.enqueue("clicks", b"later")
        for broker in (1, 2, 3):
            await bench.cluster.stop_broker(broker)
            await asyncio.sleep(3)  # the other brokers report that it has stopped
        for _ in range(30):
            await asyncio.sleep(1)
            assert "connection refused" in str(bench.producer.health().last_error)
            assert "connection refused" in str(bench.producer.client.health().last_error)


async def test_is_failed_after_fencing() -> None:
    async with Bench({"clicks": [1]}, transactional_id="t") as bench:
        txn = await bench.producer.begin()
        await txn.send("clicks", b"1")
        async with bench.memory.producer(transactional_id="t"):
            with pytest.raises(KafkaError):
                await txn.commit()
        health = bench.producer.health()
        assert health.state == "failed"
        assert health.last_error is not None
        assert health.last_error.startswith("ProducerFencedError: ")


async def test_counts_expired_records_and_emits_an_event() -> None:
    """Records of a partition without a leader, and of a missing topic."""
    timeouts: Any = {
        "delivery_timeout_ms": 3_000,
        "request_timeout_ms": 1_000,
        "max_block_ms": 3_000,
    }
    async with Bench({"clicks": [-1]}, **timeouts) as bench:
        failed = bench.events(BatchFailed)
        deliveries = await bench.producer.send_many("clicks", [b"v"] * 3)
        deliveries.append(await bench.producer.enqueue("missing", b"v"))
        with pytest.raises(DeliveryError):
            await bench.producer.flush()
        assert all(delivery.exception() is not None for delivery in deliveries)
        assert bench.producer.statistics().record_error_total == 4
        assert sorted((event.partition, event.records) for event in failed) == [
            (TopicPartition("clicks", 0), 3),
            (TopicPartition("missing", -1), 1),
        ]


async def test_statistics_have_the_throttle_time(bench: Bench) -> None:
    bench.faults.add(api="Produce", skip=1, throttle=0.3)
    for _ in range(3):
        await bench.producer.send("clicks", b"v")
    statistics = bench.producer.statistics()
    assert statistics.produce_throttle_time_avg == 100.0
    assert statistics.produce_throttle_time_max == 300


async def test_seconds_of_an_acknowledged_batch_exclude_its_linger() -> None:
    async with Bench({"clicks": [1]}, linger_ms=500) as bench:
        acknowledged = bench.events(BatchAcknowledged)
        hold = bench.hold()
        delivery = await bench.producer.enqueue("clicks", b"v")
        await asyncio.sleep(2.5)
        hold.release()
        await settle()
        assert delivery.done()
        assert [event.seconds for event in acknowledged] == [pytest.approx(2.0, abs=0.05)]
