"""Ranges of jobs: sets of offsets, what remains, and parts by rows, bytes and halves."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.errors import InvalidConfigurationError
from kafka_async.spark.offsets import OffsetRange, parse_offsets
from kafka_async.spark.orchestrator.ranges import (
    OffsetSet,
    Ranges,
    SizeSample,
    bisect_ranges,
    check_ranges,
    ending_offsets,
    partition_of,
    ranges_from_json,
    ranges_to_json,
    read_options,
    remaining,
    size_of,
    split_by_bytes,
    split_by_rows,
    starting_offsets,
)
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

A, B = TopicPartition("a", 0), TopicPartition("a", 1)

intervals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 12)).map(lambda pair: (pair[0], sum(pair))),
    max_size=8,
)
ranges_of_partitions = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 40)), min_size=1, max_size=5
).map(lambda rows: tuple(OffsetRange("a", n, s, s + size) for n, (s, size) in enumerate(rows)))


def offsets(ranges: Iterable[OffsetRange]) -> list[tuple[TopicPartition, int]]:
    return [(partition_of(part), at) for part in ranges for at in range(part.start, part.end)]


def members(offset_set: OffsetSet) -> set[int]:
    return {at for low, high in offset_set.intervals for at in range(low, high)}


@given(intervals, st.integers(0, 60), st.integers(0, 20))
def test_offset_set_equals_a_set_of_integers(
    pairs: list[tuple[int, int]], start: int, size: int
) -> None:
    model: set[int] = set()
    value = OffsetSet()
    for low, high in pairs:
        value = value.add(low, high)
        model |= set(range(low, high))
        assert members(value) == model
        edges = [edge for pair in value.intervals for edge in pair]
        assert edges == sorted(set(edges)), "intervals are ordered and do not touch"
    wanted = set(range(start, start + size))
    gaps = value.missing(start, start + size)
    assert {at for low, high in gaps for at in range(low, high)} == wanted - model
    assert value.overlaps(start, start + size) == bool(wanted & model)
    position = value.contiguous_end(start)
    assert set(range(start, position)) <= model
    assert position not in model


@given(ranges_of_partitions, intervals)
def test_remaining_parts_cover_the_unprocessed_offsets_once(
    ranges: Ranges, pairs: list[tuple[int, int]]
) -> None:
    done = OffsetSet()
    for low, high in pairs:
        done = done.add(low, high)
    parts = remaining(ranges, {A: done})
    found = [one for part in parts for one in offsets(part)]
    assert sorted(found) == [
        one for one in offsets(ranges) if one[0] != A or one[1] not in members(done)
    ]
    for part in parts:
        assert len({partition_of(one) for one in part}) == len(part) > 0


@given(ranges_of_partitions)
def test_halves_cover_all_offsets_and_differ_by_at_most_one(ranges: Ranges) -> None:
    halves = bisect_ranges(ranges)
    if size_of(ranges) == 1:
        assert halves is None
        return
    assert halves is not None
    first, second = halves
    assert sorted(offsets(first) + offsets(second)) == offsets(ranges)
    assert 0 <= size_of(second) - size_of(first) <= 1


@given(ranges_of_partitions, st.integers(1, 50))
def test_parts_by_rows_have_exactly_the_size(ranges: Ranges, size: int) -> None:
    parts = split_by_rows(ranges, size)
    assert sorted(one for part in parts for one in offsets(part)) == offsets(ranges)
    assert all(size_of(part) == size for part in parts[:-1])
    assert 0 < size_of(parts[-1]) <= size


def test_parts_by_rows_take_from_all_partitions() -> None:
    ranges = (OffsetRange("a", 0, 0, 100), OffsetRange("a", 1, 0, 300))
    first = split_by_rows(ranges, 40)[0]
    assert first == (OffsetRange("a", 0, 0, 10), OffsetRange("a", 1, 0, 30))


@given(ranges_of_partitions, st.integers(1, 400), st.integers(1, 30))
def test_parts_by_bytes_cover_all_offsets_within_the_size(
    ranges: Ranges, size: int, rate: int
) -> None:
    samples = {partition_of(part): [SizeSample(part.start, float(rate))] for part in ranges}
    parts = split_by_bytes(ranges, size, samples)
    assert sorted(one for part in parts for one in offsets(part)) == offsets(ranges)
    for part in parts:
        assert size_of(part) * rate <= size or size_of(part) == 1


def test_parts_by_bytes_follow_changes_of_the_record_size() -> None:
    ranges = (OffsetRange("a", 0, 0, 200),)
    samples = {A: [SizeSample(0, 10.0), SizeSample(100, 100.0)]}
    parts = split_by_bytes(ranges, 1000, samples)
    assert [size_of(part) for part in parts] == [100] + [10] * 10


def test_json_of_ranges_can_be_read_again() -> None:
    ranges = (OffsetRange("a", 0, 1, 5), OffsetRange("b", 2, 0, 7))
    assert ranges_to_json(ranges) == {"a": {"0": [1, 5]}, "b": {"2": [0, 7]}}
    assert ranges_from_json(json.loads(json.dumps(ranges_to_json(ranges)))) == ranges


@pytest.mark.parametrize(
    "document", ["x", [], {"a": 1}, {"a": {"0": [1]}}, {"a": {"x": [0, 1]}}, {"a": {"0": [0, 1.5]}}]
)
def test_refuses_json_that_is_no_ranges(document: object) -> None:
    with pytest.raises(ValueError, match="ranges are not valid"):
        ranges_from_json(document)


def test_refuses_ranges_that_overlap_or_run_backwards() -> None:
    with pytest.raises(ValueError, match="two ranges of a-0"):
        check_ranges([OffsetRange("a", 0, 0, 1), OffsetRange("a", 0, 1, 2)])
    with pytest.raises(ValueError, match="range 3 to 1"):
        check_ranges([OffsetRange("a", 0, 3, 1)])
    assert check_ranges([OffsetRange("a", 0, 3, 3)]) == ()


def test_offsets_are_options_of_both_connectors() -> None:
    ranges = (OffsetRange("a", 0, 1, 5), OffsetRange("a", 1, 0, 7))
    assert parse_offsets(starting_offsets(ranges), "startingOffsets") == {A: 1, B: 0}
    assert parse_offsets(ending_offsets(ranges), "endingOffsets") == {A: 5, B: 7}
    options = read_options(ranges, "h:1")
    assert json.loads(options["assign"]) == {"a": [0, 1]}
    assert options["kafka.isolation.level"] == "read_committed"
    with pytest.raises(InvalidConfigurationError, match="no ranges"):
        read_options((), "h:1")
