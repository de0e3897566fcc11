"""Tracks incomplete batches and applies the outcome of each to the rest of its partition.

Every batch and unpartitioned record is added once and completed once. Completing it releases its
memory, wakes the tasks that await it, and makes its partition ready again. Nothing here waits.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from kafka_async.producer.buffer_pool import MEMORY_OVERHEAD
from kafka_async.producer.partition_queue import BatchState, ProducerBatch, TopicQueue
from kafka_async.producer.unreported_failures import UnreportedFailures
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.producer.buffer_pool import BufferPool
    from kafka_async.producer.idempotence import Sequencer
    from kafka_async.producer.outcome import BatchOutcome, UnpartitionedRecord
    from kafka_async.producer.partition_queue import PartitionQueue
    from kafka_async.producer.ready_partitions import ReadyPartitions

__all__ = ["IncompleteBatches"]


class IncompleteBatches:
    """Tracks batches and records that are neither acknowledged nor failed.

    Attributes:
        unreported_failures: Failures not reported to the application yet.
        translate_error: Called with every error before it is raised; set by a transaction manager.
        on_failure: Called with the partition (-1 for an unpartitioned record), the number of
            records and the error of each batch that fails.
    """

    def __init__(
        self, buffer_pool: BufferPool, sequencer: Sequencer, ready_partitions: ReadyPartitions
    ) -> None:
        self.unreported_failures = UnreportedFailures()
        self.translate_error: Callable[[Exception], Exception] = _unchanged
        self.on_failure: Callable[[TopicPartition, int, Exception], None] = _ignore
        self._buffer_pool = buffer_pool
        self._sequencer = sequencer
        self._ready_partitions = ready_partitions
        self._entries: dict[BatchOutcome | UnpartitionedRecord, ProducerBatch | TopicQueue] = {}

    @property
    def outcomes(self) -> list[BatchOutcome | UnpartitionedRecord]:
        """Outcomes of all that is not done, in the order of adding: parts of a split come last."""
        return list(self._entries)

    @property
    def in_flight(self) -> list[BatchOutcome]:
        """Outcomes of the batches in flight."""
        batches = [each for each in self._entries.values() if isinstance(each, ProducerBatch)]
        return [batch.outcome for batch in batches if batch.state is BatchState.IN_FLIGHT]

    def batch(self, outcome: BatchOutcome) -> ProducerBatch:
        """Return the batch of an outcome that is not done."""
        batch = self._entries[outcome]
        assert isinstance(batch, ProducerBatch)
        return batch

    def add(self, batch: ProducerBatch) -> None:
        """Add a new batch."""
        self._entries[batch.outcome] = batch
        self._ready_partitions.track_deadline(batch)

    def add_record(self, record: UnpartitionedRecord, topic: TopicQueue) -> None:
        """Add a record that waits for metadata of its topic."""
        self._entries[record] = topic

    def remove_record(self, record: UnpartitionedRecord) -> None:
        """Remove a record that was moved to a batch."""
        self._entries.pop(record)

    # -- sending ----------------------------------------------------------------------------------

    def mark_in_flight(self, batch: ProducerBatch, node: int) -> None:
        """Mark a partition's next batch as in flight, and assign its sequence if it has none."""
        queue = batch.queue
        assert queue.queued[0] is batch
        del queue.queued[0]
        if batch.sequence is None:
            unresolved = bool(queue.in_flight)
            batch.set_sequence(
                self._sequencer.assign_sequence(queue.sequence, batch.count, unresolved=unresolved)
            )
        batch.state = BatchState.IN_FLIGHT
        batch.attempts += 1
        queue.in_flight.append(batch)
        queue.in_flight_node = node

    # -- outcomes ---------------------------------------------------------------------------------

    def acknowledge(
        self, batch: ProducerBatch, base_offset: int, append_time: int, now: float
    ) -> None:
        """Complete a batch that was written at an offset."""
        count = batch.count
        if batch.sequence is not None:
            batch.queue.sequence.written_producer_id = batch.sequence.id_and_epoch.producer_id
        self._remove(batch)
        batch.outcome.acknowledge(base_offset, append_time, count)
        self._continue_partition(batch.queue, now)

    def fail(
        self, batch: ProducerBatch, error: Exception, now: float, *, report: bool = True
    ) -> None:
        """Fail a batch for good; unless `report` is set, `flush` does not raise its error."""
        count = batch.count if batch.section is None else batch.section.count
        self._sequencer.note_lost(batch.sequence)
        self._remove(batch)
        self.on_failure(batch.queue.partition, count, error)
        batch.outcome.fail(self.translate_error(error), count)
        if report:
            self.unreported_failures.add(batch.outcome)
        self._continue_partition(batch.queue, now)

    def retry(self, batch: ProducerBatch, error: Exception, not_before: float, now: float) -> None:
        """Queue a batch again that was in flight; it may or may not have been written.

        `not_before` applies to the broker that it was sent to: if another one leads the partition
        now, the batch is sent to that without delay (KIP-951).
        """
        queue = batch.queue
        batch.error = error
        batch.state = BatchState.READY
        queue.in_flight.remove(batch)
        queue.insert_in_order(batch)
        if queue.leader == queue.in_flight_node:
            queue.not_before = max(queue.not_before, not_before)
        self._continue_partition(queue, now)

    def restart_sequence(self, batch: ProducerBatch, error: Exception, now: float) -> None:
        """Restart the sequence of a partition whose oldest batch was refused as out of order."""
        self._sequencer.bump_epoch(batch.queue.sequence)
        self.retry(batch, error, now, now)

    def split(self, batch: ProducerBatch, now: float) -> None:
        """Replace a batch that the broker refused as too large by smaller ones (KIP-126)."""
        queue = batch.queue
        contents = batch.halves()
        outcomes = batch.outcome.split([part.count for part in contents])
        reserved_bytes, sequence = batch.reserved_bytes, batch.sequence
        self._remove(batch)
        for number, (part, outcome) in enumerate(zip(contents, outcomes, strict=True)):
            smaller = ProducerBatch(
                queue,
                outcome,
                created=batch.created,
                deadline=batch.deadline,
                order=(*batch.order, number),
            )
            smaller.set_contents(part)
            smaller.state = BatchState.READY
            smaller.attempts = batch.attempts
            smaller.set_sequence(sequence)
            sequence = None if sequence is None else sequence.after(part.count)
            # The first part takes over all bytes, so they are released a little early.
            smaller.reserved_bytes, reserved_bytes = reserved_bytes, 0
            self._buffer_pool.force_reserve(smaller.reserved_bytes + MEMORY_OVERHEAD, queue)
            self.add(smaller)
            queue.insert_in_order(smaller)
        self._continue_partition(queue, now)

    # -- several batches --------------------------------------------------------------------------

    def fail_unsent(
        self, queue: PartitionQueue, error: Exception, now: float, *, report: bool = True
    ) -> None:
        """Fail the batches of a partition that are not in flight."""
        for batch in queue.unsent():
            self.fail(batch, error, now, report=report)

    def fail_topic(
        self, topic: TopicQueue, error: Exception, now: float, *, report: bool = True
    ) -> None:
        """Fail the records of a topic that are not in flight."""
        while topic.unpartitioned is not None:
            self.fail_record(topic, error, report=report)
        for queue in topic.partitions.values():
            self.fail_unsent(queue, error, now, report=report)

    def fail_oldest(self, error: Exception, now: float, limit: int) -> bool:
        """Fail the first `limit` of `outcomes`, in flight or not; return True if any are left."""
        for each in list(islice(self._entries.values(), limit)):
            if isinstance(each, TopicQueue):
                self.fail_record(each, error)
            else:
                self.fail(each, error, now)
        return bool(self._entries)

    def fail_all(self, error: Exception, now: float) -> None:
        """Fail everything, in flight or not: the producer is closing or has failed."""
        self.fail_oldest(error, now, len(self._entries))

    def abort_unsent(self, error: Exception, now: float) -> None:
        """Fail everything that is not in flight, unreported: its transaction is aborted."""
        for each in list(self._entries.values()):
            if isinstance(each, TopicQueue):
                self.fail_record(each, error, report=False)
            elif each.state is not BatchState.IN_FLIGHT:
                self.fail(each, error, now, report=False)

    def fail_record(self, topic: TopicQueue, error: Exception, *, report: bool = True) -> None:
        """Fail the topic's oldest unpartitioned record."""
        record = topic.pop_unpartitioned()
        self._entries.pop(record)
        self.on_failure(TopicPartition(topic.name, -1), 1, error)
        record.fail(self.translate_error(error))
        if report:
            self.unreported_failures.add(record)
        self._buffer_pool.release(record.size + MEMORY_OVERHEAD, topic)

    def _remove(self, batch: ProducerBatch) -> None:
        queue = batch.queue
        if batch.state is BatchState.IN_FLIGHT:
            queue.in_flight.remove(batch)
        elif batch.state is BatchState.OPEN:
            queue.close()
        else:
            queue.queued.remove(batch)
        batch.release()
        self._ready_partitions.prune_deadlines()
        self._entries.pop(batch.outcome)
        reserved_bytes, batch.reserved_bytes = batch.reserved_bytes, 0
        self._buffer_pool.release(reserved_bytes + MEMORY_OVERHEAD, queue)

    def _continue_partition(self, queue: PartitionQueue, now: float) -> None:
        """Reset the sequence of a partition if necessary, and make it ready again."""
        if queue.sequence.needs_reset and not queue.in_flight:
            for batch in queue.queued:
                batch.set_sequence(None)
            self._sequencer.reset(queue.sequence)
        self._ready_partitions.add_if_ready(queue, now)


def _unchanged(error: Exception) -> Exception:
    return error


def _ignore(partition: TopicPartition, records: int, error: Exception) -> None:
    pass
