"""Produces to many topics in turn, or reads them.

`python -m benchmarks.special.topics_client JSON`: the task has the topics, and the number of
records of `payload.values(100)`. Writing prints wall clock and CPU seconds; reading prints the
number and the checksum of the records.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

from benchmarks import payload
from benchmarks.peers import loop
from benchmarks.peers.task import Stopwatch, peak_mb

SIZE = 100
OPTIONS: dict[str, Any] = {"linger_ms": 1000, "buffer_memory": 1 << 30}
"""With 32 MiB, a batch of each of 5,000 topics would have only 60 records."""


def topic_names(prefix: str, count: int) -> list[str]:
    """Return the names of the topics of a run."""
    return [f"{prefix}-{number:05}" for number in range(count)]


def records_to_send(task: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Return an iterator over topics and values in turn."""
    values = islice(cycle(payload.values(SIZE)), task["records"])
    return zip(cycle(topic_names(task["prefix"], task["topics"])), values, strict=False)


async def write(task: dict[str, Any]) -> dict[str, float]:
    """Enqueue all records; return wall clock and CPU seconds, and peak memory in MB."""
    from kafka_async import Producer

    async with Producer(task["bootstrap"], **OPTIONS) as producer:
        for name in topic_names(task["prefix"], task["topics"]):
            await producer.enqueue(name, payload.WARM_UP)
        await producer.flush()
        enqueue = producer.enqueue
        with Stopwatch() as watch:
            for topic, value in records_to_send(task):
                await enqueue(topic, value)
            await producer.flush()
    return {
        "seconds": watch.seconds,
        "cpu_seconds": watch.cpu_seconds,
        "peak_mb": peak_mb(),
    }


async def read(task: dict[str, Any]) -> dict[str, int]:
    """Return the number and the checksum of the records, without warm-up records."""
    from kafka_async import Consumer, TopicPartition

    names = topic_names(task["prefix"], task["topics"])
    partitions = [TopicPartition(name, n) for name in names for n in range(task["partitions"])]
    count = total = 0
    async with Consumer(task["bootstrap"], partitions=partitions) as consumer:
        await consumer.seek_to_beginning(partitions)
        ends = await consumer.end_offsets(partitions)
        remaining = sum(ends.values())
        while remaining > 0:
            records = await consumer.poll(max_records=50_000, timeout=30.0)
            if not records:
                break
            remaining -= len(records)
            values = [each.value for each in records if each.value != payload.WARM_UP]
            count += len(values)
            total += payload.checksum(value for value in values if value is not None)
    return {"records": count, "checksum": total}


def main() -> None:
    """Run the task of the command line."""
    task = json.loads(sys.argv[1])
    printed: dict[str, Any] = loop.run({"write": write, "read": read}[task["do"]](task))
    sys.stdout.write(json.dumps(printed) + "\n")


if __name__ == "__main__":
    main()
