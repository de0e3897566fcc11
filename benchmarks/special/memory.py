"""Measures the peak memory of clients at full speed, also while the broker is stopped.

A producer and a consumer run for some seconds each with a normal broker, with one that is stopped
for some seconds (SIGSTOP and SIGCONT), and with many partitions. The case therefore starts its own
broker. The goal is the sum of 40 MB for Python, modules and event loop, and of the memory limits
of the client, which have their defaults.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.special import processes
from benchmarks.special.many_topics import create
from benchmarks.special.results import Goal, Result, row
from kafka_async.config import ConsumerConfig, ProducerConfig
from kafka_async.testing.backends import ApacheBackend

NEEDS_BROKERS = 0
ROUNDS = 2
"""Maximum number of rounds: memory hardly varies."""
SECONDS = 8.0
STALL_AFTER, STALL = 3.0, 4.0
BASE_MB = 40.0
MANY = 1_000


@dataclass(frozen=True)
class Case:
    """Producer and then consumer, with values of a size and a number of topics."""

    title: str
    size: int
    topics: int = 1
    partitions: int = 6
    stall: bool = False


CASES = (
    Case("100 B", 100),
    Case("1 KiB", 1024),
    Case("1 KiB, the broker stands still", 1024, stall=True),
    Case(f"100 B, {MANY:,} partitions", 100, MANY, 1),
)


def budgets() -> dict[str, dict[str, int]]:
    """Return the options that limit a client's memory, with their defaults in bytes."""
    producer = ProducerConfig.create("host:9092")
    consumer = ConsumerConfig.create("host:9092")
    return {
        "producer": {"buffer_memory": producer.buffer_memory},
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
    """Run a producer, and a consumer of its records; return their peak memory in MB.

    Raises:
        RuntimeError: one of them has sent or read no record.
    """
    prefix = f"bench-memory-{uuid.uuid4().hex[:8]}"
    asyncio.run(create(bootstrap, prefix, case.topics, case.partitions))
    task: dict[str, Any] = {
        "bootstrap": bootstrap,
        "prefix": prefix,
        "topics": case.topics,
        "size": case.size,
        "seconds": SECONDS,
    }
    found: dict[str, float] = {}
    for role, do in (("producer", "produce"), ("consumer", "consume")):
        process = processes.start("memory_client", {**task, "do": do})
        try:
            if case.stall:
                stall(pause, resume)
        finally:
            [figures] = processes.finish([process])
        if not figures["records"]:
            raise RuntimeError(f"{role}, {case.title}: no records")
        found[role] = figures["peak_mb"]
    return found


def stall(pause: Callable[[], None], resume: Callable[[], None]) -> None:
    """Stop the broker for some seconds."""
    time.sleep(STALL_AFTER)
    pause()
    # A timer resumes the broker even if this thread is interrupted.
    timer = threading.Timer(STALL, resume)
    timer.start()
    timer.join()


def one_round(broker: ApacheBackend) -> dict[tuple[str, str], float]:
    """Return the peak memory in MB by role and case."""
    return {
        (role, case.title): mb
        for case in CASES
        for role, mb in peak(
            broker.bootstrap_servers,
            case,
            lambda: broker.pause_broker(1),
            lambda: broker.resume_broker(1),
        ).items()
    }


def measure(bootstrap: str | None, rounds: int) -> dict[str, Any]:
    """Measure the peak memory in MB of each role in each case, with its own Apache Kafka."""
    with ApacheBackend(brokers=1) as broker:
        found = [one_round(broker) for _ in range(min(rounds, ROUNDS))]
    rows = [
        row(
            "kafka_async",
            [one[key] for one in found],
            "MB",
            ratio=max(one[key] for one in found) / limit(key[0]),
            what=", ".join(key),
            settings=budgets()[key[0]],
        )
        for key in found[0]
    ]
    goals = [
        Goal(
            f"{role}, at most in any case",
            max(mb for one in found for key, mb in one.items() if key[0] == role),
            limit(role),
            "MB",
        )
        for role in budgets()
    ]
    title = f"Peak memory at full speed: {BASE_MB:g} MB and the budgets are allowed"
    return Result("memory", title, "the highest in what is allowed", rows, goals).plain()
