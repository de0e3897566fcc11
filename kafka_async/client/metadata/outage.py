"""Decides when to log an outage of the cluster: at its start, at growing intervals, at its end.

Pure.
"""

from __future__ import annotations

from typing import Final

FIRST_INTERVAL: Final = 10.0
"""Seconds from the first warning of an outage to the second; each interval doubles."""
MAX_INTERVAL: Final = 300.0
"""Maximum seconds between two warnings."""


class OutageLog:
    """Tracks the outage of one client's cluster; times are seconds of the loop's clock."""

    __slots__ = ("_interval", "_next_at", "_since")

    def __init__(self) -> None:
        self._since: float | None = None
        self._next_at = 0.0
        self._interval = FIRST_INTERVAL

    def record_unreachable(self, now: float) -> float | None:
        """Record an unreachable cluster; return the outage's seconds so far if a warning is due."""
        if self._since is None:
            self._since = self._next_at = now
            self._interval = FIRST_INTERVAL
        if now < self._next_at:
            return None
        # The first warning comes at once, without doubling.
        if now > self._since:
            self._interval = min(self._interval * 2, MAX_INTERVAL)
        self._next_at = now + self._interval
        return now - self._since

    def record_reachable(self, now: float) -> float | None:
        """Record that a broker responded; return the outage's length in seconds, or None."""
        if self._since is None:
            return None
        since, self._since = self._since, None
        return now - since
