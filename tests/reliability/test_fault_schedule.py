"""The schedule of faults of a reliability run, and its goal."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

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

SEEDS = range(50)
CYCLE = 6


def test_a_seed_determines_the_rounds() -> None:
    first, again, other = ([*itertools.islice(rounds(seed), 30)] for seed in (7, 7, 8))
    assert first == again
    assert first != other
    assert [str(each) for each in first] == [str(each) for each in again]
    assert [*itertools.islice(rounds(7, done=20), 10)] == first[20:]


@pytest.mark.parametrize("seed", SEEDS)
def test_six_rounds_have_every_kind_of_fault(seed: int) -> None:
    generated = rounds(seed)
    for _ in range(3):
        cycle = list(itertools.islice(generated, CYCLE))
        kinds = {fault.kind for each in cycle for fault in each.faults}
        assert kinds | SECOND_DRIVERS == set(FaultKind)
        assert kinds & SECOND_DRIVERS
        in_commit = [
            each for each in cycle if each.faults[-1].kind is FaultKind.KILL_DRIVER_IN_COMMIT
        ]
        assert len(in_commit) == CYCLE - 2


def test_both_kinds_of_second_drivers_occur() -> None:
    kinds = {fault.kind for each in itertools.islice(rounds(1), 60) for fault in each.faults}
    assert kinds == set(FaultKind)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_round_ends_with_a_kill_5_to_30_seconds_after_the_first_epoch(seed: int) -> None:
    for each in itertools.islice(rounds(seed), 2 * CYCLE):
        *others, kill = each.faults
        assert kill.kind in DRIVER_KILLS
        assert MIN_KILL_SECONDS <= kill.at < MAX_KILL_SECONDS
        assert all(fault.kind not in DRIVER_KILLS for fault in others)
        assert all(MIN_KILL_SECONDS <= fault.at < kill.at for fault in others)
        assert each.has_executors == any(fault.kind is FaultKind.KILL_EXECUTOR for fault in others)


@pytest.mark.parametrize("seed", SEEDS)
def test_faults_name_existing_brokers_and_transactions(seed: int) -> None:
    for each in itertools.islice(rounds(seed), 2 * CYCLE):
        for fault in each.faults:
            if fault.kind is FaultKind.KILL_BROKER:
                assert 1 <= fault.number <= BROKERS
            else:
                assert 0 <= fault.number < PARTITIONS


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
