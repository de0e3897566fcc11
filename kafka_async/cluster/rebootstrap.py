"""When to forget the cluster's brokers and ask the bootstrap servers again (KIP-899, KIP-1102).
Pure.

Three reasons: every known broker is unavailable (no connection, and back-off forbids a new one); a
broker says so (error 129 in Metadata or, KIP-1242, in ApiVersions); metadata that was asked for has
not come for the trigger's time. The clock of the last starts with the first attempt and is cleared
only by an answer that names at least one broker.
"""

from __future__ import annotations


class RebootstrapTrigger:
    """Decides for one client. Owned by its metadata loop; times in seconds.

    `enabled` False (`metadata_recovery_strategy="none"`) never gives a reason.
    """

    def __init__(self, *, enabled: bool, after: float) -> None:
        self._enabled = enabled
        self._after = after
        self._since: float | None = None
        self._demand: str | None = None

    @property
    def due_at(self) -> float | None:
        """When the trigger's time will have passed; None while nothing is asked for."""
        return None if self._since is None or not self._enabled else self._since + self._after

    def attempted(self, now: float) -> None:
        """Metadata is asked for; only the first attempt since an answer counts."""
        if self._since is None:
            self._since = now

    def answered(self, brokers: int) -> None:
        """An answer came that names so many brokers."""
        if brokers:
            self._since = None
            self._demand = None

    def demanded(self, reason: str) -> None:
        """A broker asked for it."""
        self._demand = reason

    def reason(self, now: float, *, available: bool) -> str | None:
        """Why to bootstrap again now, if so; `available` says whether any known broker is."""
        if not self._enabled:
            return None
        if self._demand is not None:
            return self._demand
        if not available:
            return "no known broker is available"
        due = self.due_at
        if due is not None and now >= due:
            return f"no metadata for {self._after:g} s"
        return None

    def done(self) -> None:
        """The client bootstraps again; the clock starts anew with its next attempt."""
        self._since = None
        self._demand = None
