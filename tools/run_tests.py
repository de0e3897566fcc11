"""Runs the test suite in stages, and prints what the tests ran on.

    python tools/run_tests.py           unit tests and integration tests
    python tools/run_tests.py fast      a minute of unit tests, which start no process
    python tools/run_tests.py slow      core tests on another Python version, and tests marked slow
    python tools/run_tests.py slow spark core-3.12     these stages only
    python tools/run_tests.py matrix    tests marked any_broker, on older brokers
    python tools/run_tests.py spark-matrix    tests with Spark, on older versions of it
    python tools/run_tests.py environments    core tests in other people's environments

Unit tests run with the compiled kernel on uvloop and, where the kernel matters, with the kernel in
plain Python on asyncio. Up to three stages run at the same time, because many mostly wait for
processes; the longest start first. If a requirement (Java, Maven, a C compiler) is missing, the
other tests run, and the last line names the tests that did not run and what to install; with
CI=true that is a failure. Only with CI=true is there a time limit, so that a test that hangs does
not block the run, and only then are failed integration tests repeated: tools/flaky_tests.py.
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
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from kafka_async.testing.environment import in_ci
from tools import environments, sparks
from tools.changed_tools import unchanged_tests
from tools.flaky_tests import (
    FLAKY,
    REPEAT_MINUTES,
    REPEATS,
    describe,
    failed_tests,
    keep_output,
    select_repeats,
)
from tools.generated_page import ROOT
from tools.pythons import find_pythons, make_environment
from tools.test_results import RESULTS, Summary, print_slowest

OLDER_BROKERS = "apache-3.9.1,apache-4.3.1"


@dataclass(frozen=True)
class Stage:
    """Run of pytest; the last line names `group` and `variant`, as "unit on python/asyncio"."""

    name: str
    group: str
    select: str
    variant: str = ""
    kernel: str | None = None
    loop: str = "asyncio"
    backends: str = "embedded"
    python: str = sys.executable
    spark: str | None = None
    arguments: list[str] = field(default_factory=list[str])
    flags: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: Path = ROOT


@dataclass(frozen=True)
class Plan:
    """Stages in the order in which they start, at most `parallel` at a time.

    The time limit of all of them is `minutes` on two idle cores.
    """

    minutes: int
    parallel: int
    stages: Sequence[Stage]


UNIT = "not integration and not spark and not slow"
BOTH_BACKENDS = "embedded,apache"
INTEGRATION = "(integration or spark) and not slow"
ON_CLUSTERS = ["tests/integration", "tests/docs"]
"""Directories of all tests marked integration or spark."""
WITH_FOREIGN = ["tests/integration", "tests/contract"]
"""Directories of all tests marked foreign."""
ONE_KERNEL = ("benchmarks", "cli", "conformance", "docs", "spark", "testing", "tools")
"""Directories below tests whose unit tests do not depend on the kernel in use."""
IGNORE_INTEGRATION = "--ignore=tests/integration"
"""A stage that runs no test of a directory does not import its modules, which takes seconds."""
NORMAL_STAGES = [
    Stage(
        "unit-c",
        "unit",
        UNIT,
        "c/uvloop",
        kernel="c",
        loop="uvloop",
        arguments=[IGNORE_INTEGRATION],
    ),
    *(
        Stage(name, "integration", select, backends=backend, arguments=ON_CLUSTERS)
        for name, select, backend in (
            ("integration-apache", f"{INTEGRATION} and not security", "apache"),
            ("integration-embedded", INTEGRATION, "embedded"),
            # Tests of security have a cluster of their own. They wait for sessions to expire.
            ("integration-apache-security", f"{INTEGRATION} and security", "apache"),
        )
    ),
    Stage(
        "unit-python",
        "unit",
        f"{UNIT} and not one_kernel",
        "python/asyncio",
        kernel="python",
        arguments=[IGNORE_INTEGRATION, *(f"--ignore=tests/{name}" for name in ONE_KERNEL)],
    ),
]
FAST = [
    *("group", "kernel", "producer", "records"),
    *("test_backoff.py", "test_serde.py", "test_supervisor.py"),
]
"""Tests of `make test-fast`, below tests: those of the code that changes most."""
NOT_FAST = [
    "kernel/test_memory.py",
    "producer/test_cancellation.py",
    "producer/test_transaction_error_table.py",
]
"""Files of them that take ten seconds each, and so are left to `make test`."""
FAST_STAGE = Stage(
    "fast",
    "fast",
    f"{UNIT} and not may_block",
    "c/uvloop",
    kernel="c",
    loop="uvloop",
    arguments=[*(f"tests/{name}" for name in FAST), *(f"--ignore=tests/{it}" for it in NOT_FAST)],
)
SPARK = "spark and slow"
SECURITY = "security and slow and not spark"
FOREIGN = "foreign and slow and not spark and not security"
SLOW = "slow and not spark and not security and not foreign"
ANY_BROKER = "any_broker and not slow"
SPARK_PROCESSES = [
    f"tests/integration/test_{name}.py"
    for name in ("demo", "examples", "pipeline", "spark_cluster", "spark_connect")
]
"""Files whose slow tests run Spark in programs and clusters; they are half of its tests."""
CPU_BOUND = [
    *("tests/conformance", "tests/embedded", "tests/fairness", "tests/fuzz"),
    *("tests/hostile", "tests/protocol", "tests/tools"),
]
"""Directories whose slow tests use one core; the others mostly wait for processes."""


def on_both(name: str, group: str, select: str, *arguments: str) -> Stage:
    """Return a stage of slow tests on the embedded cluster and on Apache Kafka."""
    return Stage(name, group, select, backends=BOTH_BACKENDS, arguments=[*arguments])


SLOW_STAGES = [
    on_both("computing", "slow tests", SLOW, *CPU_BOUND),
    on_both("spark-processes", "Spark", SPARK, ON_CLUSTERS[1], *SPARK_PROCESSES),
    on_both("failures", "slow tests", SLOW, ON_CLUSTERS[0]),
    on_both(
        *("slow", "slow tests", SLOW, IGNORE_INTEGRATION),
        *(f"--ignore={name}" for name in CPU_BOUND),
    ),
    on_both(
        *("spark", "Spark", SPARK, ON_CLUSTERS[0]),
        *(f"--ignore={file}" for file in SPARK_PROCESSES),
    ),
    on_both("foreign", "foreign clients", FOREIGN, WITH_FOREIGN[0]),
    on_both("contract", "contract suite", FOREIGN, WITH_FOREIGN[1]),
    on_both("security", "security", f"{SECURITY} and not foreign"),
    on_both("foreign-security", "security", f"{SECURITY} and foreign", *WITH_FOREIGN),
]
"""Parts of `make test-slow`: those that compute between those that wait for processes.

