"""A signal to a benchmark ends its clients and its brokers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import child_processes
from kafka_async.testing.backends import BackendUnavailableError
from kafka_async.testing.backends.jars import jar_directory
from kafka_async.testing.backends.jvm import find_java
from kafka_async.testing.environment import in_ci
from tests.cli.programs import Program, command_of

pytestmark = pytest.mark.skipif(
    not hasattr(os, "pidfd_open"), reason="requires Linux to watch processes"
)
TOGETHER = ["--only", "round-trip-1", "--peers", "kafka_async_python,aiokafka", "--rounds", "1"]


@pytest.fixture(scope="module")
def kafka() -> None:
    """Skip the tests, or fail in CI, without Java and the broker's jars."""
    try:
        find_java()
        jar_directory("4.4.0")
    except BackendUnavailableError as error:
        (pytest.fail if in_ci() else pytest.skip)(str(error))


def interrupt(
    arguments: Sequence[str], expected: Sequence[str], number: signal.Signals, folder: Path
) -> None:
    """Start a benchmark, signal it when the expected processes run, and check that none is left."""
    with Program(*arguments, "--output", str(folder), module="benchmarks") as program:
        deadline = time.monotonic() + 60
        while not all(any(word in one for one in commands(program)) for word in expected):
            assert program.process.poll() is None, program.end()
            assert time.monotonic() < deadline, commands(program)
        os.kill(program.process.pid, number)
        status, out, err = program.end(within=30)
        assert program.left(within=20) == []
    assert status == 1
    assert err.endswith("interrupted; use --resume to continue\n"), err
    assert out.startswith("Every client tuned")


def commands(program: Program) -> list[str]:
    return [command_of(pid) for pid in program.running()]


SIDE_BY_SIDE = ["benchmarks.peers.kafka_async_peer", "benchmarks.peers.aiokafka_peer"]
SPECIAL_CLIENT = ["benchmarks.special.fairness_client"]


@pytest.mark.parametrize(
    ("arguments", "expected", "number"),
    [
        pytest.param(TOGETHER, SIDE_BY_SIDE, signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(TOGETHER, SIDE_BY_SIDE, signal.SIGINT, marks=pytest.mark.slow),
        pytest.param(
            ["--only", "fairness"], SPECIAL_CLIENT, signal.SIGTERM, marks=pytest.mark.slow
        ),
    ],
    ids=["SIGTERM", "SIGINT", "a special case's client"],
)
def test_signal_ends_all_clients(
    arguments: list[str], expected: list[str], number: signal.Signals, tmp_path: Path
) -> None:
    embedded = ["--backend", "embedded", "--scale", "0.5"]
    interrupt([*arguments, *embedded], expected, number, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("kafka")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (TOGETHER, ["kafka.Kafka", "benchmarks.peers.kafka_async_peer"]),
        (["--only", "memory"], ["kafka.Kafka", "benchmarks.special.memory_client"]),
    ],
    ids=["the benchmark's broker", "a special case's own broker"],
)
def test_signal_ends_broker(arguments: list[str], expected: list[str], tmp_path: Path) -> None:
    scale = ["--scale", "0.02"] if arguments is not TOGETHER else ["--scale", "0.5"]
    interrupt([*arguments, *scale], expected, signal.SIGTERM, tmp_path)


def test_time_limit_ends_process_and_its_children() -> None:
    mark = str(os.getpid())  # the same test may run on another Python at the same time
    waits = "import signal; signal.pause()"
    grandchild = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {waits!r}])"
    with pytest.raises(child_processes.TimeLimitError, match="longer than 1 s"):
        child_processes.run(
            [sys.executable, "-c", grandchild], 1.0, {"KAFKA_ASYNC_TEST_CHILD": mark}
        )
    assert marked(f"KAFKA_ASYNC_TEST_CHILD={mark}") == []


def test_run_returns_exit_code_and_output() -> None:
    program = "import sys; print('out'); sys.exit('it broke')"
    assert child_processes.run([sys.executable, "-c", program], 30.0) == (1, "out\n", "it broke\n")


def marked(word: str) -> list[int]:
    """Return the processes with a word in their environment."""
    listed = subprocess.run(["ps", "-axeww", "-o", "pid,command"], capture_output=True, check=True)
    return [int(line.split()[0]) for line in listed.stdout.splitlines() if word.encode() in line]
