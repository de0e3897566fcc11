"""Runs of external processes: closed in order, by the watchdog, or by the next run."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_async.testing.backends import runs
from kafka_async.testing.backends.runs import Process, Run, end_leftovers, processes_of

SLEEPER = "import sys; print('up', flush=True); sys.stdin.read()"
NEVER = Process(pid=2**22 + 1, started="0")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run.open(tmp_path)
    yield run
    run.close()


def start_sleeper(*words: str) -> subprocess.Popen[bytes]:
    """A process with these words in its command line, which waits until it is ended."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEPER, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    return process


def discard(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it was killed; waits for that."""
    process.communicate(timeout=30)
    return process.returncode == -signal.SIGKILL


def disown(registry: Path, run: Run) -> None:
    """Write into a run's record that it belongs to a process that is no more."""
    record = registry / f"{run.id}.json"
    facts = json.loads(record.read_text())
    record.write_text(json.dumps({**facts, "pid": NEVER.pid, "started": NEVER.started}))


def test_closing_ends_its_processes_and_removes_its_directory(tmp_path: Path, run: Run) -> None:
    (run.directory / "data").write_text("x")
    process = start_sleeper(run.marker)
    assert processes_of(run.id) == [process.pid]
    run.close()
    assert ended(process)
    assert not run.directory.exists()
    assert list(tmp_path.iterdir()) == []


def test_closing_again_does_nothing(run: Run) -> None:
    run.close()
    run.close()
    assert not run.directory.exists()


def test_other_processes_are_left_alone(run: Run) -> None:
    others = [start_sleeper("-Dkafka.async.run=kafka-async-of-another"), start_sleeper(run.id)]
    run.close()
    assert [process.poll() for process in others] == [None, None]
    for process in others:
        discard(process)


def test_a_run_of_a_dead_owner_is_ended_when_the_next_is_opened(tmp_path: Path, run: Run) -> None:
    process = start_sleeper(run.marker)
    disown(tmp_path, run)
    second = Run.open(tmp_path)
    assert ended(process)
    assert not run.directory.exists()
    assert second.directory.exists()
    second.close()


def test_a_run_of_a_living_owner_is_left_alone(tmp_path: Path, run: Run) -> None:
    process = start_sleeper(run.marker)
    assert end_leftovers(tmp_path) == []
    assert process.poll() is None
    discard(process)


def test_a_record_that_cannot_be_read_removes_nothing_but_itself(tmp_path: Path) -> None:
    record = tmp_path / f"{runs.PREFIX}broken.json"
    record.write_text("{")
    assert end_leftovers(tmp_path) == [record.stem]
    assert not record.exists()


def test_a_directory_that_is_no_runs_is_never_removed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    record = tmp_path / f"{runs.PREFIX}forged.json"
    facts = {"pid": NEVER.pid, "started": NEVER.started, "directory": str(precious)}
    record.write_text(json.dumps(facts))
    end_leftovers(tmp_path)
    assert precious.exists()
    assert not record.exists()


OWNER = """
import subprocess, sys
from pathlib import Path
from kafka_async.testing.backends.runs import Run
run = Run.open(Path(sys.argv[1]))
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", run.marker])
print(child.pid, run.directory, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="watches processes as Linux lets one")
def test_the_watchdog_ends_the_run_of_an_owner_that_was_killed(tmp_path: Path) -> None:
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
    gone, _, _ = select.select([watched], [], [], 30)
    os.close(watched)
    assert gone
    wait_for_removal(tmp_path)
    assert not Path(directory).exists()


def wait_for_removal(registry: Path) -> None:
    """The record goes last: the watchdog's own end says that it is gone."""
    for pid, words in watchdogs():
        if str(registry) in " ".join(words):
            watched = os.pidfd_open(pid)
            select.select([watched], [], [], 30)
            os.close(watched)
    assert list(registry.iterdir()) == []


def watchdogs() -> list[tuple[int, list[str]]]:
    found: list[tuple[int, list[str]]] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path("/proc", name, "cmdline").read_text().split("\0")
        except OSError:
            continue
        if runs.__file__ in words:
            found.append((int(name), words))
    return found


def test_a_process_is_known_by_its_id_and_its_start() -> None:
    me = Process.of(os.getpid())
    assert me is not None
    assert me.alive
    assert not Process(me.pid, "another moment").alive
    assert not NEVER.alive
    assert Process.of(NEVER.pid) is None