A forge runs each on a separate machine, and the core tests on each of the other Pythons.
"""
OLDER_BROKERS_STAGE = Stage(
    "older-brokers",
    "integration",
    ANY_BROKER,
    backends=OLDER_BROKERS,
    arguments=["tests/integration"],
)
SPARK_MINUTES = 20
SPARK_FILES = ("test_spark*.py", "test_pipeline.py", "test_orchestrator_spark.py")
ON_SPARK = [
    "tests/spark",
    *(str(path) for name in SPARK_FILES for path in sorted(Path("tests/integration").glob(name))),
]
"""Tests of the data source, pipelines and the orchestrator; all but those of secrets and TLS."""
SOCKETS_OF_SPARK = ["-W", "ignore:unclosed <socket:ResourceWarning"]
"""Option that accepts unclosed sockets, on versions of Spark that leave some."""
CORE = [
    *("admin", "app", "client", "consumer", "group", "kernel", "producer", "records"),
    *("test_blocking.py", "test_serde.py", "test_supervisor.py"),
]
"""Tests, below tests, that run on another Python version: those of code that it can change."""
CI_TIME_FACTOR = 1.6
"""Factor for time limits with CI=true, because machines differ."""


def main() -> int:
    """Run the stages; return the exit status."""
    parser = argparse.ArgumentParser(description="Runs the whole suite.")
    parser.add_argument("kind", nargs="?", default="normal", choices=PLANS)
    parser.add_argument("stages", nargs="*", help="names of the stages to run; all by default")
    arguments = parser.parse_args()
    kind, names = arguments.kind, set(arguments.stages)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    seed = os.environ.get("KAFKA_ASYNC_TEST_SEED") or str(random.SystemRandom().randrange(2**32))
    shutil.rmtree(RESULTS / kind, ignore_errors=True)
    summary, repeat_time = Summary(kind), RepeatTime()
    plan = PLANS[kind](summary, names)
    stages = [stage for stage in plan.stages if stage.kernel != "c" or compiled_kernel(stage)]
    if len(stages) < len(plan.stages):
        summary.missing.append("compiled kernel (install a C compiler, then make clean test)")
    statuses = run(replace(plan, stages=stages), kind, seed)
    for stage, status in zip(stages, statuses, strict=True):
        report = report_of(stage, kind)
        flaky = repeat_failed(stage, report, status, seed, repeat_time)
        failed = status != 0 and not flaky
        summary.add(stage.name, stage.group, stage.variant, report, failed=failed, flaky=flaky)
    print_slowest(summary.durations)
    summary.write()
    return conclude(summary)


def chosen(stages: Iterable[Stage], names: Set[str]) -> list[Stage]:
    """Return the stages with these names; all if no names are given."""
    return [stage for stage in stages if not names or stage.name in names]


def normal(summary: Summary, names: Set[str]) -> Plan:
    """Return the plan of unit tests and integration tests."""
    return Plan(13, 3, [without_unchanged(stage) for stage in chosen(NORMAL_STAGES, names)])


def without_unchanged(stage: Stage) -> Stage:
    """Return a stage of unit tests without the tests of tools that have not changed."""
    if stage.group != "unit":
        return stage
    unchanged = unchanged_tests()
    print(f"{stage.name} does not run tests of unchanged tools: {', '.join(unchanged) or 'none'}")
    return replace(
        stage, arguments=[*stage.arguments, *(f"--ignore={tests}" for tests in unchanged)]
    )


def fast(summary: Summary, names: Set[str]) -> Plan:
    """Return the plan of the inner loop."""
    return Plan(1, 1, chosen([FAST_STAGE], names))


def slow(summary: Summary, names: Set[str]) -> Plan:
    """Return the plan of slow tests and of core tests on another Python; make its environment."""
    return Plan(30, 3, [*chosen(SLOW_STAGES, names), *other_pythons(summary, names)])


def matrix(summary: Summary, names: Set[str]) -> Plan:
    """Return the plan of tests on older brokers."""
    return Plan(30, 1, chosen([OLDER_BROKERS_STAGE], names))


def report_of(stage: Stage, kind: str) -> Path:
    """Return the file of a stage's JUnit report."""
    return RESULTS / kind / f"{stage.name}.xml"


