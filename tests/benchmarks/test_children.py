"""Whoever ends a benchmark ends its clients and its brokers with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import children
from kafka_async.testing.backends import BackendUnavailableError
from kafka_async.testing.backends.jars import jar_directory
from kafka_async.testing.backends.jvm import find_java
from kafka_async.testing.environment import in_ci
from tests.cli.programs import Program, command_of

pytestmark = pytest.mark.skipif(
    not hasattr(os, "pidfd_open"), reason="watches processes as Linux lets one"
)
TOGETHER = ["--only", "round-trip-1", "--peers", "kafka_async_python,aiokafka", "--rounds", "1"]


@pytest.fixture(scope="module")
def kafka() -> None:
    """Java and the broker's jars; without them nothing here runs, and in CI it fails."""
    try:
        find_java()
        jar_directory("4.4.0")
    except BackendUnavailableError as error:
        (pytest.fail if in_ci() else pytest.skip)(str(error))


def interrupt(
    arguments: Sequence[str], awaited: Sequence[str], number: signal.Signals, folder: Path
) -> None:
    """Start a benchmark; when all that is awaited runs, end it; nothing runs then."""
    with Program(*arguments, "--output", str(folder), module="benchmarks") as program:
        deadline = time.monotonic() + 60
        while not all(any(word in one for one in commands(program)) for word in awaited):
            assert program.process.poll() is None, program.end()
            assert time.monotonic() < deadline, commands(program)
        os.kill(program.process.pid, number)
        status, out, err = program.end(within=30)
        assert program.left(within=20) == []
    assert status == 1
    assert err.endswith("interrupted; --resume goes on from here\n"), err
    assert out.startswith("Every client tuned")


def commands(program: Program) -> list[str]:
    return [command_of(pid) for pid in program.running()]


SIDE_BY_SIDE = ["benchmarks.peers.kafka_async_peer", "benchmarks.peers.aiokafka_peer"]
ONE_OF_ITS_OWN = ["benchmarks.special.fairness_client"]


@pytest.mark.parametrize(
    ("arguments", "awaited", "number"),
    [
        pytest.param(TOGETHER, SIDE_BY_SIDE, signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(TOGETHER, SIDE_BY_SIDE, signal.SIGINT, marks=pytest.mark.slow),
        pytest.param(
            ["--only", "fairness"], ONE_OF_ITS_OWN, signal.SIGTERM, marks=pytest.mark.slow
        ),
    ],
    ids=["SIGTERM", "SIGINT", "a special case's client"],
)
def test_a_signal_ends_all_clients(
    arguments: list[str], awaited: list[str], number: signal.Signals, tmp_path: Path
) -> None:
    embedded = ["--backend", "embedded", "--scale", "0.5"]
    interrupt([*arguments, *embedded], awaited, number, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("kafka")
@pytest.mark.parametrize(
    ("arguments", "awaited"),
    [
        (TOGETHER, ["kafka.Kafka", "benchmarks.peers.kafka_async_peer"]),
        (["--only", "memory"], ["kafka.Kafka", "benchmarks.special.memory_client"]),
    ],
    ids=["the benchmark's broker", "a special case's own broker"],
)
def test_a_signal_ends_the_broker_too(
    arguments: list[str], awaited: list[str], tmp_path: Path
) -> None:
    scale = ["--scale", "0.02"] if arguments is not TOGETHER else ["--scale", "0.5"]
    interrupt([*arguments, *scale], awaited, signal.SIGTERM, tmp_path)


def test_who_takes_too_long_is_ended_with_what_it_started() -> None:
    mark = str(os.getpid())  # the same test may run on another Python at the same time
    waits = "import signal; signal.pause()"
    grandchild = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {waits!r}])"
    with pytest.raises(children.TimeLimitError, match="longer than 1 s"):
        children.run([sys.executable, "-c", grandchild], 1.0, {"KAFKA_ASYNC_TEST_CHILD": mark})
    assert marked(f"KAFKA_ASYNC_TEST_CHILD={mark}") == []


def test_a_program_says_how_it_ended() -> None:
    program = "import sys; print('out'); sys.exit('it broke')"
    assert children.run([sys.executable, "-c", program], 30.0) == (1, "out\n", "it broke\n")


def marked(word: str) -> list[int]:
    """The processes with a word in their environment."""
    listed = subprocess.run(["ps", "-axeww", "-o", "pid,command"], capture_output=True, check=True)
    return [int(line.split()[0]) for line in listed.stdout.splitlines() if word.encode() in line]
