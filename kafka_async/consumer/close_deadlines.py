"""Deadlines for closing a consumer. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LEAVE_RESERVE: Final = 2.0
"""Maximum seconds reserved for leaving and disconnecting; at most a quarter of the limit."""
CANCELLED_LEAVE_TIMEOUT: Final = 1.0
"""Seconds for leaving the group after the caller of `stop` has been cancelled."""


@dataclass(slots=True)
class CloseDeadlines:
    """Deadlines for committing, leaving and disconnecting, in seconds of the event loop's clock."""

    commit_by: float
    leave_by: float
    end: float

    @classmethod
    def of(cls, now: float, limit: float) -> CloseDeadlines:
        """Divide `limit` seconds from `now` among the steps."""
        end, spare = now + limit, min(LEAVE_RESERVE, limit / 4)
        return cls(end - spare, end - spare / 4, end)

    def shorten(self, now: float) -> None:
        """Drop the time for committing and most of the time for leaving."""
        self.commit_by = min(self.commit_by, now)
        self.leave_by = min(self.leave_by, now + CANCELLED_LEAVE_TIMEOUT)
        self.end = min(self.end, now + CANCELLED_LEAVE_TIMEOUT)
