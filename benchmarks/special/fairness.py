"""Measures how long a client blocks the event loop: the longest iteration, in CPU milliseconds.

Other tasks of the application are delayed by that time. It is the CPU time of the event loop's
thread, which excludes the broker on the same machine, but includes Python's garbage collector.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from benchmarks import topics
from benchmarks.clients import OURS
from benchmarks.payload import WrongResultError
from benchmarks.peers.task import Figures, Task
from benchmarks.processes import LONG_TIME_LIMIT, launch
from benchmarks.rows import Spread
from benchmarks.special.results import Goal, Result, by_key, compared_with_ours

ROUNDS: Final = 3
RECORDS = 100_000
LIMIT: Final = 5.0
CLIENTS: tuple[str, ...] = (OURS, "aiokafka", "confluent_asyncio")
_ENQUEUE: Final = {"kind": "produce", "way": "enqueue"}
_POLL: Final = {"kind": "consume", "way": "poll"}
CASES: dict[str, dict[str, Any]] = {
    "a record a call": _ENQUEUE,
    "a record a call, keyed, zstd": {**_ENQUEUE, "keyed": True, "compression": "zstd"},
    "1,000 tasks that await their record": {"kind": "produce", "way": "send", "concurrency": 1000},
    "lists of records": _POLL,
    "lists of records, zstd": {**_POLL, "compression": "zstd"},
    "record by record": {"kind": "consume", "way": "iterate"},
}
"""Work during the measurement, as options of the task."""


def run_client(client: str, bootstrap: str, what: str) -> Figures:
    """Run a case in the process of a client; raise unless it has sent or read every record."""
    topic = asyncio.run(topics.create(bootstrap))
    task = Task(
        bootstrap=bootstrap, topic=topic, records=RECORDS, time_iterations=True, **CASES[what]
    )
    try:
        if task.kind == "consume":
            filling = topics.fill(bootstrap, topic, RECORDS, compression=task.compression)
            asyncio.run(filling)
        found = launch(client, task, LONG_TIME_LIMIT)
    finally:
        asyncio.run(topics.delete(bootstrap, topic))
    if found.records != RECORDS:
        raise WrongResultError(f"{client}, {what}: {found.records} of {RECORDS} records")
    return found


def measure(bootstrap: str, rounds: int) -> Result:
    """Measure the longest event loop iteration of each client in each case."""
    measured = [
        {
            (what, client): run_client(client, bootstrap, what)
            for what in CASES
            for client in CLIENTS
        }
        for _ in range(min(rounds, ROUNDS))
    ]
    times = by_key(
        [
            {key: figures.longest_iteration_ms or 0.0 for key, figures in each.items()}
            for each in measured
        ]
    )
    settings = {key: figures.settings for key, figures in measured[-1].items()}
    worst = max(CASES, key=lambda what: Spread.of(times[what, OURS]).median)
    return Result(
        "fairness",
        "The longest turn of the event loop, in CPU time of its thread",
        "the client's longest turn in ours",
        compared_with_ours(times, "ms", settings),
        (Goal.of(f"longest: {worst}", times[worst, OURS], LIMIT, "ms"),),
    )
