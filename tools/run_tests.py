"""Runs the whole suite, stage by stage, and says in one line what it ran on.

    python tools/run_tests.py           unit tests and integration tests
    python tools/run_tests.py slow      unit tests on the other Pythons, and tests marked slow
    python tools/run_tests.py matrix    tests that hold for every broker, on the older brokers

Unit tests run on the compiled kernel under uvloop and, where the kernel matters, on the plain one
under asyncio, and integration tests beside them: much of their time is waiting for processes. The
slow tests run in two halves at once. Where something is missing (Java, Maven, a compiler) the rest
runs, and the last line says what did not and what to install; with CI=true that is a failure. Only
with CI=true is the time limited, so that a test that hangs does not cost the whole run.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NoReturn

sys.path.insert(0, str(Path(__file__).parent))

from pythons import find_pythons, make_environment
from test_results import RESULTS, StageResult, Summary, print_slowest, read_results

NO_TESTS = 5
OLDER = "apache-3.9.1,apache-4.3.1"


@dataclass(frozen=True)
class Stage:
    """One run of pytest: which tests, on which kernel and loop.

    `group` and `variant` are what the last line says of it: "unit on python/asyncio".
    """

    name: str
    group: str
    select: str
    variant: str = ""
    kernel: str | None = None
    loop: str = "asyncio"
    backends: str = "embedded"
    may_be_empty: bool = False
    python: str = sys.executable
    arguments: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class Turn:
    """Stages that run at once, and the minutes that they take at most on two idle cores."""

    minutes: int
    stages: Sequence[Stage]


UNIT = "not integration and not spark and not slow"
BOTH = "embedded,apache"
TOGETHER = "(integration or spark) and not slow"
NORMAL_STAGES = [
    Stage("unit-python", "unit", f"{UNIT} and not one_kernel", "python/asyncio", kernel="python"),
    Stage("unit-c", "unit", UNIT, "c/uvloop", kernel="c", loop="uvloop"),
    Stage("integration", "integration", TOGETHER, backends=BOTH),
]
REST = "slow and not foreign and not spark"
COMPUTING = [
    f"tests/{name}"
    for name in (
        *("conformance", "contract", "embedded", "fairness"),
        *("fuzz", "hostile", "protocol", "tools"),
    )
]
"""Directories whose slow tests keep one core busy; the others mostly wait for processes."""
TURNS: Mapping[str, Sequence[Turn]] = {
    "normal": [Turn(10, NORMAL_STAGES)],
    "slow": [
        Turn(8, [Stage("foreign", "foreign clients", "foreign and slow", backends=BOTH)]),
        Turn(8, [Stage("spark", "Spark", "spark and slow and not foreign", backends=BOTH)]),
        Turn(
            11,
            [
                Stage(
                    "slow",
                    "slow tests",
                    REST,
                    backends=BOTH,
                    arguments=[f"--ignore={directory}" for directory in COMPUTING],
                ),
                Stage("computing", "slow tests", REST, backends=BOTH, arguments=COMPUTING),
            ],
        ),
    ],
    "matrix": [
        Turn(30, [Stage("older-brokers", "integration", "any_broker and not slow", backends=OLDER)])
    ],
}
"""Turns that run one after the other, by the kind of run."""
PYTHONS_AT_ONCE, PYTHON_MINUTES = 2, 8
OF_DEVELOPMENT = [f"--ignore=tests/{name}" for name in ("benchmarks", "conformance", "tools")]
"""Tests of what only developers run, which need no other Python than theirs."""
CI_PATIENCE = 1.6
"""Times its minutes that a turn may take with CI=true: machines differ, a hang never ends."""


def main() -> int:
    """Run the stages; returns the exit status."""
    parser = argparse.ArgumentParser(description="Runs the whole suite.")
    parser.add_argument("kind", nargs="?", default="normal", choices=TURNS)
    kind = parser.parse_args().kind
    signal.signal(signal.SIGTERM, stop_at_once)
    seed = os.environ.get("KAFKA_ASYNC_TEST_SEED") or str(random.SystemRandom().randrange(2**32))
    shutil.rmtree(RESULTS / kind, ignore_errors=True)
    summary = Summary(kind)
    turns = [*(other_pythons(summary) if kind == "slow" else ()), *TURNS[kind]]
    for turn in turns:
        stages = [stage for stage in turn.stages if stage.kernel != "c" or compiled_kernel(stage)]
        if len(stages) < len(turn.stages):
            summary.missing.append("compiled kernel (install a C compiler, then make clean test)")
        for stage, result in zip(stages, run(stages, kind, seed, limit(turn)), strict=True):
            summary.add(stage.group, stage.variant, result)
    print_slowest(summary.durations)
    summary.write()
    return conclude(summary)


def stop_at_once(number: int, frame: object) -> NoReturn:
    """Leave through the ordinary clean-up when the run is ended by a signal."""
    sys.exit(128 + number)


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in {"true", "1"}


def limit(turn: Turn) -> float | None:
    """Return the minutes that a turn may take; None outside CI, where the machine may be slow."""
    return turn.minutes * CI_PATIENCE if in_ci() else None


def other_pythons(summary: Summary) -> list[Turn]:
    """Make the environments of the machine's other Pythons; return the turns of their unit tests.

    Each runs on the compiled kernel, and alternately under uvloop and asyncio.
    """
    stages: list[Stage] = []
    for number, (version, interpreter) in enumerate(find_pythons().items()):
        print(f"\n--- the environment of Python {version} ---", flush=True)
        python = make_environment(version, interpreter)
        if python is None:
            summary.failed_stages.append(f"the environment of Python {version}")
            continue
        loop = ("uvloop", "asyncio")[number % 2]
        variant = f"Python {version}"
        stages.append(
            Stage(
                f"unit-{version}",
                "unit",
                UNIT,
                variant,
                "c",
                loop,
                python=str(python),
                arguments=OF_DEVELOPMENT,
            )
        )
    return [
        Turn(PYTHON_MINUTES, stages[at : at + PYTHONS_AT_ONCE])
        for at in range(0, len(stages), PYTHONS_AT_ONCE)
    ]


def run(stages: Sequence[Stage], group: str, seed: str, minutes: float | None) -> list[StageResult]:
    """Run stages at once, each in a separate process; end them after that many minutes, if any."""
    running: list[Running] = []
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    try:
        for stage in stages:
            running += [start(stage, group, seed, shown=not running)]
        return [finish(each, deadline) for each in running]
    except BaseException:
        for each in running:
            end(each.process)
        raise


@dataclass(frozen=True)
class Running:
    """A stage under way; what it prints is kept in `output` until it has ended, if it has one."""

    stage: Stage
    report: Path
    process: subprocess.Popen[bytes]
    output: IO[bytes] | None


def start(stage: Stage, group: str, seed: str, *, shown: bool) -> Running:
    """Start a stage; what it prints is `shown` as it comes, or else when it has ended."""
    report = RESULTS / group / f"{stage.name}.xml"
    command = [stage.python, "-m", "pytest", "-m", stage.select, f"--junitxml={report}"]
    command += ["--kafka-backend", stage.backends, "-o", "junit_duration_report=total"]
    output = None if shown else tempfile.TemporaryFile()  # noqa: SIM115  # closed by `finish`
    if shown:
        print(f"\n--- {stage.name} ---", flush=True)
    process = subprocess.Popen(
        [*command, *stage.arguments],
        env=environment(stage, seed),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
    )
    return Running(stage, report, process, output)


def finish(running: Running, deadline: float | None) -> StageResult:
    """Wait for a stage; past the deadline it is ended, and has failed."""
    stage, process = running.stage, running.process
    try:
        status = process.wait(None if deadline is None else max(1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        end(process)
        print(f"{stage.name}: ended at the time limit that CI=true sets")
        status = -1
    if running.output is not None:
        print(f"\n--- {stage.name} ---", flush=True)
        running.output.seek(0)
        with running.output as output:
            shutil.copyfileobj(output, sys.stdout.buffer)
        sys.stdout.flush()
    empty = status == NO_TESTS and stage.may_be_empty
    return read_results(stage.name, running.report, failed=status != 0 and not empty)


def end(process: subprocess.Popen[bytes]) -> None:
    """Let pytest stop its clusters, and kill it if it does not come to an end."""
    process.send_signal(signal.SIGINT)  # which pytest answers by tearing its fixtures down
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def environment(stage: Stage, seed: str) -> dict[str, str]:
    words = {**os.environ, "KAFKA_ASYNC_TEST_SEED": seed, "KAFKA_ASYNC_TEST_LOOP": stage.loop}
    words.setdefault("PYTHONHASHSEED", str(int(seed) % (2**32 - 1)))
    if stage.kernel is not None:
        words["KAFKA_ASYNC_KERNEL"] = stage.kernel
    return words


def compiled_kernel(stage: Stage) -> bool:
    """Return whether the stage's Python has the compiled kernel."""
    words = {**os.environ, "KAFKA_ASYNC_KERNEL": "c"}
    command = [stage.python, "-c", "import kafka_async.kernel"]
    return subprocess.run(command, env=words, capture_output=True, check=False).returncode == 0


def conclude(summary: Summary) -> int:
    """Print the last line; returns the exit status."""
    ran = summary.ran_on
    missing = f"not run: {', '.join(summary.missing)}" if summary.missing else ""
    if summary.failed_stages:
        stages = ", ".join(summary.failed_stages)
        print("; ".join(filter(None, [f"failed: {stages}", f"ran: {ran}", missing])))
        return 1
    if not missing:
        print(f"passed: {ran}")
        return 0
    strict = in_ci()
    print(f"ran: {ran}")
    print(f"{'failed' if strict else 'passed'}; {missing}")
    return 1 if strict else 0


if __name__ == "__main__":
    sys.exit(main())
