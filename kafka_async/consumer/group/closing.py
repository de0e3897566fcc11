"""Closing a consumer: commits, then leaves the group, each by its deadline."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from kafka_async.errors import CommitFailedError, KafkaError, RetriableError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from kafka_async.consumer.delivery.delivery_gate import DeliveryGate
    from kafka_async.consumer.group.offset_committer import OffsetCommitter
    from kafka_async.consumer.subscription import Subscription
    from kafka_async.group.membership import GroupMembership

LEAVE_RESERVE: Final = 2.0
"""Maximum seconds reserved for leaving and disconnecting; at most a quarter of the limit."""
CANCELLED_LEAVE_TIMEOUT: Final = 1.0
"""Seconds for leaving the group after the caller of `stop` has been cancelled."""
MAX_OFFSETS_IN_LOG: Final = 10
"""Maximum offsets in a log message."""
logger = logging.getLogger("kafka_async.consumer")


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
        # A quarter of what is reserved is for disconnecting.
        return cls(end - spare, end - spare / 4, end)

    def shorten(self, now: float) -> None:
        """Drop the time for committing and most of the time for leaving."""
        self.commit_by = min(self.commit_by, now)
        self.leave_by = min(self.leave_by, now + CANCELLED_LEAVE_TIMEOUT)
        # The caller was cancelled: the group must not wait for the session of a member that is
        # gone.
        self.end = min(self.end, now + CANCELLED_LEAVE_TIMEOUT)


class Closing:
    """Runs the steps of closing; `name` is the consumer's name in log messages."""

    def __init__(self, name: str, deadlines: CloseDeadlines, subscription: Subscription) -> None:
        self._name = name
        self._deadlines = deadlines
        self._subscription = subscription
        self._now = asyncio.get_running_loop().time
        # The step that `shorten` may cut short, with a function for its deadline.
        self._current_step: tuple[asyncio.Timeout, Callable[[], float]] | None = None

    @property
    def commit_by(self) -> float:
        """Event loop time until which offsets may be committed."""
        return self._deadlines.commit_by

    def shorten(self) -> None:
        """Leave the group without the commit in progress: the caller was cancelled."""
        now = self._now()
        self._deadlines.shorten(now)
        if self._current_step is not None:
            step, deadline = self._current_step
            step.reschedule(max(now, deadline()))

    async def drain(self, gate: DeliveryGate) -> None:
        """Wait for running handlers, for half of the time that is left for committing."""
        partitions = frozenset(self._subscription.states)
        # Half of it, so that a commit can follow.
        left = max(0.0, self._deadlines.commit_by - self._now())
        with contextlib.suppress(TimeoutError):
            async with self._timeout(lambda: self._deadlines.commit_by):
                await gate.drain(partitions, left / 2)

    async def commit(self, offset_committer: OffsetCommitter) -> KafkaError | None:
        """Commit, and log what was not committed; return an error that is not retriable."""
        error: Exception | None = None
        try:
            async with self._timeout(lambda: self._deadlines.commit_by):
                await self._commit_owned(offset_committer)
        except (TimeoutError, KafkaError) as failure:
            error = failure
        due = self._subscription.to_commit(include_unprocessed=False)
        # A commit that failed for deleted topics, for example, leaves nothing to warn of.
        if error is None or not due:
            return None
        shown = ", ".join(
            f"{p}: {row.offset}" for p, row in islice(due.items(), MAX_OFFSETS_IN_LOG)
        )
        logger.warning(
            "%s was closed, and offsets of %d partitions were not committed (%s): %s%s; the "
            "records before them will be read again",
            self._name,
            len(due),
            str(error) or "no response in time",
            shown,
            ", ..." if len(due) > MAX_OFFSETS_IN_LOG else "",
        )
        if isinstance(error, KafkaError) and not isinstance(error, RetriableError):
            return error
        return None

    async def _commit_owned(self, offset_committer: OffsetCommitter) -> None:
        """Commit, and again if a rebalance has moved some of the partitions in the meantime."""
        # Repeated while partitions are lost on the way; the rest is still this member's to commit.
        while True:
            left = max(0.001, self._deadlines.commit_by - self._now())
            due = self._subscription.to_commit(include_unprocessed=False)
            try:
                await offset_committer.commit(due, left)
            except CommitFailedError:
                if self._subscription.to_commit(include_unprocessed=False).keys() >= due.keys():
                    raise
            else:
                return

    async def leave_group(self, membership: GroupMembership) -> None:
        """Leave the group; log a warning if there was not enough time."""
        try:
            async with self._timeout(lambda: self._deadlines.leave_by):
                await membership.close(self._deadlines.leave_by)
        except TimeoutError:
            logger.warning(
                "%s was closed, but did not leave its group in order: it was %s",
                self._name,
                membership.state.value,
            )

    @contextlib.asynccontextmanager
    async def _timeout(self, deadline: Callable[[], float]) -> AsyncGenerator[None]:
        """Limit a step, whose deadline `shorten` may bring forward."""
        try:
            async with asyncio.timeout_at(deadline()) as step:
                self._current_step = step, deadline
                yield
        finally:
            self._current_step = None
