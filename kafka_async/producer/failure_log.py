"""Warnings about records that failed and whose deliveries no task awaits.

An application that appends records without awaiting them would see failures only at its next
`flush()` or `stop()`, which may be days later.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from math import inf
from typing import TYPE_CHECKING, Final

from kafka_async.errors import KafkaError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle
    from collections.abc import Callable

    from kafka_async.errors import DeliveryFailure
    from kafka_async.producer.outcome import BatchOutcome, Undesignated

__all__ = ["FailureLog"]

logger = logging.getLogger("kafka_async.producer")

AWAITED_WITHIN: Final = 1.0
"""Seconds after a failure in which an application may still await the delivery without a log."""
FIRST_INTERVAL: Final = 10.0
"""Seconds from the first warning to the second; each interval doubles."""
LONGEST_INTERVAL: Final = 300.0
"""Maximum seconds between two warnings while records fail."""
TIMER_ACCURACY: Final = 0.002
"""Seconds by which a timer may be early: those of uvloop count in milliseconds."""
PARTITIONS_PER_WARNING: Final = 5
"""Partitions that a warning names."""
FAILURES_PER_ITERATION: Final = 1_000
"""Failed batches that are looked at in one event loop iteration: less than a millisecond."""


class FailureLog:
    """Logs failures that no task has been told of, at their onset and at growing intervals.

    `now()` is the time of `loop`, which calls it when something may be due.
    """

    def __init__(self, loop: AbstractEventLoop, now: Callable[[], float]) -> None:
        self._loop = loop
        self._now = now
        self._recent: deque[tuple[float, BatchOutcome | Undesignated]] = deque()
        self._counts: Counter[str] = Counter()
        self._first: Exception | None = None
        self._next_at = -inf
        self._interval = FIRST_INTERVAL
        self._timer: TimerHandle | None = None

    def add(self, outcome: BatchOutcome | Undesignated) -> None:
        """Note that a batch, or a record without a partition, has failed."""
        self._recent.append((self._now(), outcome))
        self._schedule()

    def clear(self) -> None:
        """Forget the failures that are not logged yet: they were raised to the application."""
        self._recent.clear()
        self._counts.clear()
        self._first = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        if self._timer is None and (self._recent or self._counts):
            at = self._recent[0][0] + AWAITED_WITHIN if self._recent else self._next_at
            self._timer = self._loop.call_at(at, self._review)

    def _review(self) -> None:
        self._timer = None
        now = self._now()
        for _ in range(FAILURES_PER_ITERATION):
            if not self._recent or self._recent[0][0] + AWAITED_WITHIN > now + TIMER_ACCURACY:
                if self._counts and now + TIMER_ACCURACY >= self._next_at:
                    self._warn(now)
                break
            failure = self._recent.popleft()[1].unreported()
            if failure is not None:
                self._count(failure)
        self._schedule()

    def _count(self, failure: DeliveryFailure) -> None:
        number = "" if failure.partition is None else f"-{failure.partition}"
        self._counts[f"{failure.topic}{number}"] += failure.count
        if self._first is None:
            self._first = failure.error

    def _warn(self, now: float) -> None:
        repeated = now < self._next_at + self._interval
        self._interval = min(self._interval * 2, LONGEST_INTERVAL) if repeated else FIRST_INTERVAL
        self._next_at = now + self._interval
        counts, error = self._counts, self._first
        assert error is not None
        self._counts, self._first = Counter(), None
        logger.warning(
            "records were not delivered, and no task awaits them: %s%s; the first error: %s. "
            "flush(), stop() and awaiting the delivery raise it",
            _places(counts),
            " since the last warning" if repeated else "",
            _reason(error),
        )


def _places(counts: Counter[str]) -> str:
    named = [f"{count} to {place}" for place, count in counts.most_common(PARTITIONS_PER_WARNING)]
    more = len(counts) - len(named)
    return ", ".join(named) + (f" and to {more} more" if more else "")


def _reason(error: Exception) -> str:
    """The error without its topic and partition, which the warning names already."""
    return f"{type(error).__name__}: {error.message if isinstance(error, KafkaError) else error}"
