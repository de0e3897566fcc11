"""The accumulator, driven at random: whatever happens, no record is lost, doubled or overtaken.

The machine plays caller, sender and brokers. Brokers keep the embedded cluster's partition logs;
requests are answered in order, refused, or lost before or after they were written.
"""

from __future__ import annotations

import random
from collections import Counter
from math import inf
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafka_async.config import ProducerConfig, seconds
from kafka_async.embedded.log import PartitionLog
from kafka_async.errors import (
    KafkaConnectionError,
    KafkaError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    error_for,
)
from kafka_async.kernel import Delivery, record_size_bound
from kafka_async.producer.accumulator import REQUEST_OVERHEAD, Accumulator, Shortage
from kafka_async.producer.buffer_pool import OVERHEAD, Holder, Place
from kafka_async.producer.idempotence import ProducerIdentity, Sequencer
from kafka_async.producer.producer_batch import BatchState, ProducerBatch
from kafka_async.records.batch import HEADER_SIZE, RecordBatch, iter_batches
from kafka_async.records.compression import Codec, compress
from kafka_async.types import ProducerRecord, TopicPartition
from tests.embedded_client import batches_of
from tests.producer.promises import FakePromise

IN_FLIGHT = 5
ROOM = 3_000
NODES = (1, 2)
LOST = KafkaConnectionError("the connection was lost")
REFUSED = error_for(29, "not authorized")
READY_MADE = 200  # bytes: more than any ready-made batch here has
ENOUGH = 2_000  # rounds: more than any run needs to come to its end

leaders = st.lists(st.sampled_from([None, *NODES]), max_size=3).map(tuple)
nodes = st.sampled_from(NODES)
sizes = st.one_of(st.integers(0, 60), st.integers(300, 1500))


def accumulator(**options: Any) -> Accumulator:
    config = ProducerConfig.create("host:9092", **options)
    sequencer = Sequencer(enabled=config.enable_idempotence)
    sequencer.adopt(ProducerIdentity(7, 0))
    return Accumulator(config, sequencer, FakePromise, random.Random(0))


def values(log: PartitionLog) -> list[bytes | None]:
    """Return the values of the records in a log."""
    return [row.value for batch in batches_of(log) for row in batch.records()]


