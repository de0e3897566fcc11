"""Tracks the responses and time-outs of a broker. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

UNANSWERED_AFTER: Final = 5.0
"""Seconds without a response after which a request shows that its broker is frozen or cut off.

A broker responds within milliseconds to every request that it does not hold back.
"""


@dataclass(slots=True)
class BrokerActivity:
    """Responses and time-outs of one broker, over all lanes to it.

    Attributes:
        responded_at: Time of the last response, in seconds of the loop's clock; None before.
        overdue: A request has waited for request_timeout_ms, or for as long as
            UNANSWERED_AFTER, and timed out; the broker has not responded since.
    """

    responded_at: float | None = None
    overdue: bool = False

    def responded(self, now: float) -> None:
        """Note a response."""
        self.responded_at = now
        self.overdue = False

    def timed_out(self) -> None:
        """Note a request that timed out and had waited long enough to say something."""
        self.overdue = True
