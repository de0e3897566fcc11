"""Collects records into batches and decides which batches are due.

Nothing here waits: the module imports no asyncio, and each method that depends on time takes `now`,
seconds of the event loop's clock. An accumulator is owned by the event loop of one producer.
Callers append; the sender drains batches for a broker, has others compressed, and calls `tick` when
something is due.

A partition's records go into its open batch. The batch is closed when it is full, or drained when
it has lingered long enough and the broker has capacity for it. A request takes at most one batch of
each partition, and partitions take turns, so that none delays another. Memory is reserved for an
open batch in doubling steps, so that the fast path, which appends to `TopicQueue.open_batches`,
needs no accounting.
"""

from __future__ import annotations

from collections import deque
from itertools import chain, islice
from math import inf
from typing import TYPE_CHECKING, Final

from kafka_async.config import seconds
from kafka_async.errors import KafkaError, KafkaTimeoutError, RecordTooLargeError
from kafka_async.kernel import Delivery, OpenBatch, record_size_bound
from kafka_async.producer.buffer_pool import MEMORY_OVERHEAD, BufferPool, BufferShortage
from kafka_async.producer.incomplete_batches import IncompleteBatches
from kafka_async.producer.outcome import BatchOutcome
from kafka_async.producer.partition_queue import (
    BatchState,
    PartitionQueue,
    ProducerBatch,
    TopicQueue,
)
from kafka_async.producer.partitioner import call_partitioner, partition_for_key
from kafka_async.producer.ready_partitions import ReadyPartitions
from kafka_async.producer.unpartitioned import UnpartitionedRecords, missing_topic_error
from kafka_async.records.batch import HEADER_SIZE

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from kafka_async.config import ProducerConfig
    from kafka_async.producer.buffer_pool import BufferWaiter
    from kafka_async.producer.idempotence import Sequencer
    from kafka_async.producer.outcome import FutureFactory
    from kafka_async.records.batch import RecordBatch
    from kafka_async.types import Headers, TopicPartition

__all__ = ["Accumulator", "BufferShortage"]

INITIAL_BATCH_BYTES = 4096
"""Bytes reserved for a new batch, unless its partition is busy; doubled as the batch grows."""
REQUEST_OVERHEAD = 512
"""Bytes of a produce request reserved for everything except one batch."""
MAX_BATCHES_PER_REQUEST: Final = 48
"""Keeps the event loop time of a request or its response below about two milliseconds."""
MAX_PIGGYBACK_BYTES: Final = 1024 * 1024
"""Bytes of a request beyond which no open batches are added to it; a CRC takes 0.06 ms per MiB."""
MAX_ITEMS_PER_ITERATION: Final = 128
"""Batches, partitions or records handled per event loop iteration, of each kind that may number in
the thousands: a fraction of a millisecond.
"""


