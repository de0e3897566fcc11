"""The deadlines of an orderly close. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LEAVING: Final = 2.0
"""Maximum seconds kept back for leaving the group and disconnecting; a quarter of less time."""
CANCELLED: Final = 1.0
"""Seconds for leaving the group once the caller of `stop` has been cancelled."""


@dataclass(slots=True)
class ClosingTime:
    """Deadlines in seconds of the event loop's clock: commit, then leave, then disconnect."""

    commit_by: float
    leave_by: float
    end: float

    @classmethod
    def of(cls, now: float, limit: float) -> ClosingTime:
        """Divide `limit` seconds."""
        end, spare = now + limit, min(LEAVING, limit / 4)
        return cls(end - spare, end - spare / 4, end)

    def shorten(self, now: float) -> None:
        """Drop what remains for committing, and most of what remains for leaving."""
        self.commit_by = min(self.commit_by, now)
        self.leave_by = min(self.leave_by, now + CANCELLED)
        self.end = min(self.end, now + CANCELLED)
