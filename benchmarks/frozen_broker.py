"""Measures how soon after an election clients continue whose leader is frozen by SIGSTOP.

python -m benchmarks.frozen_broker [--rounds 3]

Three brokers of Apache Kafka run on this machine. In each round one leads a partition and is
frozen while a producer and a consumer with default options use it. Prints the seconds from the
freeze to the election, and from the election to the next acknowledgement and the next record.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable

from kafka_async import AnyBroker, Client, Consumer, NewTopic, Producer, TopicPartition
from kafka_async.admin.admin import Admin
from kafka_async.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafka_async.testing.backends import ApacheBackend

FROZEN = 3
CHECK_INTERVAL = 0.02


async def elected_at(client: Client, topic: str) -> float:
    """Return the time at which another broker leads the topic's partition."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    while True:
        response = await client.request(request, to=AnyBroker())
        if response.topics[0].partitions[0].leader_id not in (FROZEN, -1):
            return time.monotonic()
        await asyncio.sleep(CHECK_INTERVAL)


async def measure(backend: ApacheBackend, topic: str) -> tuple[float, float, float]:
    """Freeze the leader of a new topic's partition; return the three durations in seconds."""
    servers = backend.bootstrap_servers
    others = ",".join(backend.bootstrap_servers.split(",")[: FROZEN - 1])
    async with Admin(servers) as admin:
        await admin.create_topics([NewTopic(topic, assignments={0: [FROZEN, 1, 2]})])
    async with (
        Client(others) as observer,
        Producer(servers) as producer,
        Consumer(
            servers, partitions=[TopicPartition(topic, 0)], auto_offset_reset="earliest"
        ) as consumer,
    ):
        await producer.send(topic, b"before")
        await consumer.poll(timeout=30.0)
        await asyncio.to_thread(backend.pause_broker, FROZEN)
        frozen_at = time.monotonic()
        try:
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                electing = group.create_task(elected_at(observer, topic))
                sending = group.create_task(_time_of(producer.send(topic, b"after")))
                polling = group.create_task(_time_of(consumer.poll(timeout=60.0)))
        finally:
            await asyncio.to_thread(backend.resume_broker, FROZEN)
        election = electing.result()
        return election - frozen_at, sending.result() - election, polling.result() - election


async def _time_of(call: Awaitable[object]) -> float:
    await call
    return time.monotonic()


def main() -> None:
    """Run the rounds and print a row for each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frozen_broker", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often to freeze the leader")
    rounds = parser.parse_args().rounds
    backend = ApacheBackend(brokers=3)
    backend.start()
    try:
        print("freeze to election   election to acknowledgement   election to record")
        for number in range(rounds):
            election, sent, read = asyncio.run(measure(backend, f"frozen-{number}"))
            print(f"{election:16.1f} s {sent:27.2f} s {read:18.2f} s", flush=True)
            time.sleep(15)  # the broker rejoins the cluster
    finally:
        backend.stop()


if __name__ == "__main__":
    main()
