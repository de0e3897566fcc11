"""Runs one idle client: `python -m benchmarks.special.idle_client JSON`.

A producer has sent one record; a consumer has joined a group and read all records. Prints the CPU
seconds of the process while the client is idle.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, cast

from benchmarks.peers import loop

SETTLE = 5.0
"""Seconds before the measurement, in which joins, first fetches and imports complete."""


async def idle(seconds: float) -> float:
    """Sleep, and return the CPU seconds of this process."""
    await asyncio.sleep(SETTLE)
    began = time.process_time()
    await asyncio.sleep(seconds)
    return time.process_time() - began


def idle_blocking(seconds: float) -> float:
    """Sleep without an event loop, and return the CPU seconds of this process."""
    time.sleep(SETTLE)
    began = time.process_time()
    time.sleep(seconds)
    return time.process_time() - began


async def our_producer(bootstrap: str, topic: str, group: str, seconds: float) -> float:
    """Run this project's producer."""
    from kafka_async import Producer

    async with Producer(bootstrap) as producer:
        await producer.send(topic, b"one")
        return await idle(seconds)


async def our_consumer(bootstrap: str, topic: str, group: str, seconds: float) -> float:
    """Run this project's consumer in an `async for`."""
    from kafka_async import Consumer

    async with Consumer(
        bootstrap, topics=[topic], group_id=group, auto_offset_reset="earliest"
    ) as consumer:
        await anext(aiter(consumer))
        waiting = asyncio.ensure_future(_read(consumer))
        spent = await idle(seconds)
        waiting.cancel()
        return spent


async def _read(records: Any) -> None:
    async for _ in records:
        pass


async def aiokafka_producer(bootstrap: str, topic: str, group: str, seconds: float) -> float:
    """Run aiokafka's producer."""
    from aiokafka import AIOKafkaProducer

    producer: Any = AIOKafkaProducer(
        bootstrap_servers=bootstrap, acks="all", enable_idempotence=True
    )
    async with producer:
        await producer.send_and_wait(topic, b"one")
        return await idle(seconds)


async def aiokafka_consumer(bootstrap: str, topic: str, group: str, seconds: float) -> float:
    """Run aiokafka's consumer in an `async for`."""
    from aiokafka import AIOKafkaConsumer

    consumer: Any = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
    )
    async with consumer:
        await consumer.getone()
        waiting = asyncio.ensure_future(_read(consumer))
        spent = await idle(seconds)
        waiting.cancel()
        return spent


def confluent_producer(bootstrap: str, topic: str, group: str, seconds: float) -> float:
    """Run confluent-kafka's producer, which works in its own threads."""
    from confluent_kafka import Producer

    options: Any = {"bootstrap.servers": bootstrap, "enable.idempotence": True}
    producer = Producer(options)
    producer.produce(topic, b"one")
    producer.flush()
    return idle_blocking(seconds)


def confluent_consumer(bootstrap: str, topic: str, group: str, seconds: float) -> float:
    """Run confluent-kafka's consumer in long polls."""
    from confluent_kafka import Consumer

    options: Any = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(options)
    consumer.subscribe([topic])
    while consumer.poll(1.0) is None:
        pass
    return _poll(lambda remaining: consumer.poll(remaining), consumer.close, seconds)


def kafka_python_producer(bootstrap: str, topic: str, group: str, seconds: float) -> float:
    """Run kafka-python's producer."""
    from kafka import KafkaProducer  # pyright: ignore[reportMissingTypeStubs]

    new: Any = KafkaProducer
    producer = new(bootstrap_servers=bootstrap)
    producer.send(topic, b"one").get(timeout=30)
    spent = idle_blocking(seconds)
    producer.close()
    return spent


def kafka_python_consumer(bootstrap: str, topic: str, group: str, seconds: float) -> float:
    """Run kafka-python's consumer in long polls."""
    from kafka import KafkaConsumer  # pyright: ignore[reportMissingTypeStubs]

    new: Any = KafkaConsumer
    consumer = new(topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest")
    while not consumer.poll(timeout_ms=1_000):
        pass
    return _poll(
        lambda remaining: consumer.poll(timeout_ms=remaining * 1_000), consumer.close, seconds
    )


def _poll(poll: Callable[[float], object], close: Callable[[], object], seconds: float) -> float:
    settled = time.monotonic() + SETTLE
    while (remaining := settled - time.monotonic()) > 0:
        poll(remaining)
    began, end = time.process_time(), time.monotonic() + seconds
    while (remaining := end - time.monotonic()) > 0:
        poll(remaining)
    spent = time.process_time() - began
    close()
    return spent


CLIENTS: dict[str, Callable[[str, str, str, float], float | Coroutine[Any, Any, float]]] = {
    "kafka_async producer": our_producer,
    "aiokafka producer": aiokafka_producer,
    "confluent-kafka producer": confluent_producer,
    "kafka-python producer": kafka_python_producer,
    "kafka_async consumer": our_consumer,
    "aiokafka consumer": aiokafka_consumer,
    "confluent-kafka consumer": confluent_consumer,
    "kafka-python consumer": kafka_python_consumer,
}


def main() -> None:
    """Run the client of the task."""
    task = json.loads(sys.argv[1])
    run = CLIENTS[task["client"]]
    result = run(task["bootstrap"], task["topic"], task["group"], task["seconds"])
    if inspect.iscoroutine(result):
        spent: float = loop.run(result)
    else:
        spent = cast("float", result)
    sys.stdout.write(json.dumps({"cpu_seconds": spent}) + "\n")


if __name__ == "__main__":
    main()
