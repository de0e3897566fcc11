"""Progress of a run and the estimate of its remaining time."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import rounds
from benchmarks.cases import CASES
from benchmarks.peers.paced import delay
from benchmarks.progress import ESTIMATE_WEIGHT, Progress, Step
from benchmarks.rounds import RunLog, remaining

STEPS = [
    Step("produce-100", 1, 60.0),
    Step("produce-100", 2, 60.0),
    Step("consume-100", 0, 40.0),
    Step("consume-100", 1, 80.0),
    Step("idle", 0, 120.0),
]


class Clock:
    """Clock whose time is set by the test."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_line_has_case_round_and_remaining_time(clock: Clock) -> None:
    progress = Progress(STEPS, clock)
    assert progress.line("produce-100", 1) == "[case 1 of 3, round 1 of 2, about 6 minutes left]"
    clock.seconds = 120.0
    assert progress.line("consume-100", 0) == "[case 2 of 3, check, about 4 minutes left]"
    clock.seconds = 160.0
    assert progress.line("consume-100", 1) == "[case 2 of 3, round 1 of 1, about 3 minutes left]"
    clock.seconds = 240.0
    assert progress.line("idle", 0) == "[case 3 of 3, about 2 minutes left]"


def test_corrects_estimate_on_slow_machine(clock: Clock) -> None:
    progress = Progress(STEPS, clock)
    clock.seconds = 2 * 240.0 + ESTIMATE_WEIGHT  # twice as long as estimated
    assert progress.line("idle", 0) == "[case 3 of 3, about 4 minutes left]"


def test_steps_exclude_runs_in_log(tmp_path: Path) -> None:
    case = CASES["consume-100"]
    contenders = case.contenders[:2]
    run_log = RunLog(tmp_path / "runs.jsonl", {}, resume=False)
    assert [step.number for step in remaining(case, contenders, 2, run_log)] == [0, 1, 2]
    for contender in contenders:
        run_log.add(rounds.Run(case.name, contender.peer, contender.way, 1, error="it broke"))
    steps = remaining(case, contenders, 2, run_log)
    assert [(step.case, step.number) for step in steps] == [("consume-100", 0), ("consume-100", 2)]
    assert all(step.seconds > 0 for step in steps)


def test_late_client_starts_at_next_multiple_of_interval(clock: Clock) -> None:
    assert delay(0.0, 1.0, clock) == 0.0
    clock.seconds = 92.25
    assert delay(100.125, 1.0, clock) == 7.875
    clock.seconds = 102.25  # late: the same fraction of the next second
    assert delay(100.125, 1.0, clock) == 0.875
    assert delay(100.125, 4.0, clock) == 0.125
