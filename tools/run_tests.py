"""Runs the whole suite, stage by stage, and says in one line what it ran on.

    python tools/run_tests.py           unit tests twice, integration tests on each backend
    python tools/run_tests.py --slow    what is marked slow, and the older brokers

Unit tests run on the pure kernel under asyncio and on the compiled one under uvloop: each is met
once, without the product; both at once, since each keeps one core busy. Where something is missing
(Java, Maven, a compiler) the rest runs, and the last line says what did not and what to install;
with CI=true that is a failure.
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
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NoReturn

sys.path.insert(0, str(Path(__file__).parent))

from test_results import RESULTS, StageResult, Summary, print_slowest, read_results

NO_TESTS = 5
MINUTES, MINUTES_SLOW = 12, 30
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
    arguments: list[str] = field(default_factory=list[str])


UNIT = "not integration and not spark and not slow"
TOGETHER = "(integration or spark) and not slow"
HANGS = ["-o", "faulthandler_timeout=150"]
UNIT_STAGES = [
    Stage("unit-python", "unit", UNIT, "python/asyncio", kernel="python", arguments=HANGS),
    Stage("unit-c", "unit", UNIT, "c/uvloop", kernel="c", loop="uvloop", arguments=HANGS),
]
TURNS = [
    UNIT_STAGES,
    [Stage("integration", "integration", TOGETHER, backends="embedded,apache")],
]
"""What runs one after the other; the stages of one turn run at once."""
SLOW_TURNS = [
    [Stage("slow", "slow tests", "slow", backends="embedded,apache")],
    [Stage("older-brokers", "integration", "any_broker and not slow", backends=OLDER)],
]


def main() -> int:
    """Run the stages; returns the exit status."""
    parser = argparse.ArgumentParser(description="Runs the whole suite.")
    parser.add_argument("--slow", action="store_true", help="what is slow instead of the rest")
    slow = parser.parse_args().slow
    signal.signal(signal.SIGTERM, stop_at_once)
    minutes = MINUTES_SLOW if slow else MINUTES
    deadline = time.monotonic() + 60 * minutes
    seed = os.environ.get("KAFKA_ASYNC_TEST_SEED") or str(random.SystemRandom().randrange(2**32))
    shutil.rmtree(RESULTS / kind(slow), ignore_errors=True)
    summary = Summary(kind(slow))
    for turn in SLOW_TURNS if slow else TURNS:
        stages = [stage for stage in turn if stage.kernel != "c" or has_compiled_kernel()]
        if len(stages) < len(turn):
            summary.missing.append("compiled kernel (install a C compiler, then make clean test)")
        for stage, result in zip(
            stages, run(stages, kind(slow), seed, deadline, minutes), strict=True
        ):
            summary.add(stage.group, stage.variant, result)
    print_slowest(summary.durations)
    summary.write()
    return conclude(summary)


def stop_at_once(number: int, frame: object) -> NoReturn:
    """Leave through the ordinary clean-up when somebody ends the run."""
    sys.exit(128 + number)


def kind(slow: bool) -> str:
    return "slow" if slow else "normal"


def run(
    stages: Sequence[Stage], group: str, seed: str, deadline: float, minutes: int
) -> list[StageResult]:
    """Run stages at once, each in a process of its own; past the deadline they are ended."""
    running: list[Running] = []
    try:
        for stage in stages:
            running += [start(stage, group, seed, shown=not running)]
        return [finish(each, deadline, minutes) for each in running]
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
    command = [sys.executable, "-m", "pytest", "-m", stage.select, f"--junitxml={report}"]
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


def finish(running: Running, deadline: float, minutes: int) -> StageResult:
    """Wait for a stage; past the deadline it is ended, and has failed."""
    stage, process = running.stage, running.process
    try:
        status = process.wait(max(1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        end(process)
        print(f"{stage.name}: ended, because the suite has taken its {minutes} minutes")
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


def has_compiled_kernel() -> bool:
    words = {**os.environ, "KAFKA_ASYNC_KERNEL": "c"}
    command = [sys.executable, "-c", "import kafka_async.kernel"]
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
    in_ci = os.environ.get("CI", "").lower() in {"true", "1"}
    print(f"ran: {ran}")
    print(f"{'failed' if in_ci else 'passed'}; {missing}")
    return 1 if in_ci else 0


if __name__ == "__main__":
    sys.exit(main())
