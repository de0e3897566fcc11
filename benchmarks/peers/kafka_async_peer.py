"""This project's producer: enqueue in a loop."""

from __future__ import annotations

from itertools import cycle, islice

import kafka_async
from benchmarks.payload import values
from benchmarks.peers.task import Stopwatch, Task, main


async def produce(task: Task) -> Stopwatch:
    """Send, and wait until all is acknowledged."""
    async with kafka_async.Producer(task.bootstrap, linger_ms=5, batch_size=131_072) as producer:
        await producer.send(task.topic, b"warm-up")
        topic, enqueue = task.topic, producer.enqueue
        with Stopwatch() as watch:
            for value in islice(cycle(values(task.size)), task.records):
                await enqueue(topic, value)
            await producer.flush()
    return watch


if __name__ == "__main__":
    main(produce, "kafka_async")
