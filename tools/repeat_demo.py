"""Runs the demo several times on one cluster, each time with another seed.

    python tools/repeat_demo.py --runs 20 --backend embedded|apache [--spark] [--out FILE]

Each run appends a JSON line to FILE: the seed, the exit status and the figures. The last lines of
the output are the sums. The exit status is 1 if any run has failed.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka_async.testing.backends import create_backend

TIME_LIMIT = 300.0
"""Seconds of one run."""
FIGURES = ("lost", "duplicated", "killed_workers", "aborted_transactions", "rebalances")


@dataclass(frozen=True)
class Row:
    """Result of a run."""

    seed: int
    status: int
    seconds: float
    figures: dict[str, Any]
    output: str

    @property
    def succeeded(self) -> bool:
        """True if the run succeeded, with no lost and no duplicated record."""
        found = self.figures
        return self.status == 0 and (found.get("lost"), found.get("duplicated")) == (0, 0)


def main() -> int:
    """Run the demo and print the results; return the exit status."""
    parser = argparse.ArgumentParser(description="Runs the demo several times.")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--backend", default="embedded", help="embedded (one per run), or apache")
    parser.add_argument("--spark", action="store_true", help="with the Spark part")
    parser.add_argument(
        "--seed", type=int, help="seed of the first run, incremented for each further run"
    )
    parser.add_argument("--out", type=Path, default=Path("artifacts/demo-runs.jsonl"))
    options = parser.parse_args()
    first = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    options.out.parent.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    with cluster(options.backend) as arguments, options.out.open("a") as out:
        for number in range(options.runs):
            row = run([*arguments, "--seed", str(first + number)], first + number, options.spark)
            rows.append(row)
            line = {"backend": options.backend, "status": row.status, **row.figures}
            line |= {"seed": row.seed, "total_seconds": round(row.seconds, 1)}
            line |= {} if row.succeeded else {"output": row.output}
            out.write(json.dumps(line) + "\n")
            out.flush()
            figures = "  ".join(f"{name} {row.figures.get(name)}" for name in FIGURES)
            print(f"{number + 1:3} seed {row.seed}  {row.seconds:5.1f} s  {figures}", flush=True)
            if not row.succeeded:
                print(row.output)
    return conclude(rows)


@contextmanager
def cluster(backend: str) -> Generator[list[str]]:
    """Start a cluster and yield the arguments for it; with `embedded` each run starts its own."""
    if backend == "embedded":
        yield []
        return
    with create_backend(backend, {"brokers": 3}) as running:
        yield ["--bootstrap", running.bootstrap_servers]


def run(arguments: list[str], seed: int, spark: bool) -> Row:
    """Run the demo in a process."""
    with tempfile.TemporaryDirectory() as directory:
        figures = Path(directory, "figures.json")
        command = [sys.executable, "-m", "kafka_async", "demo", "--json", str(figures), *arguments]
        command += ["--out", directory] if spark else ["--no-spark"]
        start = time.monotonic()
        try:
            ended = subprocess.run(
                command, capture_output=True, text=True, timeout=TIME_LIMIT, check=False
            )
            status, output = ended.returncode, ended.stderr + ended.stdout
        except subprocess.TimeoutExpired as error:
            status, output = -1, f"did not end within {TIME_LIMIT:.0f} s: {error.stderr!r}"
        seconds = time.monotonic() - start
        found: dict[str, Any] = json.loads(figures.read_text()) if figures.exists() else {}
        return Row(seed, status, seconds, found, output)


def conclude(rows: list[Row]) -> int:
    """Print the sums; return the exit status."""
    sums = {name: sum(row.figures.get(name) or 0 for row in rows) for name in FIGURES}
    failed = [row.seed for row in rows if not row.succeeded]
    times = sorted(row.seconds for row in rows)
    print(f"{len(rows)} runs, {len(failed)} failed, seconds {times[0]:.1f} to {times[-1]:.1f}")
    print(", ".join(f"{name} {total}" for name, total in sums.items()))
    if failed:
        print(f"failed: --seed {' '.join(map(str, failed))}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
