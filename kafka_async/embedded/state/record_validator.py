"""Checks records of produced batches against the topic's configuration. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.records.batch import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_async.kernel import Record
    from kafka_async.records.batch import BatchView
    from kafka_async.types import TopicPartition

MAX_ERRORS_IN_MESSAGE = 3
"""Record errors in the error message of a partition, as in Kafka."""


class RecordError(NamedTuple):
    """Describes an invalid record by its index in the batch."""

    batch_index: int
    message: str
    invalid_timestamp: bool


class BatchRejection(NamedTuple):
    """Describes a rejected batch and its invalid records (KIP-467)."""

    code: ErrorCode
    message: str
    errors: list[RecordError]


class RecordValidator(NamedTuple):
    """Requires keys in compacted topics, and timestamps close to the broker's clock."""

    requires_key: bool
    checks_timestamps: bool
    before_max_ms: int
    after_max_ms: int

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> RecordValidator:
        """Return the validator for a topic; `configs` has all its configurations."""
        return cls(
            requires_key="compact" in configs["cleanup.policy"].split(","),
            checks_timestamps=configs["message.timestamp.type"] == "CreateTime",
            before_max_ms=int(configs["message.timestamp.before.max.ms"]),
            after_max_ms=int(configs["message.timestamp.after.max.ms"]),
        )

    def validate(self, batch: BatchView, tp: TopicPartition, now: int) -> BatchRejection | None:
        """Return a rejection if the batch has invalid records, else None."""
        if not self.requires_key and not self._may_have_invalid_timestamp(batch, now):
            return None
        errors = [
            error
            for index, record in enumerate(batch.records())
            if (error := self._validate_record(index, record, tp, now)) is not None
        ]
        if not errors:
            return None
        if any(error.invalid_timestamp for error in errors):
            text = "One or more records have been rejected due to invalid timestamp"
            return BatchRejection(ErrorCode.INVALID_TIMESTAMP, text, errors)
        first_errors = ", ".join(
            f"RecordError(batchIndex={error.batch_index}, message='{error.message}')"
            for error in errors[:MAX_ERRORS_IN_MESSAGE]
        )
        text = (
            f"One or more records have been rejected due to {len(errors)} record errors in total, "
            f"and only showing the first three errors at most: [{first_errors}]"
        )
        return BatchRejection(ErrorCode.INVALID_RECORD, text, errors)

    def _may_have_invalid_timestamp(self, batch: BatchView, now: int) -> bool:
        """Return True if a timestamp may be out of range, from the batch header alone."""
        if not self.checks_timestamps:
            return False
        earliest, latest = now - self.before_max_ms, now + self.after_max_ms
        return earliest > 0 or batch.header.max_timestamp > latest

    def _validate_record(
        self, index: int, record: Record, tp: TopicPartition, now: int
    ) -> RecordError | None:
        if self.requires_key and record.key is None:
            text = f"Compacted topic cannot accept message without key in topic partition {tp}"
            return RecordError(index, text, invalid_timestamp=False)
        earliest, latest = now - self.before_max_ms, now + self.after_max_ms
        if not self.checks_timestamps or record.timestamp == NO_TIMESTAMP:
            return None
        if earliest <= record.timestamp <= latest:
            return None
        text = (
            f"Timestamp {record.timestamp} of message with offset {index} is out of range. "
            f"The timestamp should be within [{earliest}, {latest}]"
        )
        return RecordError(index, text, invalid_timestamp=True)
