"""Throttle windows that the cluster has opened, and the requests that arrived within them. Pure.

A client that follows KIP-219 sends no request on a throttled connection until the window ends, and
does not evade the window through another connection. A violation is a request on the window's
connection, or a request of the same API and client id on another connection to the same broker.
"""

from __future__ import annotations

from typing import Final, NamedTuple

CLOCK_RESOLUTION: Final = 1e-6
"""Tolerance for sums of times, in seconds; a throttle time is at least a millisecond."""


class Throttle(NamedTuple):
    """Represents a throttle window; times in seconds of the event loop's clock."""

    broker: int
    client_id: str | None
    api_key: int
    connection: int
    """Number of the connection, unique within the cluster."""
    start: float
    end: float


class EarlyRequest(NamedTuple):
    """Represents a request that arrived within a throttle window."""

    throttle: Throttle
    api_key: int
    connection: int
    time: float


class ThrottleLog:
    """Records throttle windows and the requests that arrive while they last.

    Attributes:
        throttles: All windows, in the order in which they were opened.
        early_requests: Requests that arrived after the start and before the end of a window.
    """

    def __init__(self) -> None:
        self.throttles: list[Throttle] = []
        self.early_requests: list[EarlyRequest] = []
        self._open: list[Throttle] = []

    def opened(self, throttle: Throttle) -> None:
        """Record a window."""
        self.throttles.append(throttle)
        self._open.append(throttle)

    def is_open(self, now: float) -> bool:
        """Return whether a window is open, so that requests must be recorded."""
        if self._open:
            self._open = [each for each in self._open if each.end > now]
        return bool(self._open)

    def received(
        self, broker: int, client_id: str | None, api_key: int, connection: int, now: float
    ) -> None:
        """Record a request if it arrives within a window that covers it.

        A request that arrives at the start of a window was sent before the throttled response.
        """
        for throttle in self._open:
            if throttle.broker != broker:
                continue
            if not throttle.start < now < throttle.end - CLOCK_RESOLUTION:
                continue
            same_api = (throttle.client_id, throttle.api_key) == (client_id, api_key)
            if throttle.connection == connection or same_api:
                self.early_requests.append(EarlyRequest(throttle, api_key, connection, now))

    def violations(self, grace: float = 0.0) -> list[EarlyRequest]:
        """Return the requests that arrived within windows.

        Args:
            grace: Seconds at the start of a window for requests sent before the response arrived,
                and at its end for differences of clocks.
        """
        return [
            each
            for each in self.early_requests
            if each.throttle.start + grace < each.time < each.throttle.end - grace
        ]
