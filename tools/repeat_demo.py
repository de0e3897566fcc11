"""Runs the demo several times on one cluster, each time with another seed.

    python tools/repeat_demo.py --runs 20 --backend embedded|apache [--spark]

Prints the figures of each run, the output of failed ones, and the sums. The exit status is 1 if any
run has failed.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kafka_async.testing.backends import create_backend

TIME_LIMIT = 300.0
"""Seconds of one run."""
FIGURES = ("lost", "duplicated", "killed_workers", "aborted_transactions", "rebalances")


def main() -> int:
    """Run the demo and print the results; return the exit status."""
    parser = argparse.ArgumentParser(description="Runs the demo several times.")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--backend", default="embedded", help="embedded (one per run), or apache")
    parser.add_argument("--spark", action="store_true", help="with the Spark part")
    parser.add_argument(
        "--seed", type=int, help="seed of the first run, incremented for each further run"
    )
    options = parser.parse_args()
    first = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    sums: Counter[str] = Counter()
    times: list[float] = []
    failed: list[str] = []
    with ExitStack() as stack:
        cluster: list[str] = []
        if options.backend != "embedded":
            running = stack.enter_context(create_backend(options.backend, {"brokers": 3}))
            cluster = ["--bootstrap", running.bootstrap_servers]
        for seed in range(first, first + options.runs):
            begun = time.monotonic()
            status, output, figures = run(cluster, seed, options.spark)
            times.append(time.monotonic() - begun)
            shown = "  ".join(f"{name} {figures.get(name)}" for name in FIGURES)
            print(f"{len(times):3} seed {seed}  {times[-1]:5.1f} s  {shown}", flush=True)
            sums.update({name: figures.get(name) or 0 for name in FIGURES})
            if status or (figures.get("lost"), figures.get("duplicated")) != (0, 0):
                failed.append(str(seed))
                print(output)
    seconds = f"seconds {min(times):.1f} to {max(times):.1f}"
    print(f"{len(times)} runs, {len(failed)} failed, {seconds}")
    print(", ".join(f"{name} {sums[name]}" for name in FIGURES))
    if failed:
        print(f"failed: --seed {' '.join(failed)}")
    return 1 if failed else 0


def run(cluster: list[str], seed: int, spark: bool) -> tuple[int, str, dict[str, Any]]:
    """Run the demo in a process; return its exit status, its output and its figures."""
    with tempfile.TemporaryDirectory() as directory:
        figures = Path(directory, "figures.json")
        command = [sys.executable, "-m", "kafka_async", "demo", "--json", str(figures)]
        command += [*cluster, "--seed", str(seed)]
        command += ["--out", directory] if spark else ["--no-spark"]
        try:
            ended = subprocess.run(
                command, capture_output=True, text=True, timeout=TIME_LIMIT, check=False
            )
            status, output = ended.returncode, ended.stderr + ended.stdout
        except subprocess.TimeoutExpired as error:
            status, output = -1, f"did not end within {TIME_LIMIT:.0f} s: {error.stderr!r}"
        return status, output, json.loads(figures.read_text()) if figures.exists() else {}


if __name__ == "__main__":
    sys.exit(main())
