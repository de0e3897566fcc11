"""Handles of records, and the outcomes that they refer to."""

from __future__ import annotations

import asyncio

import pytest

from kafka_async.errors import IllegalStateError, KafkaTimeoutError, RecordTooLargeError
from kafka_async.foundation.fairness import MAX_WAKEUPS_PER_ITERATION
from kafka_async.kernel import Delivery
from kafka_async.producer.buffer.delivery_failures import DeliveryFailures
from kafka_async.producer.buffer.outcome import BatchOutcome, UnpartitionedRecord
from kafka_async.types import RecordMetadata

pytestmark = pytest.mark.asyncio


def outcome() -> BatchOutcome:
    return BatchOutcome("clicks", 3, asyncio.get_running_loop().create_future)


def unpartitioned() -> UnpartitionedRecord:
    return UnpartitionedRecord(
        "clicks",
        None,
        b"v",
        (),
        1000,
        size=10,
        created=0.0,
        new_future=asyncio.get_running_loop().create_future,
    )


async def test_each_record_of_an_acknowledged_batch_has_its_offset() -> None:
    batch = outcome()
    first, third = Delivery(batch, 0, 1000), Delivery(batch, 2, 1002)
    assert not first.done()
    batch.acknowledge(40, -1, 3)
    assert await first == RecordMetadata("clicks", 3, 40, 1000)
    assert third.result() == RecordMetadata("clicks", 3, 42, 1002)
    assert third.exception() is None


async def test_broker_time_replaces_record_time() -> None:
    batch = outcome()
    batch.acknowledge(40, 9999, 1)
    assert Delivery(batch, 0, 1000).result().timestamp == 9999


async def test_unknown_offset_applies_to_every_record() -> None:
    batch = outcome()
    batch.acknowledge(-1, -1, 2)
    assert Delivery(batch, 1, 1000).result().offset == -1


async def test_result_before_completion_raises_illegal_state() -> None:
    delivery = Delivery(outcome(), 0, 1000)
    with pytest.raises(IllegalStateError, match=r"await its delivery, or call flush\(\) first"):
        delivery.result()
    with pytest.raises(IllegalStateError):
        delivery.exception()
    early = unpartitioned()
    with pytest.raises(IllegalStateError):
        early.result(Delivery(early, 0, 1000))
    with pytest.raises(IllegalStateError):
        early.exception(Delivery(early, 0, 1000))


async def test_cancelling_one_waiter_does_not_affect_others() -> None:
    batch = outcome()
    waiters = [asyncio.ensure_future(Delivery(batch, n, 0)) for n in range(3)]
    await asyncio.sleep(0)
    waiters[1].cancel()
    await asyncio.wait({waiters[1]})
    batch.acknowledge(7, -1, 3)
    assert (await waiters[0]).offset == 7
    assert (await waiters[2]).offset == 9
    assert waiters[1].cancelled()


async def test_each_waiter_gets_the_error_with_a_new_traceback() -> None:
    batch = outcome()
    batch.fail(KafkaTimeoutError("late"), 2)
    depths: list[int] = []
    for _ in range(3):
        with pytest.raises(KafkaTimeoutError, match="late") as caught:
            await Delivery(batch, 0, 0)
        depths.append(len(caught.traceback))
    assert len(set(depths)) == 1


async def test_split_batch_is_done_with_its_last_part() -> None:
    batch = outcome()
    deliveries = [Delivery(batch, n, 0) for n in range(4)]
    waiting = asyncio.ensure_future(deliveries[3])
    await asyncio.sleep(0)
    left, right = batch.split([1, 3])
    left.acknowledge(10, -1, 1)
    await asyncio.sleep(0)
    assert not waiting.done()
    assert not deliveries[0].done()
    right.fail(RecordTooLargeError("too large"), 3)
    with pytest.raises(RecordTooLargeError):
        await waiting
    assert deliveries[0].result().offset == 10
    assert deliveries[1].exception() is right.error


async def test_parts_can_be_split_again() -> None:
    batch = outcome()
    left, right = batch.split([2, 2])
    right_left, right_right = right.split([1, 1])
    left.acknowledge(0, -1, 2)
    right_left.acknowledge(50, -1, 1)
    right_right.acknowledge(90, -1, 1)
    assert [Delivery(batch, n, 0).result().offset for n in range(4)] == [0, 1, 50, 90]


async def test_unpartitioned_record_completes_with_its_batch() -> None:
    record, batch = unpartitioned(), outcome()
    handle = Delivery(record, 0, 1000)
    waiting = asyncio.ensure_future(handle)
    await asyncio.sleep(0)
    record.assign(Delivery(batch, 1, 1000), batch)
    await asyncio.sleep(0)
    assert not handle.done()
    batch.acknowledge(5, -1, 2)
    assert (await waiting).offset == 6
    assert handle.result().offset == 6
    assert handle.exception() is None


