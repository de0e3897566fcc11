"""Measures the CPU time of idle clients on three brokers, with default options.

All clients are idle at the same time, in separate processes. Each measures the CPU time of only its
process, so they do not affect each other.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from benchmarks import topics
from benchmarks.clients import OURS
from benchmarks.peers.task import Task
from benchmarks.processes import LONG_TIME_LIMIT, launch, run_together
from benchmarks.special.results import Goal, Result, by_key, compared_with_ours
from kafka_async import Producer

SECONDS: Final = 30.0
ROUNDS: Final = 3
"""Maximum number of rounds; each takes 40 seconds."""
UNIT: Final = "% of a core"
ROLES: Final = {"producer": 0.02, "consumer": 0.25}
"""Goals in percent of a core."""
CLIENTS: Final = ("kafka_async", "aiokafka", "confluent", "kafka_python")


async def _create_topics(bootstrap: str, count: int) -> list[str]:
    """Create topics with one record each."""
    names = [await topics.create(bootstrap) for _ in range(count)]
    async with Producer(bootstrap) as producer:
        for name in names:
            await producer.send(name, b"one")
    return names


def spend(bootstrap: str, seconds: float) -> dict[tuple[str, str], float]:
    """Return the CPU time of each idle role and client, in percent of a core."""
    clients = [(role, client) for role in ROLES for client in CLIENTS]
    names = asyncio.run(_create_topics(bootstrap, len(clients)))
    calls = [
        partial(
            launch,
            client,
            Task(f"idle_{role}", bootstrap, topic, seconds=seconds, tuned=False),
            LONG_TIME_LIMIT,
        )
        for (role, client), topic in zip(clients, names, strict=True)
    ]
    found = run_together(calls)
    asyncio.run(topics.delete(bootstrap, *names))
    spent = [100 * each.cpu_seconds / seconds for each in found]
    return dict(zip(clients, spent, strict=True))


def measure(bootstrap: str, rounds: int) -> Result:
    """Measure idle producers, and idle consumers in a group, in percent of a core."""
    rounds = min(rounds, ROUNDS)
    found = by_key([spend(bootstrap, SECONDS) for _ in range(rounds)])
    goals = [
        Goal.of(f"kafka_async {role}, idle", found[role, OURS], limit, UNIT)
        for role, limit in ROLES.items()
    ]
    title = f"Idle on 3 brokers, {rounds} x {SECONDS:g} s, everything at defaults"
    rows = compared_with_ours(found, UNIT)
    return Result("idle", title, "the client's CPU in ours of its kind", rows, goals)
