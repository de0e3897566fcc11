"""Drives the accumulator at random: no record is lost, duplicated or reordered.

The state machine plays application, sender and brokers. Brokers keep the partition logs of the
embedded cluster; requests are answered in order, refused, or lost before or after they were
written.
"""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafka_async.config import ProducerConfig, seconds
from kafka_async.embedded.state.log import PartitionLog
from kafka_async.errors import (
    KafkaConnectionError,
    KafkaError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    error_for,
)
from kafka_async.hooks import Hooks
from kafka_async.kernel import Delivery, record_size_bound
from kafka_async.producer.buffer.accumulator import REQUEST_OVERHEAD, Accumulator
from kafka_async.producer.buffer.buffer_pool import (
    MEMORY_OVERHEAD,
    BufferPool,
    BufferShortage,
    BufferWaiter,
    MemoryAccount,
)
from kafka_async.producer.buffer.delivery_failures import DeliveryFailures
from kafka_async.producer.buffer.partition_queue import BatchState, PartitionQueue, ProducerBatch
from kafka_async.producer.buffer.producer_metrics import ProducerMetrics
from kafka_async.producer.idempotence import ProducerIdAndEpoch
from kafka_async.records.batch import HEADER_SIZE, RecordBatch, iter_batches
from kafka_async.records.compression import Codec, compress
from kafka_async.types import ProducerRecord, TopicPartition
from tests.embedded_client import batches_of
from tests.producer.futures import FakeFuture

IN_FLIGHT = 5
ROOM = 3_000
NODES = (1, 2)
LOST = KafkaConnectionError("the connection was lost")
REFUSED = error_for(29, "not authorized")
READY_MADE = 200  # bytes: more than any ready-made batch here has
MAX_ROUNDS = 2_000  # more than any run needs

leaders = st.lists(st.sampled_from([None, *NODES]), max_size=3).map(tuple)
nodes = st.sampled_from(NODES)
sizes = st.one_of(st.integers(0, 60), st.integers(300, 1500))


def values(log: PartitionLog) -> list[bytes | None]:
    """Return the values of the records in a log."""
    return [row.value for batch in batches_of(log) for row in batch.records()]


