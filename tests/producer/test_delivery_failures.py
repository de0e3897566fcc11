"""Warnings about failed records whose deliveries no task awaits."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kafka_async.errors import DeliveryError, KafkaError, RecordTooLargeError
from kafka_async.producer.buffer import delivery_failures
from tests.producer.bench import Bench

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    rows = [row for row in caplog.records if row.levelno >= logging.WARNING]
    assert {row.name for row in rows} <= {"kafka_async.producer"}
    return [row.getMessage() for row in rows]


def refuse_all(bench: Bench) -> None:
    bench.faults.add(api="Produce", error="MESSAGE_TOO_LARGE", count=None)


async def test_warns_of_failed_records_that_no_task_awaits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Bench({"clicks": [1, 1]}) as bench:
        refuse_all(bench)
        for number in (0, 0, 1):
            await bench.producer.enqueue("clicks", b"v", partition=number)
        await asyncio.sleep(2)
        [warning] = warnings(caplog)
        assert "no task awaits them: 2 to clicks-0, 1 to clicks-1; the first error: " in warning
        assert "RecordTooLargeError: " in warning
        assert warning.endswith("flush(), stop() and awaiting the delivery raise it")
        with pytest.raises(DeliveryError, match="3 records"):
            await bench.producer.stop()
    assert len(warnings(caplog)) == 1


async def test_does_not_warn_of_failures_that_a_task_awaits_or_flush_raises(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    refuse_all(bench)
    with pytest.raises(RecordTooLargeError):
        await bench.producer.send("clicks", b"v")
    later = await bench.producer.enqueue("clicks", b"v")
    await asyncio.sleep(delivery_failures.AWAIT_GRACE_PERIOD / 2)
    assert isinstance(later.exception(), KafkaError)
    await bench.producer.enqueue("clicks", b"v")
    with pytest.raises(
        DeliveryError, match=r"^1 record was not delivered; the first: clicks-0: [^:]*"
    ):
        await bench.producer.flush()
    await asyncio.sleep(60)
    assert warnings(caplog) == []


async def test_error_of_flush_names_the_topic_once(bench: Bench) -> None:
    await bench.producer.enqueue("not legal!", b"v")
    with pytest.raises(DeliveryError) as caught:
        await bench.producer.flush()
    text = str(caught.value)
    assert text.startswith("1 record was not delivered; the first: not legal!: The topic name")
    assert "a-z A-Z 0-9 . _ -" in text
    assert text.count("not legal!") == 1
    assert "1 record, " in repr(caught.value.failures[0])


async def test_warns_at_growing_intervals_while_records_fail(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Bench({"clicks": [1]}, linger_ms=5) as bench:
        refuse_all(bench)
        counts: list[int] = []
        for second in range(100):
            await bench.producer.enqueue("clicks", b"v")
            await asyncio.sleep(1)
            if len(warnings(caplog)) > len(counts):
                counts.append(second)
        assert counts == [1, 11, 31, 71]
        assert "1 to clicks-0; " in warnings(caplog)[0]
        assert "10 to clicks-0 since the last warning; " in warnings(caplog)[1]
        await asyncio.sleep(1000)
        assert len(warnings(caplog)) == 5  # the remaining ones at the end of the last interval
        await bench.producer.enqueue("clicks", b"v")
        await asyncio.sleep(2)
        assert "1 to clicks-0; " in warnings(caplog)[5]
        with pytest.raises(DeliveryError, match="101 records"):
            await bench.producer.stop()


async def test_warns_of_records_of_a_missing_topic(caplog: pytest.LogCaptureFixture) -> None:
    async with Bench(max_block_ms=500) as bench:
        for number in range(7):
            await bench.producer.enqueue(f"missing-{number}", b"v")
        await asyncio.sleep(2)
        warning = warnings(caplog)[-1]
        assert "1 to missing-0, " in warning
        assert " and to 2 more; the first error: UnknownTopicOrPartitionError: the topic" in warning


async def test_reviews_many_failures_in_several_iterations_and_counts_them_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_failures, "MAX_FAILURES_PER_ITERATION", 2)
    async with Bench({"clicks": [1] * 7}) as bench:
        refuse_all(bench)
        for number in range(7):
            await bench.producer.enqueue("clicks", b"v", partition=number)
        await asyncio.sleep(2)
        [warning] = warnings(caplog)
        assert warning.count("1 to clicks-") == 5
        with pytest.raises(DeliveryError, match="7 records"):
            await bench.producer.stop()


async def test_a_transaction_raises_its_failures_and_logs_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Bench({"clicks": [1]}, transactional_id="t") as bench:
        refuse_all(bench)
        transaction = await bench.producer.begin()
        await transaction.enqueue("clicks", b"v")
        await asyncio.sleep(5)
        with pytest.raises(KafkaError):
            await transaction.commit()
    assert warnings(caplog) == []
