"""Collects records into batches, decides which are due, and applies the outcome of each.

Nothing here waits: the module imports no asyncio, and each method that depends on time takes `now`,
seconds of the event loop's clock. An accumulator is owned by the event loop of one producer.
Callers append; the sender drains batches for a broker, reports each outcome, has other batches
compressed, and calls `tick` when something is due. Only the accumulator changes its queues and
batches.

Every batch and unpartitioned record is added once and completed once. Completing it releases its
memory, wakes the tasks that await it, and makes its partition ready again.

A partition's records go into its open batch. The batch is closed when it is full, or drained when
it has lingered long enough and the broker has capacity for it. A request takes at most one batch of
each partition, and partitions take turns, so that none delays another. Memory is reserved for an
open batch in doubling steps, so that the fast path, which appends to `TopicQueue.open_batches`,
needs no accounting.
"""

from __future__ import annotations

import logging
from collections import deque
from itertools import chain, islice
from math import inf
from typing import TYPE_CHECKING, Final

from kafka_async.config import seconds
from kafka_async.errors import RecordPurgedError, RecordTooLargeError
from kafka_async.foundation.fairness import MAX_ITEMS_PER_ITERATION
from kafka_async.kernel import Delivery, OpenBatch, record_size_bound
from kafka_async.producer.buffer.buffer_pool import MEMORY_OVERHEAD, BufferShortage
from kafka_async.producer.buffer.expiry_errors import ExpiryErrors
from kafka_async.producer.buffer.outcome import BatchOutcome, UnpartitionedRecord
from kafka_async.producer.buffer.partition_chooser import PartitionChooser
from kafka_async.producer.buffer.partition_queue import (
    BatchState,
    PartitionQueue,
    ProducerBatch,
    TopicQueue,
)
from kafka_async.producer.buffer.ready_partitions import ReadyPartitions
from kafka_async.producer.buffer.transaction_scope import TransactionScope
from kafka_async.producer.buffer.unpartitioned import UnpartitionedRecords, missing_topic_error
from kafka_async.producer.idempotence import Sequencer
from kafka_async.records.batch import HEADER_SIZE
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kafka_async.config import ProducerConfig
    from kafka_async.errors import DeliveryError, KafkaError
    from kafka_async.kernel import TopicOpenBatches
    from kafka_async.producer.buffer.buffer_pool import BufferPool, BufferWaiter
    from kafka_async.producer.buffer.delivery_failures import DeliveryFailures
    from kafka_async.producer.buffer.outcome import FutureFactory
    from kafka_async.producer.buffer.producer_metrics import ProducerMetrics
    from kafka_async.producer.idempotence import ProducerIdAndEpoch
    from kafka_async.records.batch import RecordBatch
    from kafka_async.types import Headers

__all__ = ["Accumulator"]

logger = logging.getLogger("kafka_async.producer")

INITIAL_BATCH_BYTES = 4096
"""Bytes reserved for a new batch, unless its partition is busy; doubled as the batch grows."""
REQUEST_OVERHEAD = 512
"""Bytes of a produce request reserved for everything except one batch."""
MAX_BATCHES_PER_REQUEST: Final = 48
"""Keeps the event loop time of a request or its response below about two milliseconds."""
MAX_PIGGYBACK_BYTES: Final = 1024 * 1024
"""Bytes of a request beyond which no open batches are added to it; a CRC takes 0.06 ms per MiB."""