class World:
    """The surroundings of an accumulator: the clock, the brokers and their responses."""

    def __init__(self, **options: Any) -> None:
        self.config = ProducerConfig("host:9092", **options)
        self.buffer_pool = BufferPool(self.config.buffer_memory, FakeFuture)
        self.accumulator = Accumulator(
            self.config,
            self.buffer_pool,
            DeliveryFailures(),
            ProducerMetrics("producer", Hooks()),
            FakeFuture,
            random.Random(0),
            wakeup=lambda: None,
            outage=lambda: None,
        )
        self.accumulator.set_id_and_epoch(ProducerIdAndEpoch(7, 0))
        self.now = 0.0
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.requests: dict[int, list[list[tuple[ProducerBatch, bytes]]]] = {n: [] for n in NODES}
        self.compressing: list[tuple[ProducerBatch, RecordBatch]] = []
        self.split = False

    # -- sender -----------------------------------------------------------------------------------

    def advance(self, by: float) -> None:
        self.now += by
        while self.accumulator.tick(self.now):
            pass

    def flush(self) -> None:
        self.accumulator.begin_flush()
        while self.accumulator.tick(self.now):
            pass
        self.accumulator.end_flush()

    @property
    def is_complete(self) -> bool:
        outcomes = self.accumulator.begin_flush()
        self.accumulator.end_flush()
        return not outcomes

    def queues(self) -> Iterator[PartitionQueue]:
        for topic in self.accumulator.topics.values():
            yield from topic.partitions.values()

    def compress(self) -> None:
        """Start what can be compressed: one batch per partition."""
        self.compressing += [
            (batch, batch.record_batch) for batch in self.accumulator.next_to_compress()
        ]
        places = [batch.queue.partition for batch, _ in self.compressing if is_live(batch)]
        assert len(places) == len(set(places))

    def compressed(self) -> None:
        """Finish the batch whose compression started first."""
        batch, raw = self.compressing.pop(0)
        codec = Codec[self.config.compression_type]
        small = RecordBatch(
            compress(codec, raw.payload), codec, raw.count, raw.base_timestamp, raw.max_timestamp
        )
        self.accumulator.finish_compression(batch, small, self.now)

    def drain(self, node: int, room: int = ROOM) -> list[ProducerBatch]:
        if len(self.requests[node]) >= IN_FLIGHT:
            return []
        batches = self.accumulator.drain(node, room, self.now)
        if batches:
            frames = [(batch, b"".join(batch.frame(transactional=False))) for batch in batches]
            self.requests[node].append(frames)
        return batches

    # -- brokers ----------------------------------------------------------------------------------

    def write(self, batch: ProducerBatch, frame: bytes) -> int | KafkaError:
        """Return the base offset of a batch, or the error that refuses it."""
        log = self.logs.setdefault(batch.queue.partition, PartitionLog())
        try:
            return log.append(frame, now=0).base_offset
        except KafkaError as error:
            return error

    def respond(self, node: int) -> None:
        """Write and acknowledge the oldest request, as far as its sequences allow."""
        for batch, frame in self.requests[node].pop(0):
            outcome = self.write(batch, frame)
            if batch.state is not BatchState.IN_FLIGHT:
                continue
            if not isinstance(outcome, KafkaError):
                self.accumulator.acknowledge(batch, outcome, -1, self.now)
            elif isinstance(outcome, OutOfOrderSequenceError):
                self.accumulator.restart_sequence(batch, outcome, self.now + 0.1, self.now)
            else:
                self.accumulator.retry(batch, outcome, self.now + 0.1, self.now)

    def refuse(self, node: int) -> None:
        """Refuse the oldest request with an error that is not retriable."""
        for batch, _ in self.requests[node].pop(0):
            self.accumulator.fail(batch, REFUSED, self.now)

    def too_large(self, node: int) -> None:
        """Refuse the oldest request as too large, and split its batches if possible."""
        for batch, _ in self.requests[node].pop(0):
            if batch.splittable:
                self.split = True
                self.accumulator.split(batch, self.now)
            else:
                self.accumulator.fail(batch, REFUSED, self.now)

    def lose(self, node: int, written: int) -> None:
        """Close the connection after the first `written` of its requests were written."""
        requests, self.requests[node] = self.requests[node], []
        for number, request in enumerate(requests):
            for batch, frame in request:
                if number < written:
                    self.write(batch, frame)
        for request in requests:
            for batch, _ in request:
                self.accumulator.retry(batch, LOST, self.now + 0.1, self.now)

    # -- completion -------------------------------------------------------------------------------

    def finish(self) -> None:
        """Advance the time until everything is done."""
        for _ in range(MAX_ROUNDS):
            while self.accumulator.tick(self.now):
                pass
            busy = False
            self.compress()
            while self.compressing:
                self.compressed()
                self.compress()
            for node in NODES:
                while self.drain(node):
                    busy = True
                while self.requests[node]:
                    self.respond(node)
                    busy = True
            if self.is_complete:
                return
            # Draining may have closed batches, which must be compressed first.
            if not busy and not self.accumulator.has_batches_to_compress:
                due = self.accumulator.next_due()
                assert due < inf, "batches wait for nothing"
                self.check_sent_before_expiry(due)
                self.now = max(due, self.now)
        raise AssertionError("the accumulator never becomes empty")

    def check_sent_before_expiry(self, due: float) -> None:
        """Check that a batch whose partition has a leader is due before it expires."""
        for queue in self.queues():
            for batch in queue.unsent() if queue.leader is not None else ():
                assert due < batch.deadline or queue.not_before >= batch.deadline


def is_live(batch: ProducerBatch) -> bool:
    return batch.state is not BatchState.DONE


