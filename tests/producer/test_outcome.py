"""Handles and the outcomes they ask."""

from __future__ import annotations

import asyncio

import pytest

from kafka_async.errors import IllegalStateError, KafkaTimeoutError, RecordTooLargeError
from kafka_async.kernel import Delivery
from kafka_async.producer.outcome import WOKEN_A_TURN, BatchOutcome, Undesignated
from kafka_async.producer.unreported_failures import Failures
from kafka_async.types import RecordMetadata

pytestmark = pytest.mark.asyncio


def outcome() -> BatchOutcome:
    return BatchOutcome("clicks", 3, asyncio.get_running_loop().create_future)


def undesignated() -> Undesignated:
    return Undesignated(
        "clicks",
        None,
        b"v",
        (),
        1000,
        size=10,
        created=0.0,
        new_promise=asyncio.get_running_loop().create_future,
    )


async def test_each_record_of_an_acknowledged_batch_has_its_own_place() -> None:
    batch = outcome()
    first, third = Delivery(batch, 0, 1000), Delivery(batch, 2, 1002)
    assert not first.done()
    batch.acknowledge(40, -1, 3)
    assert await first == RecordMetadata("clicks", 3, 40, 1000)
    assert third.result() == RecordMetadata("clicks", 3, 42, 1002)
    assert third.exception() is None


async def test_the_brokers_time_replaces_the_records_own() -> None:
    batch = outcome()
    batch.acknowledge(40, 9999, 1)
    assert Delivery(batch, 0, 1000).result().timestamp == 9999


async def test_an_unknown_offset_is_unknown_for_every_record() -> None:
    batch = outcome()
    batch.acknowledge(-1, -1, 2)
    assert Delivery(batch, 1, 1000).result().offset == -1


async def test_asking_too_early_is_an_error() -> None:
    delivery = Delivery(outcome(), 0, 1000)
    with pytest.raises(IllegalStateError):
        delivery.result()
    with pytest.raises(IllegalStateError):
        delivery.exception()
    early = undesignated()
    with pytest.raises(IllegalStateError):
        early.result(Delivery(early, 0, 1000))
    with pytest.raises(IllegalStateError):
        early.exception(Delivery(early, 0, 1000))


async def test_cancelling_one_waiter_leaves_the_others_alone() -> None:
    batch = outcome()
    waiters = [asyncio.ensure_future(Delivery(batch, n, 0)) for n in range(3)]
    await asyncio.sleep(0)
    waiters[1].cancel()
    await asyncio.wait({waiters[1]})
    batch.acknowledge(7, -1, 3)
    assert (await waiters[0]).offset == 7
    assert (await waiters[2]).offset == 9
    assert waiters[1].cancelled()


async def test_every_waiter_gets_the_error_with_a_traceback_of_its_own() -> None:
    batch = outcome()
    batch.fail(KafkaTimeoutError("late"), 2)
    depths: list[int] = []
    for _ in range(3):
        with pytest.raises(KafkaTimeoutError, match="late") as caught:
            await Delivery(batch, 0, 0)
        depths.append(len(caught.traceback))
    assert len(set(depths)) == 1


async def test_a_split_batch_is_done_when_its_last_part_is() -> None:
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


async def test_parts_of_parts_keep_their_records_apart() -> None:
    batch = outcome()
    left, right = batch.split([2, 2])
    right_left, right_right = right.split([1, 1])
    left.acknowledge(0, -1, 2)
    right_left.acknowledge(50, -1, 1)
    right_right.acknowledge(90, -1, 1)
    assert [Delivery(batch, n, 0).result().offset for n in range(4)] == [0, 1, 50, 90]


async def test_an_undesignated_record_passes_questions_on_once_it_has_a_batch() -> None:
    record, batch = undesignated(), outcome()
    handle = Delivery(record, 0, 1000)
    waiting = asyncio.ensure_future(handle)
    await asyncio.sleep(0)
    record.designate(Delivery(batch, 1, 1000), batch)
    await asyncio.sleep(0)
    assert not handle.done()
    batch.acknowledge(5, -1, 2)
    assert (await waiting).offset == 6
    assert handle.result().offset == 6
    assert handle.exception() is None


