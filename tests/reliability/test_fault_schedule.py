"""The schedule of faults of a reliability run, and its goal."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reliability.fault_schedule import (
    BROKERS,
    DRIVER_KILLS,
    MAX_KILL_SECONDS,
    MIN_KILL_SECONDS,
    PARTITIONS,
    SECOND_DRIVERS,
    FaultKind,
    Goal,
    Kill,
    rounds,
)

pytestmark = pytest.mark.one_kernel

CYCLE = 6


def test_a_seed_determines_the_rounds() -> None:
    first, again, other = ([*itertools.islice(rounds(seed), 30)] for seed in (7, 7, 8))
    assert first == again
    assert first != other
    assert [str(each) for each in first] == [str(each) for each in again]
    assert [*itertools.islice(rounds(7, done=20), 10)] == first[20:]


@given(seed=st.integers())
def test_rounds_have_every_kind_of_fault_and_end_with_a_kill_of_the_driver(seed: int) -> None:
    cycle = list(itertools.islice(rounds(seed), CYCLE))
    kinds = {fault.kind for each in cycle for fault in each.faults}
    assert kinds | SECOND_DRIVERS == set(FaultKind)
    assert kinds & SECOND_DRIVERS
    last = [each.faults[-1].kind for each in cycle]
    assert last.count(FaultKind.KILL_DRIVER_IN_COMMIT) == CYCLE - 2
    for each in cycle:
        *others, kill = each.faults
        assert kill.kind in DRIVER_KILLS
        assert MIN_KILL_SECONDS <= kill.at < MAX_KILL_SECONDS
        assert all(fault.kind not in DRIVER_KILLS for fault in others)
        assert all(MIN_KILL_SECONDS <= fault.at < kill.at for fault in others)
        assert each.has_executors == any(fault.kind is FaultKind.KILL_EXECUTOR for fault in others)
        for fault in each.faults:
            broker = fault.kind is FaultKind.KILL_BROKER
            assert fault.number in (range(1, BROKERS + 1) if broker else range(PARTITIONS))


def test_both_kinds_of_second_drivers_occur() -> None:
    kinds = {fault.kind for each in itertools.islice(rounds(1), 60) for fault in each.faults}
    assert kinds == set(FaultKind)


def test_a_run_ends_when_nothing_of_its_goal_is_missing() -> None:
    goal = Goal()
    kills = [Kill("driver", 5.0, True)] * 4 + [Kill("broker", 30.0, False)] * 8
    assert goal.missing(900, kills, 50) == []
    assert goal.missing(899, kills, 50) == ["899 of 900 seconds"]
    assert goal.missing(900, kills, 49) == ["49 of 50 epochs"]
    assert goal.missing(900, kills[1:], 50) == ["11 of 12 kills", "3 of 4 kills in a commit"]


def test_a_short_run_has_a_smaller_goal() -> None:
    assert Goal.of(900) == Goal()
    assert Goal.of(1800) == replace(Goal(), seconds=1800)
    assert Goal.of(225) == Goal(225, 3, 1, 12)


@pytest.mark.parametrize("seconds", [4.9, 30.1])
def test_a_kill_outside_of_its_time_does_not_count(seconds: float) -> None:
    kills = [Kill("driver", seconds, True)] * 12
    assert Goal().missing(900, kills, 50) == ["0 of 12 kills", "0 of 4 kills in a commit"]
