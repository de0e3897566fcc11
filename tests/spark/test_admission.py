"""Tests of the limits of micro-batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafka_async.spark.source.admission import TriggerDelay, backlog, limit_bytes, limit_rows
from kafka_async.types import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))


def test_limit_is_shared_in_proportion_to_the_backlog() -> None:
    start, end = {A: 0, B: 100, C: 7}, {A: 900, B: 200, C: 7}
    assert limit_rows(100, start, end) == {A: 90, B: 110, C: 7}
    assert limit_rows(5000, start, end) == end


def test_small_partition_gets_one_offset() -> None:
    assert limit_rows(10, {A: 0, B: 0}, {A: 1000, B: 1}) == {A: 9, B: 1}


offsets = st.fixed_dictionaries(dict.fromkeys((A, B, C), st.integers(0, 10_000)))


@given(offsets, offsets, st.integers(1, 1000))
def test_limited_batches_progress_and_stay_within_the_log(
    start: dict[TopicPartition, int], end: dict[TopicPartition, int], limit: int
) -> None:
    limited = limit_rows(limit, start, end)
    sizes = backlog(start, end)
    for tp in end:
        if tp in sizes:
            assert start[tp] < limited[tp] <= end[tp]
        else:
            assert limited[tp] == end[tp]
    assert sum(backlog(start, limited).values()) <= limit + len(sizes)


def test_bytes_limit_reads_fewer_of_the_large_records() -> None:
    start, end = {A: 0, B: 0, C: 0}, {A: 100, B: 100, C: 5}
    # A has 10,000 bytes and B 100; a partition without a sample is not limited.
    assert limit_bytes(1010, start, end, {A: 100.0, B: 1.0}) == {A: 10, B: 10, C: 5}


def test_batch_waits_for_rows_until_the_delay_has_passed() -> None:
    delay = TriggerDelay(min_rows=10, max_delay=60)
    assert not delay.waits({A: 0}, {A: 1}, now=0)  # The first batch never waits.
    assert delay.waits({A: 1}, {A: 5, B: 3}, now=59)
    assert not delay.waits({A: 1}, {A: 5, B: 6}, now=59)
    assert delay.waits({A: 5}, {A: 6}, now=118)
    assert not delay.waits({A: 5}, {A: 6}, now=119)
