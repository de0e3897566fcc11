"""Batches of a producer, their queues per partition, and unpartitioned records per topic."""

from __future__ import annotations

import enum
from collections import deque
from typing import TYPE_CHECKING

from kafka_async.kernel import TopicOpenBatches
from kafka_async.producer.buffer_pool import MemoryAccount
from kafka_async.producer.idempotence import PartitionSequence
from kafka_async.producer.partitioner import StickyPartition
from kafka_async.records.batch import RecordBatch, iter_batches
from kafka_async.records.compression import Codec
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    import random

    from kafka_async.kernel import OpenBatch
    from kafka_async.producer.idempotence import BatchSequence
    from kafka_async.producer.outcome import BatchOutcome, UnpartitionedRecord

__all__ = ["BatchState", "PartitionQueue", "ProducerBatch", "TopicQueue"]

MAX_CANDIDATES = 32
"""Partitions compared when one is chosen for records without a key."""


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
        section: The kernel's `OpenBatch`, until it is closed.
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


class PartitionQueue(MemoryAccount):
    """Batches of one partition: the open one, those queued to be sent, and those in flight.

    Attributes:
        topic: Queue of its topic.
        partition: Topic and partition.
        open_batch: Batch that records are appended to.
        queued: Closed batches that are not in flight, in order.
        in_flight: Batches in flight, in the order in which they were sent.
        sequence: Sequence numbers of the partition.
        leader: Id of its leader, None if there is none.
        in_flight_node: Id of the broker to which the batches in flight were sent.
        not_before: Time of the earliest next attempt.
        timer: The `not_before` for which a timer is set, 0 if there is none.
        next_order: Position of the next batch.
        added_to_transaction: Number of the transaction that the partition was added to.
        last_batch_bytes: Size of the batch that was closed last.
    """

    __slots__ = (
        "added_to_transaction",
        "in_flight",
        "in_flight_node",
        "last_batch_bytes",
        "leader",
        "next_order",
        "not_before",
        "open_batch",
        "partition",
        "queued",
        "sequence",
        "timer",
        "topic",
    )

    def __init__(self, topic: TopicQueue, partition: int) -> None:
        super().__init__(stranded=True)
        self.topic = topic
        self.partition = TopicPartition(topic.name, partition)
        self.open_batch: ProducerBatch | None = None
        self.queued: list[ProducerBatch] = []  # a list: an empty deque takes 0.7 KB
        self.in_flight: list[ProducerBatch] = []
        self.sequence = PartitionSequence()
        self.leader: int | None = None
        self.in_flight_node = -1
        self.not_before = 0.0
        self.timer = 0.0
        self.next_order = 0
        self.added_to_transaction = 0
        self.last_batch_bytes = 0

    @property
    def batch_count(self) -> int:
        """Number of batches that are not done."""
        return len(self.queued) + len(self.in_flight) + (self.open_batch is not None)

    @property
    def exists(self) -> bool:
        """True if the topic is known to have this partition."""
        return self.partition.partition < len(self.topic.leaders)

    def is_due(self, now: float) -> bool:
        """Return True if the next batch is ready, or open and its linger time is over.

        A batch that a task awaits lingers only while its partition has batches in flight.
        """
        if self.queued:
            return self.queued[0].state is BatchState.READY
        batch = self.open_batch
        if batch is None:
            return False
        return batch.linger_until <= now or (batch.awaited and not self.in_flight)

    @property
    def piggyback_batch(self) -> ProducerBatch | None:
        """Open batch that a request to the leader may carry before it is due."""
        if (
            self.queued
            or self.in_flight
            or self.open_batch is None
            or not self.open_batch.may_piggyback
        ):
            return None
        return self.open_batch

    def unsent(self) -> list[ProducerBatch]:
        """Return the batches that are not in flight, the open one included, in order."""
        return [*self.queued, *([] if self.open_batch is None else [self.open_batch])]

    def close(self) -> None:
        """Detach the open batch, so that no more records are appended to it."""
        self.open_batch = None
        self.topic.open_batches.close(self.partition.partition)

    def insert_in_order(self, batch: ProducerBatch) -> None:
        """Put a batch back at its position among the queued ones."""
        at = 0
        for at, other in enumerate(self.queued):  # noqa: B007  # used after the loop
            if batch.order < other.order:
                break
        else:
            at = len(self.queued)
        self.queued.insert(at, batch)

    def is_oldest(self, batch: ProducerBatch) -> bool:
        """Return True if the partition has no earlier batch with a sequence."""
        others = (*self.in_flight, *(b for b in self.queued if b.sequence is not None))
        return all(batch.order <= other.order for other in others)

    def may_send_to(self, node: int) -> bool:
        """Return True if one more batch may be sent to this broker without breaking the order.

        After a failure batches are sent one at a time, the oldest first, until all that were sent
        before are done. A new leader gets no batch while the former one has a batch in flight, and
        none follows the first batch before the broker validates sequences.
        """
        if not self.in_flight:
            return True
        if (
            self.sequence.needs_reset
            or not self.sequence.validated_by_broker
            or self.in_flight_node != node
        ):
            return False
        if self.queued and self.queued[0].attempts:
            return False
        for batch in self.in_flight:  # noqa: SIM110  # all() costs 3 % of a batch's instructions
            if batch.attempts > 1:
                return False
        return True


