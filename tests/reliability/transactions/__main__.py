"""Copies a topic in transactions while everything is killed, ten times, and checks each history.

    python -m tests.reliability.transactions [--runs 10] [--records 100000] [--seed N] [--resume]

Also `make reliability-transactions`. Three workers copy nine partitions on three brokers of Apache
Kafka, exactly once, while workers and brokers are killed and stopped. A read_committed reader must
get every record once, in the order of its partition. The seed determines the faults and their
order. A whole run (ten times 100,000 records) is written to benchmarks/results/, any other one to
artifacts/reliability/. `--resume` continues a run that was interrupted, with its seed.
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
from typing import TYPE_CHECKING, Any, Final, cast

from kafka_async.testing.backends import BackendUnavailableError, create_backend
from tests.programs import ROOT
from tests.reliability.transactions.faults import BROKERS
from tests.reliability.transactions.run import PausableBrokers, ReliabilityError, Run

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS: Final = ROOT / "benchmarks" / "results"
ARTIFACTS: Final = Path("artifacts") / "reliability"
NAME: Final = "reliability_transactions.json"
RUNS, RECORDS, PER_TRANSACTION = 10, 100_000, 100
LOG_CHARACTERS: Final = 3_000
"""End of the workers' log that is shown after a failure."""


def say(text: str) -> None:
    """Print a text at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.reliability.transactions",
        description=(__doc__ or "").splitlines()[0],
    )
    parser.add_argument("--runs", type=int, default=RUNS, help=f"default: {RUNS}")
    parser.add_argument("--records", type=int, default=RECORDS, help=f"default: {RECORDS}")
    parser.add_argument("--seed", type=int, help="seed of the faults (default: random)")
    parser.add_argument("--resume", action="store_true", help="continue an interrupted run")
    return parser.parse_args(arguments)


def begin(options: argparse.Namespace) -> dict[str, Any]:
    """Return the report to continue, or a new one."""
    path = ARTIFACTS / NAME
    if options.resume and path.exists():
        return json.loads(path.read_text("utf-8"))
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    command = f"python -m tests.reliability.transactions --runs {options.runs}"
    command += f" --records {options.records} --seed {seed}"
    return {
        "command": command,
        "seed": seed,
        "wanted": options.runs,
        "records": options.records,
        "date": date.today().isoformat(),
        "runs": [],
    }


def run_once(report: dict[str, Any]) -> dict[str, Any]:
    """Run the next copy on new brokers; return its part of the report."""
    number = len(report["runs"])
    seed = report["seed"] + number
    say(f"--- run {number + 1} of {report['wanted']}, seed {seed}")
    with (
        tempfile.TemporaryDirectory() as name,
        create_backend("apache", {"brokers": BROKERS}) as backend,
    ):
        directory = Path(name)
        run = Run(
            backend.bootstrap_servers,
            cast("PausableBrokers", backend),
            directory,
            seed,
            records=report["records"],
            per_transaction=PER_TRANSACTION,
            name=str(number),
        )
        try:
            result = asyncio.run(run.run())
        except ReliabilityError as error:
            say((directory / "workers.log").read_text("utf-8", "replace")[-LOG_CHARACTERS:])
            return {"seed": seed, "exact": False, "verdict": str(error)}
        if not result.verdict.is_exact:
            say((directory / "workers.log").read_text("utf-8", "replace")[-LOG_CHARACTERS:])
        return {
            "seed": seed,
            "exact": result.verdict.is_exact,
            "verdict": str(result.verdict),
            "seconds": result.seconds,
            "faults": dict(result.faults),
            "events": result.events,
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the verdicts and write the report; return the exit status."""
    report = begin(parse(arguments))
    say(f"{report['command']}\nseed {report['seed']}")
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    while len(report["runs"]) < report["wanted"]:
        try:
            done = run_once(report)
        except BackendUnavailableError as error:
            say(str(error))
            return 1
        report["runs"].append(done)
        say(f"{done['verdict']}; faults: {done.get('faults')}; {done.get('seconds')} s")
        (ARTIFACTS / NAME).write_text(json.dumps(report, indent=1) + "\n", "utf-8")
        if not done["exact"]:
            say(f"result: not exact (seed {done['seed']})")
            return 1
    is_whole = report["wanted"] >= RUNS and report["records"] >= RECORDS
    folder = RESULTS if is_whole else ARTIFACTS
    (folder / NAME).write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    say(f"result: exact, {report['wanted']} of {report['wanted']}; written: {folder / NAME}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
