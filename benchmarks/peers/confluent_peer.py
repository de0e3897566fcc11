"""Runs cases with confluent-kafka, the Python bindings of librdkafka.

The fastest documented way to produce has no delivery report of successful records. The call
`callbacks` has a report for each record, with its offset, at a third more CPU time.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from benchmarks import payload
from benchmarks.peers.blocking_peer import BlockingPeer, in_lists
from benchmarks.peers.task import Task, main
from benchmarks.tls import FETCH_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

POLL_EVERY: Final = 1_000
"""Records between two polls for failed deliveries."""
READ_AT_ONCE: Final = 500
"""Messages per call of consume; more would take a third more CPU time each."""
PATIENCE: Final = 60.0
"""Time-out in seconds without a message or an acknowledgement."""

# INTRODUCTION.md and CONFIGURATION.md of librdkafka recommend these for throughput. Successful
# deliveries are not reported; flush returns the number of missing ones, and failures are reported.
FAST_PRODUCER: Final = {
    "batch.size": 131_072,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 1_048_576,
    "delivery.report.only.error": True,
    "enable.idempotence": True,
}
FAST_CONSUMER: Final = {
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 1_048_576,
    "fetch.queue.backoff.ms": 1,
    "check.crcs": True,  # like all others
}


class DeliveryFailedError(RuntimeError):
    """A record was not acknowledged."""


def cluster_options(task: Task) -> dict[str, Any]:
    """Return the options with the address of the cluster and for TLS."""
    given: dict[str, Any] = {"bootstrap.servers": task.bootstrap}
    if task.cafile:
        given |= {"security.protocol": "ssl", "ssl.ca.location": task.cafile}
    return given


def producer_options(task: Task, linger_ms: int, *, reports: bool) -> dict[str, Any]:
    """Return the options of a producer; `reports` reports each delivery, librdkafka's default."""
    options: dict[str, Any] = {"acks": "all"}
    if task.compression != "none":
        options["compression.type"] = task.compression
    if task.tuned:
        options |= FAST_PRODUCER | {"linger.ms": linger_ms}
    if reports:
        options.pop("delivery.report.only.error", None)
    return options


def consumer_options(task: Task) -> dict[str, Any]:
    """Return the options of a consumer; group.id is required even without joining a group."""
    needed: dict[str, Any] = {"group.id": "benchmark", "enable.auto.commit": False}
    if task.tuned:
        needed |= FAST_CONSUMER
        if task.cafile:
            needed["fetch.message.max.bytes"] = FETCH_BYTES
    return needed


def value_of(message: Message | None) -> bytes:
    """Return the value of a message; raise if it is an error, or None after a time-out."""
    if message is None or message.error():
        raise RuntimeError(str(message and message.error()))
    value = message.value()
    assert isinstance(value, bytes)
    return value


def weigh_all(messages: Sequence[Message], weigh: Callable[[Any], int]) -> int:
    """Return the sum of the weights of the values; raise if a message is an error."""
    total = 0
    for message in messages:
        if message.error():
            raise RuntimeError(str(message.error()))
        total += weigh(message.value())
    return total


def _poll(consumer: Consumer, task: Task, wanted: int) -> tuple[int, int]:
    messages = consumer.consume(min(READ_AT_ONCE, wanted), PATIENCE)
    return len(messages), weigh_all(messages, task.weigh)


def _iterate(consumer: Consumer, task: Task) -> tuple[int, int]:
    poll, weigh = consumer.poll, task.weigh
    total = 0
    for number in range(task.records):
        message = poll(PATIENCE)
        if message is None or message.error():
            raise RuntimeError(f"record {number}: {message and message.error()}")
        total += weigh(message.value())
    return task.records, total


class ConfluentPeer(BlockingPeer):
    """Peer with confluent-kafka's blocking clients."""

    reads = {"poll": in_lists(_poll), "iterate": _iterate}  # noqa: RUF012

    def __init__(self) -> None:
        self._reported = 0

    def producer_options(self, task: Task, linger_ms: int = 0) -> dict[str, Any]:
        reports = task.kind == "round_trip" or task.way == "callbacks"
        return producer_options(task, linger_ms, reports=reports)

    def consumer_options(self, task: Task) -> dict[str, Any]:
        return consumer_options(task)

    @contextmanager
    def producer(self, task: Task, options: dict[str, Any]) -> Generator[Producer]:
        # One callback for all records is faster than a callback argument per call.
        given = cluster_options(task) | {"on_delivery": self._report, **options}
        producer = Producer(given)
        producer.produce(task.topic, payload.WARM_UP)
        _flush(producer)
        yield producer
        _flush(producer)

    def _report(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise DeliveryFailedError(f"{message.topic()}: {error}")
        self._reported += 1

    @contextmanager
    def consumer(self, task: Task, options: dict[str, Any]) -> Generator[Consumer]:
        consumer = Consumer(cluster_options(task) | options)
        consumer.list_topics(task.topic, PATIENCE)
        yield consumer
        consumer.close()

    @contextmanager
    def group_consumer(self, task: Task) -> Generator[Consumer]:
        options = {"group.id": task.topic, "auto.offset.reset": "earliest"}
        with self.consumer(task, options) as consumer:
            consumer.subscribe([task.topic])
            yield consumer

    def assign(self, consumer: Consumer, task: Task) -> None:
        """Assign all partitions, which starts fetching."""
        numbers = range(task.partitions)
        consumer.assign([TopicPartition(task.topic, number, 0) for number in numbers])

    def send_all(self, producer: Producer, task: Task) -> int:
        before = self._reported
        if task.keyed:
            _produce_keyed(producer, task)
        else:
            _produce(producer, task)
        _flush(producer)
        return self._reported - before if task.way == "callbacks" else task.records

    def send_call(self, producer: Producer, topic: str) -> Callable[[bytes], object]:
        def send(value: bytes) -> None:
            due = self._reported + 1
            producer.produce(topic, value)
            while self._reported < due:
                producer.poll(PATIENCE)

        return send

    def enqueue(self, producer: Producer, topic: str, value: bytes) -> None:
        producer.produce(topic, value)
        producer.poll(0)

    def receive(self, consumer: Consumer) -> bytes:
        return value_of(consumer.poll(PATIENCE))

    def poll(self, consumer: Consumer, seconds: float) -> bool:
        return consumer.poll(seconds) is not None


def _flush(producer: Producer) -> None:
    if missing := producer.flush(PATIENCE):
        raise DeliveryFailedError(f"{missing} records were not acknowledged in {PATIENCE:g} s")


def _produce(producer: Producer, task: Task) -> None:
    send, poll, topic, values = producer.produce, producer.poll, task.topic, task.values()
    for _ in range(0, task.records, POLL_EVERY):
        for value in islice(values, POLL_EVERY):
            try:
                send(topic, value)
            except BufferError:
                _produce_when_there_is_room(producer, topic, value)
        poll(0)


def _produce_keyed(producer: Producer, task: Task) -> None:
    send, poll, topic, pairs = producer.produce, producer.poll, task.topic, task.pairs()
    for _ in range(0, task.records, POLL_EVERY):
        for value, key in islice(pairs, POLL_EVERY):
            try:
                send(topic, value, key)
            except BufferError:
                _produce_when_there_is_room(producer, topic, value, key)
        poll(0)


def _produce_when_there_is_room(
    producer: Producer, topic: str, value: bytes, key: bytes | None = None
) -> None:
    while True:
        producer.poll(0.001)
        try:
            producer.produce(topic, value, key)
        except BufferError:
            continue
        return


if __name__ == "__main__":
    main(ConfluentPeer())
