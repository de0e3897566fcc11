"""Warnings about failed records whose deliveries no task awaits."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.errors import DeliveryError, KafkaError, RecordTooLargeError
from kafka_async.producer import failure_log
from kafka_async.producer.producer import Producer

if TYPE_CHECKING:
    from tests.consumer.conftest import Stage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


def producer_of(stage: Stage, **options: Any) -> Producer:
    return Producer(stage.cluster.bootstrap_servers, dialer=stage.network, **options)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    rows = [row for row in caplog.records if row.levelno >= logging.WARNING]
    assert {row.name for row in rows} <= {"kafka_async.producer"}
    return [row.getMessage() for row in rows]


async def test_warns_of_failed_records_that_no_task_awaits(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.topic("clicks", 2)
    fault = stage.cluster.faults.add(api="Produce", error="MESSAGE_TOO_LARGE", count=None)
    producer = producer_of(stage)
    await producer.start()
    for number in (0, 0, 1):
        await producer.enqueue("clicks", b"v", partition=number)
    await fault.wait()
    await asyncio.sleep(2)
    [warning] = warnings(caplog)
    assert "no task awaits them: 2 to clicks-0, 1 to clicks-1; the first error: " in warning
    assert "RecordTooLargeError: " in warning
    assert warning.endswith("flush(), stop() and awaiting the delivery raise it")
    with pytest.raises(DeliveryError, match="3 records"):
        await producer.stop()
    assert len(warnings(caplog)) == 1


async def test_does_not_warn_of_failures_that_a_task_awaits_or_flush_raises(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.topic("clicks")
    async with producer_of(stage) as producer:
        stage.cluster.faults.add(api="Produce", error="MESSAGE_TOO_LARGE", count=None)
        awaited = await producer.enqueue("clicks", b"v")
        with pytest.raises(RecordTooLargeError):
            await awaited
        later = await producer.enqueue("clicks", b"v")
        await asyncio.sleep(failure_log.AWAIT_GRACE_PERIOD / 2)
        assert isinstance(later.exception(), KafkaError)
        await producer.enqueue("clicks", b"v")
        with pytest.raises(DeliveryError):
            await producer.flush()
        await asyncio.sleep(60)
    assert warnings(caplog) == []


async def test_warns_at_growing_intervals_while_records_fail(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.topic("clicks")
    producer = producer_of(stage)
    await producer.start()
    fault = stage.cluster.faults.add(api="Produce", error="MESSAGE_TOO_LARGE", count=None)
    counts: list[int] = []
    for second in range(100):
        await producer.enqueue("clicks", b"v")
        await asyncio.sleep(1)
        if len(warnings(caplog)) > len(counts):
            counts.append(second)
    assert counts == [1, 11, 31, 71]
    assert "1 to clicks-0; " in warnings(caplog)[0]
    assert "10 to clicks-0 since the last warning; " in warnings(caplog)[1]
    await asyncio.sleep(1000)
    assert len(warnings(caplog)) == 5  # the remaining ones at the end of the last interval
    await producer.enqueue("clicks", b"v")
    await asyncio.sleep(2)
    assert "1 to clicks-0; " in warnings(caplog)[5]
    fault.remove()
    with pytest.raises(DeliveryError, match="101 records"):
        await producer.stop()


async def test_warns_of_records_of_a_missing_topic(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    producer = producer_of(stage, max_block_ms=500)
    await producer.start()
    stage.cluster.faults.add(api="Metadata", error="UNKNOWN_TOPIC_OR_PARTITION", count=None)
    for number in range(7):
        await producer.enqueue(f"missing-{number}", b"v")
    await asyncio.sleep(2)
    warning = warnings(caplog)[-1]
    assert "1 to missing-0, " in warning
    assert " and to 2 more; the first error: UnknownTopicOrPartitionError: the topic" in warning
    with pytest.raises(DeliveryError):
        await producer.stop()


async def test_reviews_many_failures_in_several_iterations_and_counts_them_once(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failure_log, "MAX_FAILURES_PER_ITERATION", 2)
    await stage.topic("clicks", 7)
    stage.cluster.faults.add(api="Produce", error="MESSAGE_TOO_LARGE", count=None)
    producer = producer_of(stage)
    await producer.start()
    for number in range(7):
        await producer.enqueue("clicks", b"v", partition=number)
    await asyncio.sleep(2)
    [warning] = warnings(caplog)
    assert warning.count("1 to clicks-") == 5
    with pytest.raises(DeliveryError, match="7 records"):
        await producer.stop()


async def test_a_transaction_raises_its_failures_and_logs_none(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.topic("clicks")
    async with producer_of(stage, transactional_id="t") as producer:
        stage.cluster.faults.add(api="Produce", error="MESSAGE_TOO_LARGE", count=None)
        transaction = await producer.begin()
        await transaction.enqueue("clicks", b"v")
        await asyncio.sleep(5)
        with pytest.raises(KafkaError):
            await transaction.commit()
    assert warnings(caplog) == []
