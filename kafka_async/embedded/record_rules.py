"""The rules of a topic that each record of a produced batch has to meet. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafka_async.embedded.codes import Code
from kafka_async.records.batch import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_async.kernel import Record
    from kafka_async.records.batch import BatchView
    from kafka_async.types import TopicPartition

SHOWN_ERRORS = 3
"""Record errors that the error message of a partition repeats, as in Kafka."""


class RecordError(NamedTuple):
    """A record that is refused: its index in the batch, and the reason; its time or another."""

    batch_index: int
    message: str
    wrong_time: bool


class Rejection(NamedTuple):
    """The reason why a batch is refused, and the records that caused it (KIP-467)."""

    code: Code
    message: str
    errors: list[RecordError]


class RecordRules(NamedTuple):
    """A topic's rules: keys in compacted topics, and timestamps close to the broker's time."""

    needs_key: bool
    checks_time: bool
    before_max_ms: int
    after_max_ms: int

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> RecordRules:
        """Return the rules that all configurations of a topic amount to."""
        return cls(
            needs_key="compact" in configs["cleanup.policy"].split(","),
            checks_time=configs["message.timestamp.type"] == "CreateTime",
            before_max_ms=int(configs["message.timestamp.before.max.ms"]),
            after_max_ms=int(configs["message.timestamp.after.max.ms"]),
        )

    def rejection(self, batch: BatchView, tp: TopicPartition, now: int) -> Rejection | None:
        """Return why a batch is refused at `now` (epoch milliseconds); None if it is accepted.

        Raises CorruptRecordError if the records have to be read and cannot be.
        """
        if not self.needs_key and not self._suspicious(batch, now):
            return None
        errors = [
            error
            for index, record in enumerate(batch.records())
            if (error := self._check(index, record, tp, now)) is not None
        ]
        if not errors:
            return None
        if any(error.wrong_time for error in errors):
            text = "One or more records have been rejected due to invalid timestamp"
            return Rejection(Code.INVALID_TIMESTAMP, text, errors)
        shown = ", ".join(
            f"RecordError(batchIndex={error.batch_index}, message='{error.message}')"
            for error in errors[:SHOWN_ERRORS]
        )
        text = (
            f"One or more records have been rejected due to {len(errors)} record errors in total, "
            f"and only showing the first three errors at most: [{shown}]"
        )
        return Rejection(Code.INVALID_RECORD, text, errors)

    def _suspicious(self, batch: BatchView, now: int) -> bool:
        """Return whether a record's time may be out of range, without reading the records."""
        if not self.checks_time:
            return False
        earliest, latest = now - self.before_max_ms, now + self.after_max_ms
        return earliest > 0 or batch.header.max_timestamp > latest

    def _check(
        self, index: int, record: Record, tp: TopicPartition, now: int
    ) -> RecordError | None:
        if self.needs_key and record.key is None:
            text = f"Compacted topic cannot accept message without key in topic partition {tp}"
            return RecordError(index, text, wrong_time=False)
        earliest, latest = now - self.before_max_ms, now + self.after_max_ms
        if not self.checks_time or record.timestamp == NO_TIMESTAMP:
            return None
        if earliest <= record.timestamp <= latest:
            return None
        text = (
            f"Timestamp {record.timestamp} of message with offset {index} is out of range. "
            f"The timestamp should be within [{earliest}, {latest}]"
        )
        return RecordError(index, text, wrong_time=True)