class Driver:
    """What stands round an accumulator: the clock, brokers and their answers."""

    def __init__(self, **options: Any) -> None:
        self.config = ProducerConfig.create("host:9092", **options)
        self.accumulator = accumulator(**options)
        self.ledger = self.accumulator.ledger
        self.now = 0.0
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.requests: dict[int, list[list[tuple[ProducerBatch, bytes]]]] = {n: [] for n in NODES}
        self.compressing: list[tuple[ProducerBatch, RecordBatch]] = []
        self.split = False

    # -- the sender's part ------------------------------------------------------------------------

    def advance(self, by: float) -> None:
        self.now += by
        while self.accumulator.tick(self.now):
            pass

    def flush(self) -> None:
        self.accumulator.flushes += 1
        while self.accumulator.tick(self.now):
            pass
        self.accumulator.flushes -= 1

    def compress(self) -> None:
        """Begin what may begin; of each partition one at a time."""
        self.compressing += [(batch, batch.sealed) for batch in self.accumulator.to_compress()]
        places = [batch.queue.partition for batch, _ in self.compressing if is_live(batch)]
        assert len(places) == len(set(places))

    def compressed(self) -> None:
        """The oldest is through."""
        batch, raw = self.compressing.pop(0)
        codec = Codec[self.config.compression_type]
        small = RecordBatch(
            compress(codec, raw.payload), codec, raw.count, raw.base_timestamp, raw.max_timestamp
        )
        self.accumulator.compressed(batch, small, self.now)

    def take(self, node: int, room: int = ROOM) -> list[ProducerBatch]:
        if len(self.requests[node]) >= IN_FLIGHT:
            return []
        batches = self.accumulator.take(node, room, self.now)
        if batches:
            frames = [(batch, b"".join(batch.frame(transactional=False))) for batch in batches]
            self.requests[node].append(frames)
        return batches

    # -- the brokers' part ------------------------------------------------------------------------

    def write(self, batch: ProducerBatch, frame: bytes) -> int | KafkaError:
        """Return the base offset of a batch, or what refuses it."""
        log = self.logs.setdefault(batch.queue.partition, PartitionLog())
        try:
            return log.append(frame, now=0).base_offset
        except KafkaError as error:
            return error

    def answer(self, node: int) -> None:
        """The oldest request is written and acknowledged, as far as its sequences allow."""
        for batch, frame in self.requests[node].pop(0):
            outcome = self.write(batch, frame)
            if batch.state is not BatchState.ON_WIRE:
                continue
            if not isinstance(outcome, KafkaError):
                self.ledger.acknowledge(batch, outcome, -1, self.now)
            elif (
                isinstance(outcome, OutOfOrderSequenceError)
                and batch.queue.is_oldest(batch)
                and self.in_time(batch)
            ):
                self.ledger.resequence(batch, outcome, self.now)
            else:
                self.again(batch, outcome)

    def refuse(self, node: int) -> None:
        """The oldest request is refused for good."""
        for batch, _ in self.requests[node].pop(0):
            self.ledger.fail(batch, REFUSED, self.now)

    def too_large(self, node: int) -> None:
        """The oldest request is refused as too large: what can be split is."""
        for batch, _ in self.requests[node].pop(0):
            if batch.count > 1 and not batch.doubtful:
                self.split = True
                self.ledger.split(batch, self.now)
            else:
                self.ledger.fail(batch, REFUSED, self.now)

    def lose(self, node: int, written: int) -> None:
        """The connection goes, when so many of the requests on it were written."""
        requests, self.requests[node] = self.requests[node], []
        for number, request in enumerate(requests):
            for batch, frame in request:
                if number < written:
                    self.write(batch, frame)
        for request in requests:
            for batch, _ in request:
                batch.doubtful = True
                self.again(batch, LOST)

    def again(self, batch: ProducerBatch, error: KafkaError) -> None:
        if self.in_time(batch):
            self.ledger.retry(batch, error, self.now + 0.1, self.now)
        else:
            self.ledger.fail(batch, self.accumulator.expired(batch), self.now)

    def in_time(self, batch: ProducerBatch) -> bool:
        return self.now < batch.deadline

    # -- to the end -------------------------------------------------------------------------------

    def finish(self) -> None:
        """Nothing but what is due happens any more: everything must come to its end."""
        for _ in range(ENOUGH):
            while self.accumulator.tick(self.now):
                pass
            busy = False
            self.compress()
            while self.compressing:
                self.compressed()
                self.compress()
            for node in NODES:
                while self.take(node):
                    busy = True
                while self.requests[node]:
                    self.answer(node)
                    busy = True
            if not self.ledger.incomplete:
                return
            # A batch that was open until a request could take it is to be compressed first.
            if not busy and not self.accumulator.compressible:
                due = self.accumulator.next_due()
                assert due < inf, f"{self.ledger.incomplete} wait for nothing"
                self.nobody_is_forgotten(due)
                self.now = max(due, self.now)
        raise AssertionError("it never comes to an end")

    def nobody_is_forgotten(self, due: float) -> None:
        """What has a leader is sent before it expires."""
        for queue in self.accumulator.queues():
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
        self.driver = Driver(
            **options,
            max_request_size=2_000,
            delivery_timeout_ms=10_000,
            request_timeout_ms=5_000,
            max_block_ms=3_000,
        )
        self.accumulator = self.driver.accumulator
        self.deliveries: dict[bytes, Delivery] = {}
        self.waiting: list[tuple[Place, tuple[Any, ...]]] = []
        self.serial = 0
        self.limit = min(self.driver.config.batch_size, 2_000 - REQUEST_OVERHEAD)

    # -- the caller -------------------------------------------------------------------------------

    @rule(size=sizes, key=st.sampled_from([None, b"a", b"b", b"c"]), patient=st.booleans())
    def append_anywhere(self, size: int, key: bytes | None, patient: bool) -> None:
        self.append("free", None, key, size, patient)

    @rule(size=sizes, partition=st.integers(0, 3), patient=st.booleans())
    def append_there(self, size: int, partition: int, patient: bool) -> None:
        self.append("told", partition, None, size, patient)

    @rule(partition=st.integers(0, 2), count=st.integers(1, 4))
    def append_ready_made(self, partition: int, count: int) -> None:
        values = [self.value(10) for _ in range(count)]
        contents = RecordBatch.build([ProducerRecord("", value) for value in values], timestamp=1)
        got = self.accumulator.append_batch(
            TopicPartition("told", partition), contents, self.driver.now
        )
        if not isinstance(got, Shortage):
            for number, value in enumerate(values):
                self.deliveries[value] = Delivery(got.outcome, number, 1)

    @precondition(lambda self: self.deliveries)
    @rule(which=st.integers(0, 100))
    def a_task_awaits(self, which: int) -> None:
        """The record's batch is due if its partition has nothing in flight, and once it has not."""
        delivery = list(self.deliveries.values())[-1 - which % len(self.deliveries)]
        if not delivery.done():
            with pytest.raises(AssertionError, match="nothing waits here"):
                next(delivery.__await__())
        self.driver.advance(0)
        for queue in self.accumulator.queues():
            if queue.open is not None and queue.open.awaited and not queue.on_wire:
                assert queue.waiting or queue.due(self.driver.now)

    @precondition(lambda self: self.waiting)
    @rule(stay=st.booleans())
    def somebody_who_waits_looks_again(self, stay: bool) -> None:
        place, arguments = self.waiting.pop(0)
        if place.promise.done() and stay:
            self.take_in(arguments, place)
        self.accumulator.memory.leave(place)

    def append(
        self, topic: str, partition: int | None, key: bytes | None, size: int, patient: bool
    ) -> None:
        arguments = (topic, partition, key, self.value(size))
        shortage = self.take_in(arguments, None)
        if shortage is not None and patient:
            self.waiting.append((self.accumulator.memory.queue(*shortage), arguments))

    def take_in(self, arguments: tuple[Any, ...], place: Place | None) -> Shortage | None:
        topic, partition, key, value = arguments
        open_before = [queue.open for queue in self.accumulator.queues() if queue.open]
        bound = record_size_bound(key, value, ())
        try:
            got = self.accumulator.append(
                topic, partition, key, value, (), 1, self.driver.now, place
            )
        except RecordTooLargeError:
            assert bound > 2_000
            return None
        for batch in open_before:
            if batch.state is not BatchState.OPEN:
                assert batch.wire_size + bound > self.limit, "it was not full"
        if isinstance(got, Shortage):
            return got
        self.deliveries[value] = got
        return None

    def value(self, size: int) -> bytes:
        self.serial += 1
        return b"%06d" % self.serial + b"x" * size

    # -- the sender and the brokers ---------------------------------------------------------------

    @rule(by=st.sampled_from([0.01, 0.05, 0.2, 2.0]))
    def time_passes(self, by: float) -> None:
        self.driver.advance(by)
        self.nothing_is_overdue()

    @rule()
    def flush(self) -> None:
        self.driver.flush()
        for queue in self.accumulator.queues():
            assert queue.open is None or queue.due(self.driver.now) or queue.waiting

    @rule(topic=st.sampled_from(["free", "told"]), leaders=leaders)
    def learn(self, topic: str, leaders: tuple[int | None, ...]) -> None:
        if topic in self.accumulator.topics:
            self.accumulator.update(topic, leaders, self.driver.now)

    @rule()
    def compress(self) -> None:
        self.driver.compress()

    @precondition(lambda self: self.driver.compressing)
    @rule()
    def compressed(self) -> None:
        self.driver.compressed()

    @rule(node=nodes, room=st.sampled_from([100, ROOM]))
    def send(self, node: int, room: int) -> None:
        batches = self.driver.take(node, room)
        assert len({batch.queue for batch in batches}) == len(batches)
        assert len(batches) <= 1 or sum(batch.wire_size for batch in batches) <= room
        for batch in batches:
            assert batch.queue.leader == node
            if batch.sealed.codec is Codec.none and batch.count > 1:
                self.within_limits(batch)

    def within_limits(self, batch: ProducerBatch) -> None:
        """A record that is too large for a batch has its own, and what fits beside it."""
        first = next(iter_batches(b"".join(batch.frame(transactional=False)))).records()[0]
        alone = record_size_bound(first.key, first.value, ())
        assert batch.wire_size - HEADER_SIZE <= max(self.limit, READY_MADE, alone)

    @precondition(lambda self: any(self.driver.requests.values()))
    @rule(
        what=st.sampled_from(["answer", "answer", "refuse", "too_large", "lose"]),
        which=st.integers(0, 1),
        written=st.integers(0, IN_FLIGHT),
    )
    def something_becomes_of_a_request(self, what: str, which: int, written: int) -> None:
        busy = [node for node in NODES if self.driver.requests[node]]
        node = busy[which % len(busy)]
        if what == "lose":
            self.driver.lose(node, written)
        else:
            getattr(self.driver, what)(node)

    # -- what always holds ------------------------------------------------------------------------

    @invariant()
    def memory_adds_up(self) -> None:
        if not hasattr(self, "driver"):
            return
        memory = self.accumulator.memory
        topics = self.accumulator.topics.values()
        queues = list(self.accumulator.queues())
        held = sum(holder.held for holder in [*topics, *queues])
        assert memory.used == held
        assert memory.used <= memory.total or self.driver.split
        granted = Counter[Holder]()
        for place, _ in self.waiting:
            granted[place.holder] += place.size if place.granted else 0
        for queue in queues:
            batches = [*queue.unsent(), *queue.on_wire]
            assert queue.held == sum(b.held + OVERHEAD for b in batches) + granted[queue]

    @invariant()
    def what_can_be_sent_will_be_found(self) -> None:
        if not hasattr(self, "driver"):
            return
        found, now = self.accumulator.schedule.nodes(), self.driver.now
        for queue in self.accumulator.queues():
            # Schedule.sendable() is not asked: it sets timers.
            leader = queue.leader
            if leader is None or not queue.waiting or not queue.free_to_send(leader):
                continue
            if queue.due(now) and queue.not_before <= now:
                assert leader in found

    def nothing_is_overdue(self) -> None:
        now = self.driver.now
        for topic in self.accumulator.topics.values():
            patience = seconds(self.driver.config.max_block_ms)
            assert all(record.created + patience > now for record in topic.undesignated or ())
        for queue in self.accumulator.queues():
            assert all(batch.deadline > now for batch in queue.unsent())

    # -- the end ----------------------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        for place, _ in self.waiting:
            self.accumulator.memory.leave(place)
        self.driver.finish()
        assert self.accumulator.memory.used == 0
        assert not any(topic.open for topic in self.accumulator.topics.values())
        self.every_record_has_one_fate()
        self.every_partition_is_in_order()

    def every_record_has_one_fate(self) -> None:
        failures = self.accumulator.ledger.failures.take()
        written = {place: values(log) for place, log in self.driver.logs.items()}
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

    def every_partition_is_in_order(self) -> None:
        """In the order in which the records were taken, none twice."""
        taken = {value: number for number, value in enumerate(self.deliveries)}
        for log in self.driver.logs.values():
            numbers = [taken[value or b""] for value in values(log)]
            assert numbers == sorted(set(numbers))


