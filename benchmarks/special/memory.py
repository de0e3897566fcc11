"""Measures the peak memory of clients at full speed, also while the broker is stopped.

A producer and a consumer run for some seconds each with a normal broker, with one that is stopped
for some seconds (SIGSTOP and SIGCONT), and with many partitions. The case therefore starts its own
broker. The goal is the sum of 40 MB for Python, modules and event loop, and of the memory limits
of the client, which have their defaults.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from benchmarks import payload, topics
from benchmarks.clients import OURS
from benchmarks.peers.task import Figures, Task
from benchmarks.processes import LONG_TIME_LIMIT, launch, run_together
from benchmarks.special.results import Goal, Result, Row, by_key
from kafka_async.config import ConsumerConfig, ProducerConfig
from kafka_async.testing.backends import ApacheBackend

ROUNDS: Final = 2
"""Maximum number of rounds: memory hardly varies."""
SECONDS = 8.0
STALL_AFTER, STALL = 3.0, 4.0
BASE_MB: Final = 40.0
MANY: Final = 1_000


@dataclass(frozen=True)
class Case:
    """Producer and then consumer, with values of a size and a number of topics."""

    title: str
    size: int
    topics: int = 1
    partitions: int = 6
    stall: bool = False


CASES: Final = (
    Case("100 B", 100),
    Case("1 KiB", 1024),
    Case("1 KiB, the broker stands still", 1024, stall=True),
    Case(f"100 B, {MANY:,} partitions", 100, MANY, 1),
)


def budgets() -> dict[str, dict[str, int]]:
    """Return the options that limit a client's memory, with their defaults in bytes."""
    consumer = ConsumerConfig("host:9092")
    return {
        "producer": {"buffer_memory": ProducerConfig("host:9092").buffer_memory},
        "consumer": {
            "fetch_buffer_memory": consumer.fetch_buffer_memory,
            "receive_buffer_memory": consumer.receive_buffer_memory,
        },
    }


def limit(role: str) -> float:
    """Return the goal of a role in MB."""
    return BASE_MB + sum(budgets()[role].values()) / 1e6


def peak(
    bootstrap: str, case: Case, pause: Callable[[], None], resume: Callable[[], None]
) -> dict[str, float]:
    """Run a producer, and a consumer of its records; return their peak memory in MB."""
    topic = asyncio.run(topics.create(bootstrap, case.partitions, case.topics))
    found: dict[str, float] = {}
    for role in budgets():
        kind = f"memory_{role}"
        task = Task(kind, bootstrap, topic, topics=case.topics, size=case.size, seconds=SECONDS)
        calls: list[Callable[[], Figures | None]] = [partial(launch, OURS, task, LONG_TIME_LIMIT)]
        calls += [partial(stall, pause, resume)] if case.stall else []
        figures = run_together(calls)[0]
        if figures is None or not figures.records:
            raise RuntimeError(f"{role}, {case.title}: no records")
        found[role] = figures.peak_mb
    asyncio.run(topics.delete(bootstrap, *payload.topic_names(topic, case.topics)))
    return found


def stall(pause: Callable[[], None], resume: Callable[[], None]) -> None:
    """Stop the broker for some seconds."""
    time.sleep(STALL_AFTER)
    pause()
    time.sleep(STALL)
    resume()


def one_round(broker: ApacheBackend) -> dict[tuple[str, str], float]:
    """Return the peak memory in MB by role and case."""
    pause, resume = partial(broker.pause_broker, 1), partial(broker.resume_broker, 1)
    return {
        (role, case.title): mb
        for case in CASES
        for role, mb in peak(broker.bootstrap_servers, case, pause, resume).items()
    }


def measure(bootstrap: str, rounds: int) -> Result:
    """Measure the peak memory in MB of each role in each case, with its own Apache Kafka."""
    with ApacheBackend(brokers=1) as broker:
        found = by_key([one_round(broker) for _ in range(min(rounds, ROUNDS))])
    rows = [
        Row.of(
            OURS,
            figures,
            "MB",
            max(figures) / limit(role),
            what=f"{role}, {title}",
            settings=budgets()[role],
        )
        for (role, title), figures in found.items()
    ]
    goals = [
        Goal(f"{role}, at most in any case", highest, limit(role), "MB")
        for role in budgets()
        for highest in [max(max(figures) for key, figures in found.items() if key[0] == role)]
    ]
    title = f"Peak memory at full speed: {BASE_MB:g} MB and the budgets are allowed"
    return Result("memory", title, "the highest in what is allowed", rows, goals)
