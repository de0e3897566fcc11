"""Runs a producer or a consumer at full speed: `python -m benchmarks.special.memory_client JSON`.

Prints its peak memory and the number of records that it has sent or read in the given time. This
program keeps no records itself.
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
"""Time limit in seconds of the final flush."""


async def produce(task: dict[str, Any]) -> int:
    """Enqueue records to the topics in turn for the given time, and flush."""
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
    """Poll for the given time from the beginning, and from the beginning again at the end.

    In every fourth second it does not poll, so that prefetched records fill the memory limit.
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