class Machine(RuleBasedStateMachine):
    """Topic "free" leaves the choice of the partition to the producer, "told" names it."""

    @initialize(
        batch_size=st.sampled_from([0, 400, 2_000]),
        linger_ms=st.sampled_from([0, 50]),
        buffer_memory=st.sampled_from([4_000, 20_000]),
        compression_type=st.sampled_from(["none", "lz4"]),
    )
    def start(self, **options: Any) -> None:
        self.world = World(
            **options,
            max_request_size=2_000,
            delivery_timeout_ms=10_000,
            request_timeout_ms=5_000,
            max_block_ms=3_000,
        )
        self.accumulator = self.world.accumulator
        self.deliveries: dict[bytes, Delivery] = {}
        self.waiting: list[tuple[BufferWaiter, tuple[Any, ...]]] = []
        self.serial = 0
        self.limit = min(self.world.config.batch_size, 2_000 - REQUEST_OVERHEAD)

    # -- application ------------------------------------------------------------------------------

    @rule(size=sizes, key=st.sampled_from([None, b"a", b"b", b"c"]), waits=st.booleans())
    def append_anywhere(self, size: int, key: bytes | None, waits: bool) -> None:
        self.append("free", None, key, size, waits)

    @rule(size=sizes, partition=st.integers(0, 3), waits=st.booleans())
    def append_there(self, size: int, partition: int, waits: bool) -> None:
        self.append("told", partition, None, size, waits)

    @rule(partition=st.integers(0, 2), count=st.integers(1, 4))
    def append_ready_made(self, partition: int, count: int) -> None:
        values = [self.value(10) for _ in range(count)]
        contents = RecordBatch.build([ProducerRecord("", value) for value in values], timestamp=1)
        result = self.accumulator.append_batch(
            TopicPartition("told", partition), contents, self.world.now
        )
        if not isinstance(result, BufferShortage):
            for number, value in enumerate(values):
                self.deliveries[value] = Delivery(result.outcome, number, 1)

    @precondition(lambda self: self.deliveries)
    @rule(which=st.integers(0, 100))
    def await_record(self, which: int) -> None:
        """Await a record: its batch is due once its partition has nothing in flight."""
        delivery = list(self.deliveries.values())[-1 - which % len(self.deliveries)]
        if not delivery.done():
            with pytest.raises(AssertionError, match="nothing waits here"):
                next(delivery.__await__())
        self.world.advance(0)
        for queue in self.world.queues():
            if queue.open_batch is not None and queue.open_batch.awaited and not queue.in_flight:
                assert queue.queued or queue.is_due(self.world.now)

    @precondition(lambda self: self.waiting)
    @rule(stay=st.booleans())
    def resume_waiter(self, stay: bool) -> None:
        waiter, arguments = self.waiting.pop(0)
        if waiter.future.done() and stay:
            self.append_record(arguments, waiter)
        self.world.buffer_pool.remove_waiter(waiter)

    def append(
        self, topic: str, partition: int | None, key: bytes | None, size: int, waits: bool
    ) -> None:
        arguments = (topic, partition, key, self.value(size))
        shortage = self.append_record(arguments, None)
        if shortage is not None and waits:
            self.waiting.append((self.world.buffer_pool.add_waiter(*shortage), arguments))

    def append_record(
        self, arguments: tuple[Any, ...], waiter: BufferWaiter | None
    ) -> BufferShortage | None:
        topic, partition, key, value = arguments
        open_before = [queue.open_batch for queue in self.world.queues() if queue.open_batch]
        bound = record_size_bound(key, value, ())
        try:
            result = self.accumulator.append(
                topic, partition, key, value, (), 1, self.world.now, waiter
            )
        except RecordTooLargeError:
            assert bound > 2_000
            return None
        closed = [batch for batch in open_before if batch.state is not BatchState.OPEN]
        full = [batch for batch in closed if batch.wire_size + bound > self.limit]
        # With compression a full batch closes open ones of other partitions, compressed with it.
        assert full or not closed
        # With compression, batches for the same request are closed together.
        compressed = self.world.config.compression_type != "none"
        leaders = {batch.queue.leader for batch in full if compressed}
        assert all(batch in full or batch.queue.leader in leaders for batch in closed)
        if isinstance(result, BufferShortage):
            return result
        self.deliveries[value] = result
        return None

    def value(self, size: int) -> bytes:
        self.serial += 1
        return b"%06d" % self.serial + b"x" * size

    # -- sender and brokers -----------------------------------------------------------------------

    @rule(by=st.sampled_from([0.01, 0.05, 0.2, 2.0]))
    def advance_time(self, by: float) -> None:
        self.world.advance(by)
        self.check_nothing_is_overdue()

    @rule()
    def flush(self) -> None:
        self.world.flush()
        for queue in self.world.queues():
            assert queue.open_batch is None or queue.is_due(self.world.now) or queue.queued

    @rule(topic=st.sampled_from(["free", "told"]), leaders=leaders)
    def update_leaders(self, topic: str, leaders: tuple[int | None, ...]) -> None:
        if topic in self.accumulator.topics:
            self.accumulator.update_leaders(topic, leaders, self.world.now)

    @rule()
    def compress(self) -> None:
        self.world.compress()

    @precondition(lambda self: self.world.compressing)
    @rule()
    def compressed(self) -> None:
        self.world.compressed()

    @rule(node=nodes, room=st.sampled_from([100, ROOM]))
    def send(self, node: int, room: int) -> None:
        batches = self.world.drain(node, room)
        assert len({batch.queue for batch in batches}) == len(batches)
        assert len(batches) <= 1 or sum(batch.wire_size for batch in batches) <= room
        for batch in batches:
            assert batch.queue.leader == node
            if batch.record_batch.codec is Codec.none and batch.count > 1:
                self.check_size(batch)

    def check_size(self, batch: ProducerBatch) -> None:
        """Check that a record too large for a batch is alone in it, except for records that fit."""
        first = next(iter_batches(b"".join(batch.frame(transactional=False)))).records()[0]
        alone = record_size_bound(first.key, first.value, ())
        assert batch.wire_size - HEADER_SIZE <= max(self.limit, READY_MADE, alone)

    @precondition(lambda self: any(self.world.requests.values()))
    @rule(
        what=st.sampled_from(["respond", "respond", "refuse", "too_large", "lose"]),
        which=st.integers(0, 1),
        written=st.integers(0, IN_FLIGHT),
    )
    def end_request(self, what: str, which: int, written: int) -> None:
        busy = [node for node in NODES if self.world.requests[node]]
        node = busy[which % len(busy)]
        if what == "lose":
            self.world.lose(node, written)
        else:
            getattr(self.world, what)(node)

    # -- invariants -------------------------------------------------------------------------------

    @invariant()
    def reserved_bytes_are_consistent(self) -> None:
        if not hasattr(self, "world"):
            return
        buffer_pool = self.world.buffer_pool
        topics = self.accumulator.topics.values()
        queues = list(self.world.queues())
        reserved_bytes = sum(account.reserved_bytes for account in [*topics, *queues])
        assert buffer_pool.reserved_bytes == reserved_bytes
        assert buffer_pool.reserved_bytes <= buffer_pool.total_bytes or self.world.split
        granted = Counter[MemoryAccount]()
        for waiter, _ in self.waiting:
            granted[waiter.account] += waiter.size if waiter.granted else 0
        for queue in queues:
            batches = [*queue.unsent(), *queue.in_flight]
            assert (
                queue.reserved_bytes
                == sum(b.reserved_bytes + MEMORY_OVERHEAD for b in batches) + granted[queue]
            )

    @invariant()
    def sendable_partitions_are_ready(self) -> None:
        if not hasattr(self, "world"):
            return
        now = self.world.now
        found = self.accumulator.ready_nodes(now)
        for queue in self.world.queues():
            # Not ReadyPartitions.is_sendable(), which sets timers.
            leader = queue.leader
            if leader is None or not queue.queued or not queue.may_send_to(leader):
                continue
            if queue.is_due(now) and queue.not_before <= now:
                assert leader in found

    def check_nothing_is_overdue(self) -> None:
        now = self.world.now
        for topic in self.accumulator.topics.values():
            max_block = seconds(self.world.config.max_block_ms)
            assert all(record.created + max_block > now for record in topic.unpartitioned or ())
        for queue in self.world.queues():
            assert all(batch.deadline > now for batch in queue.unsent())

    # -- teardown ---------------------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        for waiter, _ in self.waiting:
            self.world.buffer_pool.remove_waiter(waiter)
        self.world.finish()
        assert self.world.buffer_pool.reserved_bytes == 0
        assert not any(topic.open_batches for topic in self.accumulator.topics.values())
        self.check_each_record_has_one_outcome()
        self.check_order()

    def check_each_record_has_one_outcome(self) -> None:
        failures = self.accumulator.take_failures()
        written = {place: values(log) for place, log in self.world.logs.items()}
        failed = 0
        for value, delivery in self.deliveries.items():
            assert delivery.done()
            if delivery.exception() is not None:
                failed += 1
                continue
            receipt = delivery.result()
            log = written[TopicPartition(receipt.topic, receipt.partition)]
            assert log[receipt.offset] == value
        rows = () if failures is None else failures.failures
        assert sum(row.count for row in rows) == failed

    def check_order(self) -> None:
        """Check that each partition has its records once, in the order of their appends."""
        taken = {value: number for number, value in enumerate(self.deliveries)}
        for log in self.world.logs.values():
            numbers = [taken[value or b""] for value in values(log)]
            assert numbers == sorted(set(numbers))