def limit(plan: Plan) -> float | None:
    """Return the time limit of a plan in minutes; None outside CI."""
    return plan.minutes * CI_TIME_FACTOR if in_ci() else None


def other_pythons(summary: Summary, names: Set[str]) -> list[Stage]:
    """Return the stages of the core tests on other Python versions, in environments made here.

    They are those that `names` has; without names, the newest version that is found.
    """
    found = list(find_pythons().items())
    chosen = [pair for pair in found if f"core-{pair[0]}" in names] if names else found[-1:]
    stages: list[Stage] = []
    for version, interpreter in chosen:
        print(f"\n--- the environment of Python {version} ---", flush=True)
        python = make_environment(version, interpreter)
        if python is None:
            summary.failed_stages.append(f"the environment of Python {version}")
            continue
        stages.append(
            Stage(
                f"core-{version}",
                "core",
                UNIT,
                f"Python {version}",
                "c",
                "uvloop",
                python=str(python),
                arguments=[f"tests/{name}" for name in CORE],
            )
        )
    return stages


def spark_matrix(summary: Summary, names: Set[str]) -> Plan:
    """Install older versions of Spark; return the plan of the tests on them."""
    stages: list[Stage] = []
    for version in sparks.VERSIONS:
        if names and f"spark-{version}" not in names:
            continue
        try:
            sparks.find_or_install(version)
        except sparks.SparkUnavailableError as error:
            print(error)
            summary.failed_stages.append(f"the installation of Spark {version}")
            continue
        warnings = SOCKETS_OF_SPARK if version in sparks.LEAK_SOCKETS else []
        stages.append(
            Stage(
                f"spark-{version}",
                f"Spark {version}",
                "not security",
                backends=BOTH_BACKENDS,
                spark=version,
                arguments=[*ON_SPARK, *warnings],
            )
        )
    return Plan(SPARK_MINUTES * len(stages), 1, stages)


