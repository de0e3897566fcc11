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
from itertools import chain, islice
from math import inf
from typing import TYPE_CHECKING, Final

from kafka_async.config import seconds
from kafka_async.errors import (
    KafkaError,
    RecordTooLargeError,
)
from kafka_async.kernel import Delivery, OpenBatch, record_size_bound
from kafka_async.producer.buffer_pool import OVERHEAD, BufferMemory, Shortage
from kafka_async.producer.expiry import delivery_timed_out, topic_not_learnt
from kafka_async.producer.incomplete_batches import Ledger
from kafka_async.producer.outcome import BatchOutcome
from kafka_async.producer.partition_queue import PartitionQueue, TopicQueue
from kafka_async.producer.partitioner import ask, partition_for_key
from kafka_async.producer.producer_batch import BatchState, ProducerBatch
from kafka_async.producer.ready_partitions import Schedule
from kafka_async.producer.unpartitioned import UndesignatedRecords
from kafka_async.records.batch import HEADER_SIZE

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from kafka_async.config import ProducerConfig
    from kafka_async.producer.buffer_pool import Place
    from kafka_async.producer.idempotence import Sequencer
    from kafka_async.producer.outcome import NewPromise
    from kafka_async.records.batch import RecordBatch
    from kafka_async.types import Headers, TopicPartition

__all__ = ["Accumulator", "Shortage"]

FIRST_GRANT = 4096
"""Bytes of memory that an open batch begins with, unless its partition is busy; they double."""
REQUEST_OVERHEAD = 512
"""Room for what a produce request holds besides one batch."""
MAX_BATCHES_PER_REQUEST: Final = 48
"""At most, so that neither a request nor its answer holds the event loop: a millisecond or two."""
MAX_COMPANION_BYTES: Final = 1024 * 1024
"""Bytes of a request beyond which it takes no open batches along: a CRC takes 0.06 ms per MiB."""
A_TURN: Final = 128
"""Batches, partitions or records that are dealt with in one turn of the event loop, of each kind
that there may be thousands of: a fraction of a millisecond."""


