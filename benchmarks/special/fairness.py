"""Measures how long a client blocks the event loop: the longest iteration, in CPU milliseconds.

Other tasks of the application are delayed by that time. It is the CPU time of the event loop's
thread, which excludes the broker on the same machine, but includes Python's garbage collector.
"""

from __future__ import annotations

import asyncio
import statistics
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks import topics
from benchmarks.peers.task import Task
from benchmarks.special import processes
from benchmarks.special.results import Result, median_goal, row
from benchmarks.wire_cases import WrongResultError

NEEDS_BROKERS = 1
ROUNDS = 3
RECORDS = 100_000
LIMIT = 5.0
CLIENTS = {
    "kafka_async": "kafka_async_peer",
    "aiokafka": "aiokafka_peer",
    "confluent-kafka asyncio": "confluent_asyncio_peer",
}


@dataclass(frozen=True)
class Case:
    """Work during the measurement."""

    what: str
    kind: str
    way: str
    keyed: bool = False
    compression: str = "none"
    concurrency: int = 1


CASES = (
    Case("a record a call", "produce", "enqueue"),
    Case("a record a call, keyed, zstd", "produce", "enqueue", True, "zstd"),
    Case("1,000 tasks that await their record", "produce", "send", concurrency=1000),
    Case("lists of records", "consume", "poll"),
    Case("lists of records, zstd", "consume", "poll", compression="zstd"),
    Case("record by record", "consume", "iterate"),
)


def run_client(client: str, bootstrap: str, case: Case, records: int) -> dict[str, Any]:
    """Run a case in the process of a client; return its output.

    Raises:
        WrongResultError: the client has not sent or read every record.
    """
    task = Task(
        case.kind,
        bootstrap,
        asyncio.run(topics.create(bootstrap)),
        way=case.way,
        records=records,
        keyed=case.keyed,
        compression=case.compression,
        concurrency=case.concurrency,
    )
    try:
        if case.kind == "consume":
            compression = case.compression
            filling = topics.fill(
                bootstrap, task.topic, records, task.size, keyed=False, compression=compression
            )
            asyncio.run(filling)
        given = {**asdict(task), "peer": CLIENTS[client]}
        [found] = processes.finish([processes.start("fairness_client", given)])
    finally:
        asyncio.run(topics.delete(bootstrap, task.topic))
    if found["records"] != records:
        raise WrongResultError(f"{client}, {case.what}: {found['records']} of {records} records")
    return found


def measure(bootstrap: str | None, rounds: int) -> dict[str, Any]:
    """Measure the longest event loop iteration of each client in each case.

    Raises:
        WrongResultError: a client has not sent or read every record.
    """
    assert bootstrap is not None
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for _ in range(min(rounds, ROUNDS)):
        for case in CASES:
            for client in CLIENTS:
                one = run_client(client, bootstrap, case, RECORDS)
                found.setdefault((case.what, client), []).append(one)
    medians = {place: statistics.median(one["ms"] for one in all_) for place, all_ in found.items()}
    rows = [
        row(
            client,
            [one["ms"] for one in all_],
            "ms",
            ratio=medians[what, client] / medians[what, "kafka_async"],
            what=what,
            settings=all_[0]["settings"],
        )
        for (what, client), all_ in found.items()
    ]
    ours = {place: ms for place, ms in medians.items() if place[1] == "kafka_async"}
    worst = max(ours, key=lambda place: ours[place])
    return Result(
        "fairness",
        "The longest turn of the event loop, in CPU time of its thread",
        "the client's longest turn in ours",
        rows,
        (median_goal(f"longest: {worst[0]}", [one["ms"] for one in found[worst]], LIMIT, "ms"),),
    ).plain()