class TopicQueue(MemoryAccount):
    """Metadata and unpartitioned records of one topic.

    Attributes:
        name: Name of the topic.
        leaders: Leader of each partition, None if there is none; empty while there is no metadata.
        available: Partitions that have a leader.
        error: Error of the last metadata request for it.
        partitions: Queues of its partitions, by number.
        open_batches: Open batches, where the fast path appends.
        unpartitioned: Records without a partition, oldest first; None if there are none.
        sticky: Partition for records without a key.
    """

    __slots__ = (
        "available",
        "error",
        "leaders",
        "name",
        "open_batches",
        "partitions",
        "sticky",
        "unpartitioned",
    )

    def __init__(self, name: str, rng: random.Random) -> None:
        super().__init__(stranded=True)
        self.name = name
        self.leaders: tuple[int | None, ...] = ()
        self.available: tuple[int, ...] = ()
        self.error: Exception | None = None
        self.partitions: dict[int, PartitionQueue] = {}
        self.open_batches = TopicOpenBatches()
        self.unpartitioned: deque[UnpartitionedRecord] | None = None
        self.sticky = StickyPartition(rng, self.open_batches)

    @property
    def partition_count(self) -> int:
        """Number of partitions; 0 while there is no metadata."""
        return len(self.leaders)

    @property
    def awaits_metadata(self) -> bool:
        """True if records need metadata of the topic that is missing."""
        if self.leaders:
            return False
        return bool(self.unpartitioned) or any(
            queue.batch_count for queue in self.partitions.values()
        )

    @property
    def missing_partitions(self) -> list[PartitionQueue]:
        """Partitions that records name and that the metadata of the topic lacks."""
        if not self.leaders:
            return []
        return [each for each in self.partitions.values() if not each.exists and each.batch_count]

    def add_unpartitioned(self, record: UnpartitionedRecord) -> None:
        """Append a record to the unpartitioned ones."""
        if self.unpartitioned is None:
            self.unpartitioned = deque()
        self.unpartitioned.append(record)

    def pop_unpartitioned(self) -> UnpartitionedRecord:
        """Remove and return the oldest unpartitioned record."""
        assert self.unpartitioned is not None
        record = self.unpartitioned.popleft()
        if not self.unpartitioned:
            self.unpartitioned = None
        return record

    def queue(self, partition: int) -> PartitionQueue:
        """Return the queue of a partition."""
        queue = self.partitions.get(partition)
        if queue is None:
            queue = self.partitions[partition] = PartitionQueue(self, partition)
            if queue.exists:
                queue.leader = self.leaders[partition]
                queue.stranded = queue.leader is None
        return queue

    def choose_partition(self, rng: random.Random) -> int:
        """Return the partition for the next record without a key."""
        current = self.open_batches.sticky_partition
        if 0 <= current < len(self.leaders):
            return current
        among = self.available or range(self.partition_count)
        if len(among) > MAX_CANDIDATES:
            among = rng.sample(among, MAX_CANDIDATES)
        return self.sticky.choose(
            [(partition, self._batch_count(partition)) for partition in among]
        )

    def _batch_count(self, partition: int) -> int:
        queue = self.partitions.get(partition)
        return 0 if queue is None else queue.batch_count
