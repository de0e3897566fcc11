"""Batches at rest: what is appended comes back whole, in order, bounded, and never twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafka_async.embedded import segments
from kafka_async.embedded.segments import Segments
from kafka_async.records.batch import iter_batches
from tests.embedded.wire import batch


def filled(*sizes: int) -> Segments:
    """A log with a batch of one record of so many bytes each; offsets are indices."""
    stored = Segments()
    for offset, size in enumerate(sizes):
        stored.append(batch(b"x" * size), offset, offset, 7, max_timestamp=offset * 10)
    return stored


def read_all(stored: Segments, start: int, upper: int, max_bytes: int) -> list[int]:
    """The base offsets that a reader meets who goes on until there is nothing."""
    met: list[int] = []
    while data := stored.read(start, upper, max_bytes):
        met += [view.base_offset for view in iter_batches(data)]
        start = met[-1] + 1
    return met


def test_a_read_returns_the_batches_with_their_offset_and_epoch() -> None:
    (first, second) = iter_batches(filled(10, 20).read(0, 2, 10_000))
    assert (first.base_offset, second.base_offset) == (0, 1)
    assert first.header.leader_epoch == 7
    assert [record.value for record in second.records()] == [b"x" * 20]


def test_a_read_begins_with_the_batch_that_holds_the_offset() -> None:
    stored = Segments()
    stored.append(batch(b"a", b"b", b"c"), 0, 2, 0, 0)
    stored.append(batch(b"d"), 3, 3, 0, 0)
    assert [view.base_offset for view in iter_batches(stored.read(1, 4, 10_000))] == [0, 3]


def test_a_read_ends_below_the_upper_offset() -> None:
    stored = filled(10, 10, 10)
    assert [view.base_offset for view in iter_batches(stored.read(0, 2, 10_000))] == [0, 1]
    assert not stored.read(2, 2, 10_000)


def test_a_batch_over_the_limit_is_returned_alone_and_only_if_it_must_be() -> None:
    stored = filled(500, 10)
    assert [view.base_offset for view in iter_batches(stored.read(0, 2, 1))] == [0]
    assert not stored.read(0, 2, 1, at_least_one=False)


def test_a_read_does_not_copy() -> None:
    stored = filled(10)
    assert stored.read(0, 1, 10_000).obj is stored.read(0, 1, 10_000).obj


def test_a_batch_larger_than_any_segment_gets_one_of_its_own() -> None:
    stored = filled(10, segments.LARGEST_SEGMENT + 1, 10)
    assert read_all(stored, 0, 3, 1) == [0, 1, 2]


def test_what_was_dropped_is_gone_and_the_rest_stays() -> None:
    stored = filled(10, 10, 10)
    size = stored.size
    stored.drop_below(2)
    assert read_all(stored, 0, 3, 10_000) == [2]
    assert stored.size == size // 3


def test_batches_are_found_by_time() -> None:
    stored = Segments()
    for offset, time in enumerate([10, 50, 20, 60]):
        stored.append(batch(b""), offset, offset, 0, time)
    assert [found.base_offset for found in stored.since(20)] == [1, 2, 3]
    latest = stored.latest()
    assert latest is not None
    assert latest.base_offset == 3
    stored.drop_below(2)
    assert [found.base_offset for found in stored.since(20)] == [2, 3]


@given(
    sizes=st.lists(st.integers(0, 30_000), min_size=1, max_size=20),
    max_bytes=st.integers(0, 100_000),
    data=st.data(),
)
def test_a_reader_who_goes_on_meets_every_batch_once(
    sizes: list[int], max_bytes: int, data: st.DataObject
) -> None:
    stored = filled(*sizes)
    start = data.draw(st.integers(0, len(sizes)))
    upper = data.draw(st.integers(start, len(sizes)))
    assert read_all(stored, start, upper, max_bytes) == list(range(start, upper))


@given(sizes=st.lists(st.integers(0, 5_000), min_size=1, max_size=20), limit=st.integers(0, 20_000))
def test_a_read_is_within_its_limit_unless_its_first_batch_is_not(
    sizes: list[int], limit: int
) -> None:
    data = filled(*sizes).read(0, len(sizes), limit)
    assert data.nbytes <= limit or len(list(iter_batches(data))) == 1
