"""`python -m benchmarks.special.memory_client JSON`: a producer or a consumer at full speed.

Prints the peak of its memory and how many records it has sent or read in the time it was given.
Nothing else is kept here: what is in memory is Python's, the client's and its budgets'.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from itertools import cycle
from typing import Any

from benchmarks import payload
from benchmarks.peers import loop
from benchmarks.peers.task import peak_mb
from benchmarks.special.topics_client import topic_names

FINISH = 60.0
"""Seconds that a producer may take to deliver what it has taken."""


async def produce(task: dict[str, Any]) -> int:
    """Enqueue for so many seconds, to the topics in turn, and deliver."""
    from kafka_async import Producer

    values = cycle(payload.values(task["size"]))
    names = cycle(topic_names(task["prefix"], task["topics"]))
    sent = 0
    async with Producer(task["bootstrap"], linger_ms=5, request_timeout_ms=60_000) as producer:
        enqueue = producer.enqueue
        end = time.monotonic() + task["seconds"]
        for topic, value in zip(names, values, strict=False):
            await enqueue(topic, value)
            sent += 1
            if time.monotonic() >= end:
                break
        async with asyncio.timeout(FINISH):
            await producer.flush()
    return sent


async def consume(task: dict[str, Any]) -> int:
    """Poll for so many seconds, from the beginning and, at the end, from there again.

    Every fourth second nothing is asked for: what is fetched ahead fills its budget.
    """
    from kafka_async import Consumer

    seen = 0
    async with Consumer(
        task["bootstrap"],
        topics=topic_names(task["prefix"], task["topics"]),
        auto_offset_reset="earliest",
        request_timeout_ms=60_000,
    ) as consumer:
        began = time.monotonic()
        while (passed := time.monotonic() - began) < task["seconds"]:
            if int(passed) % 4 == 3:
                await asyncio.sleep(0.1)
                continue
            records = await consumer.poll(max_records=5_000, timeout=0.2)
            seen += len(records)
            if not records:
                await consumer.seek_to_beginning()
    return seen


def main() -> None:
    """Run the task of the command line."""
    task = json.loads(sys.argv[1])
    records = loop.run({"produce": produce, "consume": consume}[task["do"]](task))
    sys.stdout.write(json.dumps({"peak_mb": peak_mb(), "records": records}) + "\n")


if __name__ == "__main__":
    main()
