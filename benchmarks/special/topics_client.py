"""`python -m benchmarks.special.topics_client JSON`: produce to many topics in turn, or read them.

The task names the client, the topics, and how many records of `payload.values(100)` go to them in
turn. Prints wall and CPU seconds; of reading, the count and the checksum of what is there.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

from benchmarks import payload
from benchmarks.peers.task import Stopwatch, peak_mb

SIZE = 100


def topic_names(prefix: str, count: int) -> list[str]:
    """`count` topics of a run."""
    return [f"{prefix}-{number:05}" for number in range(count)]


def sent(task: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Topics and values in turn."""
    values = islice(cycle(payload.values(SIZE)), task["records"])
    return zip(cycle(topic_names(task["prefix"], task["topics"])), values, strict=False)


async def ours(task: dict[str, Any]) -> Stopwatch:
    """This project's producer, `enqueue` in a loop."""
    from kafka_async import Producer

    async with Producer(task["bootstrap"], linger_ms=5) as producer:
        for name in topic_names(task["prefix"], task["topics"]):
            await producer.enqueue(name, payload.WARM_UP)
        await producer.flush()
        enqueue = producer.enqueue
        with Stopwatch() as watch:
            for topic, value in sent(task):
                await enqueue(topic, value)
            await producer.flush()
    return watch


async def aiokafka(task: dict[str, Any]) -> Stopwatch:
    """aiokafka's producer, `send` in a loop."""
    from aiokafka import AIOKafkaProducer

    producer: Any = AIOKafkaProducer(
        bootstrap_servers=task["bootstrap"],
        acks="all",
        enable_idempotence=True,
        linger_ms=5,
        max_batch_size=131_072,
    )
    async with producer:
        for name in topic_names(task["prefix"], task["topics"]):
            await producer.send(name, payload.WARM_UP)
        await producer.flush()
        send = producer.send
        with Stopwatch() as watch:
            for topic, value in sent(task):
                await send(topic, value)
            await producer.flush()
    return watch


async def confluent(task: dict[str, Any]) -> Stopwatch:
    """confluent-kafka's producer, `produce` in a loop, callbacks served as they come."""
    from confluent_kafka import Producer

    options: Any = {
        "bootstrap.servers": task["bootstrap"],
        "enable.idempotence": True,
        "linger.ms": 5,
        "batch.size": 131_072,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 1_048_576,
    }
    producer = Producer(options)
    for name in topic_names(task["prefix"], task["topics"]):
        producer.produce(name, payload.WARM_UP)
    producer.flush()
    with Stopwatch() as watch:
        for topic, value in sent(task):
            while True:
                try:
                    producer.produce(topic, value)
                    break
                except BufferError:
                    producer.poll(0.01)
            producer.poll(0)
        producer.flush()
    return watch


CLIENTS = {"kafka_async": ours, "aiokafka": aiokafka, "confluent-kafka": confluent}


async def read(task: dict[str, Any]) -> dict[str, int]:
    """How many records are in the topics, warm-ups left out, and their checksum."""
    from kafka_async import Consumer, TopicPartition

    names = topic_names(task["prefix"], task["topics"])
    partitions = [TopicPartition(name, n) for name in names for n in range(task["partitions"])]
    count = total = 0
    async with Consumer(task["bootstrap"], partitions=partitions) as consumer:
        await consumer.seek_to_beginning(partitions)
        ends = await consumer.end_offsets(partitions)
        left = sum(ends.values())
        while left > 0:
            records = await consumer.poll(max_records=50_000, timeout=30.0)
            if not records:
                break
            left -= len(records)
            values = [each.value for each in records if each.value != payload.WARM_UP]
            count += len(values)
            total += payload.checksum(value for value in values if value is not None)
    return {"records": count, "checksum": total}


def main() -> None:
    """Run the task of the command line."""
    import uvloop

    task = json.loads(sys.argv[1])
    if task["client"] == "read":
        printed: dict[str, Any] = uvloop.run(read(task))
    else:
        watch = (uvloop.run if task["client"] != "confluent-kafka" else asyncio.run)(
            CLIENTS[task["client"]](task)
        )
        printed = {
            "seconds": watch.seconds,
            "cpu_seconds": watch.cpu_seconds,
            "peak_mb": peak_mb(),
        }
    sys.stdout.write(json.dumps(printed) + "\n")


if __name__ == "__main__":
    main()
