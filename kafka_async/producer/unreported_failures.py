"""Keeps failures that were not reported to the application yet, so that `flush` can raise them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.errors import DeliveryError, DeliveryFailure

if TYPE_CHECKING:
    from kafka_async.producer.failure_log import FailureLog
    from kafka_async.producer.outcome import BatchOutcome, UnpartitionedRecord

__all__ = ["UnreportedFailures", "delivery_error"]

MAX_KEPT = 1000
"""Failed batches whose errors are kept."""


class UnreportedFailures:
    """Failed batches since the last report; beyond MAX_KEPT only their number is kept."""

    def __init__(self) -> None:
        self._log: FailureLog | None = None
        self._outcomes: list[BatchOutcome | UnpartitionedRecord] = []
        self._omitted = 0
        self._added_since_prune = 0

    def log_to(self, log: FailureLog) -> None:
        """Set the log that warns of failures that are neither raised nor awaited."""
        self._log = log

    def add(self, outcome: BatchOutcome | UnpartitionedRecord) -> None:
        """Add a failed batch or unpartitioned record."""
        if self._log is not None:
            self._log.add(outcome)
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
        """Remove all failures and return them as one error; None if there are none."""
        rows = [
            row for outcome in self._outcomes if (row := outcome.unreported_failure()) is not None
        ]
        omitted, self._omitted = self._omitted, 0
        self._outcomes.clear()
        if self._log is not None:
            self._log.clear()
        return delivery_error(rows, omitted) if rows or omitted else None


def delivery_error(rows: list[DeliveryFailure], omitted: int = 0) -> DeliveryError:
    """Return one error for failed batches; its cause is the first error."""
    records = sum(row.count for row in rows)
    message = f"{records} records were not delivered"
    if omitted:
        message += f", nor were those of {omitted} more batches"
    if rows:
        message += f"; the first: {rows[0].topic}: {rows[0].error}"
    error = DeliveryError(message, failures=rows)
    error.__cause__ = rows[0].error if rows else None
    return error
