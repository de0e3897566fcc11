"""A batch of records of one partition, from its first record to its outcome."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from kafka_async.records.batch import RecordBatch, iter_batches
from kafka_async.records.compression import Codec

if TYPE_CHECKING:
    from kafka_async.kernel import OpenBatch
    from kafka_async.producer.idempotence import BatchSequence
    from kafka_async.producer.outcome import BatchOutcome
    from kafka_async.producer.partition_queue import PartitionQueue

__all__ = ["BatchState", "ProducerBatch"]


class BatchState(enum.Enum):
    """States of a batch."""

    OPEN = "open"
    """Records are appended."""
    CLOSED = "closed"
    """No more records are appended; the batch is to be compressed."""
    COMPRESSING = "compressing"
    READY = "ready"
    """The batch can be sent, or sent again."""
    IN_FLIGHT = "in flight"
    """A request carries the batch and has no response yet."""
    DONE = "done"


class ProducerBatch:
    """A batch of one partition.

    Its records are encoded once; only the header is encoded again when the batch gets another
    sequence. Times are seconds of the event loop's clock.

    Attributes:
        queue: Queue of its partition.
        outcome: What the handles of its records refer to.
        created: Time of its first record.
        deadline: Time at which the batch expires unless it is in flight.
        linger_until: Time at which an open batch is due.
        closed_at: Time at which it was closed.
        order: Position among the batches of its partition; parts of a split batch sort where it
            was.
        reserved_bytes: Bytes reserved for it in buffer_memory, without MEMORY_OVERHEAD.
        section: Records section of an open batch.
        contents: Record batch without a producer's header, once it is closed.
        count: Number of records, once it is closed.
        wire_size: Bytes with its header, once it is closed.
        sequence: Producer id, epoch and base sequence, once it was sent.
        attempts: Number of requests that carried it.
        maybe_written: An attempt may have written it.
        awaited: A task awaits one of its records.
        may_piggyback: While it is open, a request to its broker may carry it before it is due.
        error: Error of its last attempt.
    """

    __slots__ = (
        "_frame",
        "attempts",
        "awaited",
        "closed_at",
        "contents",
        "count",
        "created",
        "deadline",
        "error",
        "linger_until",
        "may_piggyback",
        "maybe_written",
        "order",
        "outcome",
        "queue",
        "reserved_bytes",
        "section",
        "sequence",
        "state",
        "wire_size",
    )

    def __init__(
        self,
        queue: PartitionQueue,
        outcome: BatchOutcome,
        *,
        created: float,
        deadline: float,
        order: tuple[int, ...],
    ) -> None:
        self.queue = queue
        self.outcome = outcome
        self.created = created
        self.deadline = deadline
        self.linger_until = created
        self.closed_at = created
        self.order = order
        self.reserved_bytes = 0
        self.state = BatchState.OPEN
        self.section: OpenBatch | None = None
        self.contents: RecordBatch | None = None
        self.count = 0
        self.wire_size = 0
        self.sequence: BatchSequence | None = None
        self.attempts = 0
        self.maybe_written = False
        self.awaited = False
        self.may_piggyback = False
        self.error: Exception | None = None
        self._frame: tuple[bytes, bytes] | None = None

    def close(self) -> None:
        """Close the batch for appends."""
        section = self.section
        assert section is not None
        self.section = None
        self.set_contents(
            RecordBatch(
                section.close(),
                Codec.none,
                section.count,
                section.base_timestamp,
                section.max_timestamp,
            )
        )
        self.state = BatchState.CLOSED

    def set_contents(self, contents: RecordBatch) -> None:
        """Set the finished record batch."""
        self.contents = contents
        self.count = contents.count
        self.wire_size = contents.size

    @property
    def record_batch(self) -> RecordBatch:
        """Record batch without the header that identifies the producer."""
        assert self.contents is not None
        return self.contents

    def set_sequence(self, sequence: BatchSequence | None) -> None:
        """Set the sequence with which the batch is sent from now on."""
        self.sequence = sequence
        self._frame = None

    def release(self) -> None:
        """Mark the batch as done and release its bytes, which a transport may still hold."""
        self.state = BatchState.DONE
        self.section = None
        self.contents = None
        self._frame = None

    def frame(self, *, transactional: bool) -> tuple[bytes, bytes]:
        """Return the header and the records to send.

        They are the same objects for each attempt with one sequence, and are not joined, since that
        would copy the records.
        """
        if self._frame is None:
            assert self.sequence is not None
            id_and_epoch, base_sequence = self.sequence
            header = self.record_batch.header(
                id_and_epoch.producer_id,
                id_and_epoch.epoch,
                base_sequence,
                transactional=transactional,
            )
            self._frame = header, self.record_batch.payload
        return self._frame

    def halves(self) -> tuple[RecordBatch, RecordBatch]:
        """Return the same records, at least two, in two batches (KIP-126)."""
        records = next(iter_batches(self.record_batch.frame())).records()
        middle = len(records) // 2
        codec = self.record_batch.codec.name
        return (
            RecordBatch.build(records[:middle], codec),
            RecordBatch.build(records[middle:], codec),
        )

    def __repr__(self) -> str:
        return f"<ProducerBatch {self.queue.partition} {self.count} records, {self.state.value}>"
