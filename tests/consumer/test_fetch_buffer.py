"""Records and position of a fetch buffer, and the memory that it retains of responses."""

from __future__ import annotations

import tracemalloc

import pytest

from kafka_async.consumer.buffer.completed_fetch import (
    BATCH_OVERHEAD,
    MAX_RETAINED_RATIO,
    CompletedFetch,
)
from kafka_async.consumer.buffer.fetch_buffer import AnyRecord, FetchBuffer
from kafka_async.errors import CorruptRecordError
from kafka_async.records.batch import RecordBatch, assign_offsets
from kafka_async.types import ProducerRecord, TopicPartition

P0 = TopicPartition("t", 0)


def batch(records: int = 3) -> bytes:
    return RecordBatch.build([ProducerRecord("t", b"%d" % n) for n in range(records)]).frame()


def response(before: int) -> tuple[bytearray, memoryview]:
    """Return a frame with a batch behind `before` other bytes, and a view of the batch."""
    frame = bytearray(before) + batch()
    return frame, memoryview(frame)[before:]


def is_retained(frame: bytearray) -> bool:
    """Return whether a view of the frame exists: then it cannot be resized."""
    try:
        frame.append(0)
    except BufferError:
        return True
    return False


def framed(values: list[str], offset: int) -> bytes:
    frame = RecordBatch.build([ProducerRecord("", v.encode()) for v in values]).frame()
    return assign_offsets(frame, offset, 4)


def completed(data: bytes | memoryview, offset: int = 0) -> CompletedFetch:
    fetched = CompletedFetch(P0, memoryview(data), offset, None)
    assert fetched.find_batches(100)
    return fetched


def filled(*parts: bytes | memoryview, at: int = 0) -> FetchBuffer:
    buffer = FetchBuffer(P0)
    buffer.clear(at)
    for part in parts:
        buffer.add(completed(part, at))
    return buffer


def offsets(records: list[AnyRecord]) -> list[int]:
    return [record.offset for record in records]


def never() -> bool:
    return False


# -- taking records -------------------------------------------------------------------------------


def test_takes_records_in_order_and_advances_position() -> None:
    buffer = filled(framed(["a", "b", "c"], 0) + framed(["d"], 3), framed(["e"], 4))
    assert offsets(buffer.take_records(2, never)) == [0, 1]
    assert buffer.position == 2
    assert offsets(buffer.take_chunk()) == [2]
    assert offsets(buffer.take_records(10, never)) == [3, 4]
    assert (buffer.position, buffer.size, bool(buffer)) == (5, 0, False)
    assert buffer.take_records(1, never) == []


def test_take_batches_raises_error_after_the_batches_before_it() -> None:
    broken = bytearray(framed(["c"], 2))
    broken[16] = 9  # the magic
    views = filled(framed(["a", "b"], 0) + bytes(broken))
    assert len(views.take_batches()[0]) == 1
    with pytest.raises(CorruptRecordError):
        views.take_batches()


# -- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "kept"),
    [(1, True), (MAX_RETAINED_RATIO - 1, True), (MAX_RETAINED_RATIO + 1, False), (1000, False)],
)
def test_small_part_of_response_does_not_retain_the_frame(parts: int, kept: bool) -> None:
    frame, data = response((parts - 1) * len(batch()))
    buffer = filled(data)
    data.release()
    assert is_retained(frame) == kept
    assert [record.value for record in buffer.take_chunk()] == [b"0", b"1", b"2"]


def test_read_batch_is_retained_until_released() -> None:
    frame, data = response(0)
    buffer = filled(data)
    data.release()
    records = buffer.take_chunk()
    assert is_retained(frame)
    buffer.put_back(records[1:])
    buffer.release_batch()
    assert is_retained(frame)
    assert buffer.position == 1
    assert [record.value for record in buffer.take_chunk()] == [b"1", b"2"]
    buffer.release_batch()
    assert not is_retained(frame)
    assert buffer.position == 3


def test_release_keeps_partly_read_batch() -> None:
    frame, data = response(0)
    buffer = filled(data)
    data.release()
    assert len(buffer.take_chunk(1)) == 1
    buffer.release_batch()
    assert is_retained(frame)
    assert [record.value for record in buffer.take_chunk()] == [b"1", b"2"]


def test_take_batches_includes_batch_of_records_put_back() -> None:
    _, data = response(0)
    buffer = filled(data)
    buffer.put_back(buffer.take_chunk()[2:])
    buffer.release_batch()
    views, start = buffer.take_batches()
    assert start == 2
    assert [view.next_offset for view in views] == [3]


@pytest.mark.parametrize("way", ["views", "seek"])
def test_take_batches_and_clear_retain_nothing(way: str) -> None:
    frame, data = response(0)
    buffer = filled(data)
    data.release()
    buffer.take_chunk(1)
    if way == "views":
        buffer.take_batches()
    else:
        buffer.clear(0)
    assert not is_retained(frame)
    assert (buffer.size, buffer.unread_bytes) == (0, 0)


def test_unread_bytes_count_batches_not_read_to_their_end() -> None:
    one = len(batch())
    data = memoryview(b"".join(assign_offsets(batch(), 3 * n, 0) for n in range(3)) + b"cut off")
    buffer = filled(data)
    assert (buffer.size, buffer.unread_bytes) == (3 * (one + BATCH_OVERHEAD) + 7, 3 * one)
    buffer.take_chunk(2)
    assert buffer.unread_bytes == 3 * one
    buffer.take_chunk()
    assert (buffer.size, buffer.unread_bytes) == (3 * (one + BATCH_OVERHEAD) + 7, 2 * one)
    buffer.take_records(10, never)
    assert (buffer.size, buffer.unread_bytes) == (0, 0)


def test_batch_overhead_covers_memory_of_a_batch() -> None:
    single = RecordBatch.build([ProducerRecord("t", b"v")], timestamp=1_700_000_000_000).frame()
    data = b"".join(assign_offsets(single, 10**9 + n, 5) for n in range(1_000))
    fetched = CompletedFetch(P0, memoryview(data), 0, None)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        assert fetched.find_batches(1_001)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert fetched.retained_bytes == len(data) + 1_000 * BATCH_OVERHEAD
    assert BATCH_OVERHEAD / 2 <= (after - before) / 1_000 <= BATCH_OVERHEAD * 1.1
