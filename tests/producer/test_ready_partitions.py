"""Batches that are due: when, and for which broker."""

from __future__ import annotations

import random
import weakref
from math import inf

import pytest

from kafka_async.producer.outcome import BatchOutcome
from kafka_async.producer.partition_queue import (
    BatchState,
    PartitionQueue,
    ProducerBatch,
    TopicQueue,
)
from kafka_async.producer.ready_partitions import ReadyPartitions
from tests.producer.futures import FakeFuture


class WeakReferable(BatchOutcome):
    """An outcome that weak references can refer to."""


def topic_of(*leaders: int | None) -> TopicQueue:
    topic = TopicQueue("clicks", random.Random(0))
    topic.leaders = leaders
    topic.open_batches.partitions = len(leaders)
    return topic


def batch_of(
    queue: PartitionQueue, state: BatchState = BatchState.READY, deadline: float = 100.0
) -> ProducerBatch:
    """Return a batch in the queue, according to its state."""
    outcome = BatchOutcome(*queue.partition, FakeFuture)
    batch = ProducerBatch(queue, outcome, created=0.0, deadline=deadline, order=(queue.next_order,))
    queue.next_order += 1
    batch.state = state
    if state is BatchState.OPEN:
        queue.open_batch = batch
    elif state is BatchState.IN_FLIGHT:
        batch.attempts = 1
        queue.in_flight.append(batch)
        queue.in_flight_node = queue.leader or 0
    else:
        queue.queued.append(batch)
    return batch


def pop(ready_partitions: ReadyPartitions, node: int) -> list[int]:
    return [queue.partition.partition for queue in ready_partitions.pop_partitions(node)]


# -- brokers --------------------------------------------------------------------------------------


def test_partition_with_a_batch_is_ready_for_its_leader() -> None:
    ready_partitions, topic = ReadyPartitions(), topic_of(1, 2, 1, None)
    for number in range(4):
        batch_of(topic.queue(number))
        ready_partitions.add_if_ready(topic.queue(number), 0.0)
    assert sorted(ready_partitions.nodes()) == [1, 2]
    assert pop(ready_partitions, 1) == [0, 2]
    assert pop(ready_partitions, 2) == [1]
    assert pop(ready_partitions, 3) == []
    assert ready_partitions.nodes() == []


def test_partition_is_ready_once() -> None:
    ready_partitions, queue = ReadyPartitions(), topic_of(1).queue(0)
    batch_of(queue)
    ready_partitions.add_if_ready(queue, 0.0)
    ready_partitions.add_if_ready(queue, 0.0)
    assert pop(ready_partitions, 1) == [0]


@pytest.mark.parametrize("state", [BatchState.CLOSED, BatchState.COMPRESSING])
def test_uncompressed_batch_is_not_ready(state: BatchState) -> None:
    ready_partitions, queue = ReadyPartitions(), topic_of(1).queue(0)
    batch_of(queue, state)
    ready_partitions.add_if_ready(queue, 0.0)
    assert ready_partitions.nodes() == []


def test_partition_added_again_is_popped_once_per_pass() -> None:
    ready_partitions, topic = ReadyPartitions(), topic_of(1, 1, 1)
    for number in range(3):
        batch_of(topic.queue(number))
        ready_partitions.add_if_ready(topic.queue(number), 0.0)
    visited: list[int] = []
    for queue in ready_partitions.pop_partitions(1):
        visited.append(queue.partition.partition)
        ready_partitions.add_if_ready(queue, 0.0)
    assert visited == [0, 1, 2]
    assert pop(ready_partitions, 1) == [0, 1, 2]


def test_partition_that_was_put_back_comes_first() -> None:
    ready_partitions, topic = ReadyPartitions(), topic_of(1, 1, 1)
    for number in range(3):
        batch_of(topic.queue(number))
        ready_partitions.add_if_ready(topic.queue(number), 0.0)
    for queue in ready_partitions.pop_partitions(1):
        if queue.partition.partition == 1:
            ready_partitions.put_back(queue, 1)
            break
        ready_partitions.add_if_ready(queue, 0.0)
    assert pop(ready_partitions, 1) == [1, 2, 0]


def test_new_leader_gets_no_batch_while_the_old_one_has_one() -> None:
    ready_partitions, queue = ReadyPartitions(), topic_of(1).queue(0)
    batch_of(queue, BatchState.IN_FLIGHT)
    batch_of(queue)
    assert ready_partitions.is_sendable(queue, 0.0)
    queue.leader = 2
    assert not ready_partitions.is_sendable(queue, 0.0)
    queue.in_flight.clear()
    assert ready_partitions.is_sendable(queue, 0.0)


def test_retried_batch_is_sent_alone() -> None:
    ready_partitions, queue = ReadyPartitions(), topic_of(1).queue(0)
    sent = batch_of(queue, BatchState.IN_FLIGHT)
    batch_of(queue)
    sent.attempts = 2
    assert not ready_partitions.is_sendable(queue, 0.0)


# -- transactions ---------------------------------------------------------------------------------


