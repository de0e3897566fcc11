"""Decides what follows while no broker responds: when to log it, and when to bootstrap again. Pure.

An outage is logged at its start, at growing intervals and at its end.

A client drops the known brokers and bootstraps again (KIP-899, KIP-1102) for one of three reasons:
every known broker is unavailable (no connection, and backoff forbids a new one, or the last attempt
has failed since any broker has responded); a broker requires it (error 129 in Metadata or,
KIP-1242, in ApiVersions); no metadata has arrived for the trigger's time. That time starts with the
first metadata request and ends only with a response that names at least one broker.
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


class RebootstrapTrigger:
    """Decides when one client rebootstraps. Owned by its metadata updater.

    Args:
        enabled: False for `metadata_recovery_strategy="none"`; there is never a reason then.
        after: Seconds without metadata after which the client rebootstraps.
    """

    def __init__(self, *, enabled: bool, after: float) -> None:
        self.enabled = enabled
        self._after = after
        self._since: float | None = None
        self._requested: str | None = None

    def record_attempt(self, now: float) -> None:
        """Record a metadata request; only the first one since a response starts the clock."""
        if self._since is None:
            self._since = now

    def request(self, reason: str) -> None:
        """Rebootstrap at the next opportunity, as a broker requires it."""
        self._requested = reason

    def reason(self, now: float, *, available: bool) -> str | None:
        """Return the reason to rebootstrap now; None if there is none."""
        if not self.enabled:
            return None
        if self._requested is not None:
            return self._requested
        if not available:
            return "no known broker is available"
        if self._since is not None and now >= self._since + self._after:
            return f"no metadata for {self._after:g} s"
        return None

    def reset(self) -> None:
        """Start over after a response that names a broker, and after a rebootstrap."""
        self._since = None
        self._requested = None
