"""Kills everything around a streaming query with the exactly-once sink, and compares its rows.

    python -m tests.reliability [--seconds 900] [--at-most 1800] [--seed N] [--backend NAME]

Also `make reliability-spark`. A query copies a topic to another while its drivers, Python workers,
executors and brokers are killed, two drivers compete, and EndTxn requests arrive late. At the end
every committed output row must be one input record, and every input record one row. The seed
determines the faults and their order. The result of a whole run on Apache Kafka is written to
benchmarks/results/, that of any other run to artifacts/reliability/.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafka_async.testing.backends import BackendUnavailableError, create_backend
from kafka_async.testing.spark_cluster import spark_cluster
from tests.programs import ROOT
from tests.reliability.fault_schedule import BROKERS, Goal
from tests.reliability.run import ReliabilityError, Run, describe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.reliability.row_check import Verdict

RESULTS: Final = ROOT / "benchmarks" / "results"
ARTIFACTS: Final = Path("artifacts") / "reliability"
NAME: Final = "reliability_spark.json"
LOG_CHARACTERS: Final = 3_000
"""End of the drivers' logs that is shown after a failure."""


def say(text: str) -> None:
    """Print a text at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of a run."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.reliability", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--seconds", type=float, default=900.0, help="duration (default: 900)")
    parser.add_argument(
        "--at-most",
        type=float,
        default=1_800.0,
        help="seconds after which a run on a slow machine starts no further round (default: 1800)",
    )
    parser.add_argument("--seed", type=int, help="seed of the faults (default: random)")
    parser.add_argument("--backend", default="apache", help="apache (default) or embedded")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the verdict and write the result; return the exit status."""
    options = parse(arguments)
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    command = f"python -m tests.reliability --seconds {options.seconds:g} --seed {seed}"
    command += f" --backend {options.backend}"
    say(f"{command}\nseed {seed}")
    verdict: Verdict | None = None
    reason = ""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        try:
            with (
                create_backend(options.backend, {"brokers": BROKERS}) as backend,
                spark_cluster(2, cores=1, memory="1g") as spark,
            ):
                backend_name = backend.name

                async def run() -> tuple[Run, Verdict | None, str]:
                    it = Run(backend, spark.master, directory, seed)
                    try:
                        return it, await it.run(Goal.of(options.seconds), options.at_most), ""
                    except ReliabilityError as error:
                        return it, None, str(error)

                it, verdict, reason = asyncio.run(run())
        except BackendUnavailableError as error:
            say(str(error))
            return 1
        figures = describe(it.record, verdict, it.epochs)
        log = directory / "drivers.log"
        if reason or verdict is None or not verdict.is_exact:
            say(log.read_text("utf-8", "replace")[-LOG_CHARACTERS:])
    is_exact = verdict is not None and verdict.is_exact
    result = {
        "command": command,
        "seed": seed,
        "backend": backend_name,
        "date": date.today().isoformat(),
        "result": "exact" if is_exact else reason or "rows differ",
        **figures,
    }
    is_whole = options.seconds >= Goal().seconds and options.backend == "apache"
    folder = RESULTS if is_whole and is_exact else ARTIFACTS
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NAME).write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    figures.pop("events")
    for key, value in figures.items():
        say(f"{key}: {value}")
    say(f"result: {result['result']} (seed {seed}); written: {folder / NAME}")
    return 0 if is_exact else 1


if __name__ == "__main__":
    sys.exit(main())
