"""Tests of filters that Spark pushes into a read."""

from __future__ import annotations

import datetime

import pytest

from kafka_async.spark.source.filters import Selection
from kafka_async.types import TopicPartition
from tests.spark.conditions import Condition, Not, condition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
TIME = datetime.datetime(2026, 1, 2, 3, 4, 5, 678_999, tzinfo=datetime.UTC)
TIME_MS = 1_767_323_045_678


@pytest.mark.parametrize(
    ("each", "selected"),
    [
        (condition("EqualTo", "partition", 1), {A1}),
        (condition("EqualNullSafe", "topic", "b"), {B0}),
        (condition("In", "partition", (0, None, 7)), {A0, B0}),
        (condition("GreaterThan", "partition", 0), {A1}),
        (condition("GreaterThanOrEqual", "partition", 1), {A1}),
        (condition("LessThan", "partition", 1), {A0, B0}),
        (condition("LessThanOrEqual", "partition", 0), {A0, B0}),
        (condition("StringStartsWith", "topic", "a"), {A0, A1}),
        (condition("StringEndsWith", "topic", "b"), {B0}),
        (condition("StringContains", "topic", "x"), set[TopicPartition]()),
        (Not(condition("EqualTo", "topic", "a")), {B0}),
        (condition("IsNotNull", "offset"), {A0, A1, B0}),
    ],
)
def test_filters_of_topic_and_partition_select_exactly(
    each: object, selected: set[TopicPartition]
) -> None:
    selection = Selection()
    assert selection.add(each)
    assert {tp for tp in (A0, A1, B0) if selection.reads(tp)} == selected


@pytest.mark.parametrize(
    ("kind", "first", "end"),
    [
        ("EqualTo", 5, 6),
        ("GreaterThan", 6, 2**63 - 1),
        ("GreaterThanOrEqual", 5, 2**63 - 1),
        ("LessThan", 0, 5),
        ("LessThanOrEqual", 0, 6),
    ],
)
def test_filters_of_offset_select_exactly(kind: str, first: int, end: int) -> None:
    selection = Selection()
    assert selection.add(condition(kind, "offset", 5))
    assert (selection.first, selection.end) == (first, end)


def test_list_of_offsets_bounds_the_read_and_is_left_to_spark() -> None:
    selection = Selection()
    assert not selection.add(condition("In", "offset", (9, 3)))
    assert (selection.first, selection.end) == (3, 10)


def test_all_filters_must_hold() -> None:
    selection = Selection()
    assert selection.add(condition("EqualTo", "topic", "a"))
    assert selection.add(condition("EqualTo", "partition", 1))
    assert selection.add(condition("LessThan", "offset", 9))
    assert selection.add(condition("LessThan", "offset", 20))
    assert [tp for tp in (A0, A1, B0) if selection.reads(tp)] == [A1]
    assert selection.end == 9


@pytest.mark.parametrize("kind", ["EqualTo", "GreaterThan", "GreaterThanOrEqual"])
def test_lower_bound_of_timestamp_is_used_and_left_to_spark(kind: str) -> None:
    selection = Selection()
    assert not selection.add(condition(kind, "timestamp", TIME))
    assert selection.timestamp == TIME_MS


@pytest.mark.parametrize(
    "each",
    [
        condition("LessThan", "timestamp", TIME),
        condition("GreaterThan", "timestamp", TIME.replace(tzinfo=None)),
        condition("EqualTo", "value", b"v"),
        condition("EqualTo", "partition", 1.0),
        condition("EqualTo", "partition", True),
        condition("IsNull", "partition"),
        condition("IsNotNull", "key"),
        condition("Unknown", "partition", 1),
        Not(condition("EqualTo", "offset", 1)),
        Condition(("partition", "nested"), 1),
    ],
)
def test_other_filters_are_left_to_spark(each: object) -> None:
    selection = Selection()
    assert not selection.add(each)
    assert all(selection.reads(tp) for tp in (A0, A1, B0))
    assert (selection.first, selection.timestamp) == (0, None)
