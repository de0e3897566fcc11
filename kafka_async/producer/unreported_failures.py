"""What failed and nobody has been told of yet: forgetting a handle is safe, flush() raises it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.errors import DeliveryError, DeliveryFailure

if TYPE_CHECKING:
    from kafka_async.producer.failure_log import FailureLog
    from kafka_async.producer.outcome import BatchOutcome, Undesignated

__all__ = ["Failures", "delivery_error"]

_KEPT = 1000


class Failures:
    """Failed batches since the last report. Beyond a thousand, only their number is kept."""

    def __init__(self) -> None:
        self._log: FailureLog | None = None
        self._outcomes: list[BatchOutcome | Undesignated] = []
        self._more = 0
        self._pruned = 0

    def log_to(self, log: FailureLog) -> None:
        """Have `log` warn of failures that are not taken and that no task awaits."""
        self._log = log

    def add(self, outcome: BatchOutcome | Undesignated) -> None:
        """Note a failure."""
        if self._log is not None:
            self._log.add(outcome)
        self._pruned += 1
        if len(self._outcomes) >= _KEPT <= self._pruned * 10:  # a look at all of them takes time
            self._outcomes = [kept for kept in self._outcomes if kept.unreported() is not None]
            self._pruned = 0
        if len(self._outcomes) >= _KEPT:
            self._more += 1
        else:
            self._outcomes.append(outcome)

    def take(self) -> DeliveryError | None:
        """The failures as one error, reported with that; None if there are none."""
        rows = [row for outcome in self._outcomes if (row := outcome.unreported()) is not None]
        more, self._more = self._more, 0
        self._outcomes.clear()
        if self._log is not None:
            self._log.clear()
        return delivery_error(rows, more) if rows or more else None


def delivery_error(rows: list[DeliveryFailure], more: int = 0) -> DeliveryError:
    """One error for failed batches; its cause is the first one's."""
    records = sum(row.count for row in rows)
    message = f"{records} records were not delivered"
    if more:
        message += f", nor were those of {more} more batches"
    if rows:
        message += f"; the first: {rows[0].topic}: {rows[0].error}"
    error = DeliveryError(message, failures=rows)
    error.__cause__ = rows[0].error if rows else None
    return error
