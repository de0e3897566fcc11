"""aiokafka's producer, tuned alike: its send returns when the record is in a batch."""

from __future__ import annotations

from itertools import cycle, islice
from typing import Any

from aiokafka import AIOKafkaProducer

from benchmarks.payload import values
from benchmarks.peers.task import Stopwatch, Task, main


async def produce(task: Task) -> Stopwatch:
    """Send, and wait until all is acknowledged."""
    producer: Any = AIOKafkaProducer(
        bootstrap_servers=task.bootstrap,
        acks="all",
        enable_idempotence=True,
        linger_ms=5,
        max_batch_size=131_072,
    )
    await producer.start()
    try:
        await producer.send_and_wait(task.topic, b"warm-up")
        topic, send = task.topic, producer.send
        with Stopwatch() as watch:
            for value in islice(cycle(values(task.size)), task.records):
                await send(topic, value)
            await producer.flush()
    finally:
        await producer.stop()
    return watch


if __name__ == "__main__":
    main(produce, "aiokafka")
