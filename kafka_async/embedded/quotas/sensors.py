"""Sensors: rates over windows and token buckets with bounds. Pure.

The arithmetic follows Kafka's metrics: a rate is the sum of the last windows' samples, divided by
the time since the oldest one, which counts as at least all windows but the current. All times are
integer milliseconds, as in Kafka.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

Formula: TypeAlias = Literal["kafka", "seed"]


def round_half_up(value: float) -> int:
    """Round as Java's Math.round does."""
    return math.floor(value + 0.5)


@dataclass(slots=True)
class _Sample:
    """Holds the sum of one window; times in milliseconds."""

    start: int
    last_event: int
    value: float = 0.0
    events: int = 0

    def reset(self, now: int) -> None:
        """Begin an empty window."""
        self.start = self.last_event = now
        self.value, self.events = 0.0, 0


class RateSensor:
    """Measures a rate per second over samples, with a minimum and a maximum bound.

    Args:
        name: Name of the sensor, as in Kafka's metrics.
        samples: Number of samples, including the current one.
        window_ms: Time of one sample, in milliseconds.

    Attributes:
        minimum: Lowest rate without a violation, or None.
        maximum: Highest rate without a violation, or None.
    """

    def __init__(self, name: str, samples: int, window_ms: int) -> None:
        self.name = name
        self.minimum: float | None = None
        self.maximum: float | None = None
        self._count = samples
        self._window = window_ms
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, value: float, now: int) -> None:
        """Add a value to the current sample."""
        sample = self._sample(now)
        if now - sample.start >= self._window:
            sample = self._advance(now)
        sample.value += value
        sample.events += 1
        sample.last_event = now

    def total(self, now: int) -> float:
        """Return the sum of all samples."""
        self._purge(now)
        return sum(sample.value for sample in self._samples)

    def rate(self, now: int) -> float:
        """Return the rate per second."""
        return self.total(now) / (self.elapsed_ms(now) / 1000)

    def elapsed_ms(self, now: int) -> int:
        """Return the time over which the rate is computed, in milliseconds."""
        self._purge(now)
        oldest = min((sample.start for sample in self._samples), default=now)
        elapsed, full = now - oldest, self._count - 1
        missing = full - elapsed // self._window
        if missing > 0:
            elapsed += missing * self._window
        return max(elapsed, 1)

    def violated(self, now: int, more: float = 0.0) -> bool:
        """Return whether the rate, with `more` recorded, is outside its bounds."""
        rate = self.rate(now) + more / (self.elapsed_ms(now) / 1000)
        if self.maximum is not None and rate > self.maximum:
            return True
        return self.minimum is not None and rate < self.minimum

    def throttle_ms(self, now: int, formula: Formula = "kafka") -> int:
        """Return the milliseconds to wait until the rate is at most the maximum.

        Kafka's formula is `(rate - maximum) / maximum * time of the rate`. The formula "seed" is
        `(total in the window - bound) / maximum`, where the bound is the maximum times the full
        windows.
        """
        maximum = self.maximum
        if maximum is None or not self.violated(now):
            return 0
        if formula == "seed":
            bound = maximum * (self._count - 1) * self._window / 1000
            return max(0, round_half_up((self.total(now) - bound) / maximum * 1000))
        return round_half_up((self.rate(now) - maximum) / maximum * self.elapsed_ms(now))

    def _sample(self, now: int) -> _Sample:
        if not self._samples:
            self._samples.append(_Sample(now, now))
        return self._samples[self._current]

    def _advance(self, now: int) -> _Sample:
        self._current = (self._current + 1) % (self._count + 1)
        if self._current >= len(self._samples):
            sample = _Sample(now, now)
            self._samples.append(sample)
            return sample
        sample = self._samples[self._current]
        sample.reset(now)
        return sample

    def _purge(self, now: int) -> None:
        """Reset the samples that are older than all windows."""
        for sample in self._samples:
            if now - sample.last_event >= self._count * self._window:
                sample.reset(now)


class TokenBucket:
    """Limits a rate, and allows bursts up to the tokens of all windows (KIP-599).

    Args:
        name: Name of the sensor.
        samples: Number of windows in a burst.
        window_ms: Time of one window, in milliseconds.
        now: The time in milliseconds, at which the bucket is full.
        rate: Tokens per second.
    """

    def __init__(self, name: str, samples: int, window_ms: int, now: int, rate: float) -> None:
        self.name = name
        self._burst_seconds = samples * window_ms / 1000
        self._rate = rate
        self._tokens = rate * self._burst_seconds
        self._updated = now

    def set_rate(self, rate: float) -> None:
        """Change the tokens per second."""
        self._rate = rate

    def tokens(self, now: int) -> float:
        """Return the remaining tokens; negative after an overdraft."""
        burst = self._rate * self._burst_seconds
        self._tokens = min(burst, self._tokens + self._rate * (now - self._updated) / 1000)
        self._updated = now
        return self._tokens

    def record(self, permits: float, now: int) -> None:
        """Take tokens."""
        burst = self._rate * self._burst_seconds
        self._tokens = min(burst, self.tokens(now) - permits)

    def throttle_ms(self, now: int) -> int:
        """Return the milliseconds until the tokens are no longer negative."""
        tokens = self.tokens(now)
        return round_half_up(-tokens / self._rate * 1000) if tokens < 0 else 0
