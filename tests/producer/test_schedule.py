"""What is due, when, and for which broker."""

from __future__ import annotations

import random
import weakref
from math import inf

import pytest

from kafka_async.producer.outcome import BatchOutcome
from kafka_async.producer.partition_queue import PartitionQueue, TopicQueue
from kafka_async.producer.producer_batch import BatchState, ProducerBatch
from kafka_async.producer.ready_partitions import Schedule
from tests.producer.promises import FakePromise


class Referable(BatchOutcome):
    """An outcome of which one sees whether somebody still has it."""


def topic_of(*leaders: int | None) -> TopicQueue:
    topic = TopicQueue("clicks", random.Random(0))
    topic.leaders = leaders
    topic.open.partitions = len(leaders)
    return topic


def batch_of(
    queue: PartitionQueue, state: BatchState = BatchState.READY, deadline: float = 100.0
) -> ProducerBatch:
    """A batch in the queue, where its state wants it."""
    outcome = BatchOutcome(*queue.partition, FakePromise)
    batch = ProducerBatch(queue, outcome, created=0.0, deadline=deadline, order=(queue.next_order,))
    queue.next_order += 1
    batch.state = state
    if state is BatchState.OPEN:
        queue.open = batch
    elif state is BatchState.ON_WIRE:
        batch.attempts = 1
        queue.on_wire.append(batch)
        queue.wire_node = queue.leader or 0
    else:
        queue.waiting.append(batch)
    return batch


def take(schedule: Schedule, node: int) -> list[int]:
    return [queue.partition.partition for queue in schedule.rotate(node)]


# -- brokers --------------------------------------------------------------------------------------


def test_a_partition_with_something_to_send_is_found_by_its_leader() -> None:
    schedule, topic = Schedule(), topic_of(1, 2, 1, None)
    for number in range(4):
        batch_of(topic.queue(number))
        schedule.offer(topic.queue(number), 0.0)
    assert sorted(schedule.nodes()) == [1, 2]
    assert take(schedule, 1) == [0, 2]
    assert take(schedule, 2) == [1]
    assert take(schedule, 3) == []
    assert schedule.nodes() == []


def test_a_partition_is_in_its_set_once() -> None:
    schedule, queue = Schedule(), topic_of(1).queue(0)
    batch_of(queue)
    schedule.offer(queue, 0.0)
    schedule.offer(queue, 0.0)
    assert take(schedule, 1) == [0]


@pytest.mark.parametrize("state", [BatchState.SEALED, BatchState.COMPRESSING])
def test_what_is_not_compressed_yet_is_not_sent(state: BatchState) -> None:
    schedule, queue = Schedule(), topic_of(1).queue(0)
    batch_of(queue, state)
    schedule.offer(queue, 0.0)
    assert schedule.nodes() == []


def test_each_visit_is_one_even_if_a_partition_comes_back_at_once() -> None:
    schedule, topic = Schedule(), topic_of(1, 1, 1)
    for number in range(3):
        batch_of(topic.queue(number))
        schedule.offer(topic.queue(number), 0.0)
    visited: list[int] = []
    for queue in schedule.rotate(1):
        visited.append(queue.partition.partition)
        schedule.offer(queue, 0.0)
    assert visited == [0, 1, 2]
    assert take(schedule, 1) == [0, 1, 2]


def test_who_found_no_room_is_first_next_time() -> None:
    schedule, topic = Schedule(), topic_of(1, 1, 1)
    for number in range(3):
        batch_of(topic.queue(number))
        schedule.offer(topic.queue(number), 0.0)
    for queue in schedule.rotate(1):
        if queue.partition.partition == 1:
            schedule.put_back(queue, 1)
            break
        schedule.offer(queue, 0.0)
    assert take(schedule, 1) == [1, 2, 0]


def test_a_new_leader_waits_for_what_the_old_one_has() -> None:
    schedule, queue = Schedule(), topic_of(1).queue(0)
    batch_of(queue, BatchState.ON_WIRE)
    batch_of(queue)
    assert schedule.sendable(queue, 0.0)
    queue.leader = 2
    assert not schedule.sendable(queue, 0.0)
    queue.on_wire.clear()
    assert schedule.sendable(queue, 0.0)


def test_a_batch_that_is_sent_again_goes_alone() -> None:
    schedule, queue = Schedule(), topic_of(1).queue(0)
    sent = batch_of(queue, BatchState.ON_WIRE)
    batch_of(queue)
    sent.attempts = 2
    assert not schedule.sendable(queue, 0.0)


# -- transactions ---------------------------------------------------------------------------------


