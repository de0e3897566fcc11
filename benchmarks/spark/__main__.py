"""Compares the Spark data source with Spark's Kafka connector: `python -m benchmarks.spark`.

Runs on the newest version of Spark that the connector exists for, which is installed on first use.
All clients run in one session and take turns, in an order that changes with each round. The first
round is not counted: it starts the workers and warms up the JVMs. Writes the times to
benchmarks/results/ if the run was complete and on Apache Kafka, otherwise to artifacts/. The exit
status is 1 if a complete run misses a target.
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

from benchmarks import control_latency, machine, topics
from benchmarks.payload import DISTINCT, WrongResultError
from benchmarks.spark import goals, jobs, streaming
from benchmarks.spark.goals import CONNECTOR, DISCARDED, ONCE, OURS, READY
from benchmarks.spark.jobs import Workload
from kafka_async.testing.backends import BackendUnavailableError, create_backend
from tools.sparks import CONNECTOR_VERSION, SparkUnavailableError, run_again_with

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
    selected: float | None = None
    """Part of the records that is read; None is all."""


CASES: Final = {
    "read-100": Case(goals.READ_100, 3_000_000, 100, False, (OURS, CONNECTOR, READY, DISCARDED)),
    "read-1k": Case(goals.READ_1K, 1_000_000, 1024, False, (OURS, CONNECTOR, READY)),
    "copy-100": Case(goals.COPY, 3_000_000, 100, True, (OURS, CONNECTOR, ONCE)),
    "filter-100": Case(goals.FILTER, 20_000_000, 100, False, (OURS, CONNECTOR), 0.01),
}
LATENCY, CONTROL = "latency", "control"
STREAM_CLIENTS: Final = (OURS, CONNECTOR, goals.PYTHON, goals.JVM)
CONTROL_PAUSE: Final = 0.3
"""Seconds between control messages: the transactions of a job end before the next message."""
SELECTED_LATER: Final = 3_600_000
"""Milliseconds between the records that a filtered read leaves out and those it selects."""


@dataclass(frozen=True)
class Row:
    """The times of one client in one case, and the ratio of another's time in the same round."""

    case: str
    client: str
    records: int
    seconds: list[float]
    median_seconds: float
    ratio: float


@dataclass(frozen=True)
class LatencyRow:
    """The latencies of one client in ms: p50 and p99 of each round, and their medians."""

    case: str
    client: str
    rounds: list[tuple[float, float]]
    p50: float
    p99: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the results; return the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    options = _parse(given)
    try:
        status = run_again_with(CONNECTOR_VERSION, "benchmarks.spark", given)
        if status is not None:
            return status
        rows, latencies = _measure(options)
    except (WrongResultError, BackendUnavailableError, SparkUnavailableError) as error:
        print(error, file=sys.stderr)
        return 1
    complete = options.scale == 1 and not options.only and options.rounds >= ROUNDS
    folder = RESULTS if complete and options.backend.startswith("apache") else ARTIFACTS
    folder.mkdir(parents=True, exist_ok=True)
    context = {
        **machine.describe(options.backend),
        "date": date.today().isoformat(),
        "Spark": CONNECTOR_VERSION,
        "rounds": str(options.rounds),
        "records, times the usual": str(options.scale),
    }
    results = {
        "context": context,
        "rows": [asdict(row) for row in rows],
        "latencies": [asdict(row) for row in latencies],
    }
    (folder / NAME).write_text(json.dumps(results, indent=2) + "\n", "utf-8")
    for row in rows:
        print(
            f"{row.case:28} {row.client:28} {row.records:>9,} records {row.median_seconds:6.2f} s"
            f"  {row.ratio:5.2f} times {OURS}"
        )
    for row in latencies:
        print(f"{row.case:28} {row.client:28} p50 {row.p50:7.1f} ms, p99 {row.p99:7.1f} ms")
    verdicts = goals.check(
        {(row.case, row.client): row.ratio for row in rows},
        {(row.case, row.client): (row.p50, row.p99) for row in latencies},
    )
    for verdict in verdicts:
        print(verdict)
    print(f"written: {folder / NAME}", file=sys.stderr)
    return int(complete and not all(verdict.met for verdict in verdicts))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--backend", default="apache", help="apache or embedded")
    parser.add_argument(
        "--only", nargs="*", default=[], choices=[*CASES, LATENCY, CONTROL], help="cases"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds that are counted")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the records")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="seconds that streaming queries are measured"
    )
    parser.add_argument("--messages", type=int, default=300, help="control messages")
    return parser.parse_args(arguments)


