"""Tests of offset ranges: Spark's JSON, planning and splitting."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.errors import InvalidConfigurationError
from kafka_async.spark.offsets import (
    EARLIEST,
    LATEST,
    OffsetRange,
    parse_assignment,
    parse_offsets,
    parse_timestamps,
    plan,
    split,
)
from kafka_async.types import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_json_matches_sparks_connector() -> None:
    offsets = parse_offsets('{"b":{"0":7},"a":{"1":-2,"0":-1}}', "startingOffsets")
    assert offsets == {A0: LATEST, A1: EARLIEST, B0: 7}
    assert parse_assignment('{"a":[0,1]}') == [A0, A1]


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"a":1}', '{"a":{"x":1}}', '{"a":{"0":-3}}', '{"a":{"0":true}}']
)
def test_invalid_json_error_names_the_option(text: str) -> None:
    with pytest.raises(InvalidConfigurationError, match="startingOffsets"):
        parse_offsets(text, "startingOffsets")


@pytest.mark.parametrize("text", ["", "[]", '{"a":1}', '{"a":["x"]}'])
def test_invalid_assignment_error_shows_an_example(text: str) -> None:
    with pytest.raises(InvalidConfigurationError, match="assign"):
        parse_assignment(text)


def test_plan_returns_the_ranges_in_order_without_empty_ones() -> None:
    ends = {A1: 30, B0: 5, A0: 100}
    assert plan(ends, {A0: 20, A1: 0, B0: 5}, ends) == [
        OffsetRange("a", 0, 20, 100),
        OffsetRange("a", 1, 0, 30),
    ]


def test_timestamps_are_offsets_json_without_negative_numbers() -> None:
    assert parse_timestamps('{"a":{"0":1700000000000}}', "o") == {A0: 1_700_000_000_000}
    with pytest.raises(
        InvalidConfigurationError, match=r"startingOffsetsByTimestamp .* -1 for a-0"
    ):
        parse_timestamps('{"a":{"0":-1}}', "startingOffsetsByTimestamp")


bounds = st.tuples(st.integers(0, 1000), st.integers(1, 5000))
ranges_of = st.lists(bounds, max_size=6).map(
    lambda all_: [OffsetRange("t", n, s, s + size) for n, (s, size) in enumerate(all_)]
)


@given(ranges_of, st.none() | st.integers(1, 40), st.none() | st.integers(1, 700))
def test_split_covers_each_offset_once(
    ranges: list[OffsetRange], min_partitions: int | None, max_records: int | None
) -> None:
    parts = split(ranges, min_partitions=min_partitions, max_records=max_records)
    for whole in ranges:
        mine = [part for part in parts if part.partition == whole.partition]
        assert mine[0].start == whole.start
        assert mine[-1].end == whole.end
        assert all(one.end == two.start for one, two in itertools.pairwise(mine))
        assert all(part.size > 0 for part in mine)
    if max_records is not None:
        assert all(part.size <= max_records for part in parts)


def test_split_shares_tasks_in_proportion_to_the_sizes() -> None:
    ranges = [OffsetRange("t", 0, 0, 900), OffsetRange("t", 1, 0, 90), OffsetRange("t", 2, 5, 15)]
    parts = split(ranges, min_partitions=6)
    assert [(part.partition, part.size) for part in parts] == [
        (0, 225),
        (0, 225),
        (0, 225),
        (0, 225),
        (1, 90),
        (2, 10),
    ]
    assert split(ranges, min_partitions=3) == ranges
