"""Tests of the conditions for a rebootstrap (KIP-899, KIP-1102)."""

from __future__ import annotations

import pytest

from kafka_async.cluster.rebootstrap import RebootstrapTrigger


def new_trigger(*, enabled: bool = True) -> RebootstrapTrigger:
    return RebootstrapTrigger(enabled=enabled, after=300.0)


def test_no_reason_while_brokers_are_available() -> None:
    assert new_trigger().reason(0.0, available=True) is None


def test_rebootstraps_if_no_broker_is_available() -> None:
    assert new_trigger().reason(0.0, available=False) == "no known broker is available"


@pytest.mark.parametrize(("now", "due"), [(299.9, False), (300.0, True), (1000.0, True)])
def test_rebootstraps_after_trigger_time_without_metadata(now: float, due: bool) -> None:
    trigger = new_trigger()
    trigger.record_attempt(0.0)
    assert (trigger.reason(now, available=True) is not None) is due


def test_trigger_time_starts_with_first_attempt() -> None:
    trigger = new_trigger()
    assert trigger.due_at is None
    trigger.record_attempt(10.0)
    trigger.record_attempt(200.0)
    assert trigger.due_at == 310.0
    assert trigger.reason(310.0, available=True) == "no metadata for 300 s"


def test_only_response_that_names_a_broker_stops_trigger_time() -> None:
    trigger = new_trigger()
    trigger.record_attempt(0.0)
    trigger.record_response(0)
    assert trigger.due_at == 300.0
    trigger.record_response(1)
    assert trigger.due_at is None


def test_rebootstraps_if_a_broker_requires_it() -> None:
    trigger = new_trigger()
    trigger.request("the broker says so")
    assert trigger.reason(0.0, available=True) == "the broker says so"
    trigger.record_response(3)
    assert trigger.reason(0.0, available=True) is None


def test_starts_over_after_reset() -> None:
    trigger = new_trigger()
    trigger.record_attempt(0.0)
    trigger.request("now")
    trigger.reset()
    assert trigger.reason(400.0, available=True) is None
    trigger.record_attempt(400.0)
    assert trigger.due_at == 700.0


def test_strategy_none_never_rebootstraps() -> None:
    trigger = new_trigger(enabled=False)
    trigger.record_attempt(0.0)
    trigger.request("now")
    assert trigger.reason(1e9, available=False) is None
    assert trigger.due_at is None
