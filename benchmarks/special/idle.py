"""Measures the CPU time of idle clients on three brokers, with default options.

All clients are idle at the same time, in separate processes. Each measures the CPU time of only its
process, so they do not affect each other.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from benchmarks.special import idle_client, processes
from benchmarks.special.results import Result, median_goal, row
from kafka_async import Admin, Producer
from kafka_async.admin import NewTopic

NEEDS_BROKERS = 3
SECONDS = 30.0
ROUNDS = 3
"""Maximum number of rounds; each takes 40 seconds."""
PARTITIONS = 6
GOALS = {"kafka_async producer": 0.02, "kafka_async consumer": 0.25}
"""Percent of a core."""


async def create_topics(bootstrap: str, run: str) -> None:
    """Create a topic with one record for each client."""
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        names = [topic(run, client) for client in idle_client.CLIENTS]
        await admin.create_topics([NewTopic(name, PARTITIONS) for name in names])
        for name in names:
            await producer.send(name, b"one")


async def delete_topics(bootstrap: str, run: str) -> None:
    """Delete the topics."""
    async with Admin(bootstrap) as admin:
        await admin.delete_topics([topic(run, client) for client in idle_client.CLIENTS])


def topic(run: str, client: str) -> str:
    """Return the name of a client's topic."""
    return f"bench-idle-{run}-{client.replace(' ', '-')}"


def spend(bootstrap: str, seconds: float) -> dict[str, float]:
    """Return the CPU time of each idle client, in percent of a core."""
    run = uuid.uuid4().hex[:8]
    asyncio.run(create_topics(bootstrap, run))
    tasks: list[dict[str, Any]] = [
        {
            "client": client,
            "bootstrap": bootstrap,
            "topic": topic(run, client),
            "group": topic(run, client),
            "seconds": seconds,
        }
        for client in idle_client.CLIENTS
    ]
    printed = processes.finish([processes.start("idle_client", task) for task in tasks])
    asyncio.run(delete_topics(bootstrap, run))
    spent = [100 * each["cpu_seconds"] / seconds for each in printed]
    return dict(zip(idle_client.CLIENTS, spent, strict=True))


def measure(bootstrap: str | None, rounds: int) -> dict[str, Any]:
    """Measure idle producers, and idle consumers in a group, in percent of a core."""
    assert bootstrap is not None
    rounds = min(rounds, ROUNDS)
    found = [spend(bootstrap, SECONDS) for _ in range(rounds)]
    rows = [
        row(
            client.rpartition(" ")[0],
            mine,
            "% of a core",
            ratio=_median(mine) / _median([one[ours] for one in found]),
            what=client.rpartition(" ")[2],
        )
        for client in idle_client.CLIENTS
        for mine in ([one[client] for one in found],)
        for ours in (f"kafka_async {client.rpartition(' ')[2]}",)
    ]
    goals = [
        median_goal(f"{client}, idle", [one[client] for one in found], limit, "% of a core")
        for client, limit in GOALS.items()
    ]
    title = f"Idle on {NEEDS_BROKERS} brokers, {rounds} x {SECONDS:g} s, everything at defaults"
    return Result("idle", title, "the client's CPU in ours of its kind", rows, goals).plain()


def _median(figures: list[float]) -> float:
    return sorted(figures)[len(figures) // 2]