class Accumulator:
    """Holds all records of a producer that are neither acknowledged nor failed.

    Attributes:
        topics: Queue of each topic that records were appended to, by name.
        partitions: Chooses the partitions of records.
        transaction: The current transaction.
        expiry: Errors of batches that expire.
    """

    # Slots are read faster than twenty-five attributes in a dictionary.
    __slots__ = (
        *("_awaited_batches", "_batch_limit", "_batch_size", "_first_await_callback", "_linger"),
        *("_buffer_pool", "_failures", "_metrics", "_ready", "_sequencer", "_unpartitioned"),
        *("_compression_enabled", "_compression_queue", "_flushes"),
        *("_delivery_timeout", "_incomplete", "_max_request_size", "_new_future"),
        *("_metadata_updates", "_moved", "_now", "_stale_topics", "_wakeup"),
        *("closed_count", "expiry", "partitions", "topics", "transaction"),
    )

    def __init__(
        self,
        config: ProducerConfig,
        buffer_pool: BufferPool,
        failures: DeliveryFailures,
        metrics: ProducerMetrics,
        new_future: FutureFactory,
        rng: random.Random,
        wakeup: Callable[[], None],
        outage: Callable[[], KafkaError | None],
    ) -> None:
        self.topics: dict[str, TopicQueue] = {}
        # The writer compares this count before and after an append: a closed batch makes it yield.
        self.closed_count = 0
        # What follows each batch: its memory, failure, metrics, sequence and readiness.
        self._buffer_pool = buffer_pool
        self._failures = failures
        self._metrics = metrics
        self._sequencer = Sequencer(enabled=config.enable_idempotence)
        self._ready = ReadyPartitions()
        # All records that are neither acknowledged nor failed, in the order in which they were
        # added, so that failing the oldest first needs no sort. The parts of a split batch come
        # last.
        self._incomplete: dict[BatchOutcome, ProducerBatch | TopicQueue] = {}
        # Metadata: topics to fetch it for, and partitions whose leader has changed while batches
        # were in flight to the former one. Dictionaries serve as ordered sets.
        self._stale_topics: dict[TopicQueue, None] = {}
        self._moved: dict[PartitionQueue, None] = {}
        self._compression_enabled = config.compression_type != "none"
        # A count, since several tasks may flush at the same time.
        self._flushes = 0
        self.transaction = TransactionScope()
        self.partitions = PartitionChooser(config, rng)
        # Passed in, so that this module needs no event loop.
        self._new_future = new_future
        # A topic may have thousands of partitions, so leaders are applied over several event loop
        # iterations; `_now` is the time that a continued iterator uses.
        self._metadata_updates: dict[TopicQueue, Iterator[None]] = {}
        self._now = 0.0
        # A batch that a task awaits ends its linger time early. The callback runs inside the task's
        # `await`, so it only notes the batch for the next `tick`.
        self._wakeup = wakeup
        self._awaited_batches: deque[ProducerBatch] = deque()
        self._first_await_callback = self._mark_awaited  # bound once, not per batch
        # Limits from the configuration. The batch limit is 0 if max_request_size leaves no room
        # beyond the overhead; each record then gets its own batch.
        self._batch_size = config.batch_size
        self._batch_limit = max(
            0, min(config.batch_size, config.max_request_size - REQUEST_OVERHEAD)
        )
        self._max_request_size = config.max_request_size
        self._linger = seconds(config.linger_ms)
        self._delivery_timeout = seconds(config.delivery_timeout_ms)
        max_block = min(self._delivery_timeout, seconds(config.max_block_ms))
        self._unpartitioned = UnpartitionedRecords(max_block)
        self.expiry = ExpiryErrors(self._delivery_timeout, max_block, outage)
        self._compression_queue: deque[PartitionQueue] = deque()

    # -- appending --------------------------------------------------------------------------------

    def append(
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp: int,
        now: float,
        waiter: BufferWaiter | None = None,
    ) -> Delivery | BufferShortage:
        """Append a serialized record, and return its handle.

        Without memory a BufferShortage is returned and the record is not appended, but a full batch
        may have been closed. `waiter` is the caller's entry among those waiting for memory.
        """
        bound = record_size_bound(key, value, headers)
        self.check_size(bound, topic)
        topic_queue = self._topic_queue(topic)
        if waiter is not None:
            self._buffer_pool.use_grant(waiter)
        if partition is None and not self._can_assign_partition(topic_queue, now):
            return self._append_unpartitioned(
                topic_queue, key, value, headers, timestamp, bound, now, overtake=waiter is not None
            )
        if partition is None:
            partition = self.partitions.of_application(topic_queue, key)
        # Each pass returns the handle, or a shortage of memory for a new batch or for the growth of
        # the open one, or closes a full batch and starts again with the next one.
        follows = False
        while True:
            queue = topic_queue.queue(
                self.partitions.choose(topic_queue, key, now) if partition is None else partition
            )
            batch = queue.open_batch
            if batch is None:
                batch = self._open_batch(queue, bound, now, overtake=waiter is not None)
                if batch is None:
                    return BufferShortage(bound + MEMORY_OVERHEAD, queue)
                self._linger_or_send(batch, now, follows=follows)
            assert batch.builder is not None
            delivery = batch.builder.append(timestamp, key, value, headers)
            if delivery is not None:
                return delivery
            # Closing a batch may change the sticky partition, so it is chosen again.
            if self._is_full(batch, bound):
                self._close(batch, now)
                follows = True
            elif not self._grow(batch, bound, overtake=waiter is not None):
                return BufferShortage(bound, queue)

    def open_batches(self, topic: str) -> TopicOpenBatches:
        """Return the open batches of a topic that records were appended to."""
        return self.topics[topic].open_batches

    def add_topic(self, name: str, leaders: tuple[int | None, ...], now: float) -> TopicOpenBatches:
        """Add a topic whose leaders are known, and return its open batches."""
        self._topic_queue(name).use(now)
        self.update_leaders(name, leaders, now)
        return self.open_batches(name)

    @property
    def max_record_size(self) -> int:
        """Maximum bytes of a record, as `record_size_bound` counts them."""
        return min(self._max_request_size, self._buffer_pool.total_bytes - MEMORY_OVERHEAD)

    def check_size(self, size: int, topic: str) -> None:
        """Raise RecordTooLargeError for a record or ready-made batch that can never be sent."""
        for limit, overhead, name in (
            (self._max_request_size, 0, "max_request_size"),
            (self._buffer_pool.total_bytes, MEMORY_OVERHEAD, "buffer_memory"),
        ):
            if size + overhead > limit:
                raise RecordTooLargeError(
                    f"{size} bytes are more than {name}={limit} allows", topic=topic
                )

    def append_batch(
        self,
        partition: TopicPartition,
        contents: RecordBatch,
        now: float,
        waiter: BufferWaiter | None = None,
    ) -> Delivery | BufferShortage:
        """Append a ready-made batch after the other batches of its partition; see `append`."""
        self.check_size(contents.size, partition.topic)
        queue = self._topic_queue(partition.topic).queue(partition.partition)
        # The grant is returned first: reserving takes the same bytes again.
        if waiter is not None:
            self._buffer_pool.use_grant(waiter)
        needed = contents.size + MEMORY_OVERHEAD
        if not self._buffer_pool.reserve(needed, queue, overtake=waiter is not None):
            return BufferShortage(needed, queue)
        if queue.open_batch is not None:
            # Records that were appended before the ready-made batch must be sent before it.
            self._close(queue.open_batch, now)
        batch = self._new_batch(queue, now)
        batch.reserved_bytes = contents.size
        batch.set_contents(contents, BatchState.READY)
        queue.queued.append(batch)
        self._ready.add_if_ready(queue, now)
        return Delivery(batch.outcome, 0, contents.base_timestamp)

    def _append_unpartitioned(
        self,
        topic: TopicQueue,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp: int,
        size: int,
        now: float,
        *,
        overtake: bool,
    ) -> Delivery | BufferShortage:
        if not self._buffer_pool.reserve(size + MEMORY_OVERHEAD, topic, overtake=overtake):
            return BufferShortage(size + MEMORY_OVERHEAD, topic)
        record = UnpartitionedRecord(
            topic.name,
            key,
            value,
            tuple(headers),
            timestamp,
            size=size,
            created=now,
            new_future=self._new_future,
        )
        topic.use(now)
        self._unpartitioned.add(topic, record)
        self._incomplete[record] = topic
        return Delivery(record, 0, timestamp)

    def _topic_queue(self, name: str) -> TopicQueue:
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = TopicQueue(name)
        if not topic.leaders:
            # Appending is what triggers the fetch of metadata: the sender takes the stale topics.
            self._stale_topics[topic] = None
        return topic

    def _can_assign_partition(self, topic: TopicQueue, now: float) -> bool:
        """Assign up to two earlier records; return True if a new one can get its partition now.

        That requires metadata of the topic, and that none of its records is left unpartitioned.
        Each call moves up to two records into batches, so that their queue shrinks.
        """
        # Two, not one, so that the queue empties even if every call adds a record.
        for _ in range(2):
            if topic.leaders and topic.unpartitioned is not None:
                self._assign_partition(topic, now)
        return bool(topic.leaders) and topic.unpartitioned is None

    def _new_batch(self, queue: PartitionQueue, now: float) -> ProducerBatch:
        outcome = BatchOutcome(*queue.partition, self._new_future)
        # A partition beyond the known ones fails after max_block_ms, like a topic without metadata,
        # unless the topic gets more partitions.
        timeout = self._delivery_timeout if queue.exists else self._unpartitioned.max_block
        if not queue.exists:
            self._stale_topics[queue.topic] = None
        queue.topic.use(now)
        order = (queue.next_order,)
        queue.next_order += 1
        batch = ProducerBatch(
            queue, queue.partition, outcome, now, deadline=now + timeout, closed_at=now, order=order
        )
        self._add(batch)
        return batch

    def _add(self, batch: ProducerBatch) -> None:
        self._incomplete[batch.outcome] = batch
        self._ready.track_deadline(batch)

    def _open_batch(
        self, queue: PartitionQueue, size: int, now: float, *, overtake: bool
    ) -> ProducerBatch | None:
        initial, buffer_pool = INITIAL_BATCH_BYTES, self._buffer_pool
        if (
            queue.last_batch_bytes > initial
            and 2 * (buffer_pool.reserved_bytes + 2 * queue.last_batch_bytes)
            <= buffer_pool.total_bytes
        ):
            # The batch will probably fill up like the last one, so it need not grow in steps.
            initial = 1 << queue.last_batch_bytes.bit_length()
        # Under memory pressure the record is still accepted with the bytes that it needs alone.
        for grant in (max(size, min(initial, self._batch_limit)), size):
            if buffer_pool.reserve(grant + MEMORY_OVERHEAD, queue, overtake=overtake):
                return self._start_batch(queue, grant, now)
        return None

    def _linger_or_send(self, batch: ProducerBatch, now: float, *, follows: bool) -> None:
        """Start the linger time of a new batch, or make its partition ready.

        A batch that follows a full one (`follows`) will probably be full soon, so no request takes
        it early.
        """
        batch.linger_until = batch.created + self._linger
        # Without linger time and compression a batch is due at once and never needs `tick`. With
        # compression even a batch of no linger time does: `tick` closes it for the compressor.
        if self._linger or self._compression_enabled:
            batch.may_piggyback = not follows
            batch.outcome.set_await_callback(self._first_await_callback)
            self._ready.linger(batch)
        else:
            self._ready.add_if_ready(batch.queue, now)

    def _mark_awaited(self, outcome: BatchOutcome) -> None:
        """Note that a task awaits an open batch; `tick` ends its linger time."""
        batch = self._incomplete[outcome]
        assert isinstance(batch, ProducerBatch)
        batch.awaited = True
        self._awaited_batches.append(batch)
        self._wakeup()

    def _start_batch(self, queue: PartitionQueue, grant: int, created: float) -> ProducerBatch:
        queue.open_batch = batch = self._new_batch(queue, created)
        batch.reserved_bytes = grant
        batch.builder = OpenBatch(batch.outcome, grant)
        queue.topic.open_batches.add(queue.partition.partition, batch.builder)
        return batch

    def _is_full(self, batch: ProducerBatch, size: int) -> bool:
        assert batch.builder is not None
        # `size` includes a batch header, which the open batch has already.
        return batch.builder.size + size - HEADER_SIZE > self._batch_limit

    def _grow(self, batch: ProducerBatch, size: int, *, overtake: bool) -> bool:
        assert batch.builder is not None
        needed = batch.builder.size + size
        # Doubled, to keep the number of reservations logarithmic; just enough if memory is short.
        for wanted in (max(needed, min(self._batch_limit, 2 * batch.reserved_bytes)), needed):
            more = wanted - batch.reserved_bytes
            if more <= 0 or self._buffer_pool.reserve(more, batch.queue, overtake=overtake):
                batch.reserved_bytes = max(batch.reserved_bytes, wanted)
                batch.builder.extend(wanted)
                return True
        return False

    # -- closing and compressing ------------------------------------------------------------------

    def _close(self, batch: ProducerBatch, now: float) -> None:
        """Close a batch for appends and make its partition ready, after compression if enabled.

        With compression, this also closes open batches of other partitions that may be sent in the
        same request.
        """
        self._close_batch(batch, now)
        if not self._compression_enabled:
            self._ready.add_if_ready(batch.queue, now)
        elif batch.queue.leader is not None:
            # Batches that are compressed together are ready for the same request.
            for other in self._ready.piggyback_batches(batch.queue.leader, MAX_BATCHES_PER_REQUEST):
                self._close_batch(other, now)

    def _close_batch(self, batch: ProducerBatch, now: float) -> None:
        queue = batch.queue
        assert batch.builder is not None
        assert queue.open_batch is batch
        size = batch.builder.size
        self.closed_count += 1
        queue.detach_open_batch()
        batch.close(now)
        batch.outcome.set_await_callback(None)
        queue.last_batch_bytes = size
        # The sticky partition changes with the bytes of closed batches (KIP-794).
        queue.topic.sticky.batch_closed(queue.partition.partition, size, self._batch_size)
        queue.queued.append(batch)
        # What was reserved beyond the contents goes back as soon as the batch cannot grow.
        spare = batch.reserved_bytes - size
        batch.reserved_bytes = size
        if spare > 0:
            self._buffer_pool.release(spare, queue)
        if self._compression_enabled:
            self._compression_queue.append(queue)
        else:
            batch.state = BatchState.READY

    @property
    def has_batches_to_compress(self) -> bool:
        """True if `next_to_compress` may yield a batch."""
        return bool(self._compression_queue)

    def next_to_compress(self) -> Iterator[ProducerBatch]:
        """Yield the batches to compress now: one per partition at a time, in order."""
        # A partition whose batch is being compressed is dropped here, and comes back through
        # `finish_compression`. One batch per partition, so that they are ready in order.
        for _ in range(len(self._compression_queue)):
            queue = self._compression_queue.popleft()
            states = [batch.state for batch in queue.queued]
            if BatchState.COMPRESSING in states or BatchState.CLOSED not in states:
                continue
            batch = queue.queued[states.index(BatchState.CLOSED)]
            batch.state = BatchState.COMPRESSING
            yield batch

    def finish_compression(
        self, batch: ProducerBatch, contents: RecordBatch | None, now: float
    ) -> None:
        """Store a batch's compressed contents, or None if compression failed.

        The partition's next batch may be compressed afterwards.
        """
        # Even if this batch has failed since: later batches of the partition still need
        # compression.
        self._compression_queue.append(batch.queue)
        if contents is not None and batch.state is BatchState.COMPRESSING:
            batch.set_contents(contents, BatchState.READY)
            self._ready.add_if_ready(batch.queue, now)

    # -- sending ----------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """True if a run of the send loop would find batches to send or a new time to run again."""
        return self._ready.has_work

    def ready_nodes(self, now: float) -> list[int]:
        """Return the brokers that may have ready partitions.

        Partitions that must be added to the transaction first are passed to its `add_partitions`.
        Nothing is sent in a transaction that can only be aborted: batches not in flight fail.
        """
        # Failing them here, not in `fail_transaction`, keeps a caller's batch from failing while it
        # is handled.
        transaction = self.transaction
        if transaction.abort_error is not None:
            self._fail_queued(transaction.abort_error, now, report=not transaction.aborting)
            return []
        if not transaction.is_v2:
            transaction.add_partitions(self._ready.take_partitions_to_add())
        return self._ready.nodes()

    def has_ready(self, node: int) -> bool:
        """Return True if a broker may have ready partitions."""
        return self._ready.has_ready(node)

    def drain(self, node: int, room: int, now: float) -> list[ProducerBatch]:
        """Return the batches for one request to a broker, at most one per partition.

        Batches that are due come first, then open batches of other partitions. All are in flight
        afterwards, until the sender reports the outcome of each. Together they have at most `room`
        bytes, unless the first batch exceeds it.
        """
        drained: list[ProducerBatch] = []
        # No batch of a transaction that can only be aborted may reach a broker.
        if self.transaction.abort_error is not None:
            return drained
        # Takes one batch per partition until the broker has no ready ones, the next does not fit,
        # or the request has its maximum number. A partition that gave a batch goes behind the
        # others.
        for queue in chain(
            self._ready.pop_partitions(node), self._piggyback_queues(node, drained, now)
        ):
            batch = self._next_batch(queue, node, now)
            if batch is None:
                continue
            # The first batch is sent whatever its size: it would never fit otherwise.
            if drained and batch.wire_size > room:
                self._ready.put_back(queue, node)
                break
            room -= batch.wire_size
            self._mark_in_flight(batch, node)
            drained.append(batch)
            self._ready.add_if_ready(queue, now)
            if len(drained) == MAX_BATCHES_PER_REQUEST:
                self._ready.move_to_back(node)
                break
        return drained

    def _piggyback_queues(
        self, node: int, drained: list[ProducerBatch], now: float
    ) -> Iterator[PartitionQueue]:
        """Yield partitions whose open batches are added to a request that is not empty."""
        # With compression an open batch cannot be sent directly: `_close` has picked the batches to
        # compress together.
        if not drained or self._compression_enabled or not self._ready.has_piggyback_batches(node):
            return
        left = MAX_PIGGYBACK_BYTES - sum([batch.wire_size for batch in drained])
        for batch in self._ready.piggyback_batches(node, MAX_BATCHES_PER_REQUEST):
            assert batch.builder is not None
            left -= batch.builder.size
            if left >= 0:
                # Due now, or `is_sendable` would refuse it.
                batch.linger_until = min(batch.linger_until, now)
                yield batch.queue
            else:
                self._ready.add_if_ready(batch.queue, now)  # for a later request

    def _next_batch(self, queue: PartitionQueue, node: int, now: float) -> ProducerBatch | None:
        # The set may be out of date: the leader has moved, or a failure or response has changed the
        # partition since it was added.
        if queue.leader != node:
            self._ready.add_if_ready(queue, now)
            return None
        if not self._ready.is_sendable(queue, now):
            return None
        if not queue.queued and queue.open_batch is not None:
            self._close_batch(queue.open_batch, now)
        batch = queue.queued[0] if queue.queued else None
        # A queued batch may still be at the compressor; `finish_compression` makes the partition
        # ready.
        return batch if batch is not None and batch.state is BatchState.READY else None

    def _mark_in_flight(self, batch: ProducerBatch, node: int) -> None:
        """Mark a partition's next batch as in flight, and assign its sequence if it has none."""
        queue = batch.queue
        assert queue.queued[0] is batch
        del queue.queued[0]
        if batch.sequence is None:
            # The first batch with a new epoch fences earlier ones, so it waits until these are
            # done.
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
        """Complete a batch that was written at an offset, -1 if unknown."""
        count = batch.count
        self._metrics.acknowledged(batch, base_offset, now)
        if batch.sequence is not None:
            batch.queue.sequence.note_written(batch.sequence)
        self.transaction.note_written(batch.partition, base_offset, count)
        self._remove(batch)
        batch.outcome.acknowledge(base_offset, append_time, count)
        self._continue_partition(batch.queue, now)

    def fail(
        self, batch: ProducerBatch, error: Exception, now: float, *, report: bool = True
    ) -> None:
        """Fail a batch for good; unless `report` is set, `flush` does not raise its error."""
        logger.debug("%s failed: %s", batch, error)
        # Counted first: `_remove` drops the contents of the batch.
        count = _record_count(batch)
        self._sequencer.note_lost(batch.sequence)
        self._remove(batch)
        self._complete_failed(batch.outcome, batch.partition, count, error, report=report)
        self._continue_partition(batch.queue, now)

    def retry(self, batch: ProducerBatch, error: Exception, not_before: float, now: float) -> None:
        """Queue a batch again that was in flight, unless it is aborted or its time is over.

        In a transaction that can only be aborted, the batch fails with the transaction's error.
        `not_before` applies to the broker that it was sent to: if another one leads the partition
        now, the batch is sent to that without delay (KIP-951).
        """
        batch.note_error(error)
        if self.transaction.abort_error is not None:
            self._fail_in_abort(batch, self.transaction.abort_error, now)
        elif now >= batch.deadline:
            self.fail(batch, self.expiry.error(batch), now)
        else:
            logger.debug("%s: retry after attempt %d: %s", batch, batch.attempts, error)
            self._requeue(batch, not_before, now)

    def _fail_in_abort(self, batch: ProducerBatch, error: Exception, now: float) -> None:
        self.fail(batch, error, now, report=not self.transaction.aborting)

    def restart_sequence(
        self, batch: ProducerBatch, error: Exception, not_before: float, now: float
    ) -> None:
        """Handle OUT_OF_ORDER_SEQUENCE_NUMBER and UNKNOWN_PRODUCER_ID (KIP-360).

        Only the oldest unacknowledged batch proves a gap: a later one may have overtaken a retry
        and is retried. For the oldest, a transactional producer fails the batch; an idempotent one
        bumps the epoch and restarts the partition's sequence. In a transaction that can only be
        aborted, the gap is a consequence of its first error, with which the batch fails.
        """
        if self.transaction.abort_error is not None or not batch.queue.is_oldest(batch):
            self.retry(batch, error, not_before, now)
        elif self.transaction.is_transactional or now >= batch.deadline:
            self.fail(batch, error, now)
        else:
            logger.info("%s: sequence broken, the epoch is bumped: %s", batch.partition, error)
            batch.note_error(error)
            self._sequencer.bump_epoch(batch.queue.sequence)
            self._requeue(batch, now, now)

    def split(self, batch: ProducerBatch, now: float) -> None:
        """Replace a batch that the broker refused as too large by smaller ones (KIP-126).

        In a transaction that can only be aborted, the batch fails.
        """
        if self.transaction.abort_error is not None:
            self._fail_in_abort(batch, self.transaction.abort_error, now)
            return
        self._metrics.split()
        queue = batch.queue
        contents = batch.halves()
        outcomes = batch.outcome.split([part.count for part in contents])
        reserved_bytes, sequence = batch.reserved_bytes, batch.sequence
        self._remove(batch)
        for number, (part, outcome) in enumerate(zip(contents, outcomes, strict=True)):
            smaller = ProducerBatch(
                queue,
                queue.partition,
                outcome,
                batch.created,
                deadline=batch.deadline,
                closed_at=batch.created,
                order=(*batch.order, number),
                attempts=batch.attempts,
                sequence=sequence,
            )
            smaller.set_contents(part, BatchState.READY)
            sequence = None if sequence is None else sequence.after(part.count)
            # The first part takes over all bytes, so they are released a little early.
            smaller.reserved_bytes, reserved_bytes = reserved_bytes, 0
            self._buffer_pool.force_reserve(smaller.reserved_bytes + MEMORY_OVERHEAD, queue)
            self._add(smaller)
            queue.insert_in_order(smaller)
        self._continue_partition(queue, now)

    def fail_unsent(self, queue: PartitionQueue, error: Exception, now: float) -> None:
        """Fail the batches of a partition that are not in flight."""
        for batch in queue.unsent():
            self.fail(batch, error, now)

    def fail_topic(self, topic: TopicQueue, error: Exception, now: float) -> None:
        """Fail the records of a topic that are not in flight."""
        while topic.unpartitioned is not None:
            self._fail_record(topic, error)
        for queue in topic.partitions.values():
            self.fail_unsent(queue, error, now)

    def fail_unsent_to(self, node: int | None, error: Exception, now: float) -> None:
        """Fail the batches for partitions that a broker leads, unless they are in flight.

        A broker of None stands for partitions without a known leader.
        """
        for each in list(self._incomplete.values()):
            if isinstance(each, TopicQueue) or each.state is BatchState.IN_FLIGHT:
                # Records without a partition have no leader; batches in flight may still succeed.
                continue
            if each.queue.leader == node:
                self.fail(each, error, now)

    def fail_oldest(self, error: Exception, now: float, limit: int) -> bool:
        """Fail up to `limit` batches and records, in flight or not; return True if any are left."""
        for each in list(islice(self._incomplete.values(), limit)):
            if isinstance(each, TopicQueue):
                self._fail_record(each, error)
            else:
                self.fail(each, error, now)
        return bool(self._incomplete)

    def fail_all(self, error: Exception, now: float) -> None:
        """Fail everything, in flight or not: the producer is closing or has failed."""
        self.fail_oldest(error, now, len(self._incomplete))

    def purge(self, now: float, *, queued: bool, in_flight: bool) -> int:
        """Fail, unreported, records never sent, records sent, or both; return their number.

        A batch that was never sent has no sequence. One that was sent may or may not be in the log,
        or arrive there later: an idempotent producer bumps the epoch, so that the partition's next
        batch neither leaves a gap nor is overtaken.
        """
        sequencer, count = self._sequencer, 0
        for each in list(self._incomplete.values()):
            if isinstance(each, TopicQueue):
                if queued:
                    count += 1
                    self._fail_record(each, _purged_error(each.name, None), report=False)
            elif in_flight if each.attempts else queued:
                count += _record_count(each)
                if each.attempts and sequencer.enabled and not self.transaction.is_transactional:
                    sequencer.bump_epoch(each.queue.sequence)
                self.fail(
                    each, _purged_error(*each.partition, sent=each.attempts), now, report=False
                )
        return count

    @property
    def unacknowledged_count(self) -> int:
        """Number of records that are neither acknowledged nor failed."""
        return sum(
            1 if isinstance(each, TopicQueue) else _record_count(each)
            for each in list(self._incomplete.values())
        )

    def take_failures(self) -> DeliveryError | None:
        """Remove all failures that no task has awaited, and return them as one error."""
        return self._failures.take_error()

    def _fail_record(self, topic: TopicQueue, error: Exception, *, report: bool = True) -> None:
        """Fail the topic's oldest unpartitioned record."""
        record = topic.pop_unpartitioned()
        self._incomplete.pop(record)
        self._complete_failed(record, TopicPartition(topic.name, -1), 1, error, report=report)
        self._buffer_pool.release(record.size + MEMORY_OVERHEAD, topic)

    def _complete_failed(
        self,
        outcome: BatchOutcome,
        partition: TopicPartition,
        count: int,
        error: Exception,
        *,
        report: bool,
    ) -> None:
        self._metrics.failed(partition, count, error)
        outcome.fail(self.transaction.translated(error), count)
        if report:
            self._failures.add(outcome)

    def _requeue(self, batch: ProducerBatch, not_before: float, now: float) -> None:
        queue = batch.queue
        self._metrics.retried(batch.count)
        queue.requeue(batch, not_before)
        self._continue_partition(queue, now)

    def _remove(self, batch: ProducerBatch) -> None:
        queue = batch.queue
        if batch.state is BatchState.IN_FLIGHT:
            queue.in_flight.remove(batch)
        elif batch.state is BatchState.OPEN:
            queue.detach_open_batch()
        else:
            queue.queued.remove(batch)
        batch.release()
        # The deadline of a finished batch stays in the heap until it reaches the top; each removal
        # cleans up a little.
        self._ready.prune_deadlines()
        self._incomplete.pop(batch.outcome)
        reserved_bytes, batch.reserved_bytes = batch.reserved_bytes, 0
        self._buffer_pool.release(reserved_bytes + MEMORY_OVERHEAD, queue)

    def _continue_partition(self, queue: PartitionQueue, now: float) -> None:
        """Reset the sequence of a partition if necessary, and make it ready again."""
        # Batches in flight may come back for a retry, and must then get the lowest sequences of the
        # new epoch: nothing is renumbered before they are done.
        if queue.sequence.needs_reset and not queue.in_flight:
            for batch in queue.queued:
                batch.set_sequence(None)
            self._sequencer.reset(queue.sequence)
        self._ready.add_if_ready(queue, now)

    # -- brokers ----------------------------------------------------------------------------------

    @property
    def needs_producer_id(self) -> bool:
        """True if no batch can be sent, for lack of a producer id."""
        return self._sequencer.id_and_epoch is None and self._sequencer.enabled

    @property
    def id_and_epoch(self) -> ProducerIdAndEpoch | None:
        """Producer id and epoch for new sequences; None until one is assigned."""
        return self._sequencer.id_and_epoch

    def set_id_and_epoch(self, id_and_epoch: ProducerIdAndEpoch) -> None:
        """Use a producer id and epoch from now on; each partition follows when it can."""
        self._sequencer.set_id_and_epoch(id_and_epoch)

    def forget_producer_id(self, now: float) -> None:
        """Drop the producer id and all sequences: the client follows another cluster.

        Batches that are not acknowledged get sequences of the next producer id.
        """
        self._sequencer.forget_id_and_epoch()
        for topic in self.topics.values():
            for queue in topic.partitions.values():
                queue.sequence.needs_reset = True
                self._continue_partition(queue, now)
        self._wakeup()

    # -- flush ------------------------------------------------------------------------------------

    def begin_flush(self) -> list[BatchOutcome]:
        """Stop lingering until `end_flush`, and return the outcomes of all incomplete batches."""
        self._flushes += 1
        self._wakeup()
        return list(self._incomplete)

    def end_flush(self) -> None:
        """End a flush."""
        self._flushes -= 1

    # -- transactions -----------------------------------------------------------------------------

    def begin_transaction(
        self,
        translate_error: Callable[[Exception], Exception],
        add_partitions: Callable[[list[PartitionQueue]], None] | None,
    ) -> None:
        """Make records part of a new transaction from now on.

        `translate_error` returns the replacement of an error. `add_partitions`, None with
        transactions v2, is called with partitions that have a batch that is due: they wait for
        `mark_partitions_added`.
        """
        self.transaction.begin(translate_error, add_partitions)
        self._sequencer.begin_transaction()
        self._ready.begin_transaction(must_add_partitions=add_partitions is not None)

    def end_transaction(self) -> None:
        """Require no more partitions to be added: the transaction is over."""
        self._ready.end_transaction()

    def mark_partitions_added(self, queues: list[PartitionQueue], now: float) -> None:
        """Make partitions ready that have been added to the transaction."""
        for queue in queues:
            self._ready.mark_added(queue, now)
        self._wakeup()

    @property
    def has_assigned_sequences(self) -> bool:
        """True if a batch was sent in the transaction."""
        return self._sequencer.has_assigned

    @property
    def has_lost_batch(self) -> bool:
        """True if a batch with the current id and epoch has failed for good."""
        return self._sequencer.lost_batch

    def fail_transaction(self, error: Exception) -> None:
        """Fail batches to send or retry in the transaction, which can only be aborted now.

        The first call defines the error, since later ones may be consequences of it. What is not
        in flight fails at the next `ready_nodes`: the caller may be handling one of its batches.
        """
        if self.transaction.fail(error):
            self._wakeup()

    def begin_abort(self, error: Exception, now: float) -> list[BatchOutcome]:
        """Fail, unreported, what is not in flight, and until the abort ends what would be retried.

        The error passed to `fail_transaction` takes precedence. Return the outcomes of the batches
        in flight.
        """
        self._fail_queued(self.transaction.begin_abort(error), now, report=False)
        return list(self._incomplete)

    def _fail_queued(self, error: Exception, now: float, *, report: bool) -> None:
        for each in list(self._incomplete.values()):
            if isinstance(each, TopicQueue):
                self._fail_record(each, error, report=report)
            elif each.state is not BatchState.IN_FLIGHT:
                self.fail(each, error, now, report=report)

    # -- metadata ---------------------------------------------------------------------------------

    def forget_idle_topics(self, names: Iterable[str], idle_since: float, now: float) -> list[str]:
        """Forget the metadata of topics without a record since `idle_since`; return their names.

        Their sequence numbers stay, and the next record finds the metadata missing.
        """
        idle = [
            topic
            for topic in map(self.topics.get, names)
            if topic is not None and topic.used_at <= idle_since and not topic.has_records
        ]
        for topic in idle:
            self.update_leaders(topic.name, (), now)
        return [topic.name for topic in idle]

    def take_stale_topics(self) -> Iterable[TopicQueue]:
        """Return the topics whose metadata has been found missing or stale since the last call."""
        if not self._stale_topics:
            return ()
        topics, self._stale_topics = self._stale_topics, {}
        return topics

    def update_leaders(
        self,
        name: str,
        leaders: tuple[int | None, ...],
        now: float,
        error: Exception | None = None,
    ) -> None:
        """Apply the leaders of a topic's partitions; without any, the topic is unknown."""
        topic = self.topics[name]
        topic.note_error(error)
        # Most updates change nothing; comparing tuples is cheap even for thousands of partitions.
        if leaders == topic.leaders:
            return
        topic.leaders = leaders
        topic.available = tuple([n for n, leader in enumerate(leaders) if leader is not None])
        topic.sticky.reset()
        # Closes the fast path, on which a record could overtake unpartitioned ones.
        topic.open_batches.partitions = 0 if topic.unpartitioned else topic.partition_count
        self._buffer_pool.set_stranded(topic, topic.partition_count == 0)
        if topic.partition_count:
            topic.error = None
            self._stale_topics.pop(topic, None)
        elif topic.awaits_metadata:
            self._stale_topics[topic] = None
            if topic.unpartitioned:
                self._unpartitioned.track_deadline(topic)
        self._metadata_updates[topic] = self._apply_leaders(topic)
        self._continue_metadata_updates(now)

    def _continue_metadata_updates(self, now: float) -> None:
        """Apply leaders and assign partitions to records, up to the limit per iteration."""
        self._now, left = now, MAX_ITEMS_PER_ITERATION
        # A topic that is not finished stays first, and continues in the next event loop iteration.
        while self._metadata_updates and left > 0:
            topic, updates = next(iter(self._metadata_updates.items()))
            for _ in islice(updates, left):
                left -= 1
            if left > 0:
                del self._metadata_updates[topic]

    def _apply_leaders(self, topic: TopicQueue) -> Iterator[None]:
        # One partition or record per step, so that the caller can stop at its limit.
        for number, queue in list(topic.partitions.items()):
            self._set_leader(
                queue, topic.leaders[number] if number < topic.partition_count else None, self._now
            )
            yield
        while topic.partition_count and topic.unpartitioned is not None:
            self._assign_partition(topic, self._now)
            yield
        if topic.missing_partitions:
            self._stale_topics[topic] = None
        # Opens the fast path.
        topic.open_batches.partitions = topic.partition_count

    def _set_leader(self, queue: PartitionQueue, leader: int | None, now: float) -> None:
        if queue.exists:
            for batch in queue.unsent():
                # Until now the deadline may have been that of an unknown partition, max_block_ms.
                batch.deadline = batch.created + self._delivery_timeout
        if queue.leader != leader:
            queue.last_leader, queue.leader = queue.leader, leader
            # The back-off was for the former leader (KIP-951).
            queue.not_before = 0.0
            if queue.in_flight:
                self._moved[queue] = None
            self._buffer_pool.set_stranded(queue, leader is None)
        self._ready.add_if_ready(queue, now)

    def in_flight_at_former_leaders(self) -> Sequence[PartitionQueue]:
        """Return the partitions with batches in flight to a broker that is not the leader."""
        if not self._moved:
            return ()
        self._moved = {
            queue: None
            for queue in self._moved
            if queue.in_flight and queue.leader not in (None, queue.in_flight_node)
        }
        return [*self._moved]

    def _assign_partition(self, topic: TopicQueue, now: float) -> None:
        """Move the topic's oldest unpartitioned record into a batch."""
        assert topic.unpartitioned is not None
        # Removed only after its partition is known: the application's partitioner may raise.
        record = topic.unpartitioned[0]
        try:
            partition = self.partitions.of_application(topic, record.key)
            if partition is None:
                partition = self.partitions.choose(topic, record.key, now)
        except Exception as error:  # noqa: BLE001  # the application's partitioner
            self._fail_record(topic, error)
            return
        topic.pop_unpartitioned()
        self._incomplete.pop(record)
        queue = topic.queue(partition)
        batch = self._batch_with_room(queue, record.size, record.created, now)
        # The record's memory moves with it, so it cannot run short of memory here.
        self._buffer_pool.transfer(record.size + MEMORY_OVERHEAD, topic, queue)
        assert batch.builder is not None
        if batch.builder.count:
            self._buffer_pool.release(MEMORY_OVERHEAD, queue)  # a new batch keeps it
        delivery = batch.builder.append(record.timestamp, record.key, record.value, record.headers)
        assert delivery is not None, "the batch has room for the record"
        record.assign(delivery, batch.outcome)
        self._ready.add_if_ready(queue, now)

    def _batch_with_room(
        self, queue: PartitionQueue, size: int, created: float, now: float
    ) -> ProducerBatch:
        """Return the partition's open batch with room for `size` bytes, already reserved."""
        batch = queue.open_batch
        if batch is not None and self._is_full(batch, size):
            self._close(batch, now)
            batch = None
        if batch is None:
            batch = self._start_batch(queue, size, created)
            self._linger_or_send(batch, now, follows=False)
            return batch
        batch.reserved_bytes += size
        assert batch.builder is not None
        batch.builder.extend(batch.reserved_bytes)
        return batch

    # -- time -------------------------------------------------------------------------------------

    def tick(self, now: float) -> bool:
        """End linger times and back-offs that are over, and fail expired batches.

        No open batch lingers during a flush or while callers wait for memory. True is returned if
        the limit per event loop iteration was reached and more is due.
        """
        ready = self._ready
        # Lingering batches are what occupies the memory that the waiting callers need.
        skip_linger = self._flushes or self._buffer_pool.waiter_count
        # Runs after every wakeup, so the case that nothing is due is decided first.
        if not (
            skip_linger or self._awaited_batches or self._metadata_updates or self.next_due() <= now
        ):
            return False
        # Each loop has its own limit: no kind of work starves another.
        for _ in range(min(MAX_ITEMS_PER_ITERATION, len(self._awaited_batches))):
            batch = self._awaited_batches.popleft()
            # With a batch in flight the response ends the waiting; until then the open one may fill
            # up.
            if batch.state is BatchState.OPEN and not batch.queue.in_flight:
                self._end_linger(batch, now)
        for batch in islice(
            ready.pop_lingered(inf if skip_linger else now), MAX_ITEMS_PER_ITERATION
        ):
            self._end_linger(batch, now)
        for _ in islice(ready.end_backoffs(now), MAX_ITEMS_PER_ITERATION):
            pass
        for batch in islice(ready.pop_expired(now), MAX_ITEMS_PER_ITERATION):
            self.fail(batch, self.expiry.error(batch), now)
        for topic in islice(self._unpartitioned.expired(now), MAX_ITEMS_PER_ITERATION):
            error = missing_topic_error(topic, None, self._unpartitioned.max_block)
            self._fail_record(topic, error)
        self._continue_metadata_updates(now)
        return (
            bool(self._metadata_updates or self._awaited_batches)
            or (bool(skip_linger) and ready.has_lingering)
            or self.next_due() <= now
        )

    def next_due(self) -> float:
        """Return the time for the next `tick` unless something else happens; inf if never."""
        due, other = self._ready.next_due(), self._unpartitioned.next_due()
        return due if due < other else other

    def _end_linger(self, batch: ProducerBatch, now: float) -> None:
        batch.linger_until = min(batch.linger_until, now)
        # The next batch to send is compressed now; any other fills up until it is the next.
        if self._compression_enabled and not batch.queue.queued:
            self._close(batch, now)
        else:
            self._ready.add_if_ready(batch.queue, now)


def _record_count(batch: ProducerBatch) -> int:
    return batch.count if batch.builder is None else batch.builder.count


def _purged_error(topic: str, partition: int | None, *, sent: int = 0) -> RecordPurgedError:
    text = "purged after it was sent: it may or may not be in the log"
    return RecordPurgedError(
        text if sent else "purged before it was sent", topic=topic, partition=partition
    )
