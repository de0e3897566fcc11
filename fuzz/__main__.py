"""`python -m fuzz`: run one target, the short run over all, the long run, or replay a finding."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from fuzz.runner import FOLDER, FuzzerFailed, Run, fuzz, load_state, measure, replay, save_run
from fuzz.target import NAMES

SHORT_SECONDS: Final = 60
LONG_SECONDS: Final = 1800
_STARTUP_SECONDS: Final = 6  # of a target in the short run, about

GOALS: Final = {
    "batches": 10_000_000,
    "responses": 1_000_000,
    "frames": 1_000_000,
    "compression": 5_000_000,
}
"""Executions that the long run should reach, over all its calls."""

_SECONDS_PER_PROCESS: Final = 300  # in the long run
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
    parser.add_argument("--seed", type=int, help="default: the tests' seed, or 1")
    given = parser.parse_args()
    seed = int(os.environ.get("KAFKA_ASYNC_TEST_SEED") or 1) if given.seed is None else given.seed
    seed %= 2**32
    try:
        match given.what:
            case "short":
                return short(given.seconds or SHORT_SECONDS, seed)
            case "long":
                return long(given.seconds or LONG_SECONDS, seed)
            case "replay":
                return replay_inputs(*given.rest)
            case name if name in NAMES:
                return single(name, given.seconds, given.runs, seed)
            case _:
                parser.error(f"no target is called {given.what}")
    except FuzzerFailed as error:
        print(error, file=sys.stderr)
        return 1


def short(seconds: int, seed: int) -> int:
    """Fuzz every target for `seconds` in total, starting from the seeds alone."""
    print(f"fuzz: {seconds} s, seed {seed}", flush=True)
    each = max(1, seconds // len(NAMES) - _STARTUP_SECONDS)
    lines: list[str] = []
    found = 0
    with tempfile.TemporaryDirectory(prefix="kafka-async-fuzz-") as name:
        for target in NAMES:
            made = fuzz(target, seconds=each, runs=0, seed=seed, folder=Path(name))
            replay(made, KERNELS.get(target, ("c",)), Path(name))
            keep(made)
            found += report(made)
            lines.append(made.summary())
    print("\n".join(lines))
    return 1 if found else 0


def long(seconds: int, seed: int) -> int:
    """Fuzz until the goals are reached, for at most `seconds`; continue with the corpus."""
    deadline = time.monotonic() + seconds
    found = 0
    for target in NAMES:
        while missing := missing_executions(target):
            left = int(deadline - time.monotonic())
            if left < 1:
                break
            number = len(load_state().get(target, {}).get("runs", ()))
            chunk = min(left, _SECONDS_PER_PROCESS)
            made = fuzz(target, seconds=chunk, runs=missing, seed=(seed + number) % 2**32)
            if not missing - made.executions > 0 or left <= _SECONDS_PER_PROCESS:
                replay(made, KERNELS.get(target, ("c",)))
            save_run(made)
            found += report(made)
            print(made.summary(), flush=True)
            if found:
                return 1
    for target in NAMES:
        done = load_state().get(target, {}).get("executions", 0)
        print(f"{target:12} {done:>11,} of {GOALS[target]:,} executions")
    return 0


def missing_executions(target: str) -> int:
    """Return the executions that the long run lacks to its goal."""
    done: int = load_state().get(target, {}).get("executions", 0)
    return max(0, GOALS[target] - done)


def single(target: str, seconds: int, runs: int, seed: int) -> int:
    """Fuzz one target, continuing with the corpus of the long run."""
    if not seconds and not runs:
        seconds = SHORT_SECONDS
    made = fuzz(target, seconds=seconds, runs=runs, seed=seed)
    replay(made, KERNELS.get(target, ("c",)))
    save_run(made)
    found = report(made)
    print(f"seed {seed}\n{made.summary()}")
    return 1 if found else 0


def replay_inputs(target: str, *files: str) -> int:
    """Check every promise, then measure time and memory, for inputs on each kernel."""
    found = 0
    for kernel in KERNELS.get(target, ("c",)):
        measured = measure(target, kernel, list(files))
        findings = measured.pop("findings")
        print(f"kernel {kernel}: {measured}")
        for finding in findings:
            print(f"  {finding['file']}: {finding['what']}")
        found += len(findings)
    return 1 if found else 0


def report(made: Run) -> int:
    """Print each finding and the command that repeats it; return their number."""
    for finding in made.findings:
        print(f"finding in {made.target}: {finding.what}\n  {finding.replay(made.target)}")
    return len(made.findings)


def keep(made: Run) -> None:
    """Copy the findings of a run in a temporary folder to the folder of findings."""
    folder = FOLDER / "findings" / made.target
    for finding in made.findings:
        folder.mkdir(parents=True, exist_ok=True)
        finding.file = str(shutil.copy(finding.file, folder))


if __name__ == "__main__":
    sys.exit(main())
