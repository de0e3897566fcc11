"""Kills everything around a streaming query with the exactly-once sink, and compares its rows.

    python -m tests.reliability [--seconds 900] [--at-most 1800] [--part 300] [--seed N]
                                [--backend NAME] [--resume]

Also `make reliability-spark`. A query copies a topic to another while its drivers, Python workers,
executors and brokers are killed, two drivers compete, and EndTxn requests arrive late. After each
part, and at the end, every committed output row must be one input record, and every input record
one row. The seed determines the faults and their order. The result of a whole run on Apache Kafka
is written to benchmarks/results/, that of any other run to artifacts/reliability/. The progress is
written there after each part: `--resume` continues an interrupted run with its seed and the faults
that come next, on a new cluster.
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
from typing import TYPE_CHECKING, Any, Final

from benchmarks.machine import revision
from kafka_async.testing.backends import BackendUnavailableError, create_backend
from kafka_async.testing.spark_cluster import spark_cluster
from tests.programs import ROOT
from tests.reliability.fault_schedule import BROKERS, Goal
from tests.reliability.run import Record, ReliabilityError, Run, describe

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS: Final = ROOT / "benchmarks" / "results"
ARTIFACTS: Final = Path("artifacts") / "reliability"
NAME: Final = "reliability_spark.json"
MAX_SECONDS: Final = 1_800.0
PART_SECONDS: Final = 300.0
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
    parser.add_argument(
        "--seconds", type=float, default=Goal().seconds, help="duration (default: 900)"
    )
    parser.add_argument(
        "--at-most",
        type=float,
        default=MAX_SECONDS,
        help="seconds after which a run on a slow machine starts no further round (default: 1800)",
    )
    parser.add_argument(
        "--part",
        type=float,
        default=PART_SECONDS,
        help="seconds between comparisons (default: 300)",
    )
    parser.add_argument("--seed", type=int, help="seed of the faults (default: random)")
    parser.add_argument("--backend", default="apache", help="apache (default) or embedded")
    parser.add_argument("--resume", action="store_true", help="continue an interrupted run")
    return parser.parse_args(arguments)


def begin(options: argparse.Namespace) -> dict[str, Any]:
    """Return the report to continue, or a new one.

    Raises:
        ReliabilityError: There is no interrupted run.
    """
    path = ARTIFACTS / NAME
    if options.resume:
        report: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
        if "progress" not in report:
            raise ReliabilityError(f"{path} has no interrupted run: start a new one")
        return report
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    command = f"python -m tests.reliability --seconds {options.seconds:g} --seed {seed}"
    command += f" --at-most {options.at_most:g}" if options.at_most != MAX_SECONDS else ""
    command += f" --part {options.part:g}" if options.part != PART_SECONDS else ""
    return {
        "command": f"{command} --backend {options.backend}",
        "revision": revision(),
        "seed": seed,
        "seconds": options.seconds,
        "at most": options.at_most,
        "part": options.part,
        "backend": options.backend,
        "resumed": 0,
    }


def save(report: dict[str, Any], folder: Path) -> None:
    """Write a report."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NAME).write_text(json.dumps(report, indent=1) + "\n", "utf-8")


def run_rest(report: dict[str, Any], directory: Path) -> tuple[dict[str, Any], str]:
    """Run what a report lacks on a new cluster; return its figures, and what is wrong."""
    progress = report.get("progress")
    with (
        create_backend(report["backend"], {"brokers": BROKERS}) as backend,
        spark_cluster(2, cores=1, memory="1g") as spark,
    ):

        async def run() -> tuple[dict[str, Any], str]:
            record = Record() if progress is None else Record.continued(progress)
            it = Run(backend, spark.master, directory, report["seed"], record)
            reason = ""
            try:
                verdict = await it.run(
                    Goal.of(report["seconds"]),
                    report["at most"],
                    report["part"],
                    lambda: save(report | {"progress": record.saved()}, ARTIFACTS),
                )
                reason = "" if verdict.is_exact else "rows differ"
            except ReliabilityError as error:
                reason = str(error)
            return {"backend": backend.name, **describe(record, it.epochs)}, reason

        return asyncio.run(run())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the verdict and write the result; return the exit status."""
    options = parse(arguments)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        try:
            report = begin(options)
            say(f"{report['command']}\nseed {report['seed']}")
            report["resumed"] += options.resume
            figures, reason = run_rest(report, directory)
        except (BackendUnavailableError, ReliabilityError) as error:
            say(str(error))
            return 1
        if reason:
            say((directory / "drivers.log").read_text("utf-8", "replace")[-LOG_CHARACTERS:])
    is_whole = report["seconds"] >= Goal().seconds and report["backend"] == "apache"
    folder = ARTIFACTS if reason or not is_whole else RESULTS
    result = {
        "command": report["command"],
        "revision": report["revision"],
        "seed": report["seed"],
        "date": date.today().isoformat(),
        "result": reason or "exact",
        "resumed": report["resumed"],
        **figures,
    }
    (ARTIFACTS / NAME).unlink(missing_ok=True)
    save(result, folder)
    figures.pop("events")
    for key, value in figures.items():
        say(f"{key}: {value}")
    say(f"result: {result['result']} (seed {report['seed']}); written: {folder / NAME}")
    return 1 if reason else 0


if __name__ == "__main__":
    sys.exit(main())
