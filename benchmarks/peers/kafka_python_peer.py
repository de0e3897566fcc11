"""Runs cases with kafka-python, whose producer has a thread, and whose consumer has none."""

from __future__ import annotations

import importlib
import threading
import time
from itertools import cycle, islice
from typing import Any

from benchmarks import payload
from benchmarks.peers.paced import paced
from benchmarks.peers.reading import weigh
from benchmarks.peers.task import Figures, Stopwatch, Task, main, percentiles

kafka: Any = importlib.import_module("kafka")

PATIENCE = 60.0
PATIENCE_MS = 60_000

# More records per poll, larger fetches and larger batches are not faster.
FAST_PRODUCER = {"batch_size": 131_072, "metrics_enabled": False}
FAST_CONSUMER = {"metrics_enabled": False}


def producer_settings(task: Task, linger_ms: int = 5) -> dict[str, Any]:
    """Return the options of a producer, idempotent by default, without the cluster's address."""
    settings: dict[str, Any] = {"acks": "all"}
    if task.compression != "none":
        settings["compression_type"] = task.compression
    return settings | (FAST_PRODUCER | {"linger_ms": linger_ms} if task.tuned else {})


def consumer_settings(task: Task) -> dict[str, Any]:
    """Return the options of a consumer, without the cluster's address."""
    return FAST_CONSUMER if task.tuned else {}


def _producer(task: Task, settings: dict[str, Any]) -> Any:
    producer = kafka.KafkaProducer(bootstrap_servers=task.bootstrap, **settings)
    producer.send(task.topic, payload.WARM_UP).get(PATIENCE)
    return producer


def produce(task: Task) -> Figures:
    """Send all records, and wait until they are acknowledged."""
    settings = producer_settings(task)
    producer = _producer(task, settings)
    values = payload.values(task.size, compressible=task.compression != "none")
    source = islice(cycle(values), task.records)
    send, topic = producer.send, task.topic
    with Stopwatch() as watch:
        if task.keyed:
            for value, key in zip(source, cycle(payload.keys()), strict=False):
                send(topic, value, key)
        else:
            for value in source:
                send(topic, value)
        producer.flush(PATIENCE)
    producer.close()
    return Figures(watch.seconds, watch.cpu_seconds, task.records, settings=settings)


def _consumer(task: Task, settings: dict[str, Any]) -> Any:
    """Return a connected consumer with an assignment; it fetches only when it is polled."""
    consumer = kafka.KafkaConsumer(bootstrap_servers=task.bootstrap, **settings)
    partitions = [kafka.TopicPartition(task.topic, number) for number in range(task.partitions)]
    consumer.assign(partitions)
    consumer.seek_to_beginning()
    for partition in partitions:
        consumer.position(partition)
    return consumer


def consume(task: Task) -> Figures:
    """Read the records of the task from the beginning."""
    settings = consumer_settings(task)
    consumer = _consumer(task, settings)
    read = _READS[task.way]
    with Stopwatch() as watch:
        count, total = read(consumer, task)
    consumer.close()
    checksum = total if task.verify else None
    return Figures(watch.seconds, watch.cpu_seconds, count, checksum, settings=settings)


def _read_lists(consumer: Any, task: Task) -> tuple[int, int]:
    poll, count, total, touch = consumer.poll, 0, 0, weigh(task)
    while count < task.records:
        lists = poll(PATIENCE_MS)
        if not lists:
            raise TimeoutError(f"{count} of {task.records} records, then none for {PATIENCE:g} s")
        for records in lists.values():
            count += len(records)
            for record in records:
                total += touch(record.value)
    return count, total


def _read_one_by_one(consumer: Any, task: Task) -> tuple[int, int]:
    total, touch = 0, weigh(task)
    for record in islice(consumer, task.records):
        total += touch(record.value)
    return task.records, total


_READS = {"poll": _read_lists, "iterate": _read_one_by_one}


def round_trip(task: Task) -> Figures:
    """Send records one after the other, waiting for each future."""
    settings = producer_settings(task, linger_ms=0)
    producer = _producer(task, settings)
    value, taken = payload.values(task.size)[0], list[float]()
    send, topic = producer.send, task.topic
    with Stopwatch() as watch:
        for _ in paced(task.records, task.rate, start=task.start):
            begin = time.perf_counter()
            send(topic, value).get(PATIENCE)
            taken.append(time.perf_counter() - begin)
    producer.close()
    latency = percentiles(taken)
    return Figures(
        watch.seconds, watch.cpu_seconds, task.records, latency_us=latency, settings=settings
    )


def end_to_end(task: Task) -> Figures:
    """Send in this thread and receive in another; each value begins with the time of sending."""
    sending, reading = producer_settings(task, linger_ms=0), consumer_settings(task)
    producer = _producer(task, sending)
    consumer = _consumer(task, reading)
    next(consumer)  # the warm-up record
    ending = payload.values(task.size)[0][8:]
    taken: list[float] = []

    def receive() -> None:
        for record in islice(consumer, task.records):
            now = time.perf_counter_ns()
            taken.append((now - int.from_bytes(record.value[:8], "big")) / 1e9)

    reader = threading.Thread(target=receive, daemon=True)
    reader.start()
    with Stopwatch() as watch:
        for _ in paced(task.records, task.rate):
            producer.send(task.topic, time.perf_counter_ns().to_bytes(8, "big") + ending)
        reader.join()
    producer.close()
    consumer.close()
    return Figures(
        watch.seconds,
        watch.cpu_seconds,
        len(taken),
        latency_us=percentiles(taken),
        settings=sending | reading,
    )


RUNS = {
    "produce": produce,
    "consume": consume,
    "round_trip": round_trip,
    "end_to_end": end_to_end,
}

if __name__ == "__main__":
    main(RUNS)