TestAccumulator = Machine.TestCase
TestAccumulator.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)


# -- single cases ---------------------------------------------------------------------------------


def world_with_topic(leaders: tuple[int | None, ...] = (1,), **options: Any) -> World:
    """Return a world whose accumulator knows a topic and has written a record to partition 0."""
    world = World(**options)
    append(world, partition=0)
    world.accumulator.update_leaders("free", leaders, 0.0)
    world.flush()
    world.finish()
    return world


def append(world: World, size: int = 10, partition: int | None = None) -> Delivery:
    result = world.accumulator.append("free", partition, None, b"x" * size, (), 1, world.now)
    assert isinstance(result, Delivery)
    return result


def test_partition_whose_batch_did_not_fit_comes_first_in_the_next_request() -> None:
    world = world_with_topic((1, 1, 1), linger_ms=0)
    sent: list[int] = []
    for partition in (0, 1, 2, 0):
        append(world, partition=partition)
    for _ in range(4):
        (batch,) = world.drain(1, room=100)
        sent.append(batch.partition.partition)
        append(world, partition=0)
    assert sent == [0, 1, 2, 0]


def test_deadline_follows_the_partition_that_appears() -> None:
    times: Any = {"max_block_ms": 3_000, "delivery_timeout_ms": 10_000, "request_timeout_ms": 5_000}
    world = world_with_topic(linger_ms=0, **times)
    delivery = append(world, partition=1)
    assert world.accumulator.next_due() == world.now + 3
    world.accumulator.update_leaders("free", (1, None), world.now)
    world.advance(5)
    assert not delivery.done()
    assert world.accumulator.next_due() == world.now + 5
    world.advance(5)
    with pytest.raises(KafkaError, match="no leader"):
        delivery.result()


