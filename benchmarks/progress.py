"""How far a benchmark is, and how long it takes still."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TRUST = 30.0
"""Seconds of work after which what was measured counts as much as what was estimated."""


@dataclass(frozen=True)
class Step:
    """A round of a case, and how many seconds it is likely to take."""

    case: str
    number: int
    seconds: float


class Progress:
    """What is done of some steps. What they take here is learnt from those that are done."""

    def __init__(self, steps: Sequence[Step], now: Callable[[], float] = time.monotonic) -> None:
        self._steps = list(steps)
        self._cases = list(dict.fromkeys(step.case for step in steps))
        self._now = now
        self._begun = now()

    @property
    def cases(self) -> list[str]:
        """In which something is to be done, in order."""
        return self._cases

    def line(self, case: str, number: int) -> str:
        """What there is to say when a round begins: `case 7 of 31, round 2 of 3, about ...`."""
        at = next(
            place
            for place, step in enumerate(self._steps)
            if (step.case, step.number) == (case, number)
        )
        rounds = [step.number for step in self._steps if step.case == case]
        done = sum(step.seconds for step in self._steps[:at])
        left = sum(step.seconds for step in self._steps[at:]) * self._pace(done)
        turn = f", round {number} of {max(rounds)}" if number else ", check"
        return (
            f"[case {self._cases.index(case) + 1} of {len(self._cases)}"
            f"{turn if max(rounds) else ''}, about {_duration(left)} left]"
        )

    def _pace(self, done: float) -> float:
        """How many times longer than estimated everything takes."""
        return (self._now() - self._begun + TRUST) / (done + TRUST)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes"
