"""Progress of a benchmark, with an estimate of the remaining time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ESTIMATE_WEIGHT: Final = 30.0
"""Seconds of work after which the measured pace and the estimate have the same weight."""


class Step(NamedTuple):
    """Round of a case, with its estimated seconds."""

    case: str
    number: int
    seconds: float


class Progress:
    """Tracks completed steps, and corrects the estimate by their duration."""

    def __init__(self, steps: Sequence[Step], now: Callable[[], float] = time.monotonic) -> None:
        self.cases = list(dict.fromkeys(step.case for step in steps))
        """Cases with steps, in order."""
        self._steps = list(steps)
        self._now = now
        self._begun = now()

    def line(self, case: str, number: int = 0) -> str:
        """Return the line to print before a round: `case 7 of 31, round 2 of 3, about ...`."""
        at = [step[:2] for step in self._steps].index((case, number))
        rounds = max(step.number for step in self._steps if step.case == case)
        done = sum(step.seconds for step in self._steps[:at])
        pace = (self._now() - self._begun + ESTIMATE_WEIGHT) / (done + ESTIMATE_WEIGHT)
        left = sum(step.seconds for step in self._steps[at:]) * pace
        duration = f"{left:.0f} seconds" if left < 90 else f"{left / 60:.0f} minutes"
        place = f"case {self.cases.index(case) + 1} of {len(self.cases)}"
        if rounds:
            place += f", round {number} of {rounds}" if number else ", check"
        return f"[{place}, about {duration} left]"