def test_retry_sends_the_same_objects() -> None:
    world = world_with_topic(linger_ms=0)
    append(world)
    (batch,) = world.drain(1)
    frame = batch.frame(transactional=False)
    world.lose(1, 0)
    world.advance(0.2)
    assert world.drain(1) == [batch]
    assert batch.frame(transactional=False) is frame


def test_batch_in_flight_does_not_expire() -> None:
    world = world_with_topic(linger_ms=0, delivery_timeout_ms=10_000, request_timeout_ms=5_000)
    delivery = append(world)
    world.drain(1)
    world.advance(20)
    assert not delivery.done()
    world.respond(1)
    assert delivery.result().offset == 1


def test_linger_time_of_a_batch_that_was_full_has_no_effect() -> None:
    world = world_with_topic((1, 2), linger_ms=100, batch_size=1_000, compression_type="lz4")
    append(world, partition=1)
    for _ in range(3):
        append(world, 400, partition=0)
    world.compress()
    world.compressed()
    assert [batch.count for batch in world.drain(1)] == [2]
    world.respond(1)
    world.advance(0.2)
    world.finish()


def test_batches_are_sent_one_at_a_time_after_a_failure() -> None:
    world = world_with_topic(linger_ms=0)
    for _ in range(2):
        append(world)
        world.drain(1)
    ((failed, _),) = world.requests[1].pop(0)
    world.accumulator.retry(failed, LOST, world.now, world.now)
    append(world)
    assert world.drain(1) == [], "the second batch is in flight"
    world.respond(1)
    world.advance(0.2)
    for attempts in (2, 2, 1):
        (batch,) = world.drain(1)
        assert batch.attempts == attempts
        assert world.drain(1) == []
        world.respond(1)


