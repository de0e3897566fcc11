"""Decides when a request is overdue by the history of its connection. Pure.

A broker that is frozen accepts requests and never responds. Waiting for request_timeout_ms would
delay everything that it led by 30 s, although the cluster elects new leaders much earlier. So a
request that takes several times as long as usual makes the client request metadata from another
broker, repeatedly until a response arrives. While brokers respond as usual, nothing more is sent.
"""

from __future__ import annotations

from math import inf
from typing import Final

LATENCY_FACTOR: Final = 4
"""A request is overdue after this multiple of the usual latency."""
MIN_OVERDUE: Final = 1.0
"""Seconds. A healthy broker may pause that long, for a garbage collection or a slow disk."""
MAX_OVERDUE: Final = 5.0
"""Seconds. By then metadata is requested even if the broker is usually slow."""
REPEAT_AFTER: Final = 0.5
"""Seconds between metadata requests to other brokers while a request is overdue."""
_SMOOTHING: Final = 0.125
"""Weight of the newest latency, as in TCP's estimate (RFC 6298)."""


class OverdueTimer:
    """Tracks the latency of a connection's responses, and when its oldest request is overdue.

    Times are seconds of the event loop's clock. A broker handles requests in order, so the others
    are not overdue before the oldest one.

    Args:
        max_wait: Seconds for which the broker may hold a request back for records.
    """

    def __init__(self, max_wait: float = 0.0) -> None:
        self._max_wait = max_wait
        # An average over responses; 0 before the first, so that MIN_OVERDUE applies.
        self._usual = 0.0
        # Earliest time of the next request to another broker; a response ends the series.
        self._repeat_at = 0.0

    @property
    def delay(self) -> float:
        """Seconds after which a request is overdue."""
        usual = LATENCY_FACTOR * self._usual
        return self._max_wait + min(max(usual, MIN_OVERDUE), MAX_OVERDUE)

    def on_response(self, latency: float) -> None:
        """Record the seconds between a request and its response."""
        # Waiting for records is no latency.
        self._usual += _SMOOTHING * (max(0.0, latency - self._max_wait) - self._usual)
        self._repeat_at = 0.0

    def is_due(self, oldest_sent_at: float, now: float) -> bool:
        """Return True if another broker should get a request now, and note the time."""
        if now < max(oldest_sent_at + self.delay, self._repeat_at):
            return False
        self._repeat_at = now + REPEAT_AFTER
        return True

    def due_at(self, oldest_sent_at: float | None) -> float:
        """Return the time at which `is_due` is True for the oldest request, or inf."""
        if oldest_sent_at is None:
            return inf
        return max(oldest_sent_at + self.delay, self._repeat_at)
