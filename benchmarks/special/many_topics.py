"""Compares producing to 5,000 topics with producing to one topic, with acks=all.

The same records are sent to 5,000 topics with one partition in turn, and to one topic with six
partitions. After each run the topics are read, and the number and the checksum of records must be
those that were sent. Only for this project: aiokafka and confluent-kafka would take minutes.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from benchmarks import payload, topics
from benchmarks.clients import OURS
from benchmarks.payload import WrongResultError
from benchmarks.peers.task import Figures, Task
from benchmarks.processes import LONG_TIME_LIMIT, launch
from benchmarks.rows import Spread
from benchmarks.special.results import Goal, Result, Row
from benchmarks.topics import Tally

TOPICS: Final = 5_000
RECORDS: Final = 2_000_000
SIZE: Final = 100
ROUNDS: Final = 3
"""Maximum number of rounds: creating and deleting 5,000 topics takes a broker long."""
BUDGET: Final = 200.0
"""Seconds after which no other round starts."""


def write(bootstrap: str, count: int, partitions: int, records: int) -> Figures:
    """Write records to new topics, and check what is read; return the figures of writing."""
    topic = asyncio.run(topics.create(bootstrap, partitions, count))
    names = payload.topic_names(topic, count)
    try:
        task = Task("many_topics", bootstrap, topic, topics=count, records=records, size=SIZE)
        figures = launch(OURS, task, LONG_TIME_LIMIT)
        check(asyncio.run(topics.tally(bootstrap, *names, partitions=partitions)), records)
    finally:
        asyncio.run(topics.delete(bootstrap, *names))
    return figures


def check(found: Tally, records: int) -> None:
    """Raise unless the records that were read are those that were sent."""
    sent = Tally.expected(records, SIZE)
    if found != sent:
        raise WrongResultError(f"many topics: {sent} was sent, {found} was read")


def measure(bootstrap: str, rounds: int) -> Result:
    """Measure the rates to 5,000 topics and to one."""
    began = time.monotonic()
    one: list[Figures] = []
    many: list[Figures] = []
    for _ in range(min(rounds, ROUNDS)):
        one.append(write(bootstrap, 1, 6, RECORDS))
        many.append(write(bootstrap, TOPICS, 1, RECORDS))
        if time.monotonic() - began > BUDGET:
            break
    pairs = list(zip(one, many, strict=True))
    rates = [single.seconds / several.seconds for single, several in pairs]
    cpu = [single.cpu_seconds / several.cpu_seconds for single, several in pairs]
    goals = (("rate in that of one topic", rates), ("one topic's CPU time in theirs", cpu))
    return Result(
        "many_topics",
        f"{RECORDS:,} records of {SIZE} bytes to {TOPICS:,} topics in turn, and to one",
        "the rate in the rate to one topic",
        [
            *_rows(one, "one topic", 1.0),
            *_rows(many, f"{TOPICS:,} topics", Spread.of(rates).median),
        ],
        [
            Goal.of(f"{TOPICS:,} topics: {what}", figures, 0.5, "x", more_is_better=True)
            for what, figures in goals
        ],
    )


def _rows(figures: list[Figures], what: str, ratio: float) -> list[Row]:
    """Return the rate with its ratio, the CPU time per record and the peak memory."""
    found = (
        ("records/s", [RECORDS / each.seconds for each in figures], ratio),
        ("us CPU a record", [each.cpu_seconds / RECORDS * 1e6 for each in figures], 1.0),
        ("MB at most", [each.peak_mb for each in figures], 1.0),
    )
    return [
        Row.of(OURS, values, unit, its_ratio, what=what, settings=figures[0].settings)
        for unit, values, its_ratio in found
    ]
