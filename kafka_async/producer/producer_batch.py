"""A batch of records, from its first record to its outcome."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from kafka_async.records.batch import RecordBatch, iter_batches
from kafka_async.records.compression import Codec

if TYPE_CHECKING:
    from kafka_async.kernel import OpenBatch
    from kafka_async.producer.idempotence import Stamp
    from kafka_async.producer.outcome import BatchOutcome
    from kafka_async.producer.partition_queue import PartitionQueue

__all__ = ["BatchState", "ProducerBatch"]


class BatchState(enum.Enum):
    """Where a batch is on its way."""

    OPEN = "open"
    """Records are appended."""
    SEALED = "sealed"
    """It is full, or its time has come; it waits for its turn in compression."""
    COMPRESSING = "compressing"
    READY = "ready"
    """It waits to be sent, or to be sent again."""
    ON_WIRE = "on wire"
    """A request that carries it is under way."""
    DONE = "done"


class ProducerBatch:
    """A batch of one partition. Its bytes never change: for another stamp it is framed anew.

    Times are the loop's, in seconds. `order` sorts the batches of a partition as they were filled;
    parts of a split batch sort where it was. `held` is what it takes of buffer_memory. `doubtful`
    says that an attempt may have written it. `count` records are in a finished batch, of
    `wire_size` bytes with its header; of an open one its `section` knows. `awaited`: a task awaits
    one of its records. `accompanies`: while it is open, a request to its broker takes it along.
    """

    __slots__ = (
        "_frame",
        "accompanies",
        "attempts",
        "awaited",
        "closed_at",
        "contents",
        "count",
        "created",
        "deadline",
        "doubtful",
        "due",
        "error",
        "held",
        "order",
        "outcome",
        "queue",
        "section",
        "stamp",
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
        self.due = created
        self.closed_at = created
        self.order = order
        self.held = 0
        self.state = BatchState.OPEN
        self.section: OpenBatch | None = None
        self.contents: RecordBatch | None = None
        self.count = 0
        self.wire_size = 0
        self.stamp: Stamp | None = None
        self.attempts = 0
        self.doubtful = False
        self.awaited = False
        self.accompanies = False
        self.error: Exception | None = None
        self._frame: tuple[bytes, bytes] | None = None

    def seal(self) -> None:
        """Take no more records."""
        section = self.section
        assert section is not None
        self.section = None
        self.carry(
            RecordBatch(
                section.seal(),
                Codec.none,
                section.count,
                section.base_timestamp,
                section.max_timestamp,
            )
        )
        self.state = BatchState.SEALED

    def carry(self, contents: RecordBatch) -> None:
        """Hold this finished batch."""
        self.contents = contents
        self.count = contents.count
        self.wire_size = contents.size

    @property
    def sealed(self) -> RecordBatch:
        """The finished batch, without the header that says who sends it."""
        assert self.contents is not None
        return self.contents

    def restamp(self, stamp: Stamp | None) -> None:
        """Carry another identity and sequence: what was framed before is left alone, and unused."""
        self.stamp = stamp
        self._frame = None

    def release(self) -> None:
        """It is done: let go of its bytes, which a transport may still hold."""
        self.state = BatchState.DONE
        self.section = None
        self.contents = None
        self._frame = None

    def frame(self, *, transactional: bool) -> tuple[bytes, bytes]:
        """The header and the records to send: the same objects for every attempt under one stamp.

        Nobody joins them, which would copy the records.
        """
        if self._frame is None:
            assert self.stamp is not None
            identity, sequence = self.stamp.identity, self.stamp.sequence
            header = self.sealed.header(
                identity.producer_id, identity.epoch, sequence, transactional=transactional
            )
            self._frame = header, self.sealed.payload
        return self._frame

    def halves(self) -> tuple[RecordBatch, RecordBatch]:
        """The same records in two batches (KIP-126); there must be two at least."""
        records = next(iter_batches(self.sealed.frame())).records()
        middle = len(records) // 2
        codec = self.sealed.codec.name
        return (
            RecordBatch.build(records[:middle], codec),
            RecordBatch.build(records[middle:], codec),
        )

    def __repr__(self) -> str:
        return f"<ProducerBatch {self.queue.partition} {self.count} records, {self.state.value}>"