def other_environments(summary: Summary, names: Set[str]) -> Plan:
    """Make the environments; return the plan of the core tests in them."""
    print("\n--- the environments ---", flush=True)
    begun = time.monotonic()
    made = environments.make_all()
    print(f"made in {time.monotonic() - begun:.0f} s", flush=True)
    absent = environments.environments().keys() - made.keys()
    summary.failed_stages += [f"the environment {name}" for name in sorted(absent)]
    variants = [each for each in environments.VARIANTS if each.environment in made]
    stages = [
        Stage(
            variant.name,
            "environments",
            "not slow",
            variant.name,
            loop=variant.loop,
            python=str(made[variant.environment].python),
            arguments=[*variant.tests, *variant.options],
            flags=variant.flags,
            variables={
                "KAFKA_ASYNC_ENVIRONMENT": variant.environment,
                **made[variant.environment].variables,
                **variant.variables,
            },
            cwd=made[variant.environment].checkout,
        )
        for variant in variants
        if environments.supports(made[variant.environment], variant)
    ]
    if len(stages) < len(variants):
        summary.missing.append("eager tasks (install Python 3.12)")
    return Plan(3, 4, chosen(stages, names))


PLANS: Mapping[str, Callable[[Summary, Set[str]], Plan]] = {
    "normal": normal,
    "fast": fast,
    "slow": slow,
    "matrix": matrix,
    "spark-matrix": spark_matrix,
    "environments": other_environments,
}
"""Functions that return the plan of a kind of run."""


