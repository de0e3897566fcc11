"""Runs cases with kafka-python, whose producer has a thread, and whose consumer has none."""

from __future__ import annotations

import importlib
from contextlib import closing, contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from benchmarks import payload
from benchmarks.peers.blocking_peer import BlockingPeer, in_lists
from benchmarks.peers.task import Task, main, weigh_values

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

kafka: Any = importlib.import_module("kafka")

PATIENCE: Final = 60.0
# More records per poll, larger fetches and larger batches are not faster.
FAST_PRODUCER: Final = {"batch_size": 131_072, "metrics_enabled": False}
FAST_CONSUMER: Final = {"metrics_enabled": False}


def _poll(consumer: Any, task: Task, _: int) -> tuple[int, int]:
    found = consumer.poll(PATIENCE * 1_000)
    weights = [weigh_values(records, task.weigh) for records in found.values()]
    return sum(map(len, found.values())), sum(weights)


def _iterate(consumer: Any, task: Task) -> tuple[int, int]:
    return task.records, weigh_values(islice(consumer, task.records), task.weigh)


class KafkaPythonPeer(BlockingPeer):
    """Peer with kafka-python's clients."""

    reads = {"poll": in_lists(_poll), "iterate": _iterate}  # noqa: RUF012

    def producer_options(self, task: Task, linger_ms: int = 0) -> dict[str, Any]:
        """Return the options of a producer, which is idempotent by default."""
        options: dict[str, Any] = {"acks": "all"}
        if task.compression != "none":
            options["compression_type"] = task.compression
        return options | (FAST_PRODUCER | {"linger_ms": linger_ms} if task.tuned else {})

    def consumer_options(self, task: Task) -> dict[str, Any]:
        return dict(FAST_CONSUMER) if task.tuned else {}

    @contextmanager
    def producer(self, task: Task, options: dict[str, Any]) -> Generator[Any]:
        with closing(kafka.KafkaProducer(bootstrap_servers=task.bootstrap, **options)) as producer:
            producer.send(task.topic, payload.WARM_UP).get(PATIENCE)
            yield producer

    @contextmanager
    def consumer(self, task: Task, options: dict[str, Any]) -> Generator[Any]:
        with closing(kafka.KafkaConsumer(bootstrap_servers=task.bootstrap, **options)) as consumer:
            partitions = [kafka.TopicPartition(task.topic, n) for n in range(task.partitions)]
            consumer.assign(partitions)  # it fetches only when it is polled
            consumer.seek_to_beginning()
            for partition in partitions:
                consumer.position(partition)
            yield consumer

    @contextmanager
    def group_consumer(self, task: Task) -> Generator[Any]:
        options = {"group_id": task.topic, "auto_offset_reset": "earliest"}
        options["bootstrap_servers"] = task.bootstrap
        with closing(kafka.KafkaConsumer(task.topic, **options)) as consumer:
            yield consumer

    def assign(self, consumer: Any, task: Task) -> None:
        """Do nothing: `consumer` has assigned the partitions, and polling starts fetching."""

    def send_all(self, producer: Any, task: Task) -> int:
        send, topic = producer.send, task.topic
        if task.keyed:
            for value, key in task.pairs():
                send(topic, value, key)
        else:
            for value in task.values():
                send(topic, value)
        producer.flush(PATIENCE)
        return task.records

    def send_call(self, producer: Any, topic: str) -> Callable[[bytes], object]:
        return lambda value: producer.send(topic, value).get(PATIENCE)

    def enqueue(self, producer: Any, topic: str, value: bytes) -> None:
        producer.send(topic, value)

    def receive(self, consumer: Any) -> bytes:
        return next(consumer).value

    def poll(self, consumer: Any, seconds: float) -> bool:
        return bool(consumer.poll(timeout_ms=seconds * 1_000))


if __name__ == "__main__":
    main(KafkaPythonPeer())
