"""Runs of external processes that never outlive the process that started them.

A run is a scratch directory and a word that stands in the command line of each of its processes. It
is ended in one of three ways, by the same function: its owner closes it; its owner dies, and a
watchdog, which holds the other end of a pipe, ends it; both die at once, and the next run that is
opened finds the record of it and ends it. A process is ended only if the run's word is in its
command line: a process id alone may belong to somebody else by now.

The watchdog runs this file as a script, so it imports the standard library only.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

PREFIX = "kafka-async-"
MARKER = "kafka.async.run"


@dataclass(frozen=True, slots=True)
class Process:
    """A process by its id and the moment it started, which together are never used again."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """The process that has an id now; None if there is none."""
        started = _start_of(pid)
        return None if started is None else cls(pid, started)

    @property
    def alive(self) -> bool:
        """Whether it runs still."""
        return _start_of(self.pid) == self.started


class Run:
    """A scratch directory, and the processes that carry `marker` in their command line."""

    def __init__(self, registry: Path) -> None:
        self.id = PREFIX + uuid.uuid4().hex[:12]
        self.marker = f"-D{MARKER}={self.id}"
        self.directory = Path(tempfile.mkdtemp(prefix=f"{self.id}-"))
        self._record = registry / f"{self.id}.json"
        self._watchdog: subprocess.Popen[bytes] | None = None

    @classmethod
    def open(cls, registry: Path) -> Run:
        """Begin a run, after ending those whose owners have died without ending them."""
        registry.mkdir(parents=True, exist_ok=True)
        end_leftovers(registry)
        run = cls(registry)
        owner = Process.of(os.getpid())
        assert owner is not None
        facts = _Facts(owner.pid, owner.started, str(run.directory))
        run._record.write_text(json.dumps(asdict(facts)))
        run._watchdog = subprocess.Popen(
            [sys.executable, "-I", __file__, str(run._record)],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the owner, who ends things in order
        )
        return run

    def close(self) -> None:
        """End its processes, remove its directory and its record; safe to call again."""
        end_run(self._record)
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is not None:
            watchdog.communicate()


def end_leftovers(registry: Path) -> list[str]:
    """End the runs whose owners are dead; returns their ids."""
    ended: list[str] = []
    for record in sorted(registry.glob(f"{PREFIX}*.json")):
        facts = _read(record)
        if facts is None or not Process(facts.pid, facts.started).alive:
            end_run(record)
            ended.append(record.stem)
    return ended


def end_run(record: Path) -> None:
    """Kill a run's processes, and remove its directory and its record."""
    for pid in processes_of(record.stem):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    facts = _read(record)
    if facts is not None and Path(facts.directory).name.startswith(record.stem):
        shutil.rmtree(facts.directory, ignore_errors=True)
    record.unlink(missing_ok=True)


def processes_of(run_id: str) -> list[int]:
    """The ids of the processes with a run's marker in their command line."""
    word = f"-D{MARKER}={run_id}"
    return [pid for pid, words in _command_lines() if word in words]


@dataclass(frozen=True, slots=True)
class _Facts:
    pid: int
    started: str
    directory: str


def _read(record: Path) -> _Facts | None:
    try:
        return _Facts(**json.loads(record.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _command_lines() -> list[tuple[int, list[str]]]:
    if not os.path.isdir("/proc/self"):
        listed = subprocess.run(
            ["ps", "-axww", "-o", "pid=,command="], capture_output=True, text=True, check=False
        )
        rows = (line.split() for line in listed.stdout.splitlines())
        return [(int(row[0]), row[1:]) for row in rows if row]
    found: list[tuple[int, list[str]]] = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                raw = Path("/proc", name, "cmdline").read_bytes()
            except OSError:
                continue  # it ended while we looked
            found.append((int(name), raw.decode(errors="replace").split("\0")))
    return found


def _start_of(pid: int) -> str | None:
    if not os.path.isdir("/proc/self"):
        command = ["ps", "-o", "lstart=", "-p", str(pid)]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
        return told.stdout.strip() or None
    try:
        status = Path("/proc", str(pid), "stat").read_text()
    except OSError:
        return None
    fields = status.rpartition(")")[2].split()  # the name before may hold spaces and brackets
    return None if fields[0] == "Z" else fields[19]


def watch(record: Path) -> None:
    """Wait until the owner has closed its end of the pipe, and end the run if it is still there."""
    while sys.stdin.buffer.read(4096):
        pass
    if record.exists():
        end_run(record)


if __name__ == "__main__":
    watch(Path(sys.argv[1]))