async def test_unpartitioned_record_fails_without_a_batch() -> None:
    record = unpartitioned()
    handle = Delivery(record, 0, 1000)
    record.fail(KafkaTimeoutError("no topic"), 1)
    assert handle.done()
    with pytest.raises(KafkaTimeoutError, match="no topic"):
        await handle


async def test_only_unreported_failures_are_raised() -> None:
    failures, batch, record = DeliveryFailures(), outcome(), unpartitioned()
    batch.fail(KafkaTimeoutError("late"), 3)
    record.fail(KafkaTimeoutError("no topic"), 1)
    failures.add(batch)
    failures.add(record)
    with pytest.raises(KafkaTimeoutError):
        await Delivery(batch, 1, 0)
    assert Delivery(record, 0, 0).exception() is not None
    report = failures.take_error()
    assert report is not None
    assert [(row.topic, row.partition, row.count) for row in report.failures] == [("clicks", 3, 2)]
    assert report.__cause__ is batch.error
    assert failures.take_error() is None


async def test_unreported_failures_take_bounded_memory() -> None:
    failures = DeliveryFailures()
    for _ in range(1500):
        batch = outcome()
        batch.fail(KafkaTimeoutError("late"), 1)
        failures.add(batch)
    report = failures.take_error()
    assert report is not None
    assert len(report.failures) == 1000
    assert "500 more batches" in str(report)


# -- many waiters ---------------------------------------------------------------------------------


class Waiters:
    """Tasks that await one batch; `woken` has pairs of a number and an iteration."""

    def __init__(self, batch: BatchOutcome, size: int) -> None:
        self.woken: list[tuple[int, int]] = []
        self.iteration = 0
        self.tasks = [
            asyncio.ensure_future(self.wait(Delivery(batch, number, 1000)))
            for number in range(size)
        ]

    async def wait(self, delivery: Delivery) -> None:
        await delivery
        self.woken.append((delivery.index, self.iteration))

    async def run_iterations(self, iterations: int) -> None:
        for _ in range(iterations):
            self.iteration += 1
            await asyncio.sleep(0)


async def test_wakes_a_bounded_number_of_tasks_per_iteration_in_order() -> None:
    batch = outcome()
    waiters = Waiters(batch, 3 * MAX_WAKEUPS_PER_ITERATION)
    await asyncio.sleep(0)
    batch.acknowledge(0, -1, 3 * MAX_WAKEUPS_PER_ITERATION)
    assert Delivery(batch, 3 * MAX_WAKEUPS_PER_ITERATION - 1, 1000).done()
    await waiters.run_iterations(6)
    assert [number for number, _ in waiters.woken] == list(range(3 * MAX_WAKEUPS_PER_ITERATION))
    iterations = [iteration for _, iteration in waiters.woken]
    assert max(map(iterations.count, iterations)) <= MAX_WAKEUPS_PER_ITERATION


async def test_cancelled_waiters_do_not_delay_others() -> None:
    batch = outcome()
    waiters = Waiters(batch, 3 * MAX_WAKEUPS_PER_ITERATION)
    await asyncio.sleep(0)
    # Including the last task of the first iteration.
    cancelled = range(MAX_WAKEUPS_PER_ITERATION - 10, MAX_WAKEUPS_PER_ITERATION + 10)
    for number in cancelled:
        waiters.tasks[number].cancel()
    await asyncio.sleep(0)
    batch.acknowledge(0, -1, 3 * MAX_WAKEUPS_PER_ITERATION)
    await waiters.run_iterations(1)
    waiters.tasks[2 * MAX_WAKEUPS_PER_ITERATION].cancel()
    await waiters.run_iterations(6)
    left = [
        n
        for n in range(3 * MAX_WAKEUPS_PER_ITERATION)
        if n not in cancelled and n != 2 * MAX_WAKEUPS_PER_ITERATION
    ]
    assert [number for number, _ in waiters.woken] == left


async def test_failure_reaches_all_waiters() -> None:
    batch = outcome()
    waiters = Waiters(batch, 2 * MAX_WAKEUPS_PER_ITERATION + 1)
    await asyncio.sleep(0)
    batch.fail(KafkaTimeoutError("late"), 2 * MAX_WAKEUPS_PER_ITERATION + 1)
    results = await asyncio.gather(*waiters.tasks, return_exceptions=True)
    assert all(isinstance(result, KafkaTimeoutError) for result in results)
    assert batch.unreported_failure() is None
