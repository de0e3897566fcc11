"""Tracks the responses and timeouts of a broker. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

UNANSWERED_AFTER: Final = 5.0
"""Seconds without a response after which a request shows that its broker is frozen or cut off.

A broker responds within milliseconds to every request that it does not hold back.
"""


@dataclass(slots=True)
class BrokerActivity:
    """Responses and timeouts of one broker, over all connections to it.

    Attributes:
        responded_at: Time of the last response, in seconds of the loop's clock; None before.
        overdue: A request timed out after request_timeout_ms or after UNANSWERED_AFTER, whichever
            is shorter, and the broker has not responded since.
    """

    responded_at: float | None = None
    overdue: bool = False

    def record_response(self, now: float) -> None:
        """Record a response."""
        self.responded_at = now
        self.overdue = False

    def record_timeout(self) -> None:
        """Record a timeout of a request that was in flight long enough to suspect the broker."""
        self.overdue = True