def test_old_batch_does_not_keep_finished_ones_alive() -> None:
    world = world_with_topic((1, None), linger_ms=0)
    append(world, partition=1)
    for _ in range(3_000):
        append(world, partition=0)
        world.drain(1)
        world.respond(1)
    gc.collect()
    assert sum(isinstance(each, ProducerBatch) for each in gc.get_objects()) < 1_000


def test_partition_whose_batches_were_dropped_is_not_added_to_the_transaction() -> None:
    world = world_with_topic(linger_ms=0)
    added: list[list[PartitionQueue]] = []
    world.accumulator.begin_transaction(lambda error: error, added.append)
    append(world)
    world.accumulator.begin_abort(LOST, world.now)
    assert world.accumulator.ready_nodes(world.now) == []
    assert added == []


def test_batch_lingers_for_linger_ms() -> None:
    world = world_with_topic(linger_ms=100)
    append(world)
    assert world.accumulator.next_due() == pytest.approx(0.1)
    world.advance(0.06)
    append(world)
    assert world.drain(1) == []
    world.advance(0.04)
    (batch,) = world.drain(1)
    assert batch.count == 2


def test_full_batch_does_not_linger() -> None:
    world = world_with_topic(linger_ms=100, batch_size=1_000)
    for _ in range(3):
        append(world, 400)
    (batch,) = world.drain(1)
    assert batch.count == 2
    assert world.drain(1) == []


@pytest.mark.parametrize("verb", [Accumulator.retry, Accumulator.restart_sequence])
def test_queued_batch_has_the_error_of_its_last_attempt(
    verb: Callable[[Accumulator, ProducerBatch, Exception, float, float], None],
) -> None:
    world = world_with_topic(linger_ms=0, request_timeout_ms=5_000, delivery_timeout_ms=10_000)
    delivery = append(world)
    (batch,) = world.drain(1)
    verb(world.accumulator, batch, LOST, world.now, world.now)
    assert batch.maybe_written
    world.advance(10.0)
    with pytest.raises(KafkaError, match="the last of 1 attempts: the connection was lost"):
        delivery.result()


def fill(world: World, records: int) -> list[int]:
    """Return the bytes reserved after each record; no batch is closed."""
    reserved_bytes: list[int] = []
    for _ in range(records):
        world.accumulator.append("t", None, None, b"x" * 1000, (), 1, world.now)
        reserved_bytes.append(world.buffer_pool.reserved_bytes)
    return reserved_bytes


@pytest.mark.parametrize(("buffer_memory", "first"), [(1 << 20, 100_000), (150_000, 4_096)])
def test_busy_partition_reserves_whole_batch_while_half_of_memory_is_free(
    buffer_memory: int, first: int
) -> None:
    world = World(batch_size=100_000, buffer_memory=buffer_memory, linger_ms=5)
    world.accumulator.append("t", None, None, b"x" * 1000, (), 1, world.now)
    world.accumulator.update_leaders("t", (1,), world.now)
    reserved_bytes = fill(world, 70)
    assert len(set(reserved_bytes)) > 3, "the first batch grows by steps"
    world.finish()
    assert fill(world, 1) == [first + MEMORY_OVERHEAD]
    world.finish()
    assert fill(world, 1) == [4_096 + MEMORY_OVERHEAD], "a batch of one record is not busy"
    world.finish()