TestAccumulator = Machine.TestCase
TestAccumulator.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)


# -- time, step by step ---------------------------------------------------------------------------


def fixed(**options: Any) -> Driver:
    """A driver of an accumulator that knows one topic, of one partition."""
    driver = Driver(**options)
    driver.accumulator.append("free", None, None, b"first", (), 1, 0.0)
    driver.accumulator.update("free", (1,), 0.0)
    driver.flush()
    driver.finish()
    return driver


def append(driver: Driver, size: int = 10) -> Delivery:
    got = driver.accumulator.append("free", None, None, b"x" * size, (), 1, driver.now)
    assert isinstance(got, Delivery)
    return got


def test_a_batch_lingers_as_long_as_it_may_and_no_longer() -> None:
    driver = fixed(linger_ms=100)
    append(driver)
    assert driver.accumulator.next_due() == pytest.approx(0.1)
    driver.advance(0.06)
    append(driver)
    assert driver.take(1) == []
    driver.advance(0.04)
    (batch,) = driver.take(1)
    assert batch.count == 2


def test_a_full_batch_does_not_linger() -> None:
    driver = fixed(linger_ms=100, batch_size=1_000)
    for _ in range(3):
        append(driver, 400)
    (batch,) = driver.take(1)
    assert batch.count == 2
    assert driver.take(1) == []


