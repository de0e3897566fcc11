"""Decides when to drop the known brokers and bootstrap again (KIP-899, KIP-1102). Pure.

There are three reasons. Every known broker is unavailable: it has no connection, and backoff
forbids a new one, or the last attempt has failed since any broker has responded. A broker requires
it: error 129 in Metadata or, KIP-1242, in ApiVersions. No metadata has arrived for the trigger's
time, which starts with the first metadata request and ends only with a response that contains at
least one broker.
"""

from __future__ import annotations


class RebootstrapTrigger:
    """Decides when one client rebootstraps. Owned by its metadata updater.

    Args:
        enabled: False for `metadata_recovery_strategy="none"`; then there is never a reason.
        after: Seconds without metadata after which the client rebootstraps.
    """

    def __init__(self, *, enabled: bool, after: float) -> None:
        self.enabled = enabled
        self._after = after
        # Time of the first metadata request without a response, and a broker's reason.
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
        """Return the reason to rebootstrap now, or None."""
        if not self.enabled:
            return None
        # A broker's request comes first: it is certain.
        if self._requested is not None:
            return self._requested
        if not available:
            return "no known broker is available"
        if self._since is not None and now >= self._since + self._after:
            return f"no metadata for {self._after:g} s"
        return None

    def reset(self) -> None:
        """Start over after a response that contains a broker, and after a rebootstrap."""
        self._since = None
        self._requested = None
