"""A signal to a benchmark, or a time limit, ends its clients and its brokers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks import processes
from benchmarks.peers import loop
from kafka_async.testing.backends import BackendUnavailableError
from kafka_async.testing.backends.jars import jar_directory
from kafka_async.testing.backends.jvm import find_java
from tests.cli.programs import Program, command_of

if TYPE_CHECKING:
    from tests.conftest import CannotRun

TOGETHER = ["--only", "round-trip-1", "--peers", "kafka_async_python,aiokafka", "--rounds", "1"]
SIDE_BY_SIDE = ["benchmarks.peers.kafka_async_peer", "benchmarks.peers.aiokafka_peer"]
watches_processes = pytest.mark.skipif(
    not hasattr(os, "pidfd_open"), reason="requires Linux to watch processes"
)


@pytest.fixture(scope="module")
def kafka(cannot_run: CannotRun) -> None:
    try:
        find_java()
        jar_directory("4.4.0")
    except BackendUnavailableError as error:
        cannot_run("benchmarks on Kafka", error)


def interrupt(
    arguments: Sequence[str], expected: Sequence[str], number: signal.Signals, folder: Path
) -> None:
    """Start a benchmark, signal it when the expected processes run, and check that none is left."""
    with Program(*arguments, "--output", str(folder), module="benchmarks") as program:
        deadline = time.monotonic() + 180
        while not all(any(word in one for one in commands(program)) for word in expected):
            # Not a busy loop: the processes that it waits for need the processor.
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.process.wait(0.05)
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


@watches_processes
@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "expected", "number"),
    [
        (TOGETHER, SIDE_BY_SIDE, signal.SIGTERM),
        (TOGETHER, SIDE_BY_SIDE, signal.SIGINT),
        (["--only", "fairness"], SIDE_BY_SIDE[:1], signal.SIGTERM),
    ],
    ids=["SIGTERM", "SIGINT", "a special case's client"],
)
def test_signal_ends_all_clients(
    arguments: list[str], expected: list[str], number: signal.Signals, tmp_path: Path
) -> None:
    embedded = ["--backend", "embedded", "--scale", "0.5"]
    interrupt([*arguments, *embedded], expected, number, tmp_path)


@watches_processes
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("kafka")
@pytest.mark.parametrize(
    "arguments",
    [[*TOGETHER, "--scale", "0.5"], ["--only", "memory", "--scale", "0.02"]],
    ids=["the benchmark's broker", "a special case's own broker"],
)
def test_signal_ends_broker(arguments: list[str], tmp_path: Path) -> None:
    interrupt(arguments, ["kafka.Kafka", SIDE_BY_SIDE[0]], signal.SIGTERM, tmp_path)


def test_time_limit_ends_process_and_its_children() -> None:
    mark = str(os.getpid())  # the same test may run on another Python at the same time
    waits = "import signal; signal.pause()"
    grandchild = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {waits!r}])"
    command = [sys.executable, "-c", grandchild]
    with pytest.raises(processes.FailedError, match="longer than 1 s"):
        processes.run(command, 1.0, {"KAFKA_ASYNC_TEST_CHILD": mark})
    listed = subprocess.run(["ps", "-axeww", "-o", "command"], capture_output=True, check=True)
    assert f"KAFKA_ASYNC_TEST_CHILD={mark}".encode() not in listed.stdout


def test_clients_run_on_asyncio_without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def running() -> str:
        return type(asyncio.get_running_loop()).__module__

    assert (loop.name(), loop.run(running())) == ("uvloop", "uvloop")
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert loop.name() == "asyncio"
    assert loop.run(running()).startswith("asyncio.")
