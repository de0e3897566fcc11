"""`python -m fuzz`: run one target, the short run over all, the long run, or replay a finding."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fuzz.runner import FOLDER, FuzzerFailed, Run, fuzz, measure, replay
from fuzz.target import NAMES

if TYPE_CHECKING:
    from collections.abc import Sequence

SHORT_SECONDS: Final = 60
LONG_SECONDS: Final = 1800
_STARTUP_SECONDS: Final = 6  # of a target in the short run, about

BOTH: Final = ("c", "python")
KERNELS: Final = {"batches": BOTH, "responses": BOTH, "frames": BOTH}
"""Kernels on which a target is replayed; by default only the compiled one."""


def main() -> int:
    """Run the command line; return 1 if there is a finding."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("what", help=f"{', '.join(NAMES)}, short, long or replay")
    parser.add_argument("rest", nargs="*", help="replay: a target and its inputs")
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--runs", type=int, default=0, help="executions, of a single target")
    parser.add_argument("--seed", type=int, help="default: the tests' seed, or 1; long: random")
    given = parser.parse_args()
    seed: int | None = given.seed
    if seed is None:
        default = random.SystemRandom().randrange(1, 1 << 31) if given.what == "long" else 1
        seed = int(os.environ.get("KAFKA_ASYNC_TEST_SEED") or default)
    seed %= 2**32
    try:
        match given.what:
            case "short":
                return short(given.seconds or SHORT_SECONDS, seed)
            case "long":
                each = max(1, (given.seconds or LONG_SECONDS) // len(NAMES))
                return fuzz_targets(NAMES, each, 0, seed)
            case "replay":
                return replay_inputs(*given.rest)
            case name if name in NAMES:
                seconds = 0 if given.runs else SHORT_SECONDS
                return fuzz_targets([name], given.seconds or seconds, given.runs, seed)
            case _:
                parser.error(f"no target is called {given.what}")
    except FuzzerFailed as error:
        print(error, file=sys.stderr)
        return 1


def short(seconds: int, seed: int) -> int:
    """Fuzz every target for `seconds` in total, starting from the seeds alone."""
    each = max(1, seconds // len(NAMES) - _STARTUP_SECONDS)
    with tempfile.TemporaryDirectory(prefix="kafka-async-fuzz-") as name:
        return fuzz_targets(NAMES, each, 0, seed, Path(name))


def fuzz_targets(
    targets: Sequence[str], seconds: int, runs: int, seed: int, folder: Path = FOLDER
) -> int:
    """Fuzz each target for `seconds` or `runs`, 0 for no limit; return 1 if there is a finding."""
    print(f"fuzz: {seconds} s per target, seed {seed}", flush=True)
    lines: list[str] = []
    found = 0
    for target in targets:
        made = fuzz(target, seconds=seconds, runs=runs, seed=seed, folder=folder)
        for kernel in KERNELS.get(target, ("c",)):
            replay(made, f"kernel {kernel}", {"KAFKA_ASYNC_KERNEL": kernel}, folder)
        if folder != FOLDER:
            keep(made)
        found += made.report()
        lines.append(made.summary())
    print("\n".join(lines))
    return 1 if found else 0


def replay_inputs(target: str, *files: str) -> int:
    """Check every promise, then measure time and memory, for inputs on each kernel."""
    found = 0
    for kernel in KERNELS.get(target, ("c",)):
        measured = measure(target, list(files), {"KAFKA_ASYNC_KERNEL": kernel})
        findings = measured.pop("findings")
        print(f"kernel {kernel}: {measured}")
        for finding in findings:
            print(f"  {finding['file']}: {finding['what']}")
        found += len(findings)
    return 1 if found else 0


def keep(made: Run) -> None:
    """Copy the findings of a run in a temporary folder to the folder of findings."""
    folder = FOLDER / "findings" / made.target
    for finding in made.findings:
        folder.mkdir(parents=True, exist_ok=True)
        finding.file = str(shutil.copy(finding.file, folder))


if __name__ == "__main__":
    sys.exit(main())