class Accumulator:
    """All records of a producer that are neither acknowledged nor failed.

    `unknown` are topics that are to be learnt, or asked for anew since a partition is not there,
    until somebody takes them; `obstacles` say why brokers cannot be connected to, by node id;
    `closed` counts batches; `flushes` counts those who wait for everything to be delivered.
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
        self.unknown: dict[TopicQueue, None] = {}
        self.obstacles: dict[int, KafkaError] = {}
        self.schedule = Schedule()
        self.ledger = Ledger(self.memory, sequencer, self.schedule)
        self.compressing = config.compression_type != "none"
        self.closed = 0
        self.flushes = 0
        self._partitioner = config.partitioner
        self._new_promise = new_promise
        self._rng = rng
        self._transactions = 0
        self._settling: dict[TopicQueue, Iterator[None]] = {}
        self._now = 0.0
        self._wake = _nothing
        self._awaited: deque[ProducerBatch] = deque()
        self._on_await = self._awaited_first  # bound once, not for each batch
        self._batch_size = config.batch_size
        self._limit = max(0, min(config.batch_size, config.max_request_size - REQUEST_OVERHEAD))
        self._max_request_size = config.max_request_size
        self._linger = seconds(config.linger_ms)
        self._patience = seconds(config.delivery_timeout_ms)
        self._undesignated = UndesignatedRecords(
            self.memory,
            self.ledger,
            new_promise,
            patience=min(self._patience, seconds(config.max_block_ms)),
        )
        self._sealed: deque[PartitionQueue] = deque()

    def on_due(self, wake: Callable[[], None]) -> None:
        """Set what is called when a batch is due before the time that `next_due` returned."""
        self._wake = wake

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
        if partition is None and not self._designated(queue, now):
            return self._undesignated.append(
                queue, key, value, headers, timestamp, bound, now, overtake=place is not None
            )
        if partition is None and self._partitioner is not None:
            partition = ask(self._partitioner, topic, key, queue.count)
        follows = False
        while True:
            target = queue.queue(self._choose(queue, key) if partition is None else partition)
            batch = target.open
            if batch is None:
                batch = self._open(target, bound, now, overtake=place is not None)
                if batch is None:
                    return Shortage(bound + OVERHEAD, target)
                self._linger_or_send(batch, now, follows=follows)
            assert batch.section is not None
            delivery = batch.section.append(timestamp, key, value, headers)
            if delivery is not None:
                return delivery
            # Closing it makes the partitioner think again, so the next turn may be elsewhere.
            if self._is_full(batch, bound):
                self.close(batch, now)
                follows = True
            elif not self._grow(batch, bound, overtake=place is not None):
                return Shortage(bound, target)

    def check_size(self, size: int, topic: str) -> None:
        """Raise RecordTooLargeError for a record, or a ready-made batch, that can never be sent."""
        for limit, overhead, name in (
            (self._max_request_size, 0, "max_request_size"),
            (self.memory.total, OVERHEAD, "buffer_memory"),
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
        place: Place | None = None,
    ) -> Delivery | Shortage:
        """Append a ready-made batch behind what its partition has; see `append`."""
        self.check_size(contents.size, partition.topic)
        queue = self._topic(partition.topic).queue(partition.partition)
        if place is not None:
            self.memory.redeem(place)
        needed = contents.size + OVERHEAD
        if not self.memory.take(needed, queue, overtake=place is not None):
            return Shortage(needed, queue)
        if queue.open is not None:
            self.close(queue.open, now)
        batch = self._new_batch(queue, now)
        batch.held = contents.size
        batch.carry(contents)
        batch.state = BatchState.READY
        queue.waiting.append(batch)
        self.schedule.offer(queue, now)
        return Delivery(batch.outcome, 0, contents.base_timestamp)

    def _topic(self, name: str) -> TopicQueue:
        queue = self.topics.get(name)
        if queue is None:
            queue = self.topics[name] = TopicQueue(name, self._rng)
        if not queue.leaders:
            self.unknown[queue] = None
        return queue

    def _designated(self, topic: TopicQueue, now: float) -> bool:
        """Whether a record may be given a partition: the topic is known, and nobody came before.

        Else each that comes helps two of those before it, so that their line gets shorter.
        """
        for _ in range(2):
            if topic.leaders and topic.undesignated is not None:
                self._designate(topic, now)
        return bool(topic.leaders) and topic.undesignated is None

    def _choose(self, queue: TopicQueue, key: bytes | None) -> int:
        if key is not None:
            return partition_for_key(key, queue.count)
        return queue.choose(self._rng)

    def _new_batch(self, queue: PartitionQueue, now: float) -> ProducerBatch:
        outcome = BatchOutcome(*queue.partition, self._new_promise)
        patience = self._patience if queue.exists else self._undesignated.patience
        if not queue.exists:
            self.unknown[queue.topic] = None
        order = (queue.next_order,)
        queue.next_order += 1
        batch = ProducerBatch(queue, outcome, created=now, deadline=now + patience, order=order)
        self.ledger.enter(batch)
        return batch

    def _open(
        self, queue: PartitionQueue, size: int, now: float, *, overtake: bool
    ) -> ProducerBatch | None:
        first, memory = FIRST_GRANT, self.memory
        if queue.usual > first and 2 * (memory.used + 2 * queue.usual) <= memory.total:
            # It fills up again: every step on the way would be a detour.
            first = 1 << queue.usual.bit_length()
        for grant in (max(size, min(first, self._limit)), size):
            if memory.take(grant + OVERHEAD, queue, overtake=overtake):
                return self._begin(queue, grant, now)
        return None

    def _linger_or_send(self, batch: ProducerBatch, now: float, *, follows: bool) -> None:
        """Let a new batch wait for more records, if it may.

        One that follows a full batch (`follows`) will be full soon: no request takes it along.
        """
        batch.due = batch.created + self._linger
        if self._linger or self.compressing:
            batch.accompanies = not follows
            batch.outcome.on_await(self._on_await)
            self.schedule.linger(batch)
        else:
            self.schedule.offer(batch.queue, now)

    def _awaited_first(self, outcome: BatchOutcome) -> None:
        """Note that a task awaits an open batch, which `tick` releases."""
        batch = self.ledger.batch(outcome)
        batch.awaited = True
        self._awaited.append(batch)
        self._wake()

    def _begin(self, queue: PartitionQueue, grant: int, created: float) -> ProducerBatch:
        queue.open = batch = self._new_batch(queue, created)
        batch.held = grant
        batch.section = OpenBatch(batch.outcome, grant)
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
        self._close(batch, now)
        if not self.compressing:
            self.schedule.offer(batch.queue, now)
        elif batch.queue.leader is not None:
            # Compressed at the same time, they are ready for the same request.
            for other in self.schedule.companions(batch.queue.leader, MAX_BATCHES_PER_REQUEST):
                self._close(other, now)

    def _close(self, batch: ProducerBatch, now: float) -> None:
        queue = batch.queue
        batch.closed_at = now
        assert batch.section is not None
        assert queue.open is batch
        size = batch.section.size
        self.closed += 1
        queue.close()
        batch.seal()
        batch.outcome.on_await(None)
        queue.usual = size
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

    @property
    def compressible(self) -> bool:
        """Whether `to_compress` may have something to give."""
        return bool(self._sealed)

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
            batch.carry(contents)
            batch.state = BatchState.READY
            self.schedule.offer(batch.queue, now)

    # -- sending ----------------------------------------------------------------------------------

    def take(self, node: int, room: int, now: float) -> list[ProducerBatch]:
        """Batches for one request to a broker, at most one a partition, `room` bytes together.

        Beside those that are due it takes open ones of other partitions along. They count as on the
        wire from now on; the ledger hears what became of each.
        """
        taken: list[ProducerBatch] = []
        if not self.sequencer.ready:
            return taken
        for queue in chain(self.schedule.rotate(node), self._companions(node, taken, now)):
            batch = self._next(queue, node, now)
            if batch is None:
                continue
            if taken and batch.wire_size > room:
                self.schedule.put_back(queue, node)
                break
            room -= batch.wire_size
            self.ledger.put_on_wire(batch, node)
            taken.append(batch)
            self.schedule.offer(queue, now)
            if len(taken) == MAX_BATCHES_PER_REQUEST:
                self.schedule.served(node)
                break
        return taken

    def _companions(
        self, node: int, taken: list[ProducerBatch], now: float
    ) -> Iterator[PartitionQueue]:
        """The partitions whose open batches a request that is not empty takes along."""
        if not taken or self.compressing or not self.schedule.has_companions(node):
            return
        left = MAX_COMPANION_BYTES - sum([batch.wire_size for batch in taken])
        for batch in self.schedule.companions(node, MAX_BATCHES_PER_REQUEST):
            assert batch.section is not None
            left -= batch.section.size
            if left >= 0:
                batch.due = min(batch.due, now)
                yield batch.queue
            else:
                self.schedule.offer(batch.queue, now)  # for a later request

    def _next(self, queue: PartitionQueue, node: int, now: float) -> ProducerBatch | None:
        if queue.leader != node:
            self.schedule.offer(queue, now)
            return None
        if not self.schedule.sendable(queue, now):
            return None
        if not queue.waiting and queue.open is not None:
            self._close(queue.open, now)
        batch = queue.waiting[0] if queue.waiting else None
        return batch if batch is not None and batch.state is BatchState.READY else None

    # -- everything at once -----------------------------------------------------------------------

    def queues(self) -> Iterator[PartitionQueue]:
        """Every partition's queue."""
        for topic in self.topics.values():
            yield from topic.partitions.values()

    def admit(self, queues: list[PartitionQueue], now: float) -> None:
        """The partitions belong to the transaction now: their batches may be sent."""
        for queue in queues:
            queue.admitted = self.schedule.admission
            self.schedule.offer(queue, now)

    def begin_admission(self, *, needed: bool) -> None:
        """A transaction begins; if `needed`, each partition has to be admitted to it."""
        self._transactions += 1
        self.schedule.admission = self._transactions if needed else 0
        self.schedule.unadmitted.clear()

    # -- what the cluster looks like --------------------------------------------------------------

    def update(self, name: str, leaders: tuple[int | None, ...], now: float) -> None:
        """The leaders of a topic's partitions, by number; empty if the topic is not known."""
        topic = self.topics[name]
        if leaders == topic.leaders:
            return
        topic.leaders = leaders
        topic.available = tuple([n for n, leader in enumerate(leaders) if leader is not None])
        topic.sticky.forget()
        # Nobody overtakes those who wait: the fast path is closed while somebody does.
        topic.open.partitions = 0 if topic.undesignated else topic.count
        self.memory.strand(topic, topic.count == 0)
        if topic.count:
            topic.error = None
            self.unknown.pop(topic, None)
        elif topic.wanted:
            self.unknown[topic] = None
            if topic.undesignated:
                self._undesignated.watch(topic)
        self._settling[topic] = self._settle(topic)
        self._go_on_settling(now)

    def _go_on_settling(self, now: float) -> None:
        """Tell partitions of their leaders and records of their partitions, as a turn allows."""
        self._now, left = now, A_TURN
        while self._settling and left > 0:
            topic, settling = next(iter(self._settling.items()))
            for _ in islice(settling, left):
                left -= 1
            if left > 0:
                del self._settling[topic]

    def _settle(self, topic: TopicQueue) -> Iterator[None]:
        for number, queue in list(topic.partitions.items()):
            self._lead(queue, topic.leaders[number] if number < topic.count else None, self._now)
            yield
        while topic.count and topic.undesignated is not None:
            self._designate(topic, self._now)
            yield
        if topic.missed:
            self.unknown[topic] = None
        topic.open.partitions = topic.count

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
        assert topic.undesignated is not None
        record = topic.undesignated[0]
        try:
            if self._partitioner is None:
                partition = self._choose(topic, record.key)
            else:
                partition = ask(self._partitioner, topic.name, record.key, topic.count)
        except Exception as error:  # noqa: BLE001  # the caller's partitioner may raise anything
            self.ledger.fail_record(topic, error)
            return
        topic.leave()
        self.ledger.leave_record(record)
        queue = topic.queue(partition)
        batch = self._batch_with_room(queue, record.size, record.created, now)
        self.memory.transfer(record.size + OVERHEAD, topic, queue)
        assert batch.section is not None
        if batch.section.count:
            self.memory.give(OVERHEAD, queue)  # else it is the batch's
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
            self._linger_or_send(batch, now, follows=False)
            return batch
        batch.held += size
        assert batch.section is not None
        batch.section.extend(batch.held)
        return batch

    # -- time -------------------------------------------------------------------------------------

    def tick(self, now: float) -> bool:
        """Do what is due: end lingering and back-offs, fail what has expired.

        As much as a turn allows; whether something is left for the next one. No open batch lingers
        while a flush is on, or memory is short.
        """
        schedule = self.schedule
        hurry = self.flushes or self.memory.waiting
        if not (hurry or self._awaited or self._settling or self.next_due() <= now):
            return False
        for _ in range(min(A_TURN, len(self._awaited))):
            batch = self._awaited.popleft()
            if batch.state is BatchState.OPEN and not batch.queue.on_wire:
                self._let_go(batch, now)
        for batch in islice(schedule.lingered(inf if hurry else now), A_TURN):
            self._let_go(batch, now)
        for _ in islice(schedule.wake(now), A_TURN):
            pass
        for batch in islice(schedule.expired(now), A_TURN):
            self.ledger.fail(batch, self.expired(batch), now)
        self._undesignated.expire(now, A_TURN)
        self._go_on_settling(now)
        return (
            bool(self._settling or self._awaited)
            or (bool(hurry) and schedule.lingers)
            or self.next_due() <= now
        )

    def next_due(self) -> float:
        """When to call `tick` next, unless something happens before; inf if nothing is due."""
        due, other = self.schedule.next_due(), self._undesignated.next_due()
        return due if due < other else other

    def expired(self, batch: ProducerBatch) -> KafkaError:
        """The error of a batch whose time has run out."""
        queue = batch.queue
        if queue.exists:
            obstacle = None if queue.leader is None else self.obstacles.get(queue.leader)
            return delivery_timed_out(batch, self._patience, obstacle)
        patience = self._undesignated.patience
        return topic_not_learnt(queue.topic, queue.partition.partition, patience)

    def _let_go(self, batch: ProducerBatch, now: float) -> None:
        batch.due = min(batch.due, now)
        # Compressed ahead if it is the next to be sent; else it fills up until it is.
        if self.compressing and not batch.queue.waiting:
            self.close(batch, now)
        else:
            self.schedule.offer(batch.queue, now)


def _nothing() -> None:
    pass
