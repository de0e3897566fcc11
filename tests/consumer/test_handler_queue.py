"""The order in which `Consumer.process` handles records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.consumer.delivery.record_processor import HandlerQueue, Unfinished
from kafka_async.consumer.subscription import OffsetsInProgress
from kafka_async.kernel import Record
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from random import Random

    from kafka_async.consumer.delivery.record_processor import Ordering

ORDERINGS: list[Ordering] = ["key", "partition", "none"]


def add(queue: HandlerQueue, partition: int, offset: int, key: bytes | None = None) -> None:
    record: Record[bytes, bytes] = Record("t", partition, offset, 0, 0, key, b"value")
    queue.add(Unfinished(record, TopicPartition("t", partition), OffsetsInProgress(), 5, key))


def take_all(queue: HandlerQueue) -> list[Unfinished]:
    return [queue.take() for _ in range(queue.ready)]


def places(taken: list[Unfinished]) -> list[tuple[int, int]]:
    return [(each.record.partition, each.record.offset) for each in taken]


def test_records_of_a_key_follow_one_another() -> None:
    queue = HandlerQueue("key")
    for offset, key in enumerate([b"a", b"a", b"b"]):
        add(queue, 0, offset, key)
    first, other = take_all(queue)
    assert places([first, other]) == [(0, 0), (0, 2)]
    assert not queue.ready
    queue.done(other)
    assert not queue.ready
    queue.done(first)
    assert places(take_all(queue)) == [(0, 1)]


def test_equal_keys_of_different_partitions_are_independent() -> None:
    queue = HandlerQueue("key")
    add(queue, 0, 0, b"a")
    add(queue, 1, 0, b"a")
    assert queue.ready == 2


def test_records_without_a_key_have_no_order() -> None:
    queue = HandlerQueue("key")
    add(queue, 0, 0)
    add(queue, 0, 1)
    assert queue.ready == 2


def test_records_of_a_partition_follow_one_another() -> None:
    queue = HandlerQueue("partition")
    for partition, offset in [(0, 0), (0, 1), (1, 0)]:
        add(queue, partition, offset, b"%d" % offset)
    assert places(take_all(queue)) == [(0, 0), (1, 0)]


def test_without_order_all_records_are_ready() -> None:
    queue = HandlerQueue("none")
    for offset in range(3):
        add(queue, 0, offset, b"a")
    assert places(take_all(queue)) == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_drop_removes_what_was_not_taken_of_these_partitions(ordering: Ordering) -> None:
    queue = HandlerQueue(ordering)
    for partition, offset in [(0, 0), (0, 1), (1, 0), (1, 1)]:
        add(queue, partition, offset, b"a")
    running = queue.take()
    queue.drop({TopicPartition("t", 0)})
    assert (queue.count, queue.bytes) == (3, 15)
    queue.done(running)
    left: list[tuple[int, int]] = []
    while queue.ready:
        taken = queue.take()
        left += places([taken])
        queue.done(taken)
    assert left == [(1, 0), (1, 1)]
    assert (queue.count, queue.bytes) == (0, 0)


@given(
    st.sampled_from(ORDERINGS),
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([None, b"a", b"b"])), max_size=30),
    st.randoms(use_true_random=False),
)
def test_each_lane_is_handled_in_order_whatever_ends_first(
    ordering: Ordering, rows: list[tuple[int, bytes | None]], random: Random
) -> None:
    queue = HandlerQueue(ordering)
    for offset, (partition, key) in enumerate(rows):
        add(queue, partition, offset, key)
    running: list[Unfinished] = []
    handled: list[Unfinished] = []
    while queue.count:
        running += take_all(queue)
        lanes = [each.lane for each in running if each.lane is not None]
        assert len(lanes) == len(set(lanes))
        handled.append(running.pop(random.randrange(len(running))))
        queue.done(handled[-1])
    assert len(handled) == len(rows)
    for lane in {each.lane for each in handled} - {None}:
        offsets = [each.record.offset for each in handled if each.lane == lane]
        assert offsets == sorted(offsets)
