"""Runs of external processes: ended by their owner, by the watchdog, or by the next run."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_async.testing.backends import runs
from kafka_async.testing.backends.runs import Process, Run, end_orphaned_runs, processes_of

SLEEPER = "import sys; print('up', flush=True); sys.stdin.read()"
NO_PROCESS = Process(pid=2**22 + 1, started="0")
"""An id beyond the highest that Linux assigns."""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run.open(tmp_path)
    yield run
    run.close()


def start_sleeper(*arguments: str) -> subprocess.Popen[bytes]:
    """Start a process with these command line arguments, which waits until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEPER, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    return process


def discard(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def was_killed(process: subprocess.Popen[bytes]) -> bool:
    """Wait for the end of the process, and return whether it was killed."""
    process.communicate(timeout=30)
    return process.returncode == -signal.SIGKILL


def disown(registry: Path, run: Run) -> None:
    """Make a process that does not exist the owner of the run."""
    path = registry / f"{run.id}.json"
    record = json.loads(path.read_text())
    owner = {"pid": NO_PROCESS.pid, "started": NO_PROCESS.started}
    path.write_text(json.dumps({**record, **owner}))


def test_closing_kills_the_processes_and_removes_the_directory(tmp_path: Path, run: Run) -> None:
    (run.directory / "data").write_text("x")
    process = start_sleeper(run.marker)
    assert processes_of(run.id) == [process.pid]
    run.close()
    assert was_killed(process)
    assert not run.directory.exists()
    assert list(tmp_path.iterdir()) == []


def test_closing_again_does_nothing(run: Run) -> None:
    run.close()
    run.close()
    assert not run.directory.exists()


def test_closing_does_not_kill_other_processes(run: Run) -> None:
    others = [start_sleeper("-Dkafka.async.run=kafka-async-of-another"), start_sleeper(run.id)]
    run.close()
    assert [process.poll() for process in others] == [None, None]
    for process in others:
        discard(process)


def test_opening_a_run_ends_those_of_dead_owners(tmp_path: Path, run: Run) -> None:
    process = start_sleeper(run.marker)
    disown(tmp_path, run)
    second = Run.open(tmp_path)
    assert was_killed(process)
    assert not run.directory.exists()
    assert second.directory.exists()
    second.close()


def test_does_not_end_a_run_with_a_living_owner(tmp_path: Path, run: Run) -> None:
    process = start_sleeper(run.marker)
    assert end_orphaned_runs(tmp_path) == []
    assert process.poll() is None
    discard(process)


def test_removes_an_unreadable_record_and_no_other_file(tmp_path: Path) -> None:
    record = tmp_path / f"{runs.PREFIX}broken.json"
    record.write_text("{")
    assert end_orphaned_runs(tmp_path) == [record.stem]
    assert not record.exists()


def test_does_not_remove_a_directory_that_belongs_to_no_run(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    path = tmp_path / f"{runs.PREFIX}forged.json"
    record = {
        "pid": NO_PROCESS.pid,
        "started": NO_PROCESS.started,
        "directory": str(precious),
    }
    path.write_text(json.dumps(record))
    end_orphaned_runs(tmp_path)
    assert precious.exists()
    assert not path.exists()


OWNER = """
import subprocess, sys
from pathlib import Path
from kafka_async.testing.backends.runs import Run
run = Run.open(Path(sys.argv[1]))
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", run.marker])
print(child.pid, run.directory, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="uses pidfd_open, which only Linux has")
def test_watchdog_ends_the_run_of_a_killed_owner(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    pid, directory = owner.stdout.readline().split()
    watched = os.pidfd_open(int(pid))
    owner.kill()
    owner.communicate()
    ended, _, _ = select.select([watched], [], [], 30)
    os.close(watched)
    assert ended
    wait_for_removal(tmp_path)
    assert not Path(directory).exists()


def wait_for_removal(registry: Path) -> None:
    """Wait for the end of the watchdog, which removes the record last."""
    deadline = time.monotonic() + 30
    while list(registry.iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_identifies_a_process_by_id_and_start_time() -> None:
    process = Process.of(os.getpid())
    assert process is not None
    assert process.alive
    assert not Process(process.pid, "another time").alive
    assert not NO_PROCESS.alive
    assert Process.of(NO_PROCESS.pid) is None