def test_partition_is_ready_once_added_to_the_transaction() -> None:
    ready_partitions, queue = ReadyPartitions(), topic_of(1).queue(0)
    ready_partitions.required_transaction = 1
    batch_of(queue)
    ready_partitions.add_if_ready(queue, 0.0)
    ready_partitions.add_if_ready(queue, 0.0)
    assert ready_partitions.nodes() == []
    assert list(ready_partitions.partitions_to_add) == [queue]
    queue.added_to_transaction = 1
    ready_partitions.add_if_ready(queue, 0.0)
    assert pop(ready_partitions, 1) == [0]


# -- time -----------------------------------------------------------------------------------------


def test_nothing_is_due_without_partitions() -> None:
    assert ReadyPartitions().next_due() == inf


def test_partition_is_ready_after_its_back_off() -> None:
    ready_partitions, queue = ReadyPartitions(), topic_of(1).queue(0)
    batch_of(queue)
    queue.not_before = 5.0
    ready_partitions.add_if_ready(queue, 0.0)
    ready_partitions.add_if_ready(queue, 1.0)
    assert ready_partitions.nodes() == []
    assert ready_partitions.next_due() == 5.0
    assert list(ready_partitions.end_backoffs(4.9)) == []
    assert ready_partitions.nodes() == []
    list(ready_partitions.end_backoffs(5.0))
    assert pop(ready_partitions, 1) == [0]
    assert ready_partitions.next_due() == inf, "one timer for both calls"


def test_linger_times_end_in_order() -> None:
    ready_partitions, topic = ReadyPartitions(), topic_of(1, 1, 1)
    batches = [batch_of(topic.queue(number), BatchState.OPEN) for number in range(3)]
    for number, batch in enumerate(batches):
        batch.linger_until = 1.0 + number
        ready_partitions.linger(batch)
    assert ready_partitions.next_due() == 1.0
    batches[1].state = BatchState.READY  # it was full before its linger time was over
    assert list(ready_partitions.pop_lingered(0.9)) == []
    assert list(ready_partitions.pop_lingered(2.5)) == [batches[0]]
    assert list(ready_partitions.pop_lingered(inf)) == [batches[2]]


def test_batch_that_lingers_later_may_be_due_earlier() -> None:
    ready_partitions, topic = ReadyPartitions(), topic_of(1, 1)
    late, early = (batch_of(topic.queue(number), BatchState.OPEN) for number in range(2))
    late.linger_until, early.linger_until = 2.0, 1.0  # its record waited for metadata first
    ready_partitions.linger(late)
    ready_partitions.linger(early)
    assert ready_partitions.next_due() == 1.0
    assert list(ready_partitions.pop_lingered(1.5)) == [early]


def test_old_batch_does_not_keep_finished_ones_alive() -> None:
    ready_partitions, topic = ReadyPartitions(), topic_of(1)
    ready_partitions.track_deadline(batch_of(topic.queue(0), deadline=1.0))
    kept: list[weakref.ref[WeakReferable]] = []
    for _ in range(3_000):
        done = batch_of(topic.queue(0), BatchState.DONE, deadline=2.0)
        ready_partitions.track_deadline(done)
        topic.queue(0).queued.pop()
        outcome = done.outcome = WeakReferable("clicks", 0, FakeFuture)
        kept.append(weakref.ref(outcome))
    assert sum(each() is not None for each in kept) < 1_000


def test_open_batch_is_sendable_after_its_linger_time() -> None:
    ready_partitions, queue = ReadyPartitions(), topic_of(1).queue(0)
    batch_of(queue, BatchState.OPEN).linger_until = 1.0
    assert not ready_partitions.is_sendable(queue, 0.9)
    assert ready_partitions.is_sendable(queue, 1.0)


def test_batch_in_flight_does_not_expire() -> None:
    ready_partitions, queue = ReadyPartitions(), topic_of(1).queue(0)
    waiting, sent = batch_of(queue), batch_of(queue, BatchState.IN_FLIGHT)
    done = batch_of(queue, BatchState.DONE)
    for batch in (waiting, sent, done):
        ready_partitions.track_deadline(batch)
    assert list(ready_partitions.pop_expired(99.0)) == []
    assert list(ready_partitions.pop_expired(100.0)) == [waiting]


@pytest.mark.parametrize("state", [BatchState.READY, BatchState.IN_FLIGHT])
def test_changed_deadline_applies(state: BatchState) -> None:
    ready_partitions, queue = ReadyPartitions(), topic_of(1).queue(0)
    batch = batch_of(queue, state, deadline=10.0)
    ready_partitions.track_deadline(batch)
    batch.deadline = 20.0
    assert list(ready_partitions.pop_expired(15.0)) == []
    assert ready_partitions.next_due() == 20.0
    batch.state = BatchState.READY  # it is to be retried
    assert list(ready_partitions.pop_expired(20.0)) == [batch]


def test_next_due_is_the_earliest_time() -> None:
    ready_partitions, topic = ReadyPartitions(), topic_of(1, 1)
    ready_partitions.track_deadline(batch_of(topic.queue(0), deadline=7.0))
    assert ready_partitions.next_due() == 7.0
    lingering = batch_of(topic.queue(1), BatchState.OPEN)
    lingering.linger_until = 3.0
    ready_partitions.linger(lingering)
    assert ready_partitions.next_due() == 3.0
    topic.queue(0).not_before = 2.0
    ready_partitions.add_if_ready(topic.queue(0), 0.0)
    assert ready_partitions.next_due() == 2.0