async def test_an_undesignated_record_may_fail_without_a_batch() -> None:
    record = undesignated()
    handle = Delivery(record, 0, 1000)
    record.fail(KafkaTimeoutError("no topic"))
    assert handle.done()
    with pytest.raises(KafkaTimeoutError, match="no topic"):
        await handle


async def test_only_what_nobody_was_told_is_reported() -> None:
    failures, batch, record = Failures(), outcome(), undesignated()
    batch.fail(KafkaTimeoutError("late"), 3)
    record.fail(KafkaTimeoutError("no topic"))
    failures.add(batch)
    failures.add(record)
    with pytest.raises(KafkaTimeoutError):
        await Delivery(batch, 1, 0)
    assert Delivery(record, 0, 0).exception() is not None
    report = failures.take()
    assert report is not None
    assert [(row.topic, row.partition, row.count) for row in report.failures] == [("clicks", 3, 2)]
    assert report.__cause__ is batch.error
    assert failures.take() is None


async def test_failures_nobody_asks_for_take_bounded_memory() -> None:
    failures = Failures()
    for _ in range(1500):
        batch = outcome()
        batch.fail(KafkaTimeoutError("late"), 1)
        failures.add(batch)
    report = failures.take()
    assert report is not None
    assert len(report.failures) == 1000
    assert "500 more batches" in str(report)


# -- many who wait --------------------------------------------------------------------------------


class Crowd:
    """Tasks that wait for one batch; `woken` has each one's number and the turn it went on in."""

    def __init__(self, batch: BatchOutcome, size: int) -> None:
        self.woken: list[tuple[int, int]] = []
        self.turn = 0
        self.tasks = [
            asyncio.ensure_future(self.wait(Delivery(batch, number, 1000)))
            for number in range(size)
        ]

    async def wait(self, delivery: Delivery) -> None:
        await delivery
        self.woken.append((delivery.index, self.turn))

    async def go_on(self, turns: int) -> None:
        for _ in range(turns):
            self.turn += 1
            await asyncio.sleep(0)


async def test_a_turn_wakes_only_so_many_and_all_in_order() -> None:
    batch = outcome()
    crowd = Crowd(batch, 3 * WOKEN_A_TURN)
    await asyncio.sleep(0)
    batch.acknowledge(0, -1, 3 * WOKEN_A_TURN)
    assert Delivery(batch, 3 * WOKEN_A_TURN - 1, 1000).done()
    await crowd.go_on(6)
    assert [number for number, _ in crowd.woken] == list(range(3 * WOKEN_A_TURN))
    turns = [turn for _, turn in crowd.woken]
    assert max(map(turns.count, turns)) <= WOKEN_A_TURN


async def test_who_has_stopped_waiting_holds_up_nobody_behind() -> None:
    batch = outcome()
    crowd = Crowd(batch, 3 * WOKEN_A_TURN)
    await asyncio.sleep(0)
    gone = range(WOKEN_A_TURN - 10, WOKEN_A_TURN + 10)  # the last of the first turn among them
    for number in gone:
        crowd.tasks[number].cancel()
    await asyncio.sleep(0)
    batch.acknowledge(0, -1, 3 * WOKEN_A_TURN)
    await crowd.go_on(1)
    crowd.tasks[2 * WOKEN_A_TURN].cancel()
    await crowd.go_on(6)
    left = [n for n in range(3 * WOKEN_A_TURN) if n not in gone and n != 2 * WOKEN_A_TURN]
    assert [number for number, _ in crowd.woken] == left


async def test_a_failure_reaches_all_of_many() -> None:
    batch = outcome()
    crowd = Crowd(batch, 2 * WOKEN_A_TURN + 1)
    await asyncio.sleep(0)
    batch.fail(KafkaTimeoutError("late"), 2 * WOKEN_A_TURN + 1)
    results = await asyncio.gather(*crowd.tasks, return_exceptions=True)
    assert all(isinstance(result, KafkaTimeoutError) for result in results)
    assert batch.unreported() is None
