"""The most memory that a client has resident: at full speed, and whatever the broker does.

A producer and a consumer run for some seconds each against a broker that serves, one that stands
still in the middle (SIGSTOP, some seconds, SIGCONT), and with many partitions. So the broker is one
of its own. The goal is 40 MB, for Python, the modules and the loop, and the sum of the budgets that
the client was given, here its defaults.
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
"""At most: memory hardly varies."""
SECONDS = 8.0
STALL_AFTER, STALL = 3.0, 4.0
BASE_MB = 40.0
MANY = 1_000


@dataclass(frozen=True)
class Case:
    """A producer and then a consumer, with values of a size, on so many topics."""

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
    """The options that bound a client's memory, and their defaults in bytes."""
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
    """The goal for a role, in MB."""
    return BASE_MB + sum(budgets()[role].values()) / 1e6


def peak(
    bootstrap: str, case: Case, pause: Callable[[], None], go_on: Callable[[], None]
) -> dict[str, float]:
    """Peak MB of a producer and of a consumer of what it has sent.

    Raises:
        RuntimeError: one of them has moved no record.
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
                stall(pause, go_on)
        finally:
            [figures] = processes.finish([process])
        if not figures["records"]:
            raise RuntimeError(f"{role}, {case.title}: no record moved")
        found[role] = figures["peak_mb"]
    return found


def stall(pause: Callable[[], None], go_on: Callable[[], None]) -> None:
    """Let the broker stand still for a while."""
    time.sleep(STALL_AFTER)
    pause()
    # Whatever happens to this process, the broker goes on.
    timer = threading.Timer(STALL, go_on)
    timer.start()
    timer.join()


def one_round(broker: ApacheBackend) -> dict[tuple[str, str], float]:
    """Peak MB by role and case."""
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
    """Peak MB of each role in each case, on an Apache Kafka of its own."""
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