def test_a_record_whose_topic_is_never_known_expires() -> None:
    driver = Driver(max_block_ms=3_000, delivery_timeout_ms=130_000)
    delivery = append(driver)
    assert driver.accumulator.next_due() == 3.0
    driver.advance(2.9)
    assert not delivery.done()
    driver.advance(0.1)
    with pytest.raises(KafkaError, match="max_block_ms"):
        delivery.result()
    assert driver.accumulator.memory.used == 0
    assert not driver.accumulator.topics["free"].wanted


def fill(driver: Driver, records: int) -> list[int]:
    """What the topic's one partition holds of memory after each record; they close no batch."""
    held: list[int] = []
    for _ in range(records):
        driver.accumulator.append("t", None, None, b"x" * 1000, (), 1, driver.now)
        held.append(driver.accumulator.memory.used)
    return held


@pytest.mark.parametrize(("buffer_memory", "first"), [(1 << 20, 100_000), (150_000, 4_096)])
def test_a_busy_partition_takes_its_memory_at_once_while_half_is_free(
    buffer_memory: int, first: int
) -> None:
    driver = Driver(batch_size=100_000, buffer_memory=buffer_memory, linger_ms=5)
    driver.accumulator.append("t", None, None, b"x" * 1000, (), 1, driver.now)
    driver.accumulator.update("t", (1,), driver.now)
    held = fill(driver, 70)
    assert len(set(held)) > 3, "the first batch grows by steps"
    driver.finish()
    assert fill(driver, 1) == [first + OVERHEAD]
    driver.finish()
    assert fill(driver, 1) == [4_096 + OVERHEAD], "a batch of one record is not busy"
    driver.finish()
