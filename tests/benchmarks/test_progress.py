"""A run says how far it is and how long it takes still."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import rounds
from benchmarks.cases import CASES
from benchmarks.peers.paced import delay
from benchmarks.progress import TRUST, Progress, Step
from benchmarks.rounds import Ledger, remaining

STEPS = [
    Step("produce-100", 1, 60.0),
    Step("produce-100", 2, 60.0),
    Step("consume-100", 0, 40.0),
    Step("consume-100", 1, 80.0),
    Step("idle", 0, 120.0),
]


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_it_says_which_case_and_round_begins_and_what_is_left(clock: Clock) -> None:
    progress = Progress(STEPS, clock)
    assert progress.line("produce-100", 1) == "[case 1 of 3, round 1 of 2, about 6 minutes left]"
    clock.seconds = 120.0
    assert progress.line("consume-100", 0) == "[case 2 of 3, check, about 4 minutes left]"
    clock.seconds = 160.0
    assert progress.line("consume-100", 1) == "[case 2 of 3, round 1 of 1, about 3 minutes left]"
    clock.seconds = 240.0
    assert progress.line("idle", 0) == "[case 3 of 3, about 2 minutes left]"


def test_a_slow_machine_is_learnt_from_what_is_done(clock: Clock) -> None:
    progress = Progress(STEPS, clock)
    clock.seconds = 2 * 240.0 + TRUST  # twice as long as estimated
    assert progress.line("idle", 0) == "[case 3 of 3, about 4 minutes left]"


def test_only_what_is_not_in_the_ledger_is_to_be_done(tmp_path: Path) -> None:
    case = CASES["consume-100"]
    contenders = case.contenders[:2]
    ledger = Ledger(tmp_path / "runs.jsonl", {}, resume=False)
    assert [step.number for step in remaining(case, contenders, 2, ledger)] == [0, 1, 2]
    for contender in contenders:
        ledger.add(rounds.Run(case.name, contender.peer, contender.way, 1, error="it broke"))
    steps = remaining(case, contenders, 2, ledger)
    assert [(step.case, step.number) for step in steps] == [("consume-100", 0), ("consume-100", 2)]
    assert all(step.seconds > 0 for step in steps)


def test_side_by_side_clients_begin_at_the_turn_that_is_theirs(clock: Clock) -> None:
    assert delay(0.0, 1.0, clock) == 0.0
    clock.seconds = 92.25
    assert delay(100.125, 1.0, clock) == 7.875
    clock.seconds = 102.25  # late: its own part of the next second, not somebody else's
    assert delay(100.125, 1.0, clock) == 0.875
    assert delay(100.125, 4.0, clock) == 0.125
