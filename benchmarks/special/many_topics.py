"""5,000 topics produced to in turn, beside one topic: records a second, acknowledged by all.

The same records go to 5,000 topics of one partition, one record after the other to another topic,
and to one topic of six. After each run the topics are read back: count and checksum must be those
that were sent. Ours only: what aiokafka and confluent-kafka take for it is minutes.
"""

from __future__ import annotations

import asyncio
import statistics
import time
import uuid
from typing import Any

from benchmarks import payload
from benchmarks.special import processes
from benchmarks.special.results import Result, Row, median_goal, row
from benchmarks.special.topics_client import OPTIONS, SIZE, topic_names
from benchmarks.wire_cases import WrongResultError
from kafka_async import Admin
from kafka_async.admin import NewTopic

NEEDS_BROKERS = 1
TOPICS = 5_000
RECORDS = 2_000_000
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


def write(bootstrap: str, kind: str, topics: int, records: int) -> dict[str, float]:
    """Figures of one run, with its topics made afresh, read back and deleted.

    Raises:
        WrongResultError: what is in the topics is not what was sent.
    """
    prefix = f"bench-{kind}-{uuid.uuid4().hex[:8]}"
    task: dict[str, Any] = {
        "bootstrap": bootstrap,
        "prefix": prefix,
        "topics": topics,
        "partitions": PARTITIONS[kind],
        "records": records,
    }
    asyncio.run(create(bootstrap, prefix, topics, PARTITIONS[kind]))
    try:
        [figures] = processes.finish([processes.start("topics_client", {**task, "do": "write"})])
        [found] = processes.finish([processes.start("topics_client", {**task, "do": "read"})])
    finally:
        asyncio.run(delete(bootstrap, prefix, topics))
    check(found, records)
    return figures


def check(found: dict[str, int], records: int) -> None:
    """Compare what was read back with what was sent.

    Raises:
        WrongResultError: it is not the same.
    """
    wanted = {"records": records, "checksum": payload.expected(records, SIZE)}
    if found != wanted:
        raise WrongResultError(f"many topics: {wanted} were sent, {found} arrived")


def measure(bootstrap: str | None, rounds: int) -> dict[str, Any]:
    """Records a second to 5,000 topics and to one.

    Raises:
        WrongResultError: what is in the topics is not what was sent.
    """
    assert bootstrap is not None
    began = time.monotonic()
    found: dict[str, list[dict[str, float]]] = {ONE: [], MANY: []}
    for _ in range(min(rounds, ROUNDS)):
        for kind, topics in ((ONE, 1), (MANY, TOPICS)):
            found[kind].append(write(bootstrap, kind, topics, RECORDS))
        if time.monotonic() - began > BUDGET:
            break
    ratios = [one["seconds"] / many["seconds"] for one, many in zip(*found.values(), strict=True)]
    reached = statistics.median(ratios)
    cpu = [
        one["cpu_seconds"] / many["cpu_seconds"] for one, many in zip(*found.values(), strict=True)
    ]
    rate_goal, cpu_goal = "rate in that of one topic", "one topic's CPU time in theirs"
    title = f"{RECORDS:,} records of {SIZE} bytes to {TOPICS:,} topics in turn, and to one"
    return Result(
        "many_topics",
        title,
        "the rate in the rate to one topic",
        [*lines(found[ONE], "one topic", 1.0), *lines(found[MANY], f"{TOPICS:,} topics", reached)],
        tuple(
            median_goal(f"{TOPICS:,} topics: {what}", figures, 0.5, "x", more_is_better=True)
            for what, figures in ((rate_goal, ratios), (cpu_goal, cpu))
        ),
    ).plain()


def lines(figures: list[dict[str, float]], what: str, ratio: float) -> list[Row]:
    """Rate, the client's CPU a record, and its peak of memory."""
    rates = [RECORDS / each["seconds"] for each in figures]
    cpu = [each["cpu_seconds"] / RECORDS * 1e6 for each in figures]
    peaks = [each["peak_mb"] for each in figures]
    ours = "kafka_async"
    return [
        row(ours, rates, "records/s", ratio=ratio, what=what, settings=OPTIONS),
        row(ours, cpu, "us CPU a record", ratio=1.0, what=what, settings=OPTIONS),
        row(ours, peaks, "MB at most", ratio=1.0, what=what, settings=OPTIONS),
    ]
