"""Runs cases with confluent-kafka, the Python bindings of librdkafka.

The fastest documented way to produce has no delivery report of successful records. The call
`callbacks` has a report for each record, with its offset, at a third more CPU time.
"""

from __future__ import annotations

import threading
import time
from itertools import cycle, islice
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from benchmarks import payload
from benchmarks.peers.confluent_settings import (
    PATIENCE,
    READ_AT_ONCE,
    consumer_settings,
    producer_settings,
    value_of,
    weigh_all,
)
from benchmarks.peers.paced import paced
from benchmarks.peers.reading import weigh
from benchmarks.peers.task import Figures, Stopwatch, Task, main, percentiles

POLL_EVERY = 1_000
"""Records between two polls for failed deliveries."""
SEND_AT_ONCE = 10_000
"""Messages per call of produce_batch."""


class DeliveryFailedError(RuntimeError):
    """A record was not acknowledged."""


def _failed(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        raise DeliveryFailedError(f"{message.topic()}: {error}")


def _producer(task: Task, settings: dict[str, Any]) -> Producer:
    producer = Producer({"bootstrap.servers": task.bootstrap, **settings})
    producer.produce(task.topic, payload.WARM_UP, on_delivery=_failed)
    _flush(producer)
    return producer


def _flush(producer: Producer) -> None:
    if missing := producer.flush(PATIENCE):
        raise DeliveryFailedError(f"{missing} records were not acknowledged in {PATIENCE:g} s")


def produce(task: Task) -> Figures:
    """Send all records, and wait until they are acknowledged; `callbacks` counts the reports."""
    settings = producer_settings(task, reports=task.way == "callbacks")
    reported = 0

    def report(error: KafkaError | None, message: Message) -> None:
        nonlocal reported
        _failed(error, message)
        reported += 1

    # One callback for all records is faster than a callback argument per call.
    producer = _producer(task, {**settings, "on_delivery": report})
    values = payload.values(task.size, compressible=task.compression != "none")
    send = _WAYS[task.way]
    reported = 0
    with Stopwatch() as watch:
        send(producer, task, values)
        _flush(producer)
    sent = reported if task.way == "callbacks" else task.records
    return Figures(watch.seconds, watch.cpu_seconds, sent, settings=settings)


def _send(producer: Producer, task: Task, values: list[bytes]) -> None:
    if task.keyed:
        _send_keyed(producer, task, values)
        return
    send, poll, topic = producer.produce, producer.poll, task.topic
    source = cycle(values)
    for begin in range(0, task.records, POLL_EVERY):
        for value in islice(source, min(POLL_EVERY, task.records - begin)):
            try:
                send(topic, value)
            except BufferError:
                _send_when_there_is_room(producer, topic, value)
        poll(0)


def _send_keyed(producer: Producer, task: Task, values: list[bytes]) -> None:
    send, poll, topic = producer.produce, producer.poll, task.topic
    source = zip(cycle(values), cycle(payload.keys()), strict=False)
    for begin in range(0, task.records, POLL_EVERY):
        for value, key in islice(source, min(POLL_EVERY, task.records - begin)):
            try:
                send(topic, value, key)
            except BufferError:
                _send_when_there_is_room(producer, topic, value, key)
        poll(0)


def _send_when_there_is_room(
    producer: Producer, topic: str, value: bytes, key: bytes | None = None
) -> None:
    while True:
        producer.poll(0.001)
        try:
            producer.produce(topic, value, key)
        except BufferError:
            continue
        return


def _send_batches(producer: Producer, task: Task, values: list[bytes]) -> None:
    """Send a dictionary per record, and retry those that did not fit in the queue."""
    source = cycle(values)
    keys = cycle(payload.keys()) if task.keyed else None
    for begin in range(0, task.records, SEND_AT_ONCE):
        part = islice(source, min(SEND_AT_ONCE, task.records - begin))
        if keys is None:
            left = [{"value": value} for value in part]
        else:
            left = [{"value": value, "key": next(keys)} for value in part]
        while left:
            producer.produce_batch(task.topic, left)
            left = [{k: v for k, v in m.items() if k != "_error"} for m in left if "_error" in m]
            producer.poll(0.001 if left else 0)


_WAYS = {"enqueue": _send, "callbacks": _send, "send_many": _send_batches}


def consume(task: Task) -> Figures:
    """Read from the beginning; the measurement includes the assignment, which starts fetching."""
    settings = consumer_settings(task)
    consumer = Consumer({"bootstrap.servers": task.bootstrap, **settings})
    consumer.list_topics(task.topic, PATIENCE)
    partitions = [TopicPartition(task.topic, number, 0) for number in range(task.partitions)]
    read = _READS[task.way]
    with Stopwatch() as watch:
        consumer.assign(partitions)
        count, total = read(consumer, task)
    consumer.close()
    checksum = total if task.verify else None
    return Figures(watch.seconds, watch.cpu_seconds, count, checksum, settings=settings)


def _read_lists(consumer: Consumer, task: Task) -> tuple[int, int]:
    fetch, count, total, touch = consumer.consume, 0, 0, weigh(task)
    while count < task.records:
        messages = fetch(min(READ_AT_ONCE, task.records - count), PATIENCE)
        if not messages:
            raise TimeoutError(f"{count} of {task.records} records, then none for {PATIENCE:g} s")
        count += len(messages)
        total += weigh_all(messages, touch)
    return count, total


def _read_one_by_one(consumer: Consumer, task: Task) -> tuple[int, int]:
    poll, total, touch = consumer.poll, 0, weigh(task)
    for number in range(task.records):
        message = poll(PATIENCE)
        if message is None or message.error():
            raise RuntimeError(f"record {number}: {message and message.error()}")
        total += touch(message.value())
    return task.records, total


_READS = {"poll": _read_lists, "iterate": _read_one_by_one}


def round_trip(task: Task) -> Figures:
    """Send records one after the other, waiting for each delivery report."""
    settings = producer_settings(task, linger_ms=0, reports=True)
    producer = _producer(task, settings)
    value, arrived, taken = payload.values(task.size)[0], list[bool](), list[float]()

    def delivered(error: KafkaError | None, message: Message) -> None:
        _failed(error, message)
        arrived.append(True)

    with Stopwatch() as watch:
        for _ in paced(task.records, task.rate, start=task.start):
            begin = time.perf_counter()
            producer.produce(task.topic, value, on_delivery=delivered)
            while not arrived:
                producer.poll(PATIENCE)
            taken.append(time.perf_counter() - begin)
            arrived.clear()
    return Figures(
        watch.seconds,
        watch.cpu_seconds,
        task.records,
        latency_us=percentiles(taken),
        settings=settings,
    )


def end_to_end(task: Task) -> Figures:
    """Send in this thread and receive in another; each value begins with the time of sending."""
    settings = producer_settings(task, linger_ms=0)
    producer = _producer(task, settings)
    ending = payload.values(task.size)[0][8:]
    reader = _Reader(task)
    reader.start()
    with Stopwatch() as watch:
        for _ in paced(task.records, task.rate):
            producer.produce(task.topic, time.perf_counter_ns().to_bytes(8, "big") + ending)
            producer.poll(0)
        reader.join()
    _flush(producer)
    return Figures(
        watch.seconds,
        watch.cpu_seconds,
        len(reader.taken),
        latency_us=percentiles(reader.taken),
        settings=settings | consumer_settings(task),
    )


class _Reader(threading.Thread):
    """Thread that receives the records of a task and measures their latency."""

    def __init__(self, task: Task) -> None:
        super().__init__(daemon=True)
        self.taken: list[float] = []
        self._wanted = task.records
        settings = {"bootstrap.servers": task.bootstrap, **consumer_settings(task)}
        self._consumer = Consumer(settings)
        numbers = range(task.partitions)
        self._consumer.assign([TopicPartition(task.topic, number, 0) for number in numbers])
        value_of(self._consumer.poll(PATIENCE))  # the warm-up record

    def run(self) -> None:
        while len(self.taken) < self._wanted:
            value = value_of(self._consumer.poll(PATIENCE))
            now = time.perf_counter_ns()
            self.taken.append((now - int.from_bytes(value[:8], "big")) / 1e9)
        self._consumer.close()


RUNS = {
    "produce": produce,
    "consume": consume,
    "round_trip": round_trip,
    "end_to_end": end_to_end,
}

if __name__ == "__main__":
    main(RUNS)
