"""Writes numbers to a topic from one of several processes; each number is committed once.

    python examples/single_writer.py localhost:9092 counter numbers

Start it several times and kill the writer: another process continues within 7 s, the session
time-out plus a heartbeat interval, at the number after the last committed one. A writer that was
frozen is fenced by the broker.
"""

from __future__ import annotations

import asyncio
import sys

from kafka_async import Consumer, TopicPartition, run
from kafka_async.app import SingleWriter
from kafka_async.errors import ApplicationRecoverableError


async def last_number(servers: str, topic: str) -> int:
    """Return the last committed number, or 0."""
    partition, number = TopicPartition(topic, 0), 0
    async with Consumer(
        servers,
        partitions=[partition],
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as consumer:
        end = (await consumer.end_offsets([partition]))[partition]
        while await consumer.position(partition) < end:
            for record in await consumer.poll(timeout=1.0):
                number = int(record.value or b"0")
    return number


async def main(servers: str, name: str, topic: str) -> None:
    """Write numbers whenever this process is the writer."""
    while True:
        try:
            async with SingleWriter(
                servers, name=name, session_timeout_ms=6_000, heartbeat_interval_ms=1_000
            ) as writer:
                print("writing with token", writer.fencing_token, flush=True)
                number = await last_number(servers, topic)
                while True:
                    number += 1
                    async with writer.producer.transaction() as txn:
                        await txn.enqueue(topic, b"%d" % number, partition=0)
                    await asyncio.sleep(0.05)
        except ApplicationRecoverableError as error:  # the role was lost, or the writer fenced
            print(f"{type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    run(main(*sys.argv[1:]))
