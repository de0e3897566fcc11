"""`python -m benchmarks`, also `make bench`: run the cases and write benchmarks/results/."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.produce import Case, Row, measure, table
from kafka_async.kernel import IMPLEMENTATION
from kafka_async.testing.backends import create_backend

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Parse, measure, show, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--backend", default="apache", help="apache, apache-VERSION, embedded")
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--size", type=int, default=100, help="bytes a value")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    case = Case(arguments.records, arguments.size, arguments.rounds)
    with create_backend(arguments.backend, {"brokers": 1}) as cluster:
        rows = table(measure(cluster.bootstrap_servers, case), case)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    context = {"backend": arguments.backend, "kernel": IMPLEMENTATION, "machine": machine}
    markdown = _markdown(rows, case, context)
    sys.stdout.write(markdown)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "produce.md").write_text(markdown, "utf-8")
    document = {**context, "case": asdict(case), "rows": [asdict(row) for row in rows]}
    (RESULTS / "produce.json").write_text(json.dumps(document, indent=2) + "\n", "utf-8")


def _markdown(rows: list[Row], case: Case, context: dict[str, str]) -> str:
    lines = [
        f"Produce {case.records:,} records of {case.size} bytes, acks=all, idempotent, linger 5 "
        f"ms, batches of 128 KiB, no compression, 6 partitions, one broker ({context['backend']}), "
        f"{case.rounds} interleaved rounds, kernel {context['kernel']}; {context['machine']}.",
        "",
        "| client | records/s, median | lowest - highest | CPU us/record | peak MB | ours / this |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row.client} | {row.median:,.0f} | {row.low:,.0f} - {row.high:,.0f} "
        f"| {row.cpu_us:.2f} | {row.peak_mb} | {row.ratio:.2f} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
