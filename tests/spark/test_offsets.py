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


def test_plan_combines_requested_and_available_offsets() -> None:
    available = {A0: (10, 100), A1: (0, 50), B0: (5, 5)}
    ranges = plan([A1, B0, A0], {A0: 20, A1: EARLIEST}, {A1: 30}, available)
    assert ranges == [OffsetRange("a", 0, 20, 100), OffsetRange("a", 1, 0, 30)]


def test_plan_keeps_offsets_removed_by_retention() -> None:
    assert plan([A0], {A0: 3}, {}, {A0: (10, 20)}) == [OffsetRange("a", 0, 3, 20)]


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
    if min_partitions is not None and ranges:
        assert len(parts) >= min(min_partitions, sum(whole.size for whole in ranges))
