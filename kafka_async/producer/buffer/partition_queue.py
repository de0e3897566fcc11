"""Batches of a producer, their queues per partition, and unpartitioned records per topic."""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafka_async.kernel import TopicOpenBatches
from kafka_async.producer.buffer.buffer_pool import MemoryAccount
from kafka_async.producer.idempotence import PartitionSequence
from kafka_async.producer.partitioner import StickyPartition
from kafka_async.producer.produce_errors import MAYBE_WRITTEN_ERRORS
from kafka_async.records.batch import RecordBatch, encode_header, iter_batches
from kafka_async.records.compression import Codec
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    import random
    from collections.abc import Set

    from kafka_async.kernel import OpenBatch
    from kafka_async.producer.buffer.outcome import BatchOutcome, UnpartitionedRecord
    from kafka_async.producer.idempotence import BatchSequence

__all__ = ["BatchState", "PartitionQueue", "ProducerBatch", "TopicQueue"]

MAX_CANDIDATES = 32
"""Partitions compared when one is chosen for records without a key, so that a topic with thousands
of them costs no more.
"""


class BatchState(enum.Enum):
    """States of a batch."""

    OPEN = "open"
    """Records are appended."""
    CLOSED = "closed"
    """No more records are appended; the batch waits for compression."""
    COMPRESSING = "compressing"
    READY = "ready"
    """The batch can be sent, or sent again."""
    IN_FLIGHT = "in flight"
    """A request carries the batch and has no response yet."""
    DONE = "done"


