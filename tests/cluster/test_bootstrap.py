"""When to bootstrap again: KIP-899's and KIP-1102's conditions, one by one."""

from __future__ import annotations

import pytest

from kafka_async.cluster.rebootstrap import RebootstrapTrigger


def trigger(*, enabled: bool = True) -> RebootstrapTrigger:
    return RebootstrapTrigger(enabled=enabled, after=300.0)


def test_nothing_is_due_while_brokers_are_available() -> None:
    assert trigger().reason(0.0, available=True) is None


def test_no_broker_being_available_is_a_reason() -> None:
    assert trigger().reason(0.0, available=False) == "no known broker is available"


@pytest.mark.parametrize(("now", "due"), [(299.9, False), (300.0, True), (1000.0, True)])
def test_metadata_that_does_not_come_in_time_is_a_reason(now: float, due: bool) -> None:
    clock = trigger()
    clock.attempted(0.0)
    assert (clock.reason(now, available=True) is not None) is due


def test_the_clock_starts_with_the_first_attempt() -> None:
    clock = trigger()
    assert clock.due_at is None
    clock.attempted(10.0)
    clock.attempted(200.0)
    assert clock.due_at == 310.0
    assert clock.reason(310.0, available=True) == "no metadata for 300 s"


def test_only_an_answer_that_names_a_broker_stops_the_clock() -> None:
    clock = trigger()
    clock.attempted(0.0)
    clock.answered(0)
    assert clock.due_at == 300.0
    clock.answered(1)
    assert clock.due_at is None


def test_a_broker_may_demand_it() -> None:
    clock = trigger()
    clock.demanded("the proxy says so")
    assert clock.reason(0.0, available=True) == "the proxy says so"
    clock.answered(3)
    assert clock.reason(0.0, available=True) is None


def test_it_begins_anew_when_it_is_done() -> None:
    clock = trigger()
    clock.attempted(0.0)
    clock.demanded("now")
    clock.done()
    assert clock.reason(400.0, available=True) is None
    clock.attempted(400.0)
    assert clock.due_at == 700.0


def test_the_strategy_none_never_does_it() -> None:
    off = trigger(enabled=False)
    off.attempted(0.0)
    off.demanded("now")
    assert off.reason(1e9, available=False) is None
    assert off.due_at is None
