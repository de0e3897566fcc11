"""Batches on their way to an outcome, and what each outcome does to what is behind it: pure.

Every batch and every undesignated record is entered once and settled once. Settling gives its
memory back, tells who waits, and lets its partition go on.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from kafka_async.producer.buffer_pool import OVERHEAD
from kafka_async.producer.partition_queue import TopicQueue
from kafka_async.producer.producer_batch import BatchState, ProducerBatch
from kafka_async.producer.unreported_failures import Failures
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.producer.buffer_pool import BufferMemory
    from kafka_async.producer.idempotence import Sequencer
    from kafka_async.producer.outcome import BatchOutcome, Undesignated
    from kafka_async.producer.partition_queue import PartitionQueue
    from kafka_async.producer.ready_partitions import Schedule

__all__ = ["Ledger"]


class Ledger:
    """What is neither acknowledged nor failed, and what has failed unreported (`failures`).

    Every error goes through `judge` before it is raised (transactions translate and note it).
    `on_failure` is called with the partition (-1: none was chosen yet), the number of records and
    the error of each batch that fails.
    """

    def __init__(self, memory: BufferMemory, sequencer: Sequencer, schedule: Schedule) -> None:
        self.failures = Failures()
        self.judge: Callable[[Exception], Exception] = _as_it_is
        self.on_failure: Callable[[TopicPartition, int, Exception], None] = _ignore
        self._memory = memory
        self._sequencer = sequencer
        self._schedule = schedule
        self._incomplete: dict[BatchOutcome | Undesignated, ProducerBatch | TopicQueue] = {}

    @property
    def incomplete(self) -> list[BatchOutcome | Undesignated]:
        """The outcomes of all that is neither acknowledged nor failed, oldest first."""
        return list(self._incomplete)

    @property
    def on_wire(self) -> list[BatchOutcome]:
        """The outcomes of what requests carry right now."""
        batches = [each for each in self._incomplete.values() if isinstance(each, ProducerBatch)]
        return [batch.outcome for batch in batches if batch.state is BatchState.ON_WIRE]

    def batch(self, outcome: BatchOutcome) -> ProducerBatch:
        """Return the batch of an outcome that is not settled."""
        batch = self._incomplete[outcome]
        assert isinstance(batch, ProducerBatch)
        return batch

    def enter(self, batch: ProducerBatch) -> None:
        """A batch begins."""
        self._incomplete[batch.outcome] = batch
        self._schedule.watch(batch)

    def enter_record(self, record: Undesignated, topic: TopicQueue) -> None:
        """A record begins to wait for its topic to be known."""
        self._incomplete[record] = topic

    def leave_record(self, record: Undesignated) -> None:
        """The record is in a batch now."""
        self._incomplete.pop(record)

    # -- sending ----------------------------------------------------------------------------------

    def put_on_wire(self, batch: ProducerBatch, node: int) -> None:
        """A request is about to carry the partition's next batch; it is stamped if it never was."""
        queue = batch.queue
        assert queue.waiting[0] is batch
        del queue.waiting[0]
        if batch.stamp is None:
            unresolved = bool(queue.on_wire)
            batch.restamp(self._sequencer.stamp(queue.chain, batch.count, unresolved=unresolved))
        batch.state = BatchState.ON_WIRE
        batch.attempts += 1
        queue.on_wire.append(batch)
        queue.wire_node = node

    # -- outcomes ---------------------------------------------------------------------------------

    def acknowledge(
        self, batch: ProducerBatch, base_offset: int, append_time: int, now: float
    ) -> None:
        """A batch is written at an offset."""
        count = batch.count
        if batch.stamp is not None:
            batch.queue.chain.known = batch.stamp.identity.producer_id
        self._finish(batch)
        batch.outcome.acknowledge(base_offset, append_time, count)
        self._go_on(batch.queue, now)

    def fail(
        self, batch: ProducerBatch, error: Exception, now: float, *, report: bool = True
    ) -> None:
        """A batch will not be sent again; unless it is reported, flush says nothing of it."""
        count = batch.count if batch.section is None else batch.section.count
        self._sequencer.tear(batch.stamp)
        self._finish(batch)
        self.on_failure(batch.queue.partition, count, error)
        batch.outcome.fail(self.judge(error), count)
        if report:
            self.failures.add(batch.outcome)
        self._go_on(batch.queue, now)

    def retry(self, batch: ProducerBatch, error: Exception, not_before: float, now: float) -> None:
        """A batch on the wire was not written, or nobody knows: send it again.

        `not_before` is for the broker that had it; if another leads by now, that one is asked at
        once (KIP-951).
        """
        queue = batch.queue
        batch.error = error
        batch.state = BatchState.READY
        queue.on_wire.remove(batch)
        queue.insert(batch)
        if queue.leader == queue.wire_node:
            queue.not_before = max(queue.not_before, not_before)
        self._go_on(queue, now)

    def resequence(self, batch: ProducerBatch, error: Exception, now: float) -> None:
        """The oldest batch was refused as out of order: start the partition's chain over."""
        self._sequencer.break_chain(batch.queue.chain)
        self.retry(batch, error, now, now)

    def split(self, batch: ProducerBatch, now: float) -> None:
        """A batch on the wire was refused as too large: smaller ones take its place (KIP-126)."""
        queue = batch.queue
        contents = batch.halves()
        outcomes = batch.outcome.split([part.count for part in contents])
        held, stamp = batch.held, batch.stamp
        self._finish(batch)
        for number, (part, outcome) in enumerate(zip(contents, outcomes, strict=True)):
            smaller = ProducerBatch(
                queue,
                outcome,
                created=batch.created,
                deadline=batch.deadline,
                order=(*batch.order, number),
            )
            smaller.carry(part)
            smaller.state = BatchState.READY
            smaller.attempts = batch.attempts
            smaller.restamp(stamp)
            stamp = None if stamp is None else stamp.after(part.count)
            # The first holds all: the memory is free again when it is done, a little early.
            smaller.held, held = held, 0
            self._memory.force(smaller.held + OVERHEAD, queue)
            self.enter(smaller)
            queue.insert(smaller)
        self._go_on(queue, now)

    # -- many at once -----------------------------------------------------------------------------

    def fail_waiting(
        self, queue: PartitionQueue, error: Exception, now: float, *, report: bool = True
    ) -> None:
        """Fail what a partition has that is not on the wire."""
        for batch in queue.unsent():
            self.fail(batch, error, now, report=report)

    def fail_topic(
        self, topic: TopicQueue, error: Exception, now: float, *, report: bool = True
    ) -> None:
        """Fail what a topic has that is not on the wire."""
        while topic.undesignated is not None:
            self.fail_record(topic, error, report=report)
        for queue in topic.partitions.values():
            self.fail_waiting(queue, error, now, report=report)

    def fail_some(self, error: Exception, now: float, most: int) -> bool:
        """Fail the oldest, on the wire or not, so many at most; whether some are left."""
        for each in list(islice(self._incomplete.values(), most)):
            if isinstance(each, TopicQueue):
                self.fail_record(each, error)
            else:
                self.fail(each, error, now)
        return bool(self._incomplete)

    def fail_all(self, error: Exception, now: float) -> None:
        """Fail everything, on the wire or not: the producer is closing, or has died."""
        self.fail_some(error, now, len(self._incomplete))

    def drop_unsent(self, error: Exception, now: float) -> None:
        """Fail everything that is not on the wire, unreported: its transaction is aborted."""
        for each in list(self._incomplete.values()):
            if isinstance(each, TopicQueue):
                self.fail_record(each, error, report=False)
            elif each.state is not BatchState.ON_WIRE:
                self.fail(each, error, now, report=False)

    def fail_record(self, topic: TopicQueue, error: Exception, *, report: bool = True) -> None:
        """Fail the topic's oldest undesignated record."""
        record = topic.leave()
        self._incomplete.pop(record)
        self.on_failure(TopicPartition(topic.name, -1), 1, error)
        record.fail(self.judge(error))
        if report:
            self.failures.add(record)
        self._memory.give(record.size + OVERHEAD, topic)

    # -- pieces -----------------------------------------------------------------------------------

    def _finish(self, batch: ProducerBatch) -> None:
        queue = batch.queue
        if batch.state is BatchState.ON_WIRE:
            queue.on_wire.remove(batch)
        elif batch.state is BatchState.OPEN:
            queue.close()
        else:
            queue.waiting.remove(batch)
        batch.release()
        self._schedule.unwatch()
        self._incomplete.pop(batch.outcome)
        held, batch.held = batch.held, 0
        self._memory.give(held + OVERHEAD, queue)

    def _go_on(self, queue: PartitionQueue, now: float) -> None:
        """Something of a partition is no longer on the wire: mend its chain, see what is next."""
        if queue.chain.broken and not queue.on_wire:
            for batch in queue.waiting:
                batch.restamp(None)
            self._sequencer.mend(queue.chain)
        self._schedule.offer(queue, now)


def _as_it_is(error: Exception) -> Exception:
    return error


def _ignore(partition: TopicPartition, records: int, error: Exception) -> None:
    pass
