"""The case "produce": records a second, acknowledged by all replicas, each peer in its own process.

Rounds are interleaved, so that a noisy minute hits every peer. After each run the topic is read
back: a fast run that lost or invented a record is an error, not a figure.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import uuid
from dataclasses import asdict, dataclass

from benchmarks import payload
from benchmarks.peers.task import Task
from kafka_async import Admin, Consumer, TopicPartition
from kafka_async.admin import NewTopic

PEERS = ("kafka_async", "aiokafka")
PARTITIONS = 6
WARM_UP = b"warm-up"


@dataclass(frozen=True)
class Case:
    """What is measured."""

    records: int
    size: int
    rounds: int


@dataclass(frozen=True)
class Run:
    """One peer in one round."""

    client: str
    seconds: float
    cpu_seconds: float
    peak_mb: int

    def rate(self, case: Case) -> float:
        """Records a second."""
        return case.records / self.seconds


class WrongResultError(RuntimeError):
    """A peer said it was done, and the topic says otherwise."""


def measure(bootstrap: str, case: Case) -> list[Run]:
    """All rounds of all peers."""
    runs: list[Run] = []
    for number in range(case.rounds):
        for peer in PEERS[:: 1 if number % 2 == 0 else -1]:
            run = _run(peer, bootstrap, case)
            runs.append(run)
            sys.stderr.write(f"round {number + 1} {peer}: {run.rate(case):,.0f} records/s\n")
    return runs


def _run(peer: str, bootstrap: str, case: Case) -> Run:
    task = Task(bootstrap, f"bench-{uuid.uuid4().hex[:8]}", case.records, case.size)
    asyncio.run(_create(task))
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.peers.{peer}_peer", json.dumps(asdict(task))],
        stdout=subprocess.PIPE,
        check=True,
        timeout=600,
    )
    asyncio.run(_verify_and_delete(peer, task))
    return Run(**json.loads(done.stdout))


async def _create(task: Task) -> None:
    async with Admin(task.bootstrap) as admin:
        await admin.create_topics([NewTopic(task.topic, PARTITIONS)])


async def _verify_and_delete(peer: str, task: Task) -> None:
    partitions = [TopicPartition(task.topic, p) for p in range(PARTITIONS)]
    seen = total = 0
    async with Consumer(task.bootstrap, partitions=partitions) as consumer:
        await consumer.seek_to_beginning(partitions)
        ends = await consumer.end_offsets(partitions)
        while not all([await consumer.position(tp) >= end for tp, end in ends.items()]):
            records = await consumer.poll(max_records=50_000, timeout=5.0)
            arrived = [r.value for r in records if r.value and r.value != WARM_UP]
            seen += len(arrived)
            total += payload.checksum(arrived)
    if (seen, total) != (task.records, payload.expected(task.records, task.size)):
        raise WrongResultError(f"{peer} sent {task.records} records, {seen} or others arrived")
    async with Admin(task.bootstrap) as admin:
        await admin.delete_topics([task.topic])


@dataclass(frozen=True)
class Row:
    """A line of the table; rates in records a second, CPU in microseconds a record."""

    client: str
    median: float
    low: float
    high: float
    cpu_us: float
    peak_mb: int
    ratio: float


def table(runs: list[Run], case: Case) -> list[Row]:
    """Medians and spread; `ratio` is ours over the peer's, median by median."""
    rates = {peer: [r.rate(case) for r in runs if r.client == peer] for peer in PEERS}
    ours = statistics.median(rates[PEERS[0]])
    rows: list[Row] = []
    for peer, all_rates in rates.items():
        mine = [run for run in runs if run.client == peer]
        median = statistics.median(all_rates)
        cpu = statistics.median(run.cpu_seconds for run in mine) / case.records * 1e6
        peak = max(run.peak_mb for run in mine)
        rows.append(Row(peer, median, min(all_rates), max(all_rates), cpu, peak, ours / median))
    return rows
