"""Exponential back-off with jitter (KIP-580): pure, the caller waits."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Delays that double from `initial` to `maximum` (seconds), each off by up to `jitter`.

    One object follows one run of failures: `next()` after each, `reset()` after a success.
    """

    initial: float
    maximum: float
    jitter: float = 0.2
    multiplier: float = 2.0
    rng: random.Random = field(default_factory=random.Random, repr=False)
    failures: int = 0

    def next(self) -> float:
        """The delay, in seconds, before the next attempt."""
        delay = self.after(self.failures)
        self.failures += 1
        return delay

    def after(self, failures: int) -> float:
        """The delay, in seconds, after that many failures before this one, counted elsewhere."""
        delay = delay_after(failures, self.initial, self.maximum, self.multiplier)
        return delay * self.rng.uniform(1 - self.jitter, 1 + self.jitter)

    def reset(self) -> None:
        """Forget the failures."""
        self.failures = 0


def delay_after(failures: int, initial: float, maximum: float, multiplier: float = 2.0) -> float:
    """The delay, in seconds and without jitter, after that many failures before this one."""
    # Beyond 64 doublings the power would overflow a float long before it mattered.
    return min(initial * multiplier ** min(failures, 64), maximum)
