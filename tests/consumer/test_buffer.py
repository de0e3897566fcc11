"""What a partition's buffer keeps alive of the answers that filled it."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import pytest

from kafka_async.consumer.fetch_buffer import OVERHEAD, PINNED, Buffer, CompletedFetch
from kafka_async.records.batch import RecordBatch, assign_offsets
from kafka_async.types import ProducerRecord, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

P0 = TopicPartition("t", 0)


def batch(records: int = 3) -> bytes:
    return RecordBatch.build([ProducerRecord("t", b"%d" % n) for n in range(records)]).frame()


def answer(before: int) -> tuple[bytearray, memoryview]:
    """A frame in which a batch comes behind so many bytes, and the batch in it."""
    frame = bytearray(before) + batch()
    return frame, memoryview(frame)[before:]


def is_kept(frame: bytearray) -> bool:
    """Whether somebody has a view of it: then its size cannot be changed."""
    try:
        frame.append(0)
    except BufferError:
        return True
    return False


def filled(data: memoryview) -> Buffer:
    buffer = Buffer(P0)
    buffer.clear(0)
    fetched = CompletedFetch(P0, data, 0, None)
    assert fetched.walk(100)
    buffer.add(fetched)
    return buffer


@pytest.mark.parametrize(
    ("parts", "kept"), [(1, True), (PINNED - 1, True), (PINNED + 1, False), (1000, False)]
)
def test_a_small_part_of_an_answer_does_not_keep_the_rest(parts: int, kept: bool) -> None:
    frame, data = answer((parts - 1) * len(batch()))
    buffer = filled(data)
    data.release()
    assert is_kept(frame) == kept
    assert [record.value for record in buffer.take_some()] == [b"0", b"1", b"2"]


def test_a_batch_that_was_read_is_kept_until_it_will_not_be_put_back() -> None:
    frame, data = answer(0)
    buffer = filled(data)
    data.release()
    records = buffer.take_some()
    assert is_kept(frame)
    buffer.put_back(records[1:])
    buffer.let_go()
    assert is_kept(frame)
    assert buffer.position == 1
    assert [record.value for record in buffer.take_some()] == [b"1", b"2"]
    buffer.let_go()
    assert not is_kept(frame)
    assert buffer.position == 3


def test_a_batch_in_the_middle_is_not_let_go() -> None:
    frame, data = answer(0)
    buffer = filled(data)
    data.release()
    assert len(buffer.take_some(1)) == 1
    buffer.let_go()
    assert is_kept(frame)
    assert [record.value for record in buffer.take_some()] == [b"1", b"2"]


def test_what_was_put_back_is_there_as_a_batch_too() -> None:
    _, data = answer(0)
    buffer = filled(data)
    buffer.put_back(buffer.take_some()[2:])
    buffer.let_go()
    views, start = buffer.take_views()
    assert start == 2
    assert [view.next_offset for view in views] == [3]


@pytest.mark.parametrize("way", ["views", "seek"])
def test_views_and_seeks_leave_nothing(way: str) -> None:
    frame, data = answer(0)
    buffer = filled(data)
    data.release()
    buffer.take_some(1)
    if way == "views":
        buffer.take_views()
    else:
        buffer.clear(0)
    assert not is_kept(frame)


def test_what_is_unread_are_the_batches_that_were_not_read_to_their_end() -> None:
    one = len(batch())
    data = memoryview(b"".join(assign_offsets(batch(), 3 * n, 0) for n in range(3)) + b"cut off")
    buffer = filled(data)
    assert (buffer.size, buffer.unread) == (3 * (one + OVERHEAD) + 7, 3 * one)
    buffer.take_some(2)
    assert buffer.unread == 3 * one
    buffer.take_some()
    assert (buffer.size, buffer.unread) == (3 * (one + OVERHEAD) + 7, 2 * one)
    buffer.take(10, lambda: False)
    assert (buffer.size, buffer.unread) == (0, 0)


def cleared(buffer: Buffer) -> None:
    buffer.clear(0)


def taken_as_batches(buffer: Buffer) -> None:
    buffer.take_views()


@pytest.mark.parametrize("leave", [cleared, taken_as_batches])
def test_nothing_is_unread_of_what_was_dropped(leave: Callable[[Buffer], None]) -> None:
    buffer = filled(memoryview(batch()))
    buffer.take_some(1)
    leave(buffer)
    assert (buffer.size, buffer.unread) == (0, 0)


def test_what_is_known_of_a_batch_takes_no_more_than_is_counted() -> None:
    single = RecordBatch.build([ProducerRecord("t", b"v")], timestamp=1_700_000_000_000).frame()
    data = b"".join(assign_offsets(single, 10**9 + n, 5) for n in range(1_000))
    fetched = CompletedFetch(P0, memoryview(data), 0, None)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        assert fetched.walk(1_001)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert fetched.kept == len(data) + 1_000 * OVERHEAD
    assert OVERHEAD / 2 <= (after - before) / 1_000 <= OVERHEAD * 1.1
