"""Compares the Spark data source with Spark's Kafka connector: `python -m benchmarks.spark`.

All clients run in one session and take turns, in an order that changes with each round. The first
round is not counted: it starts the workers and warms up the JVMs. Writes the times to
benchmarks/results/ if the run was complete and on Apache Kafka, otherwise to artifacts/.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks import machine, topics
from benchmarks.payload import DISTINCT, WrongResultError
from benchmarks.spark import jobs
from benchmarks.spark.jobs import CONNECTOR, OURS, READY, Workload
from kafka_async.testing.backends import BackendUnavailableError, create_backend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

RESULTS: Final = Path(__file__).parents[1] / "results"
ARTIFACTS: Final = Path("artifacts") / "benchmarks"
NAME: Final = "bench_spark.json"
ROUNDS: Final = 5


@dataclass(frozen=True)
class Case:
    """A workload, and the clients that run it."""

    title: str
    records: int
    size: int
    copies: bool
    clients: tuple[str, ...]


CASES: Final = {
    "read-100": Case("batch read, 100 B", 3_000_000, 100, False, (OURS, CONNECTOR, READY)),
    "read-1k": Case("batch read, 1 KiB", 1_000_000, 1024, False, (OURS, CONNECTOR, READY)),
    "copy-100": Case("copy, 100 B, at least once", 3_000_000, 100, True, (OURS, CONNECTOR)),
}


@dataclass(frozen=True)
class Row:
    """The times of one client in one case, and the ratio of another's time in the same round."""

    case: str
    client: str
    records: int
    seconds: list[float]
    median_seconds: float
    ratio: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the results; return the exit status."""
    options = _parse(arguments)
    try:
        rows = _measure(options)
    except (WrongResultError, BackendUnavailableError) as error:
        print(error, file=sys.stderr)
        return 1
    complete = options.scale == 1 and not options.only and options.rounds >= ROUNDS
    folder = RESULTS if complete and options.backend.startswith("apache") else ARTIFACTS
    folder.mkdir(parents=True, exist_ok=True)
    context = {
        **machine.describe(options.backend),
        "date": date.today().isoformat(),
        "Spark": jobs.SPARK,
        "rounds": str(options.rounds),
        "records, times the usual": str(options.scale),
    }
    text = json.dumps({"context": context, "rows": [asdict(row) for row in rows]}, indent=2)
    (folder / NAME).write_text(text + "\n", "utf-8")
    for row in rows:
        print(
            f"{row.case:28} {row.client:26} {row.records:>9,} records {row.median_seconds:6.2f} s"
            f"  {row.ratio:5.2f} times {OURS}"
        )
    print(f"written: {folder / NAME}", file=sys.stderr)
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--backend", default="apache", help="apache or embedded")
    parser.add_argument("--only", nargs="*", default=[], choices=[*CASES], help="cases")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds that are counted")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the records")
    return parser.parse_args(arguments)


def _measure(options: argparse.Namespace) -> list[Row]:
    cases = [case for name, case in CASES.items() if not options.only or name in options.only]
    rows: list[Row] = []
    with create_backend(options.backend, {"brokers": 1}) as cluster:
        session = jobs.open_session()
        try:
            for case in cases:
                rows += _run_case(session, cluster.bootstrap_servers, case, options)
        finally:
            session.stop()
    return rows


def _run_case(
    session: SparkSession, bootstrap: str, case: Case, options: argparse.Namespace
) -> list[Row]:
    records = max(1, int(case.records * options.scale) // DISTINCT) * DISTINCT
    topic = asyncio.run(topics.create(bootstrap))
    asyncio.run(topics.fill(bootstrap, topic, records, case.size))
    work = Workload(bootstrap, topic, records, case.size)
    times: dict[str, list[float]] = {client: [] for client in case.clients}
    for number in range(options.rounds + 1):
        turn = number % len(case.clients)
        for client in (*case.clients[turn:], *case.clients[:turn]):
            seconds = _run(session, client, case, work)
            print(f"{case.title}, round {number}: {client} {seconds:.2f} s", file=sys.stderr)
            if number:
                times[client].append(seconds)
    asyncio.run(topics.delete(bootstrap, topic))
    return [
        Row(
            case.title,
            client,
            records,
            [round(each, 4) for each in seconds],
            round(median(seconds), 4),
            round(median(a / b for a, b in zip(seconds, times[OURS], strict=True)), 3),
        )
        for client, seconds in times.items()
    ]


def _run(session: SparkSession, client: str, case: Case, work: Workload) -> float:
    """Return the seconds that a job takes; creating and checking a copy do not count."""
    if not case.copies:
        started = time.perf_counter()
        jobs.read(session, client, work)
        return time.perf_counter() - started
    target = asyncio.run(topics.create(work.bootstrap))
    started = time.perf_counter()
    jobs.copy(session, client, work, target)
    seconds = time.perf_counter() - started
    jobs.check_copy(client, work, target)
    asyncio.run(topics.delete(work.bootstrap, target))
    return seconds


if __name__ == "__main__":
    sys.exit(main())
