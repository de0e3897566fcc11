"""Keeps failures that no task has awaited, for `flush` and `stop` to raise, and logs warnings.

An application that appends records without awaiting them would see failures only at its next
`flush()` or `stop()`, which may be days later.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from math import inf
from typing import TYPE_CHECKING, Final

from kafka_async.errors import DeliveryError, DeliveryFailure, KafkaError
from kafka_async.foundation.fairness import MAX_FAILURES_PER_ITERATION

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle
    from collections.abc import Callable

    from kafka_async.producer.buffer.outcome import BatchOutcome

__all__ = ["DeliveryFailures", "FailureWarnings"]

logger = logging.getLogger("kafka_async.producer")

MAX_KEPT: Final = 1000
"""Failed batches whose errors are kept."""
AWAIT_GRACE_PERIOD: Final = 1.0
"""Seconds after a failure in which an application may still await the delivery without a warning.
"""
FIRST_INTERVAL: Final = 10.0
"""Seconds from the first warning to the second; each interval doubles."""
MAX_INTERVAL: Final = 300.0
"""Maximum seconds between two warnings while records fail."""
TIMER_ACCURACY: Final = 0.002
"""Seconds by which a timer may be early: uvloop's timers have millisecond resolution."""
MAX_PARTITIONS_PER_WARNING: Final = 5
"""Partitions that a warning names."""


class DeliveryFailures:
    """Failed batches since the last report; beyond MAX_KEPT only their number is kept."""

    def __init__(self, warnings: FailureWarnings | None = None) -> None:
        self._warnings = warnings
        self._outcomes: list[BatchOutcome] = []
        # Pruning visits all kept failures, so it is repeated only after a tenth of them is new.
        self._omitted = 0
        self._added_since_prune = 0

    def add(self, outcome: BatchOutcome) -> None:
        """Add a failed batch or unpartitioned record."""
        if self._warnings is not None:
            self._warnings.add(outcome)
        self._added_since_prune += 1
        if len(self._outcomes) >= MAX_KEPT <= self._added_since_prune * 10:  # not for each failure
            self._outcomes = [
                kept for kept in self._outcomes if kept.unreported_failure() is not None
            ]
            self._added_since_prune = 0
        if len(self._outcomes) >= MAX_KEPT:
            self._omitted += 1
        else:
            self._outcomes.append(outcome)

    def take_error(self) -> DeliveryError | None:
        """Remove all failures and return them as one error, or None."""
        rows = [
            row for outcome in self._outcomes if (row := outcome.unreported_failure()) is not None
        ]
        omitted, self._omitted = self._omitted, 0
        self._outcomes.clear()
        if self._warnings is not None:
            self._warnings.clear()
        return _delivery_error(rows, omitted) if rows or omitted else None


def _delivery_error(rows: list[DeliveryFailure], omitted: int) -> DeliveryError:
    """Return one error for failed batches; its cause is the first error."""
    records = sum(row.count for row in rows)
    message = f"{records} record{' was' if records == 1 else 's were'} not delivered"
    if omitted:
        batches = "1 more batch" if omitted == 1 else f"{omitted} more batches"
        message += f", nor were those of {batches}"
    if rows:
        error = rows[0].error
        named = isinstance(error, KafkaError) and error.topic is not None
        message += f"; the first: {'' if named else f'{rows[0].topic}: '}{error}"
    failed = DeliveryError(message, failures=rows)
    failed.__cause__ = rows[0].error if rows else None
    return failed


class FailureWarnings:
    """Logs failures that no task has awaited, at growing intervals.

    `now()` is the time of `loop`, which runs the timers.
    """

    def __init__(self, loop: AbstractEventLoop, now: Callable[[], float]) -> None:
        self._loop = loop
        self._now = now
        # Failures that may still be awaited, then counts of those that were not, until the next
        # warning.
        self._recent: deque[tuple[float, BatchOutcome]] = deque()
        self._counts: Counter[str] = Counter()
        self._first: Exception | None = None
        # When the next warning may be logged, and the time from it to the following one.
        self._next_at = -inf
        self._interval = FIRST_INTERVAL
        self._timer: TimerHandle | None = None

    def add(self, outcome: BatchOutcome) -> None:
        """Note that a batch or an unpartitioned record has failed."""
        self._recent.append((self._now(), outcome))
        self._schedule()

    def clear(self) -> None:
        """Drop the failures that are not logged yet: they were raised to the application."""
        self._recent.clear()
        self._counts.clear()
        self._first = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        if self._timer is None and (self._recent or self._counts):
            # The deque is in order of time, so only the first failure needs a timer.
            at = self._recent[0][0] + AWAIT_GRACE_PERIOD if self._recent else self._next_at
            self._timer = self._loop.call_at(at, self._review)

    def _review(self) -> None:
        self._timer = None
        now = self._now()
        # Leaves at the first failure that may still be awaited, or at the limit of an iteration.
        for _ in range(MAX_FAILURES_PER_ITERATION):
            if not self._recent or self._recent[0][0] + AWAIT_GRACE_PERIOD > now + TIMER_ACCURACY:
                if self._counts and now + TIMER_ACCURACY >= self._next_at:
                    self._warn(now)
                break
            failure = self._recent.popleft()[1].unreported_failure()
            if failure is not None:
                self._count(failure)
        self._schedule()

    def _count(self, failure: DeliveryFailure) -> None:
        number = "" if failure.partition is None else f"-{failure.partition}"
        self._counts[f"{failure.topic}{number}"] += failure.count
        if self._first is None:
            self._first = failure.error

    def _warn(self, now: float) -> None:
        # After a quiet interval the next failure is news again, and is logged without delay.
        repeated = now < self._next_at + self._interval
        self._interval = min(self._interval * 2, MAX_INTERVAL) if repeated else FIRST_INTERVAL
        self._next_at = now + self._interval
        counts, error = self._counts, self._first
        assert error is not None
        self._counts, self._first = Counter(), None
        logger.warning(
            "records were not delivered, and no task awaits them: %s%s; the first error: %s. "
            "flush(), stop() and awaiting the delivery raise it",
            _format_counts(counts),
            " since the last warning" if repeated else "",
            _format_error(error),
        )


def _format_counts(counts: Counter[str]) -> str:
    named = [
        f"{count} to {place}" for place, count in counts.most_common(MAX_PARTITIONS_PER_WARNING)
    ]
    more = len(counts) - len(named)
    return ", ".join(named) + (f" and to {more} more" if more else "")


def _format_error(error: Exception) -> str:
    """Return the error without its topic and partition, which the warning already names."""
    return f"{type(error).__name__}: {error.message if isinstance(error, KafkaError) else error}"
