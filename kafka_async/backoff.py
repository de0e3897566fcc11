"""Exponential backoff with jitter (KIP-580). Pure: the caller waits."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Computes the delays between retries: `next()` after each failure, `reset()` after a success.

    Attributes:
        initial: The first delay, in seconds.
        maximum: The maximum delay before jitter, in seconds.
        jitter: Maximum random change of a delay, as a fraction of it.
        multiplier: Factor from one delay to the next.
        rng: Source of the jitter.
        failures: Number of failures in a row.
    """

    initial: float
    maximum: float
    jitter: float = 0.2
    multiplier: float = 2.0
    rng: random.Random = field(default_factory=random.Random, repr=False)
    failures: int = 0

    def next(self) -> float:
        """Record a failure and return the seconds before the next attempt."""
        delay = self.after(self.failures)
        self.failures += 1
        return delay

    def after(self, failures: int) -> float:
        """Return the seconds before the next attempt, for failures that the caller counts."""
        delay = delay_after(failures, self.initial, self.maximum, self.multiplier)
        return delay * self.rng.uniform(1 - self.jitter, 1 + self.jitter)

    def reset(self) -> None:
        """Start again with the initial delay."""
        self.failures = 0


def delay_after(failures: int, initial: float, maximum: float, multiplier: float = 2.0) -> float:
    """Return the seconds before the next attempt without jitter.

    Args:
        failures: Number of failures before this one.
        initial: The first delay, in seconds.
        maximum: The maximum delay, in seconds.
        multiplier: Factor from one delay to the next.
    """
    # The exponent is bounded, because the power would overflow a float.
    return min(initial * multiplier ** min(failures, 64), maximum)
