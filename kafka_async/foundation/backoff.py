"""Exponential backoff with jitter (KIP-580). Pure: the caller waits."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Computes the delays between retries: `next()` after each failure, `reset()` after a success.

    All delays are in seconds; `maximum` applies before jitter. `jitter` is the maximum random
    change of a delay, as a fraction.
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
    """Return the seconds before the next attempt after `failures` failures, without jitter."""
    # Bound the exponent: the power would overflow a float.
    return min(initial * multiplier ** min(failures, 64), maximum)