@dataclass(slots=True, eq=False, repr=False)
class ProducerBatch:
    """A batch of one partition.

    Its records are encoded once; a new sequence changes only the header. Times are seconds of the
    event loop's clock.

    Attributes:
        outcome: What the handles of its records refer to.
        created: Time of its first record.
        deadline: Time at which the batch expires unless it is in flight.
        linger_until: Time at which an open batch is due.
        closed_at: Time at which it was closed.
        order: Position among the batches of its partition; parts of a split batch sort where it
            was.
        reserved_bytes: Bytes reserved for it in buffer_memory, without MEMORY_OVERHEAD.
        builder: The kernel's `OpenBatch`, which encodes its records, until it is closed.
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

    # Identity and times; these do not change, except the deadline.
    queue: PartitionQueue
    partition: TopicPartition
    outcome: BatchOutcome
    created: float
    deadline: float
    closed_at: float
    order: tuple[int, ...]
    # Position in its life; `maybe_written` is the reason that a batch is not split.
    linger_until: float = 0.0
    reserved_bytes: int = 0
    state: BatchState = BatchState.OPEN
    builder: OpenBatch | None = None
    contents: RecordBatch | None = None
    count: int = 0
    wire_size: int = 0
    sequence: BatchSequence | None = None
    attempts: int = 0
    maybe_written: bool = False
    awaited: bool = False
    may_piggyback: bool = False
    error: Exception | None = None
    # Encoded header and records, kept for retries.
    _frame: tuple[bytes, bytes] | None = None

    def close(self, now: float) -> None:
        """Close the batch for appends."""
        self.closed_at = now
        builder = self.builder
        assert builder is not None
        self.builder = None
        self.set_contents(
            RecordBatch(
                builder.close(),
                Codec.none,
                builder.count,
                builder.base_timestamp,
                builder.max_timestamp,
            ),
            BatchState.CLOSED,
        )

    def set_contents(self, contents: RecordBatch, state: BatchState) -> None:
        """Set the finished record batch, which is to be compressed or can be sent."""
        self.contents = contents
        self.count = contents.count
        self.wire_size = contents.size
        self.state = state

    def note_error(self, error: Exception) -> None:
        """Note the error of an attempt, which may have written the batch."""
        self.error = error
        # One such attempt is enough: a later one may fail for another reason.
        self.maybe_written = self.maybe_written or isinstance(error, MAYBE_WRITTEN_ERRORS)

    @property
    def splittable(self) -> bool:
        """True if smaller batches can replace it: the log may not have it already."""
        # Parts of a batch that is in the log already would be written twice.
        return self.count > 1 and not self.maybe_written

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
        self.builder = None
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
            header = encode_header(
                self.record_batch,
                id_and_epoch.producer_id,
                id_and_epoch.epoch,
                base_sequence,
                transactional=transactional,
            )
            self._frame = header, self.record_batch.payload
        return self._frame

    def halves(self) -> tuple[RecordBatch, RecordBatch]:
        """Return the same records, at least two, in two batches (KIP-126)."""
        # The batch may be compressed, so its records are decoded again.
        records = next(iter_batches(self.record_batch.frame())).records()
        middle = len(records) // 2
        codec = self.record_batch.codec.name
        return (
            RecordBatch.build(records[:middle], codec),
            RecordBatch.build(records[middle:], codec),
        )

    def __repr__(self) -> str:
        return f"<ProducerBatch {self.partition} {self.count} records, {self.state.value}>"


@dataclass(slots=True, eq=False, repr=False)
class PartitionQueue(MemoryAccount):
    """Batches of one partition: the open one, those queued to be sent, and those in flight.

    Attributes:
        queued: Closed batches that are not in flight, in order; an empty deque would take 0.7 KB.
        in_flight: Batches in flight, in the order in which they were sent.
        leader: Id of its leader, or None.
        last_leader: Id of the leader before, or None.
        in_flight_node: Id of the broker to which the batches in flight were sent.
        not_before: Time of the earliest next attempt.
        timer: The `not_before` for which a timer is set, 0 if there is none.
        next_order: Position of the next batch.
        added_to_transaction: Number of the transaction that the partition was added to.
        last_batch_bytes: Size of the batch that was closed last.
    """

    # Batches in the order of their records: in flight first, then queued, then open.
    topic: TopicQueue
    partition: TopicPartition
    open_batch: ProducerBatch | None = None
    queued: list[ProducerBatch] = field(default_factory=list[ProducerBatch])
    in_flight: list[ProducerBatch] = field(default_factory=list[ProducerBatch])
    sequence: PartitionSequence = field(default_factory=PartitionSequence)
    # Where batches go, and where those in flight went.
    leader: int | None = None
    last_leader: int | None = None
    in_flight_node: int = -1
    # Back-off after an error; it holds up the partition, not the broker.
    not_before: float = 0.0
    timer: float = 0.0
    next_order: int = 0
    added_to_transaction: int = 0
    last_batch_bytes: int = 0

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
        # The order of the batches is the order of their records, so only the first can be due.
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

    def detach_open_batch(self) -> None:
        """Let no more records be appended to the open batch."""
        self.open_batch = None
        self.topic.open_batches.remove(self.partition.partition)

    def insert_in_order(self, batch: ProducerBatch) -> None:
        """Put a batch back at its position among the queued ones."""
        at = 0
        # From the front: a retried batch usually precedes all that are queued.
        for at, other in enumerate(self.queued):  # noqa: B007  # used after the loop
            if batch.order < other.order:
                break
        else:
            at = len(self.queued)
        self.queued.insert(at, batch)

    def requeue(self, batch: ProducerBatch, not_before: float) -> None:
        """Put a batch in flight back; `not_before` applies unless the leader has changed."""
        batch.state = BatchState.READY
        self.in_flight.remove(batch)
        self.insert_in_order(batch)
        # A new leader has not failed, so it gets the batch without a delay (KIP-951).
        if self.leader == self.in_flight_node:
            self.not_before = max(self.not_before, not_before)

    def is_oldest(self, batch: ProducerBatch) -> bool:
        """Return True if the partition has no earlier batch with a sequence."""
        # Batches without a sequence were never sent.
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
        # Two batches in flight must be validated by the same broker with the same epoch; otherwise
        # the second may be written although the first was refused.
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


@dataclass(slots=True, eq=False, repr=False)
class TopicQueue(MemoryAccount):
    """Metadata and unpartitioned records of one topic.

    Attributes:
        leaders: Leader of each partition, or None; empty while there is no metadata.
        available: Partitions that have a leader.
        error: Error of the last metadata request for it.
        open_batches: Open batches, where the fast path appends.
        unpartitioned: Records without a partition, oldest first, or None.
        sticky: Partition for records without a key.
        used_at: Event loop time at which a record or batch was last appended to a new batch.
    """

    # Metadata.
    name: str
    leaders: tuple[int | None, ...] = ()
    available: tuple[int, ...] = ()
    error: Exception | None = None
    # Records.
    partitions: dict[int, PartitionQueue] = field(default_factory=dict[int, PartitionQueue])
    open_batches: TopicOpenBatches = field(default_factory=TopicOpenBatches)
    unpartitioned: deque[UnpartitionedRecord] | None = None
    sticky: StickyPartition = field(init=False)
    used_at: float = 0.0

    def __post_init__(self) -> None:
        self.sticky = StickyPartition(self.open_batches)

    def note_error(self, error: Exception | None) -> None:
        """Note the error of a metadata request, if there is one."""
        # Kept for the message when the records expire; the next success clears it.
        self.error = error or self.error

    @property
    def partition_count(self) -> int:
        """Number of partitions; 0 while there is no metadata."""
        return len(self.leaders)

    @property
    def awaits_metadata(self) -> bool:
        """True if records need metadata of the topic that is missing."""
        return not self.leaders and self.has_records

    @property
    def has_records(self) -> bool:
        """True if records are not acknowledged."""
        return bool(self.unpartitioned) or any(q.batch_count for q in self.partitions.values())

    def use(self, now: float) -> None:
        """Note that a record is appended, or that the application asks for the topic."""
        self.used_at = now

    @property
    def missing_partitions(self) -> list[PartitionQueue]:
        """Partitions that records name and that the metadata of the topic lacks."""
        # Without metadata no partition is known to be missing.
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
        # Partitions are created on first use: an application may write to few of thousands.
        queue = self.partitions.get(partition)
        if queue is None:
            queue = PartitionQueue(self, TopicPartition(self.name, partition))
            self.partitions[partition] = queue
            if queue.exists:
                queue.leader = self.leaders[partition]
                queue.stranded = queue.leader is None
        return queue

    def choose_partition(self, rng: random.Random, unavailable: Set[int], *, adaptive: bool) -> int:
        """Return the partition for the next record without a key.

        Partitions that an `unavailable` broker leads are left out unless there are no others. With
        `adaptive`, those with short queues are preferred.
        """
        # The sticky partition holds until it has received about batch_size bytes (KIP-794).
        current = self.open_batches.sticky_partition
        if 0 <= current < len(self.leaders):
            return current
        # Without any leader all partitions are equal; records wait there for one.
        among = self.available or range(self.partition_count)
        if unavailable:
            leaders = self.leaders
            among = [number for number in among if leaders[number] not in unavailable] or among
        # Comparing thousands of queues would cost more than a better choice gains.
        if len(among) > MAX_CANDIDATES:
            among = rng.sample(among, MAX_CANDIDATES)
        return self.sticky.choose(
            rng,
            # Equal counts make the choice uniform.
            [(partition, self._batch_count(partition) if adaptive else 0) for partition in among],
        )

    def _batch_count(self, partition: int) -> int:
        queue = self.partitions.get(partition)
        return 0 if queue is None else queue.batch_count
