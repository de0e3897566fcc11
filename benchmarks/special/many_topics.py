"""5,000 topics produced to in turn, beside one topic: records a second, acknowledged by all.

Each client sends the same records to 5,000 topics of one partition, one record after the other to
another topic, and to one topic of six. After each run the topics are read back: count and checksum
must be those that were sent.
"""

from __future__ import annotations

import asyncio
import statistics
import time
import uuid
from typing import Any

from benchmarks import payload
from benchmarks.special import processes
from benchmarks.special.results import Goal, Result, row
from benchmarks.special.topics_client import CLIENTS, SIZE, topic_names
from benchmarks.wire_cases import WrongResultError
from kafka_async import Admin
from kafka_async.admin import NewTopic

NEEDS_BROKERS = 1
TOPICS = 5_000
RECORDS = 500_000
ROUNDS = 3
"""At most: 5,000 topics take a broker long to make, and to delete."""
BUDGET = 200.0
"""Seconds after which no further round begins."""
CHUNK = 500
MANY, ONE = "many", "one"
PARTITIONS = {MANY: 1, ONE: 6}


async def create(bootstrap: str, prefix: str, count: int, partitions: int) -> None:
    """Make the topics of a run, some hundred at a time."""
    names = topic_names(prefix, count)
    async with Admin(bootstrap) as admin:
        for at in range(0, count, CHUNK):
            chunk = [NewTopic(name, partitions) for name in names[at : at + CHUNK]]
            await admin.create_topics(chunk, timeout=60)


async def delete(bootstrap: str, prefix: str, count: int) -> None:
    """Delete them."""
    names = topic_names(prefix, count)
    async with Admin(bootstrap) as admin:
        for at in range(0, count, CHUNK):
            await admin.delete_topics(names[at : at + CHUNK], timeout=60)


def rate(client: str, bootstrap: str, prefix: str, kind: str, topics: int, records: int) -> float:
    """Records a second of one client in one run.

    Raises:
        WrongResultError: what is in the topics is not what was sent.
    """
    task: dict[str, Any] = {
        "client": client,
        "bootstrap": bootstrap,
        "prefix": prefix,
        "topics": topics,
        "partitions": PARTITIONS[kind],
        "records": records,
    }
    [figures] = processes.finish([processes.start("topics_client", task)])
    [found] = processes.finish([processes.start("topics_client", {**task, "client": "read"})])
    wanted = {"records": records, "checksum": payload.expected(records, SIZE)}
    if found != wanted:
        raise WrongResultError(f"{client}, {kind} topics: {wanted} sent, {found} arrived")
    return records / figures["seconds"]


def one_round(
    bootstrap: str, clients: list[str], topics: int, records: int
) -> dict[str, dict[str, float]]:
    """Records a second of each client, to many topics and to one, all made afresh."""
    found: dict[str, dict[str, float]] = {}
    for client in clients:
        found[client] = {}
        for kind, count in ((ONE, 1), (MANY, topics)):
            prefix = f"bench-{kind}-{uuid.uuid4().hex[:8]}"
            asyncio.run(create(bootstrap, prefix, count, PARTITIONS[kind]))
            try:
                found[client][kind] = rate(client, bootstrap, prefix, kind, count, records)
            finally:
                asyncio.run(delete(bootstrap, prefix, count))
    return found


def measure(bootstrap: str | None, rounds: int) -> dict[str, Any]:
    """Records a second to 5,000 topics and to one.

    Raises:
        WrongResultError: what is in the topics is not what was sent.
    """
    assert bootstrap is not None
    began = time.monotonic()
    found: list[dict[str, dict[str, float]]] = []
    for number in range(min(rounds, ROUNDS)):
        # Ours each round, the peers in the first: they are there to compare with.
        clients = list(CLIENTS) if number == 0 else list(CLIENTS)[:1]
        found.append(one_round(bootstrap, clients, TOPICS, RECORDS))
        if time.monotonic() - began > BUDGET:
            break
    rows = [
        row(
            client,
            [one[client][kind] for one in found if client in one],
            "records/s",
            ratio=_median([one[client][kind] / one[client][ONE] for one in found if client in one]),
            what=f"{TOPICS:,} topics" if kind == MANY else "one topic, 6 partitions",
            settings={"linger_ms": 5},
        )
        for client in CLIENTS
        for kind in (ONE, MANY)
    ]
    reached = _median([one["kafka_async"][MANY] / one["kafka_async"][ONE] for one in found])
    return Result(
        "many_topics",
        f"{RECORDS:,} records of {SIZE} bytes to {TOPICS:,} topics in turn, and to one",
        "the client's rate in its own rate to one topic",
        rows,
        (Goal(f"{TOPICS:,} topics: rate in that of one topic", reached, 0.5, "x", True),),
    ).plain()


def _median(figures: list[float]) -> float:
    return statistics.median(figures)
