"""Runs the demo again and again on one cluster, with a seed of its own each time.

    python tools/repeat_demo.py --runs 20 --backend embedded|apache [--spark] [--out FILE]

Each run adds a JSON line to FILE: its seed, its exit status, its figures. The last line of the
screen sums them up; the exit status tells whether every run was right.
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

LIMIT = 300.0
FIGURES = ("lost", "duplicated", "killed_workers", "aborted_transactions", "rebalances")


@dataclass(frozen=True)
class Row:
    """One run."""

    seed: int
    status: int
    seconds: float
    figures: dict[str, Any]
    said: str

    @property
    def right(self) -> bool:
        """Whether nothing was lost and nothing counted twice, and the worker was killed."""
        found = self.figures
        return self.status == 0 and (found.get("lost"), found.get("duplicated")) == (0, 0)


def main() -> int:
    """Run and report; returns the exit status."""
    parser = argparse.ArgumentParser(description="Runs the demo again and again.")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--backend", default="embedded", help="embedded (its own), or apache")
    parser.add_argument("--spark", action="store_true", help="with its Spark half")
    parser.add_argument("--seed", type=int, help="of the first run; the others follow from it")
    parser.add_argument("--out", type=Path, default=Path("artifacts/demo-runs.jsonl"))
    options = parser.parse_args()
    first = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    options.out.parent.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    with cluster(options.backend) as where, options.out.open("a") as out:
        for number in range(options.runs):
            row = run([*where, "--seed", str(first + number)], first + number, options.spark)
            rows.append(row)
            line = {"backend": options.backend, "status": row.status, **row.figures}
            line |= {"seed": row.seed, "total_seconds": round(row.seconds, 1)}
            line |= {} if row.right else {"said": row.said}
            out.write(json.dumps(line) + "\n")
            out.flush()
            told = "  ".join(f"{name} {row.figures.get(name)}" for name in FIGURES)
            print(f"{number + 1:3} seed {row.seed}  {row.seconds:5.1f} s  {told}", flush=True)
            if not row.right:
                print(row.said)
    return conclude(rows)


@contextmanager
def cluster(backend: str) -> Generator[list[str]]:
    """The arguments that name the cluster; the embedded one is each run's own."""
    if backend == "embedded":
        yield []
        return
    with create_backend(backend, {"brokers": 3}) as running:
        yield ["--bootstrap", running.bootstrap_servers]


def run(arguments: list[str], seed: int, spark: bool) -> Row:
    """One demo, in a process of its own."""
    with tempfile.TemporaryDirectory() as directory:
        figures = Path(directory, "figures.json")
        command = [sys.executable, "-m", "kafka_async", "demo", "--json", str(figures), *arguments]
        command += ["--out", directory] if spark else ["--no-spark"]
        start = time.monotonic()
        try:
            ended = subprocess.run(
                command, capture_output=True, text=True, timeout=LIMIT, check=False
            )
            status, said = ended.returncode, ended.stderr + ended.stdout
        except subprocess.TimeoutExpired as error:
            status, said = -1, f"not ended within {LIMIT:.0f} s: {error.stderr!r}"
        seconds = time.monotonic() - start
        found: dict[str, Any] = json.loads(figures.read_text()) if figures.exists() else {}
        return Row(seed, status, seconds, found, said)


def conclude(rows: list[Row]) -> int:
    """Print the sums; returns the exit status."""
    sums = {name: sum(row.figures.get(name) or 0 for row in rows) for name in FIGURES}
    wrong = [row.seed for row in rows if not row.right]
    times = sorted(row.seconds for row in rows)
    print(f"{len(rows)} runs, {len(wrong)} wrong, seconds {times[0]:.1f} to {times[-1]:.1f}")
    print(", ".join(f"{name} {total}" for name, total in sums.items()))
    if wrong:
        print(f"wrong: --seed {' '.join(map(str, wrong))}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