class Accumulator:
    """Holds all records of a producer that are neither acknowledged nor failed.

    Attributes:
        topics: Queue of each topic that records were appended to, by name.
        stale_topics: Topics whose metadata is missing or stale; cleared by
            `TopicMetadataUpdater.update`.
        connection_errors: Error of the last connection attempt, by node id, while it has not
            succeeded.
        ready_partitions: Partitions with a batch ready for a broker.
        incomplete: Batches and records that are neither acknowledged nor failed.
        closed_count: Number of batches closed so far.
        flushes_in_progress: Number of calls that wait until everything is delivered.
    """

    def __init__(
        self,
        config: ProducerConfig,
        sequencer: Sequencer,
        new_future: FutureFactory,
        rng: random.Random,
    ) -> None:
        self.sequencer = sequencer
        self.buffer_pool = BufferPool(config.buffer_memory, new_future)
        self.topics: dict[str, TopicQueue] = {}
        self.stale_topics: dict[TopicQueue, None] = {}
        self.connection_errors: dict[int, KafkaError] = {}
        self.ready_partitions = ReadyPartitions()
        self.incomplete = IncompleteBatches(self.buffer_pool, sequencer, self.ready_partitions)
        self.compression_enabled = config.compression_type != "none"
        self.closed_count = 0
        self.flushes_in_progress = 0
        self._partitioner = config.partitioner
        self._new_future = new_future
        self._rng = rng
        self._transaction_count = 0
        self._metadata_updates: dict[TopicQueue, Iterator[None]] = {}
        self._now = 0.0
        self._wakeup = _do_nothing
        self._awaited_batches: deque[ProducerBatch] = deque()
        self._first_await_callback = self._mark_awaited  # bound once, not per batch
        self._batch_size = config.batch_size
        self._batch_limit = max(
            0, min(config.batch_size, config.max_request_size - REQUEST_OVERHEAD)
        )
        self._max_request_size = config.max_request_size
        self._linger = seconds(config.linger_ms)
        self._delivery_timeout = seconds(config.delivery_timeout_ms)
        self._unpartitioned = UnpartitionedRecords(
            self.buffer_pool,
            self.incomplete,
            new_future,
            max_block=min(self._delivery_timeout, seconds(config.max_block_ms)),
        )
        self._compression_queue: deque[PartitionQueue] = deque()

    def set_wakeup(self, wakeup: Callable[[], None]) -> None:
        """Set the callback for a batch that is due before the time that `next_due` returned."""
        self._wakeup = wakeup

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
        """Append a record.

        Args:
            topic: Name of the topic.
            partition: Partition, or None to choose one.
            key: Serialized key.
            value: Serialized value.
            headers: Headers of the record.
            timestamp: Milliseconds since the epoch.
            now: Event loop time.
            waiter: The caller's entry among those waiting for memory, whose grant is used.

        Returns:
            The record's handle, or a BufferShortage if there is no memory now; then the record is
            not appended, but a full batch may have been closed.

        Raises:
            RecordTooLargeError: The record can never be sent.
            InvalidConfigurationError: The partitioner chose a partition that does not exist.
            Exception: Any exception of the application's partitioner.
        """
        bound = record_size_bound(key, value, headers)
        self.check_size(bound, topic)
        topic_queue = self._topic_queue(topic)
        if waiter is not None:
            self.buffer_pool.use_grant(waiter)
        if partition is None and not self._can_assign_partition(topic_queue, now):
            return self._unpartitioned.append(
                topic_queue, key, value, headers, timestamp, bound, now, overtake=waiter is not None
            )
        if partition is None and self._partitioner is not None:
            partition = call_partitioner(self._partitioner, topic, key, topic_queue.partition_count)
        follows = False
        while True:
            queue = topic_queue.queue(
                self._choose_partition(topic_queue, key) if partition is None else partition
            )
            batch = queue.open_batch
            if batch is None:
                batch = self._open_batch(queue, bound, now, overtake=waiter is not None)
                if batch is None:
                    return BufferShortage(bound + MEMORY_OVERHEAD, queue)
                self._linger_or_send(batch, now, follows=follows)
            assert batch.section is not None
            delivery = batch.section.append(timestamp, key, value, headers)
            if delivery is not None:
                return delivery
            # Closing a batch may change the sticky partition, so it is chosen again.
            if self._is_full(batch, bound):
                self.close(batch, now)
                follows = True
            elif not self._grow(batch, bound, overtake=waiter is not None):
                return BufferShortage(bound, queue)

    def check_size(self, size: int, topic: str) -> None:
        """Raise RecordTooLargeError for a record or ready-made batch that can never be sent."""
        for limit, overhead, name in (
            (self._max_request_size, 0, "max_request_size"),
            (self.buffer_pool.total_bytes, MEMORY_OVERHEAD, "buffer_memory"),
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
        if waiter is not None:
            self.buffer_pool.use_grant(waiter)
        needed = contents.size + MEMORY_OVERHEAD
        if not self.buffer_pool.reserve(needed, queue, overtake=waiter is not None):
            return BufferShortage(needed, queue)
        if queue.open_batch is not None:
            self.close(queue.open_batch, now)
        batch = self._new_batch(queue, now)
        batch.reserved_bytes = contents.size
        batch.set_contents(contents)
        batch.state = BatchState.READY
        queue.queued.append(batch)
        self.ready_partitions.add_if_ready(queue, now)
        return Delivery(batch.outcome, 0, contents.base_timestamp)

    def _topic_queue(self, name: str) -> TopicQueue:
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = TopicQueue(name, self._rng)
        if not topic.leaders:
            self.stale_topics[topic] = None
        return topic

    def _can_assign_partition(self, topic: TopicQueue, now: float) -> bool:
        """Assign up to two earlier records; return True if a new one can get its partition now.

        That requires metadata of the topic, and that none of its records is left unpartitioned.
        Each call moves up to two records into batches, so that their queue shrinks.
        """
        for _ in range(2):
            if topic.leaders and topic.unpartitioned is not None:
                self._assign_partition(topic, now)
        return bool(topic.leaders) and topic.unpartitioned is None

    def _choose_partition(self, topic: TopicQueue, key: bytes | None) -> int:
        if key is not None:
            return partition_for_key(key, topic.partition_count)
        return topic.choose_partition(self._rng)

    def _new_batch(self, queue: PartitionQueue, now: float) -> ProducerBatch:
        outcome = BatchOutcome(*queue.partition, self._new_future)
        timeout = self._delivery_timeout if queue.exists else self._unpartitioned.max_block
        if not queue.exists:
            self.stale_topics[queue.topic] = None
        order = (queue.next_order,)
        queue.next_order += 1
        batch = ProducerBatch(queue, outcome, created=now, deadline=now + timeout, order=order)
        self.incomplete.add(batch)
        return batch

    def _open_batch(
        self, queue: PartitionQueue, size: int, now: float, *, overtake: bool
    ) -> ProducerBatch | None:
        initial, buffer_pool = INITIAL_BATCH_BYTES, self.buffer_pool
        if (
            queue.last_batch_bytes > initial
            and 2 * (buffer_pool.reserved_bytes + 2 * queue.last_batch_bytes)
            <= buffer_pool.total_bytes
        ):
            # The batch will probably fill up like the last one, so it need not grow in steps.
            initial = 1 << queue.last_batch_bytes.bit_length()
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
        if self._linger or self.compression_enabled:
            batch.may_piggyback = not follows
            batch.outcome.set_await_callback(self._first_await_callback)
            self.ready_partitions.linger(batch)
        else:
            self.ready_partitions.add_if_ready(batch.queue, now)

    def _mark_awaited(self, outcome: BatchOutcome) -> None:
        """Note that a task awaits an open batch; `tick` ends its linger time."""
        batch = self.incomplete.batch(outcome)
        batch.awaited = True
        self._awaited_batches.append(batch)
        self._wakeup()

    def _start_batch(self, queue: PartitionQueue, grant: int, created: float) -> ProducerBatch:
        queue.open_batch = batch = self._new_batch(queue, created)
        batch.reserved_bytes = grant
        batch.section = OpenBatch(batch.outcome, grant)
        queue.topic.open_batches.open(queue.partition.partition, batch.section)
        return batch

    def _is_full(self, batch: ProducerBatch, size: int) -> bool:
        assert batch.section is not None
        return batch.section.size + size - HEADER_SIZE > self._batch_limit

    def _grow(self, batch: ProducerBatch, size: int, *, overtake: bool) -> bool:
        assert batch.section is not None
        needed = batch.section.size + size
        for wanted in (max(needed, min(self._batch_limit, 2 * batch.reserved_bytes)), needed):
            more = wanted - batch.reserved_bytes
            if more <= 0 or self.buffer_pool.reserve(more, batch.queue, overtake=overtake):
                batch.reserved_bytes = max(batch.reserved_bytes, wanted)
                batch.section.extend(wanted)
                return True
        return False

    # -- closing and compressing ------------------------------------------------------------------

    def close(self, batch: ProducerBatch, now: float) -> None:
        """Close a batch for appends and make its partition ready, after compression if enabled.

        With compression, this also closes open batches of other partitions that may be sent in the
        same request.
        """
        self._close_batch(batch, now)
        if not self.compression_enabled:
            self.ready_partitions.add_if_ready(batch.queue, now)
        elif batch.queue.leader is not None:
            # Batches that are compressed together are ready for the same request.
            for other in self.ready_partitions.piggyback_batches(
                batch.queue.leader, MAX_BATCHES_PER_REQUEST
            ):
                self._close_batch(other, now)

    def _close_batch(self, batch: ProducerBatch, now: float) -> None:
        queue = batch.queue
        batch.closed_at = now
        assert batch.section is not None
        assert queue.open_batch is batch
        size = batch.section.size
        self.closed_count += 1
        queue.close()
        batch.close()
        batch.outcome.set_await_callback(None)
        queue.last_batch_bytes = size
        queue.topic.sticky.batch_closed(queue.partition.partition, size, self._batch_size)
        queue.queued.append(batch)
        spare = batch.reserved_bytes - size
        batch.reserved_bytes = size
        if spare > 0:
            self.buffer_pool.release(spare, queue)
        if self.compression_enabled:
            self._compression_queue.append(queue)
        else:
            batch.state = BatchState.READY

    @property
    def has_batches_to_compress(self) -> bool:
        """True if `next_to_compress` may yield a batch."""
        return bool(self._compression_queue)

    def next_to_compress(self) -> Iterator[ProducerBatch]:
        """Yield the batches to compress now: one per partition at a time, in order."""
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
        self._compression_queue.append(batch.queue)
        if contents is not None and batch.state is BatchState.COMPRESSING:
            batch.set_contents(contents)
            batch.state = BatchState.READY
            self.ready_partitions.add_if_ready(batch.queue, now)

    # -- sending ----------------------------------------------------------------------------------

    def drain(self, node: int, room: int, now: float) -> list[ProducerBatch]:
        """Return the batches for one request to a broker, at most one per partition.

        Batches that are due come first, then open batches of other partitions. All are in flight
        afterwards, and the sender reports the outcome of each to `incomplete`.

        Args:
            node: Id of the broker.
            room: Maximum bytes of all batches together; the first batch may exceed it.
            now: Event loop time.
        """
        drained: list[ProducerBatch] = []
        if not self.sequencer.ready:
            return drained
        for queue in chain(
            self.ready_partitions.pop_partitions(node), self._piggyback_queues(node, drained, now)
        ):
            batch = self._next_batch(queue, node, now)
            if batch is None:
                continue
            if drained and batch.wire_size > room:
                self.ready_partitions.put_back(queue, node)
                break
            room -= batch.wire_size
            self.incomplete.mark_in_flight(batch, node)
            drained.append(batch)
            self.ready_partitions.add_if_ready(queue, now)
            if len(drained) == MAX_BATCHES_PER_REQUEST:
                self.ready_partitions.move_to_back(node)
                break
        return drained

    def _piggyback_queues(
        self, node: int, drained: list[ProducerBatch], now: float
    ) -> Iterator[PartitionQueue]:
        """Yield partitions whose open batches are added to a request that is not empty."""
        if (
            not drained
            or self.compression_enabled
            or not self.ready_partitions.has_piggyback_batches(node)
        ):
            return
        left = MAX_PIGGYBACK_BYTES - sum([batch.wire_size for batch in drained])
        for batch in self.ready_partitions.piggyback_batches(node, MAX_BATCHES_PER_REQUEST):
            assert batch.section is not None
            left -= batch.section.size
            if left >= 0:
                batch.linger_until = min(batch.linger_until, now)
                yield batch.queue
            else:
                self.ready_partitions.add_if_ready(batch.queue, now)  # for a later request

    def _next_batch(self, queue: PartitionQueue, node: int, now: float) -> ProducerBatch | None:
        if queue.leader != node:
            self.ready_partitions.add_if_ready(queue, now)
            return None
        if not self.ready_partitions.is_sendable(queue, now):
            return None
        if not queue.queued and queue.open_batch is not None:
            self._close_batch(queue.open_batch, now)
        batch = queue.queued[0] if queue.queued else None
        return batch if batch is not None and batch.state is BatchState.READY else None

    # -- partitions -------------------------------------------------------------------------------

    def queues(self) -> Iterator[PartitionQueue]:
        """Yield the queue of each partition."""
        for topic in self.topics.values():
            yield from topic.partitions.values()

    def mark_partitions_added(self, queues: list[PartitionQueue], now: float) -> None:
        """Make partitions ready that have been added to the transaction."""
        for queue in queues:
            queue.added_to_transaction = self.ready_partitions.required_transaction
            self.ready_partitions.add_if_ready(queue, now)

    def require_partitions_added(self, *, required: bool) -> None:
        """Set whether partitions must be added to the transaction before they are sent."""
        self._transaction_count += 1
        self.ready_partitions.required_transaction = self._transaction_count if required else 0
        self.ready_partitions.partitions_to_add.clear()

    # -- metadata ---------------------------------------------------------------------------------

    def update_leaders(self, name: str, leaders: tuple[int | None, ...], now: float) -> None:
        """Apply the leaders of a topic's partitions, by number; empty if the topic is unknown."""
        topic = self.topics[name]
        if leaders == topic.leaders:
            return
        topic.leaders = leaders
        topic.available = tuple([n for n, leader in enumerate(leaders) if leader is not None])
        topic.sticky.reset()
        # No record may overtake unpartitioned ones, so the fast path is closed meanwhile.
        topic.open_batches.partitions = 0 if topic.unpartitioned else topic.partition_count
        self.buffer_pool.set_stranded(topic, topic.partition_count == 0)
        if topic.partition_count:
            topic.error = None
            self.stale_topics.pop(topic, None)
        elif topic.awaits_metadata:
            self.stale_topics[topic] = None
            if topic.unpartitioned:
                self._unpartitioned.track_deadline(topic)
        self._metadata_updates[topic] = self._apply_leaders(topic)
        self._continue_metadata_updates(now)

    def _continue_metadata_updates(self, now: float) -> None:
        """Apply leaders and assign partitions to records, up to the limit per iteration."""
        self._now, left = now, MAX_ITEMS_PER_ITERATION
        while self._metadata_updates and left > 0:
            topic, updates = next(iter(self._metadata_updates.items()))
            for _ in islice(updates, left):
                left -= 1
            if left > 0:
                del self._metadata_updates[topic]

    def _apply_leaders(self, topic: TopicQueue) -> Iterator[None]:
        for number, queue in list(topic.partitions.items()):
            self._set_leader(
                queue, topic.leaders[number] if number < topic.partition_count else None, self._now
            )
            yield
        while topic.partition_count and topic.unpartitioned is not None:
            self._assign_partition(topic, self._now)
            yield
        if topic.missing_partitions:
            self.stale_topics[topic] = None
        topic.open_batches.partitions = topic.partition_count

    def _set_leader(self, queue: PartitionQueue, leader: int | None, now: float) -> None:
        if queue.exists:
            for batch in queue.unsent():
                batch.deadline = batch.created + self._delivery_timeout
        if queue.leader != leader:
            queue.leader = leader
            # The back-off was for the old leader (KIP-951).
            queue.not_before = 0.0
            self.buffer_pool.set_stranded(queue, leader is None)
        self.ready_partitions.add_if_ready(queue, now)

    def _assign_partition(self, topic: TopicQueue, now: float) -> None:
        """Move the topic's oldest unpartitioned record into a batch."""
        assert topic.unpartitioned is not None
        record = topic.unpartitioned[0]
        try:
            if self._partitioner is None:
                partition = self._choose_partition(topic, record.key)
            else:
                partition = call_partitioner(
                    self._partitioner, topic.name, record.key, topic.partition_count
                )
        except Exception as error:  # noqa: BLE001  # the application's partitioner
            self.incomplete.fail_record(topic, error)
            return
        topic.pop_unpartitioned()
        self.incomplete.remove_record(record)
        queue = topic.queue(partition)
        batch = self._batch_with_room(queue, record.size, record.created, now)
        self.buffer_pool.transfer(record.size + MEMORY_OVERHEAD, topic, queue)
        assert batch.section is not None
        if batch.section.count:
            self.buffer_pool.release(MEMORY_OVERHEAD, queue)  # a new batch keeps it
        delivery = batch.section.append(record.timestamp, record.key, record.value, record.headers)
        assert delivery is not None, "the batch has room for the record"
        record.assign(delivery, batch.outcome)
        self.ready_partitions.add_if_ready(queue, now)

    def _batch_with_room(
        self, queue: PartitionQueue, size: int, created: float, now: float
    ) -> ProducerBatch:
        """Return the partition's open batch with room for `size` bytes, already reserved."""
        batch = queue.open_batch
        if batch is not None and self._is_full(batch, size):
            self.close(batch, now)
            batch = None
        if batch is None:
            batch = self._start_batch(queue, size, created)
            self._linger_or_send(batch, now, follows=False)
            return batch
        batch.reserved_bytes += size
        assert batch.section is not None
        batch.section.extend(batch.reserved_bytes)
        return batch

    # -- time -------------------------------------------------------------------------------------

    def tick(self, now: float) -> bool:
        """End linger times and back-offs that are over, and fail expired batches.

        No open batch lingers during a flush or while callers wait for memory.

        Returns:
            True if the limit per event loop iteration was reached and more is due.
        """
        ready_partitions = self.ready_partitions
        skip_linger = self.flushes_in_progress or self.buffer_pool.waiter_count
        if not (
            skip_linger or self._awaited_batches or self._metadata_updates or self.next_due() <= now
        ):
            return False
        for _ in range(min(MAX_ITEMS_PER_ITERATION, len(self._awaited_batches))):
            batch = self._awaited_batches.popleft()
            if batch.state is BatchState.OPEN and not batch.queue.in_flight:
                self._end_linger(batch, now)
        for batch in islice(
            ready_partitions.pop_lingered(inf if skip_linger else now), MAX_ITEMS_PER_ITERATION
        ):
            self._end_linger(batch, now)
        for _ in islice(ready_partitions.end_backoffs(now), MAX_ITEMS_PER_ITERATION):
            pass
        for batch in islice(ready_partitions.pop_expired(now), MAX_ITEMS_PER_ITERATION):
            self.incomplete.fail(batch, self.timeout_error(batch), now)
        self._unpartitioned.expire(now, MAX_ITEMS_PER_ITERATION)
        self._continue_metadata_updates(now)
        return (
            bool(self._metadata_updates or self._awaited_batches)
            or (bool(skip_linger) and ready_partitions.has_lingering)
            or self.next_due() <= now
        )

    def next_due(self) -> float:
        """Return the time for the next `tick` unless something else happens; inf if never."""
        due, other = self.ready_partitions.next_due(), self._unpartitioned.next_due()
        return due if due < other else other

    def timeout_error(self, batch: ProducerBatch) -> KafkaError:
        """Return the error of a batch whose deadline has passed."""
        queue = batch.queue
        if queue.exists:
            connection_error = (
                None if queue.leader is None else self.connection_errors.get(queue.leader)
            )
            return _timeout_error(batch, self._delivery_timeout, connection_error)
        max_block = self._unpartitioned.max_block
        return missing_topic_error(queue.topic, queue.partition.partition, max_block)

    def _end_linger(self, batch: ProducerBatch, now: float) -> None:
        batch.linger_until = min(batch.linger_until, now)
        # The next batch to send is compressed now; any other fills up until it is the next.
        if self.compression_enabled and not batch.queue.queued:
            self.close(batch, now)
        else:
            self.ready_partitions.add_if_ready(batch.queue, now)


def _timeout_error(
    batch: ProducerBatch, timeout: float, connection_error: KafkaError | None
) -> KafkaError:
    """Return the error of a batch that was not delivered within `timeout` seconds.

    `connection_error` says why its leader could not be connected to, if it could not.
    """
    text = f"not delivered within delivery_timeout_ms ({timeout:g} s)"
    if batch.error is not None:
        text += f"; the last of {batch.attempts} attempts: {batch.error}"
    elif batch.queue.leader is None:
        text += "; the partition has no leader"
    elif connection_error is not None:
        text += f"; its leader cannot be reached: {connection_error}"
    topic, partition = batch.queue.partition
    error = KafkaTimeoutError(text, topic=topic, partition=partition)
    error.__cause__ = batch.error or connection_error
    return error


def _do_nothing() -> None:
    pass
