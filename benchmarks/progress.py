"""Progress of a benchmark, with an estimate of the remaining time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ESTIMATE_WEIGHT = 30.0
"""Seconds of work after which the measured pace and the estimate have the same weight."""


@dataclass(frozen=True)
class Step:
    """Round of a case, with its estimated seconds."""

    case: str
    number: int
    seconds: float


class Progress:
    """Tracks completed steps, and corrects the estimate by their duration."""

    def __init__(self, steps: Sequence[Step], now: Callable[[], float] = time.monotonic) -> None:
        self._steps = list(steps)
        self._cases = list(dict.fromkeys(step.case for step in steps))
        self._now = now
        self._begun = now()

    @property
    def cases(self) -> list[str]:
        """Cases with steps, in order."""
        return self._cases

    def line(self, case: str, number: int) -> str:
        """Return the line to print before a round: `case 7 of 31, round 2 of 3, about ...`."""
        at = next(
            place
            for place, step in enumerate(self._steps)
            if (step.case, step.number) == (case, number)
        )
        rounds = [step.number for step in self._steps if step.case == case]
        done = sum(step.seconds for step in self._steps[:at])
        left = sum(step.seconds for step in self._steps[at:]) * self._pace(done)
        position = f", round {number} of {max(rounds)}" if number else ", check"
        return (
            f"[case {self._cases.index(case) + 1} of {len(self._cases)}"
            f"{position if max(rounds) else ''}, about {_duration(left)} left]"
        )

    def _pace(self, done: float) -> float:
        """Return the factor between measured and estimated time."""
        return (self._now() - self._begun + ESTIMATE_WEIGHT) / (done + ESTIMATE_WEIGHT)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes"