def _measure(options: argparse.Namespace) -> tuple[list[Row], list[LatencyRow]]:
    chosen = options.only or [*CASES, LATENCY, CONTROL]
    rows: list[Row] = []
    latencies: list[LatencyRow] = []
    with create_backend(options.backend, {"brokers": 1}) as cluster:
        session = jobs.open_session()
        bootstrap = cluster.bootstrap_servers
        try:
            for name, case in CASES.items():
                if name in chosen:
                    rows += _run_case(session, bootstrap, case, options)
            if LATENCY in chosen:
                latencies += _measure_streams(session, bootstrap, options)
            if CONTROL in chosen:
                latencies.append(_measure_control(session, bootstrap, options))
        finally:
            session.stop()
    return rows, latencies


def _measure_streams(
    session: SparkSession, bootstrap: str, options: argparse.Namespace
) -> list[LatencyRow]:
    """Measure the latency of copies, and the batches of queries that copy nothing."""
    rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in STREAM_CLIENTS}
    for number in range(options.rounds):
        turn = number % len(STREAM_CLIENTS)
        for client in (*STREAM_CLIENTS[turn:], *STREAM_CLIENTS[:turn]):
            if client in jobs.FORMATS:
                values = streaming.copy_latencies(session, client, bootstrap, options.seconds)
            else:
                values = streaming.batch_durations(session, client, options.seconds)
            rounds[client].append(streaming.percentiles(values))
            p50, p99 = rounds[client][-1]
            print(f"{client}, round {number}: p50 {p50:.1f} ms, p99 {p99:.1f} ms", file=sys.stderr)
    return [_latency_row(goals.LATENCY, client, found) for client, found in rounds.items()]


def _measure_control(
    session: SparkSession, bootstrap: str, options: argparse.Namespace
) -> LatencyRow:
    times = asyncio.run(
        control_latency.measure(bootstrap, options.messages, session, CONTROL_PAUSE)
    )
    return _latency_row(goals.CONTROL, OURS, [streaming.percentiles(times)])


def _latency_row(case: str, client: str, rounds: list[tuple[float, float]]) -> LatencyRow:
    p50, p99 = (round(median(each), 2) for each in zip(*rounds, strict=True))
    return LatencyRow(case, client, rounds, p50, p99)


def _run_case(
    session: SparkSession, bootstrap: str, case: Case, options: argparse.Namespace
) -> list[Row]:
    records = max(1, int(case.records * options.scale) // DISTINCT) * DISTINCT
    topic = asyncio.run(topics.create(bootstrap))
    work = asyncio.run(_fill(bootstrap, topic, records, case))
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


async def _fill(bootstrap: str, topic: str, records: int, case: Case) -> Workload:
    """Send the records; those that a filtered read selects are later than the others."""
    if case.selected is None:
        await topics.fill(bootstrap, topic, records, case.size)
        return Workload(bootstrap, topic, records, case.size)
    selected = max(1, int(records * case.selected) // DISTINCT) * DISTINCT
    now = int(time.time() * 1000)
    before = now - SELECTED_LATER
    await topics.fill(bootstrap, topic, records - selected, case.size, timestamp=before)
    await topics.fill(bootstrap, topic, selected, case.size, timestamp=now)
    return Workload(bootstrap, topic, records, case.size, now, selected)


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
