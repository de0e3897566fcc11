"""200 jobs of two drivers, the active one killed or frozen 11 times: each effect once."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import Admin, Client, Consumer, Producer, TopicPartition
from kafka_async.spark.orchestrator.job_ledger import JobState
from kafka_async.spark.orchestrator.ledger_writer import read_ledger
from tests.integration.helpers import create_topic, read_values
from tests.integration.orchestrator_driver import POISON_EVERY
from tests.programs import ROOT

if TYPE_CHECKING:
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = [pytest.mark.asyncio, pytest.mark.slow, pytest.mark.timeout(600)]

KILLS = 10
JOBS_PER_KILL = 20
OFFSETS = 20
"""Offsets per job."""
PARTITIONS = 2
FREEZE_AT = 5
"""The round after which the active driver is frozen, in addition to the kill."""
FREEZE_SECONDS = 9.0
"""More than the session time-out of 6 s, so that the other driver takes over."""


class Drivers:
    """Runs two driver processes, and kills and freezes the active one."""

    def __init__(self, cluster: ClusterHandle, target: str) -> None:
        self.control = cluster.topic("control")
        self.ledger = cluster.topic("ledger")
        self.dead_letters = cluster.topic("dead_letter")
        self.name = cluster.group("driver")
        self._servers = cluster.bootstrap_servers
        self._target = target
        self._processes: dict[int, asyncio.subprocess.Process] = {}

    async def start(self) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.integration.orchestrator_driver", self._servers, self.name),
            *(self._target, self.control, self.ledger, self.dead_letters),
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self._processes[process.pid] = process

    async def active(self) -> int:
        """Return the process id of the active driver, which the ledger names."""
        async with asyncio.timeout(60), Client(self._servers) as client:
            while True:
                driver = (await read_ledger(client, self.ledger)).driver or ""
                pid = int(driver.split("-")[-2]) if driver else 0
                if pid in self._processes:
                    return pid
                await asyncio.sleep(0.2)

    async def kill(self, pid: int) -> None:
        process = self._processes.pop(pid)
        process.send_signal(signal.SIGKILL)
        await process.wait()

    async def freeze(self, pid: int) -> None:
        """Freeze a driver for longer than its session, then let it continue."""
        self._processes[pid].send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(FREEZE_SECONDS)
        finally:
            self._processes[pid].send_signal(signal.SIGCONT)

    async def stop(self) -> None:
        for pid in list(self._processes):
            await self.kill(pid)


class Replies:
    """Reads the replies of jobs."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.ended: Counter[str] = Counter()
        self.failed: list[dict[str, Any]] = []

    async def until(self, count: int) -> None:
        """Read until `count` different jobs have ended."""
        async with asyncio.timeout(120):
            while len(self.ended) < count:
                for record in await self._consumer.poll(timeout=0.5):
                    reply = json.loads(record.value or b"")
                    if reply["status"] == "succeeded":
                        self.ended[reply["id"]] += 1
                    elif reply["status"] != "accepted":
                        self.failed.append(reply)


@pytest.mark.one_backend("apache")
async def test_every_range_takes_effect_once_while_drivers_are_killed(
    kafka_cluster: ClusterHandle, seeded: int
) -> None:
    rng = random.Random(seeded)
    servers = kafka_cluster.bootstrap_servers
    source = await create_topic(kafka_cluster, "source", PARTITIONS)
    target = await create_topic(kafka_cluster, "target")
    replies_topic = await create_topic(kafka_cluster, "replies")
    total = KILLS * JOBS_PER_KILL
    per_partition = total * OFFSETS // PARTITIONS
    drivers = Drivers(kafka_cluster, target)
    await create_topic(kafka_cluster, "control")
    async with Producer(servers) as producer:
        for partition in range(PARTITIONS):
            await producer.send_many(source, [b"v"] * per_partition, partition=partition)

    async def request(number: int) -> None:
        """Send a message, sometimes twice, and sometimes with a part of another job's range."""
        partition, index = number % PARTITIONS, number // PARTITIONS
        start = index * OFFSETS
        overlap = rng.choice((0, 0, 0, OFFSETS // 2))
        ranges = {source: {str(partition): [max(0, start - overlap), start + OFFSETS]}}
        message = {
            "type": "run",
            "id": f"job-{number}",
            "job": "copy",
            "ranges": ranges,
            "reply_topic": replies_topic,
        }
        for _ in range(rng.choice((1, 1, 2))):
            await producer.send(drivers.control, json.dumps(message).encode())

    consumer = Consumer(
        servers,
        partitions=[TopicPartition(replies_topic, 0)],
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    schedule: list[str] = []
    async with Producer(servers) as producer, consumer:
        replies = Replies(consumer)
        try:
            await drivers.start()
            await drivers.start()
            for step in range(KILLS):
                for number in range(step * JOBS_PER_KILL, (step + 1) * JOBS_PER_KILL):
                    await request(number)
                await replies.until(step * JOBS_PER_KILL + rng.randrange(1, JOBS_PER_KILL - 4))
                await asyncio.sleep(rng.random() * 0.3)
                pid = await drivers.active()
                if step == FREEZE_AT:
                    schedule.append(f"freeze {pid} after {len(replies.ended)} jobs")
                    await drivers.freeze(pid)
                    pid = await drivers.active()
                schedule.append(f"kill {pid} after {len(replies.ended)} jobs")
                await drivers.kill(pid)
                await drivers.start()
            await replies.until(total)
        finally:
            await drivers.stop()
    sys.stdout.write("\n".join([f"seed {seeded}", *schedule, ""]))
    assert replies.failed == []
    # A repeated message gets a repeated reply, but its job has one record.
    await read_values(kafka_cluster, drivers.ledger)  # waits for the last markers
    async with Client(servers) as client, Admin(client) as admin:
        state = await read_ledger(client, drivers.ledger)
        group = f"{drivers.name}-copy"
        committed = await admin.list_group_offsets(group, require_stable=True)
    assert {job.state for job in state.jobs.values()} == {JobState.SUCCEEDED}
    assert len(state.jobs) == total
    poison = {
        f"{partition}:{offset}"
        for partition in range(PARTITIONS)
        for offset in range(per_partition)
        if offset % POISON_EVERY == POISON_EVERY - 1
    }
    expected = {
        f"{partition}:{offset}"
        for partition in range(PARTITIONS)
        for offset in range(per_partition)
    } - poison
    events = Counter((value or b"").decode() for value in await read_values(kafka_cluster, target))
    assert set(events) == expected
    assert set(events.values()) == {1}
    letters = Counter(
        "{partition}:{offset}".format(
            partition=dict(letter.headers)["orchestrator.partition"].decode(),  # pyright: ignore[reportOptionalMemberAccess]
            offset=dict(letter.headers)["orchestrator.offset"].decode(),  # pyright: ignore[reportOptionalMemberAccess]
        )
        for letter in await kafka_cluster.read(drivers.dead_letters)
    )
    assert letters == dict.fromkeys(poison, 1)
    assert {tp.partition: at.offset for tp, at in committed.items()} == dict.fromkeys(
        range(PARTITIONS), per_partition
    )
    sys.stdout.write(
        f"verdict: {total} jobs, {KILLS} kills, 1 freeze, {len(events)} events, each once\n"
    )