def run(plan: Plan, kind: str, seed: str) -> list[int]:
    """Run the stages of a plan until its time limit; return their exit statuses."""
    minutes = limit(plan)
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    running: list[Running] = []

    def run_stage(stage: Stage) -> Running:
        started = start(stage, kind, seed, shown=stage is plan.stages[0])
        running.append(started)
        wait(started, deadline)
        return started

    with ThreadPoolExecutor(plan.parallel) as pool:
        try:
            futures = [pool.submit(run_stage, stage) for stage in plan.stages]
            return [show(future.result()) for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for each in running:
                end(each.process)
            raise


@dataclass
class Running:
    """Stage whose process was started; `output` collects what it prints, None if that is shown."""

    stage: Stage
    process: subprocess.Popen[bytes]
    output: IO[bytes] | None
    timed_out: bool = False


def start(stage: Stage, kind: str, seed: str, *, shown: bool) -> Running:
    """Start a stage; its output is `shown` directly, or else collected."""
    command = [stage.python, *stage.flags, "-m", "pytest", "-m", stage.select, *stage.arguments]
    command += ["--kafka-backend", stage.backends, "-o", "junit_duration_report=total"]
    command += ["-o", "junit_logging=all", "-o", "junit_log_passing_tests=false"]
    command += [f"--junitxml={report_of(stage, kind)}"]
    output = None if shown else tempfile.TemporaryFile()  # noqa: SIM115  # closed by `show`
    if shown:
        print(f"\n--- {stage.name} ---", flush=True)
    process = subprocess.Popen(
        command,
        env=environment(stage, seed),
        cwd=stage.cwd,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
    )
    return Running(stage, process, output)


def wait(running: Running, deadline: float | None) -> None:
    """Wait for a stage, and end it at the deadline."""
    try:
        running.process.wait(None if deadline is None else max(0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        end(running.process)
        running.timed_out = True


def show(ended: Running) -> int:
    """Print the collected output of a stage that has ended; return its exit status, or -1."""
    if ended.output is not None:
        print(f"\n--- {ended.stage.name} ---", flush=True)
        ended.output.seek(0)
        with ended.output as output:
            shutil.copyfileobj(output, sys.stdout.buffer)
        sys.stdout.flush()
    if ended.timed_out:
        print(f"{ended.stage.name}: stopped at the time limit of CI=true")
        return -1
    return ended.process.returncode


def repeat_failed(
    stage: Stage, report: Path, status: int, seed: str, left: RepeatTime
) -> dict[str, str]:
    """Repeat the failed tests of a stage if CI=true and only integration tests have failed.

    Returns:
        The lines that name the tests, by node id, if each has passed; else nothing.
    """
    if not in_ci():
        return {}
    flaky: dict[str, str] = {}
    tests = select_repeats(status, failed_tests(report))
    for test in tests:
        for repeat in range(1, REPEATS + 1):
            print(f"\n--- repeat {repeat} of {test.id} ---", flush=True)
            if left.run(repeat_command(stage, test.id), environment(stage, seed)):
                flaky[test.id] = describe(test, repeat)
                keep_output(test, FLAKY)
                break
        else:
            return {}
    return flaky


def repeat_command(stage: Stage, test: str) -> list[str]:
    """Return the command that runs one test alone, with the options of its stage."""
    options = [each for each in stage.arguments if not Path(each).exists()]
    return [stage.python, "-m", "pytest", test, *options, "--kafka-backend", stage.backends]


class RepeatTime:
    """Runs repeats until the time for them is used up."""

    def __init__(self, minutes: float = REPEAT_MINUTES) -> None:
        self._seconds = 60.0 * minutes

    def run(self, command: Sequence[str], variables: Mapping[str, str]) -> bool:
        """Run a test until the time is used up; return True if it passed."""
        begun = time.monotonic()
        process = subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL)
        try:
            return process.wait(max(0.0, self._seconds)) == 0
        except subprocess.TimeoutExpired:
            print("stopped at the time limit of repeats")
            return False
        finally:
            if process.poll() is None:
                end(process)
            self._seconds -= time.monotonic() - begun


def end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt pytest, so that it stops its clusters; kill it after 20 seconds."""
    process.send_signal(signal.SIGINT)  # pytest tears down its fixtures
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def environment(stage: Stage, seed: str) -> dict[str, str]:
    inherited = os.environ if stage.spark is None else sparks.variables_of(stage.spark)
    variables = {**inherited, "KAFKA_ASYNC_TEST_SEED": seed, "KAFKA_ASYNC_TEST_LOOP": stage.loop}
    variables.update(stage.variables)
    variables.setdefault("PYTHONHASHSEED", str(int(seed) % (2**32 - 1)))
    if stage.kernel is not None:
        variables["KAFKA_ASYNC_KERNEL"] = stage.kernel
    return variables


def compiled_kernel(stage: Stage) -> bool:
    """Return True if the stage's Python has the compiled kernel."""
    variables = {**os.environ, "KAFKA_ASYNC_KERNEL": "c"}
    command = [stage.python, "-c", "import kafka_async.kernel"]
    return subprocess.run(command, env=variables, capture_output=True, check=False).returncode == 0


def conclude(summary: Summary) -> int:
    """Print the last line; return the exit status."""
    for line in summary.outcomes:
        print(line)
    missing = f"not run: {', '.join(summary.missing)}" if summary.missing else ""
    if summary.failed_stages:
        failed = f"failed: {', '.join(summary.failed_stages)}"
        print("; ".join(filter(None, [failed, f"ran: {summary.ran_on}", missing])))
        return 1
    if not missing:
        print(f"passed: {summary.ran_on}")
        return 0
    print(f"ran: {summary.ran_on}\n{'failed' if in_ci() else 'passed'}; {missing}")
    return int(in_ci())


if __name__ == "__main__":
    sys.exit(main())
