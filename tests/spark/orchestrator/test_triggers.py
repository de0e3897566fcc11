"""Conditions of triggers."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_async.spark.offsets import OffsetRange
from kafka_async.spark.orchestrator.ranges import size_of
from kafka_async.spark.orchestrator.triggers import Trigger, is_due, new_ranges, ranges_of_job
from kafka_async.types import TopicPartition

A, B = TopicPartition("in", 0), TopicPartition("in", 1)
TEN = (OffsetRange("in", 0, 5, 15),)


def due(now: float = 100.0, started_at: float | None = 90.0, **conditions: Any) -> bool:
    late = conditions.pop("late", {})
    trigger = Trigger(job="count", topic="in", **conditions)
    return is_due(trigger, TEN, now=now, started_at=started_at, late=late)


def test_new_ranges_leave_out_partitions_without_new_offsets() -> None:
    assert new_ranges({A: 5, B: 7}, {A: 15, B: 7}) == TEN


def test_starts_at_the_number_of_rows() -> None:
    assert due(rows=10)
    assert not due(rows=11)


def test_starts_after_the_interval() -> None:
    assert due(interval=10)
    assert not due(interval=11)
    assert due(interval=11, started_at=None)


def test_starts_when_the_oldest_new_record_is_late() -> None:
    assert due(lag=5, late={A: 6})
    assert not due(lag=5, late={A: 5})
    assert not due(lag=5, late={B: 100})


def test_any_condition_starts_it() -> None:
    assert due(rows=1000, interval=10)
    assert not due(rows=1000, interval=1000, lag=5)


def test_never_starts_without_new_offsets() -> None:
    trigger = Trigger(job="count", topic="in", rows=1, interval=1, lag=1)
    assert not is_due(trigger, (), now=1e9, started_at=None, late={A: 9})


def test_limits_the_rows_of_a_job() -> None:
    trigger = Trigger(job="count", topic="in", rows=1, max_rows=4)
    ranges = (*TEN, OffsetRange("in", 1, 0, 10))
    assert size_of(ranges_of_job(trigger, ranges)) == 4
    assert ranges_of_job(Trigger(job="count", topic="in", rows=1), ranges) == ranges


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "at least one of rows, lag and interval"),
        ({"rows": 0}, "rows=0"),
        ({"rows": 1, "max_rows": 0}, "max_rows=0"),
        ({"lag": 0}, "lag=0"),
        ({"interval": -1}, "interval=-1"),
        ({"rows": 1, "starting": "now"}, "starting='now'"),
    ],
)
def test_refuses_values_out_of_range(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Trigger(job="count", topic="in", **fields)