def test_a_partition_waits_until_it_is_admitted() -> None:
    schedule, queue = Schedule(), topic_of(1).queue(0)
    schedule.admission = 1
    batch_of(queue)
    schedule.offer(queue, 0.0)
    schedule.offer(queue, 0.0)
    assert schedule.nodes() == []
    assert list(schedule.unadmitted) == [queue]
    queue.admitted = 1
    schedule.offer(queue, 0.0)
    assert take(schedule, 1) == [0]


# -- time -----------------------------------------------------------------------------------------


def test_nothing_is_due_where_nothing_is() -> None:
    assert Schedule().next_due() == inf


def test_a_back_off_ends_by_itself() -> None:
    schedule, queue = Schedule(), topic_of(1).queue(0)
    batch_of(queue)
    queue.not_before = 5.0
    schedule.offer(queue, 0.0)
    schedule.offer(queue, 1.0)
    assert schedule.nodes() == []
    assert schedule.next_due() == 5.0
    assert list(schedule.wake(4.9)) == []
    assert schedule.nodes() == []
    list(schedule.wake(5.0))
    assert take(schedule, 1) == [0]
    assert schedule.next_due() == inf, "one timer for both offers"


def test_lingering_ends_in_the_order_of_opening() -> None:
    schedule, topic = Schedule(), topic_of(1, 1, 1)
    batches = [batch_of(topic.queue(number), BatchState.OPEN) for number in range(3)]
    for number, batch in enumerate(batches):
        batch.due = 1.0 + number
        schedule.linger(batch)
    assert schedule.next_due() == 1.0
    batches[1].state = BatchState.READY  # it was full before its time
    assert list(schedule.lingered(0.9)) == []
    assert list(schedule.lingered(2.5)) == [batches[0]]
    assert list(schedule.lingered(inf)) == [batches[2]]


def test_a_batch_opened_later_may_be_due_earlier() -> None:
    schedule, topic = Schedule(), topic_of(1, 1)
    late, early = (batch_of(topic.queue(number), BatchState.OPEN) for number in range(2))
    late.due, early.due = 2.0, 1.0  # its record waited for its topic before
    schedule.linger(late)
    schedule.linger(early)
    assert schedule.next_due() == 1.0
    assert list(schedule.lingered(1.5)) == [early]


def test_an_old_batch_keeps_none_that_are_done_behind_it() -> None:
    schedule, topic = Schedule(), topic_of(1)
    schedule.watch(batch_of(topic.queue(0), deadline=1.0))
    kept: list[weakref.ref[Referable]] = []
    for _ in range(3_000):
        done = batch_of(topic.queue(0), BatchState.DONE, deadline=2.0)
        schedule.watch(done)
        topic.queue(0).waiting.pop()
        outcome = done.outcome = Referable("clicks", 0, FakePromise)
        kept.append(weakref.ref(outcome))
    assert sum(each() is not None for each in kept) < 1_000


def test_an_open_batch_may_be_sent_once_it_has_lingered() -> None:
    schedule, queue = Schedule(), topic_of(1).queue(0)
    batch_of(queue, BatchState.OPEN).due = 1.0
    assert not schedule.sendable(queue, 0.9)
    assert schedule.sendable(queue, 1.0)


def test_what_is_on_the_wire_does_not_expire() -> None:
    schedule, queue = Schedule(), topic_of(1).queue(0)
    waiting, sent = batch_of(queue), batch_of(queue, BatchState.ON_WIRE)
    done = batch_of(queue, BatchState.DONE)
    for batch in (waiting, sent, done):
        schedule.watch(batch)
    assert list(schedule.expired(99.0)) == []
    assert list(schedule.expired(100.0)) == [waiting]


@pytest.mark.parametrize("state", [BatchState.READY, BatchState.ON_WIRE])
def test_a_deadline_that_moved_is_watched_where_it_is_now(state: BatchState) -> None:
    schedule, queue = Schedule(), topic_of(1).queue(0)
    batch = batch_of(queue, state, deadline=10.0)
    schedule.watch(batch)
    batch.deadline = 20.0
    assert list(schedule.expired(15.0)) == []
    assert schedule.next_due() == 20.0
    batch.state = BatchState.READY  # it came back from the wire
    assert list(schedule.expired(20.0)) == [batch]


def test_the_next_due_is_the_first_of_all() -> None:
    schedule, topic = Schedule(), topic_of(1, 1)
    schedule.watch(batch_of(topic.queue(0), deadline=7.0))
    assert schedule.next_due() == 7.0
    lingering = batch_of(topic.queue(1), BatchState.OPEN)
    lingering.due = 3.0
    schedule.linger(lingering)
    assert schedule.next_due() == 3.0
    topic.queue(0).not_before = 2.0
    schedule.offer(topic.queue(0), 0.0)
    assert schedule.next_due() == 2.0
