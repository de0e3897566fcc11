"""Runs the whole suite, stage by stage, and says in one line what it ran on.

    python tools/run_tests.py           unit tests twice, integration tests on each backend
    python tools/run_tests.py --slow    what is marked slow, and the older brokers

Unit tests run on the pure kernel under asyncio and on the compiled one under uvloop: each is met
once, without the product. Where something is missing (Java, Maven, a compiler) the rest runs and
the last line says what did not and what to install; with CI=true that is a failure.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

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
STAGES = [
    Stage("unit-python", "unit", UNIT, "python/asyncio", kernel="python"),
    Stage("unit-c", "unit", UNIT, "c/uvloop", kernel="c", loop="uvloop"),
    Stage("integration", "integration", TOGETHER, backends="embedded,apache"),
]
SLOW_STAGES = [
    Stage("slow", "slow tests", "slow", backends="embedded,apache"),
    Stage("older-brokers", "integration", "any_broker and not slow", backends=OLDER),
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
    for stage in SLOW_STAGES if slow else STAGES:
        if stage.kernel == "c" and not has_compiled_kernel():
            summary.missing.append("compiled kernel (install a C compiler, then make clean test)")
            continue
        summary.add(stage.group, stage.variant, run(stage, kind(slow), seed, deadline, minutes))
    print_slowest(summary.durations)
    summary.write()
    return conclude(summary)


def stop_at_once(number: int, frame: object) -> NoReturn:
    """Leave through the ordinary clean-up when somebody ends the run."""
    sys.exit(128 + number)


def kind(slow: bool) -> str:
    return "slow" if slow else "normal"


def run(stage: Stage, group: str, seed: str, deadline: float, minutes: int) -> StageResult:
    """Run one stage in a process of its own; past the deadline it is ended, and has failed."""
    print(f"\n--- {stage.name} ---", flush=True)
    report = RESULTS / group / f"{stage.name}.xml"
    command = [sys.executable, "-m", "pytest", "-m", stage.select, f"--junitxml={report}"]
    command += ["--kafka-backend", stage.backends, "-o", "junit_duration_report=total"]
    process = subprocess.Popen(
        [*command, *stage.arguments], env=environment(stage, seed), stdin=subprocess.DEVNULL
    )
    try:
        status = process.wait(max(1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        end(process)
        print(f"{stage.name}: ended, because the suite has taken its {minutes} minutes")
        status = -1
    except BaseException:
        end(process)
        raise
    empty = status == NO_TESTS and stage.may_be_empty
    return read_results(stage.name, report, failed=status != 0 and not empty)


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
