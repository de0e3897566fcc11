"""Compares producing to 5,000 topics with producing to one topic, with acks=all.

The same records are sent to 5,000 topics with one partition in turn, and to one topic with six
partitions. After each run the topics are read, and the number and the checksum of records must be
those that were sent. Only for this project: aiokafka and confluent-kafka would take minutes.
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
"""Maximum number of rounds: creating and deleting 5,000 topics takes a broker long."""
BUDGET = 200.0
"""Seconds after which no other round starts."""
CHUNK = 500
MANY, ONE = "many", "one"
PARTITIONS = {MANY: 1, ONE: 6}


async def create(bootstrap: str, prefix: str, count: int, partitions: int) -> None:
    """Create the topics of a run, in requests of 500."""
    names = topic_names(prefix, count)
    async with Admin(bootstrap) as admin:
        for at in range(0, count, CHUNK):
            chunk = [NewTopic(name, partitions) for name in names[at : at + CHUNK]]
            await admin.create_topics(chunk, timeout=60)


async def delete(bootstrap: str, prefix: str, count: int) -> None:
    """Delete the topics of a run."""
    names = topic_names(prefix, count)
    async with Admin(bootstrap) as admin:
        for at in range(0, count, CHUNK):
            await admin.delete_topics(names[at : at + CHUNK], timeout=60)


def write(bootstrap: str, kind: str, topics: int, records: int) -> dict[str, float]:
    """Create topics, write and read records, and delete the topics; return the figures of writing.

    Raises:
        WrongResultError: the records in the topics are not those that were sent.
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
    """Compare the records that were read with those that were sent.

    Raises:
        WrongResultError: they differ.
    """
    sent = {"records": records, "checksum": payload.expected(records, SIZE)}
    if found != sent:
        raise WrongResultError(f"many topics: {sent} were sent, {found} were read")


def measure(bootstrap: str | None, rounds: int) -> dict[str, Any]:
    """Measure the rates to 5,000 topics and to one.

    Raises:
        WrongResultError: the records in the topics are not those that were sent.
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
    """Return the rows of a run: rate, CPU time per record and peak memory."""
    rates = [RECORDS / each["seconds"] for each in figures]
    cpu = [each["cpu_seconds"] / RECORDS * 1e6 for each in figures]
    peaks = [each["peak_mb"] for each in figures]
    ours = "kafka_async"
    return [
        row(ours, rates, "records/s", ratio=ratio, what=what, settings=OPTIONS),
        row(ours, cpu, "us CPU a record", ratio=1.0, what=what, settings=OPTIONS),
        row(ours, peaks, "MB at most", ratio=1.0, what=what, settings=OPTIONS),
    ]
