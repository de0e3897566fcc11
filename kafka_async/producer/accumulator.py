"""Records on their way into batches, batches on their way to brokers: every decision, no waiting.

Owned by the loop of one producer. Callers append, the sender asks what is due: which batches a
broker gets next, which are to be compressed, which have expired, and when to look again. Each
method that depends on time takes `now`, the loop's seconds.

A partition's records go into its open batch; it is closed when it is full, or taken when it has
lingered long enough and the broker has room for it. Brokers are served from sets of partitions that
rotate, a batch a partition a request, so that none waits for another. Memory is granted to open
batches in doubling steps, so that the fast path, which appends to `TopicQueue.open`, needs no
accounting.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from kafka_async.config import seconds
from kafka_async.errors import (
    KafkaError,
    RecordTooLargeError,
)
from kafka_async.kernel import Delivery, OpenBatch, record_size_bound
from kafka_async.producer.batch import BatchState, ProducerBatch
from kafka_async.producer.expiry import delivery_timed_out, topic_not_learnt
from kafka_async.producer.ledger import Ledger
from kafka_async.producer.memory import BufferMemory
from kafka_async.producer.outcome import BatchOutcome, Undesignated
from kafka_async.producer.partitioner import ask, partition_for_key
from kafka_async.producer.queues import PartitionQueue, TopicQueue
from kafka_async.producer.schedule import Schedule
from kafka_async.records.batch import HEADER_SIZE

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from kafka_async.config import ProducerConfig
    from kafka_async.producer.idempotence import Sequencer
    from kafka_async.producer.memory import Holder, Place
    from kafka_async.producer.outcome import NewPromise
    from kafka_async.records.batch import RecordBatch
    from kafka_async.types import Headers, TopicPartition

__all__ = ["Accumulator", "Shortage"]

FIRST_GRANT = 4096
"""Bytes of memory that an open batch begins with, unless its partition is busy; they double."""
REQUEST_OVERHEAD = 512
"""Room for what a produce request holds besides one batch."""
MANY = 128
"""Batches, or topics, that are dealt with in one turn of the event loop: a millisecond or two."""


class Shortage(NamedTuple):
    """There is no memory: how many bytes are needed, and who would hold them."""

    size: int
    holder: Holder


class Accumulator:
    """All records of a producer that are neither acknowledged nor failed.

    `unknown` are topics that records wait for; `obstacles` say why brokers cannot be connected to,
    by node id; `closed` counts batches; `flushes` counts those who wait for everything to be
    delivered.
    """

    def __init__(
        self,
        config: ProducerConfig,
        sequencer: Sequencer,
        new_promise: NewPromise,
        rng: random.Random,
    ) -> None:
        self.sequencer = sequencer
        self.memory = BufferMemory(config.buffer_memory, new_promise)
        self.topics: dict[str, TopicQueue] = {}
        self.unknown: set[TopicQueue] = set()
        self.obstacles: dict[int, KafkaError] = {}
        self.schedule = Schedule()
        self.ledger = Ledger(self.memory, sequencer, self.schedule)
        self.compressing = config.compression_type != "none"
        self.closed = 0
        self.flushes = 0
        self._partitioner = config.partitioner
        self._new_promise = new_promise
        self._rng = rng
        self._batch_size = config.batch_size
        self._limit = max(0, min(config.batch_size, config.max_request_size - REQUEST_OVERHEAD))
        self._max_request_size = config.max_request_size
        self._linger = seconds(config.linger_ms)
        self._patience = seconds(config.delivery_timeout_ms)
        self._patience_unknown = min(self._patience, seconds(config.max_block_ms))
        self._sealed: deque[PartitionQueue] = deque()

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
        place: Place | None = None,
    ) -> Delivery | Shortage:
        """Append a record; a Shortage, and no change, if there is no memory for it now.

        `place` is the caller's place in the line for memory. Raises RecordTooLargeError.
        """
        bound = record_size_bound(key, value, headers)
        self.check_size(bound, topic)
        queue = self._topic(topic)
        if place is not None:
            self.memory.redeem(place)
        if queue.count == 0 and partition is None:
            return self._append_undesignated(
                queue, key, value, headers, timestamp, bound, now, place is not None
            )
        if partition is None and self._partitioner is not None:
            partition = ask(self._partitioner, topic, key, queue.count)
        while True:
            target = queue.queue(self._choose(queue, key) if partition is None else partition)
            batch = target.open
            if batch is None:
                batch = self._open(target, bound, now, overtake=place is not None)
                if batch is None:
                    return Shortage(bound, target)
            assert batch.section is not None
            delivery = batch.section.append(timestamp, key, value, headers)
            if delivery is not None:
                return delivery
            # Closing it makes the partitioner think again, so the next turn may be elsewhere.
            if self._is_full(batch, bound):
                self.close(batch, now)
            elif not self._grow(batch, bound, overtake=place is not None):
                return Shortage(bound, target)

    def check_size(self, size: int, topic: str) -> None:
        """Raise RecordTooLargeError for a record, or a ready-made batch, that can never be sent."""
        for limit, name in (
            (self._max_request_size, "max_request_size"),
            (self.memory.total, "buffer_memory"),
        ):
            if size > limit:
                raise RecordTooLargeError(
                    f"{size} bytes are more than {name}={limit} allows", topic=topic
                )

    def append_batch(
        self,
        partition: TopicPartition,
        contents: RecordBatch,
        now: float,
        place: Place | None = None,
    ) -> Delivery | Shortage:
        """Append a ready-made batch behind what its partition has; see `append`."""
        self.check_size(contents.size, partition.topic)
        queue = self._topic(partition.topic).queue(partition.partition)
        if place is not None:
            self.memory.redeem(place)
        if not self.memory.take(contents.size, queue, overtake=place is not None):
            return Shortage(contents.size, queue)
        if queue.open is not None:
            self.close(queue.open, now)
        batch = self._new_batch(queue, now)
        batch.held = contents.size
        batch.contents = contents
        batch.state = BatchState.READY
        queue.waiting.append(batch)
        self.schedule.offer(queue, now)
        return Delivery(batch.outcome, 0, contents.base_timestamp)

    def _append_undesignated(
        self,
        queue: TopicQueue,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp: int,
        size: int,
        now: float,
        overtake: bool,
    ) -> Delivery | Shortage:
        if not self.memory.take(size, queue, overtake=overtake):
            return Shortage(size, queue)
        record = Undesignated(
            queue.name,
            key,
            value,
            tuple(headers),
            timestamp,
            size=size,
            created=now,
            new_promise=self._new_promise,
        )
        queue.undesignated.append(record)
        self.ledger.enter_record(record)
        return Delivery(record, 0, timestamp)

    def _topic(self, name: str) -> TopicQueue:
        queue = self.topics.get(name)
        if queue is None:
            queue = self.topics[name] = TopicQueue(name, self._rng)
        if queue.count == 0:
            self.unknown.add(queue)
        return queue

    def _choose(self, queue: TopicQueue, key: bytes | None) -> int:
        if key is not None:
            return partition_for_key(key, queue.count)
        return queue.choose(self._rng)

    def _new_batch(self, queue: PartitionQueue, now: float) -> ProducerBatch:
        outcome = BatchOutcome(*queue.partition, self._new_promise)
        patience = self._patience if queue.exists else self._patience_unknown
        order = (queue.next_order,)
        queue.next_order += 1
        batch = ProducerBatch(queue, outcome, created=now, deadline=now + patience, order=order)
        self.ledger.enter(batch)
        return batch

    def _open(
        self, queue: PartitionQueue, size: int, now: float, *, overtake: bool
    ) -> ProducerBatch | None:
        first = FIRST_GRANT
        if queue.busy and 2 * (self.memory.used + self._limit) <= self.memory.total:
            first = self._limit  # it fills up again: every step on the way would be a detour
        for grant in (max(size, min(first, self._limit)), size):
            if self.memory.take(grant, queue, overtake=overtake):
                batch = self._begin(queue, grant, now)
                batch.due = now + self._linger
                self.schedule.linger(batch)
                return batch
        return None

    def _begin(self, queue: PartitionQueue, grant: int, created: float) -> ProducerBatch:
        batch = self._new_batch(queue, created)
        batch.held = grant
        batch.section = OpenBatch(batch.outcome, grant)
        queue.open = batch
        queue.topic.open.open(queue.partition.partition, batch.section)
        return batch

    def _is_full(self, batch: ProducerBatch, size: int) -> bool:
        assert batch.section is not None
        return batch.section.size + size - HEADER_SIZE > self._limit

    def _grow(self, batch: ProducerBatch, size: int, *, overtake: bool) -> bool:
        assert batch.section is not None
        needed = batch.section.size + size
        for wanted in (max(needed, min(self._limit, 2 * batch.held)), needed):
            more = wanted - batch.held
            if more <= 0 or self.memory.take(more, batch.queue, overtake=overtake):
                batch.held = max(batch.held, wanted)
                batch.section.extend(wanted)
                return True
        return False

    # -- closing and compressing ------------------------------------------------------------------

    def close(self, batch: ProducerBatch, now: float) -> None:
        """Take no more records into a batch, and have it sent."""
        self._close(batch)
        if not self.compressing:
            self.schedule.offer(batch.queue, now)

    def _close(self, batch: ProducerBatch) -> None:
        queue = batch.queue
        assert batch.section is not None
        assert queue.open is batch
        size = batch.section.size
        self.closed += 1
        queue.close()
        batch.seal()
        queue.busy = 2 * size > self._limit
        queue.topic.sticky.wrote(queue.partition.partition, size, self._batch_size)
        queue.waiting.append(batch)
        spare = batch.held - size
        batch.held = size
        if spare > 0:
            self.memory.give(spare, queue)
        if self.compressing:
            self._sealed.append(queue)
        else:
            batch.state = BatchState.READY

    def to_compress(self) -> Iterator[ProducerBatch]:
        """Batches to compress now: of each partition one at a time, in order."""
        for _ in range(len(self._sealed)):
            queue = self._sealed.popleft()
            states = [batch.state for batch in queue.waiting]
            if BatchState.COMPRESSING in states or BatchState.SEALED not in states:
                continue
            batch = queue.waiting[states.index(BatchState.SEALED)]
            batch.state = BatchState.COMPRESSING
            yield batch

    def compressed(self, batch: ProducerBatch, contents: RecordBatch | None, now: float) -> None:
        """A batch is compressed, or cannot be (None); the partition's next one may be."""
        self._sealed.append(batch.queue)
        if contents is not None and batch.state is BatchState.COMPRESSING:
            batch.contents = contents
            batch.state = BatchState.READY
            self.schedule.offer(batch.queue, now)

    # -- sending ----------------------------------------------------------------------------------

    def take(self, node: int, room: int, now: float) -> list[ProducerBatch]:
        """Batches for one request to a broker, at most one a partition, `room` bytes together.

        And at most MANY, so that neither the request nor its answer holds up the event loop.
        They count as on the wire from now on; the ledger hears what became of each.
        """
        taken: list[ProducerBatch] = []
        if not self.sequencer.ready:
            return taken
        for queue in self.schedule.rotate(node):
            batch = self._next(queue, node, now)
            if batch is None:
                continue
            if taken and batch.wire_size > room:
                self.schedule.put_back(queue, node)
                break
            room -= batch.wire_size
            self.ledger.put_on_wire(batch, node, now)
            taken.append(batch)
            self.schedule.offer(queue, now)
            if len(taken) == MANY:
                break
        return taken

    def _next(self, queue: PartitionQueue, node: int, now: float) -> ProducerBatch | None:
        if queue.leader != node:
            self.schedule.offer(queue, now)
            return None
        if not self.schedule.sendable(queue, now):
            return None
        if not queue.waiting and queue.open is not None:
            self._close(queue.open)
        batch = queue.waiting[0] if queue.waiting else None
        return batch if batch is not None and batch.state is BatchState.READY else None

    # -- everything at once -----------------------------------------------------------------------

    def queues(self) -> Iterator[PartitionQueue]:
        """Every partition's queue."""
        for topic in self.topics.values():
            yield from topic.partitions.values()

    @property
    def on_wire(self) -> list[BatchOutcome]:
        """The outcomes of what requests carry right now."""
        return [batch.outcome for queue in self.queues() for batch in queue.on_wire]

    def drop_unsent(self, error: Exception, now: float) -> None:
        """Fail everything that is not on the wire, unreported: its transaction is aborted."""
        for topic in self.topics.values():
            self.ledger.fail_topic(topic, error, now, report=False)

    def fail_all(self, error: Exception, now: float) -> None:
        """Fail everything, on the wire or not: the producer is closing, or has died."""
        for topic in self.topics.values():
            self.ledger.fail_topic(topic, error, now)
        for queue in self.queues():
            self.ledger.fail_wire(queue, error, now)

    def reschedule(self, now: float) -> None:
        """Look at every partition again: what held all of them up is gone."""
        for queue in self.queues():
            self.schedule.offer(queue, now)

    def admit(self, queues: list[PartitionQueue], now: float) -> None:
        """The partitions belong to the transaction now: their batches may be sent."""
        for queue in queues:
            queue.admitted = True
            self.schedule.offer(queue, now)

    def begin_admission(self, *, needed: bool) -> None:
        """A transaction begins; if `needed`, each partition has to be admitted to it."""
        self.schedule.admission = needed
        self.schedule.unadmitted.clear()
        for queue in self.queues():
            queue.admitted = False

    # -- what the cluster looks like --------------------------------------------------------------

    def update(self, name: str, leaders: tuple[int | None, ...], now: float) -> None:
        """The leaders of a topic's partitions, by number; empty if the topic is not known."""
        topic = self.topics[name]
        if leaders == topic.leaders:
            return
        topic.leaders = leaders
        topic.open.partitions = len(leaders)
        topic.available = tuple(n for n, leader in enumerate(leaders) if leader is not None)
        topic.sticky.forget()
        if topic.count:
            topic.error = None
            self.unknown.discard(topic)
        elif topic.undesignated or topic.partitions:
            self.unknown.add(topic)
        for number, queue in topic.partitions.items():
            self._lead(queue, leaders[number] if number < topic.count else None, now)
        while topic.count and topic.undesignated:
            self._designate(topic, now)

    def _lead(self, queue: PartitionQueue, leader: int | None, now: float) -> None:
        if queue.exists:
            for batch in queue.unsent():
                batch.deadline = batch.created + self._patience
        if queue.leader != leader:
            queue.leader = leader
            # What made the last attempt fail was the old leader's (KIP-951): no need to wait.
            queue.not_before = 0.0
            self.memory.strand(queue, leader is None)
        self.schedule.offer(queue, now)

    def _designate(self, topic: TopicQueue, now: float) -> None:
        """Give the topic's oldest undesignated record a partition, and its place in a batch."""
        record = topic.undesignated[0]
        try:
            if self._partitioner is None:
                partition = self._choose(topic, record.key)
            else:
                partition = ask(self._partitioner, topic.name, record.key, topic.count)
        except Exception as error:  # noqa: BLE001  # the caller's partitioner may raise anything
            self.ledger.fail_record(topic, error)
            return
        topic.undesignated.popleft()
        self.ledger.leave_record(record)
        queue = topic.queue(partition)
        batch = self._batch_with_room(queue, record.size, record.created, now)
        self.memory.transfer(record.size, topic, queue)
        assert batch.section is not None
        delivery = batch.section.append(record.timestamp, record.key, record.value, record.headers)
        assert delivery is not None, "it was granted what it needs"
        record.designate(delivery, batch.outcome)
        self.schedule.offer(queue, now)

    def _batch_with_room(
        self, queue: PartitionQueue, size: int, created: float, now: float
    ) -> ProducerBatch:
        """The partition's open batch with room for `size` bytes, which the caller holds already."""
        batch = queue.open
        if batch is not None and self._is_full(batch, size):
            self.close(batch, now)
            batch = None
        if batch is None:
            batch = self._begin(queue, size, created)
            batch.due = created + self._linger
            self.schedule.linger(batch)
            return batch
        batch.held += size
        assert batch.section is not None
        batch.section.extend(batch.held)
        return batch

    # -- time -------------------------------------------------------------------------------------

    def expedite(self, now: float) -> None:
        """Let no open batch linger any longer: a flush is on, or memory is short."""
        for batch in self.schedule.lingered(None):
            self._let_go(batch, now)

    def tick(self, now: float) -> None:
        """Do what is due: end lingering and back-offs, fail what has expired."""
        for batch in self.schedule.lingered(now):
            self._let_go(batch, now)
        self.schedule.wake(now)
        for batch in self.schedule.expired(now):
            self.ledger.fail(batch, self.expired(batch), now)
        for topic in list(self.unknown):
            while topic.undesignated and self._expires(topic) <= now:
                self.ledger.fail_record(
                    topic, topic_not_learnt(topic, None, self._patience_unknown)
                )
            if not topic.undesignated and not any(q.load for q in topic.partitions.values()):
                self.unknown.discard(topic)

    def next_due(self) -> float | None:
        """When to call `tick` next, unless something happens before."""
        scheduled = self.schedule.next_due()
        if not self.unknown:
            return scheduled
        dues = [self._expires(topic) for topic in self.unknown if topic.undesignated]
        if scheduled is not None:
            dues.append(scheduled)
        return min(dues, default=None)

    def expired(self, batch: ProducerBatch) -> KafkaError:
        """The error of a batch whose time has run out."""
        queue = batch.queue
        if queue.exists:
            obstacle = None if queue.leader is None else self.obstacles.get(queue.leader)
            return delivery_timed_out(batch, self._patience, obstacle)
        return topic_not_learnt(queue.topic, queue.partition.partition, self._patience_unknown)

    def _let_go(self, batch: ProducerBatch, now: float) -> None:
        batch.due = min(batch.due, now)
        if self.compressing:
            self.close(batch, now)
        else:
            self.schedule.offer(batch.queue, now)

    def _expires(self, topic: TopicQueue) -> float:
        return topic.undesignated[0].created + self._patience_unknown
