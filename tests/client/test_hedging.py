"""Requests that are overdue by the history of their connection."""

from __future__ import annotations

import math

import pytest

from kafka_async.client.connection.hedging import (
    LATENCY_FACTOR,
    MAX_OVERDUE,
    MIN_OVERDUE,
    REPEAT_AFTER,
    OverdueTimer,
)


def test_request_is_overdue_after_several_times_the_usual_latency() -> None:
    timer = OverdueTimer()
    assert timer.delay == MIN_OVERDUE
    for _ in range(100):
        timer.on_response(0.5)
    assert timer.delay == pytest.approx(LATENCY_FACTOR * 0.5, rel=0.01)
    for _ in range(100):
        timer.on_response(60.0)
    assert timer.delay == MAX_OVERDUE


def test_overdue_request_is_reported_repeatedly_until_a_response() -> None:
    timer = OverdueTimer(max_wait=0.5)
    assert timer.due_at(None) == math.inf
    assert timer.due_at(10.0) == 10.5 + MIN_OVERDUE
    assert not timer.is_due(10.0, 11.4)
    assert timer.is_due(10.0, 11.5)
    assert timer.due_at(10.0) == 11.5 + REPEAT_AFTER
    assert not timer.is_due(10.0, 11.6)
    timer.on_response(0.6)
    assert timer.due_at(11.6) == 11.6 + 0.5 + MIN_OVERDUE
