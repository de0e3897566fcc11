"""Appends to and reads from the segments of a log."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafka_async.embedded.state.log_segments import MAX_SEGMENT_BYTES, LogSegments
from kafka_async.records.batch import iter_batches
from tests.raw_connection import batch


def filled(*sizes: int) -> LogSegments:
    """Return segments with a batch of one record for each size; offsets are indices."""
    stored = LogSegments()
    for offset, size in enumerate(sizes):
        stored.append(batch(b"x" * size), offset, offset, 7, max_timestamp=offset * 10)
    return stored


def read_all(stored: LogSegments, start: int, upper: int, max_bytes: int) -> list[int]:
    """Return the base offsets of all batches, read until there are no more."""
    found: list[int] = []
    while data := stored.read(start, upper, max_bytes):
        found += [view.base_offset for view in iter_batches(data)]
        start = found[-1] + 1
    return found


def test_read_returns_batches_with_offset_and_epoch() -> None:
    (first, second) = iter_batches(filled(10, 20).read(0, 2, 10_000))
    assert (first.base_offset, second.base_offset) == (0, 1)
    assert first.header.leader_epoch == 7
    assert [record.value for record in second.records()] == [b"x" * 20]


def test_read_begins_with_batch_of_offset() -> None:
    stored = LogSegments()
    stored.append(batch(b"a", b"b", b"c"), 0, 2, 0, 0)
    stored.append(batch(b"d"), 3, 3, 0, 0)
    assert [view.base_offset for view in iter_batches(stored.read(1, 4, 10_000))] == [0, 3]


def test_read_ends_below_upper_offset() -> None:
    stored = filled(10, 10, 10)
    assert [view.base_offset for view in iter_batches(stored.read(0, 2, 10_000))] == [0, 1]
    assert not stored.read(2, 2, 10_000)


def test_batch_above_limit_is_returned_only_as_first() -> None:
    stored = filled(500, 10)
    assert [view.base_offset for view in iter_batches(stored.read(0, 2, 1))] == [0]
    assert not stored.read(0, 2, 1, at_least_one=False)


def test_read_does_not_copy() -> None:
    stored = filled(10)
    assert stored.read(0, 1, 10_000).obj is stored.read(0, 1, 10_000).obj


def test_batch_larger_than_segment_gets_separate_segment() -> None:
    stored = filled(10, MAX_SEGMENT_BYTES + 1, 10)
    assert read_all(stored, 0, 3, 1) == [0, 1, 2]


def test_delete_below_keeps_later_batches() -> None:
    stored = filled(10, 10, 10)
    size = stored.size
    stored.delete_below(2)
    assert read_all(stored, 0, 3, 10_000) == [2]
    assert stored.size == size // 3


def test_finds_batches_by_timestamp() -> None:
    stored = LogSegments()
    for offset, time in enumerate([10, 50, 20, 60]):
        stored.append(batch(b""), offset, offset, 0, time)
    assert [batch.base_offset for batch in stored.batches_since(20)] == [1, 2, 3]
    latest = stored.batch_with_max_timestamp()
    assert latest is not None
    assert latest.base_offset == 3
    stored.delete_below(2)
    assert [batch.base_offset for batch in stored.batches_since(20)] == [2, 3]


@given(
    sizes=st.lists(st.integers(0, 30_000), min_size=1, max_size=20),
    max_bytes=st.integers(0, 100_000),
    data=st.data(),
)
def test_repeated_reads_return_every_batch_once(
    sizes: list[int], max_bytes: int, data: st.DataObject
) -> None:
    stored = filled(*sizes)
    start = data.draw(st.integers(0, len(sizes)))
    upper = data.draw(st.integers(start, len(sizes)))
    assert read_all(stored, start, upper, max_bytes) == list(range(start, upper))


@given(sizes=st.lists(st.integers(0, 5_000), min_size=1, max_size=20), limit=st.integers(0, 20_000))
def test_read_respects_limit_except_for_first_batch(sizes: list[int], limit: int) -> None:
    data = filled(*sizes).read(0, len(sizes), limit)
    assert data.nbytes <= limit or len(list(iter_batches(data))) == 1
