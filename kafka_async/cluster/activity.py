"""Tracks the responses and time-outs of a broker. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class BrokerActivity:
    """Responses and time-outs of one broker, over all lanes to it.

    Attributes:
        responded_at: Time of the last response, in seconds of the loop's clock; None before.
        overdue: A request has timed out and the broker has not responded since.
    """

    responded_at: float | None = None
    overdue: bool = False

    def responded(self, now: float) -> None:
        """Note a response."""
        self.responded_at = now
        self.overdue = False

    def timed_out(self) -> None:
        """Note a request without a response within its deadline."""
        self.overdue = True
