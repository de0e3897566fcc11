"""Decides when to drop the known brokers and bootstrap again (KIP-899, KIP-1102). Pure.

There are three reasons: every known broker is unavailable (no connection, and backoff forbids a new
one, or the last attempt has failed since any broker has responded); a broker requires it (error 129
in Metadata or, KIP-1242, in ApiVersions); no metadata has arrived for the trigger's time. That time
starts with the first metadata request and ends only with a response that names at least one broker.
"""

from __future__ import annotations


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
