"""Runs of external processes, which never outlive the process that started them.

A run has a scratch directory, and a marker in the command line of each process. The same function
ends it in three cases: the owner closes the run; the owner dies, and a watchdog at the other end of
a pipe ends the run; both die, and the next run finds the record of the old one. A process is killed
only if its command line contains the marker, since its process id may have been reused.

The watchdog runs this file as a script, so it imports only the standard library.
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
    """Identifies a process by its id and its start time, which together are unique."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """Return the current process with an id, or None."""
        started = _start_time(pid)
        return None if started is None else cls(pid, started)

    @property
    def alive(self) -> bool:
        """True while the process runs."""
        return _start_time(self.pid) == self.started


class Run:
    """Owns a scratch directory and all processes with `marker` in their command line."""

    def __init__(self, registry: Path) -> None:
        self.id = PREFIX + uuid.uuid4().hex[:12]
        self.marker = f"-D{MARKER}={self.id}"
        self.directory = Path(tempfile.mkdtemp(prefix=f"{self.id}-"))
        self._record = registry / f"{self.id}.json"
        self._watchdog: subprocess.Popen[bytes] | None = None

    @classmethod
    def open(cls, registry: Path) -> Run:
        """End the runs of dead owners, then start a run with a record in `registry`."""
        registry.mkdir(parents=True, exist_ok=True)
        end_orphaned_runs(registry)
        run = cls(registry)
        owner = Process.of(os.getpid())
        assert owner is not None
        record = _Record(owner.pid, owner.started, str(run.directory))
        run._record.write_text(json.dumps(asdict(record)))
        run._watchdog = subprocess.Popen(
            [sys.executable, "-I", __file__, str(run._record)],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C must reach only the owner.
        )
        return run

    def close(self) -> None:
        """Kill the processes, remove directory and record; may be called again."""
        end_run(self._record)
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is not None:
            watchdog.communicate()


def end_orphaned_runs(registry: Path) -> list[str]:
    """End the runs of dead owners and return their ids."""
    ended: list[str] = []
    for path in sorted(registry.glob(f"{PREFIX}*.json")):
        record = _read_record(path)
        if record is None or not Process(record.pid, record.started).alive:
            end_run(path)
            ended.append(path.stem)
    return ended


def end_run(path: Path) -> None:
    """Kill the processes of the run with the record at `path`, and remove its files."""
    for pid in processes_of(path.stem):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    record = _read_record(path)
    if record is not None and Path(record.directory).name.startswith(path.stem):
        shutil.rmtree(record.directory, ignore_errors=True)
    path.unlink(missing_ok=True)


def processes_of(run_id: str) -> list[int]:
    """Return the ids of the processes with a run's marker in their command line."""
    marker = f"-D{MARKER}={run_id}"
    return [pid for pid, arguments in _command_lines() if marker in arguments]


@dataclass(frozen=True, slots=True)
class _Record:
    pid: int
    started: str
    directory: str


def _read_record(path: Path) -> _Record | None:
    try:
        return _Record(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _command_lines() -> list[tuple[int, list[str]]]:
    if not os.path.isdir("/proc/self"):
        finished = subprocess.run(
            ["ps", "-axww", "-o", "pid=,command="], capture_output=True, text=True, check=False
        )
        rows = (line.split() for line in finished.stdout.splitlines())
        return [(int(row[0]), row[1:]) for row in rows if row]
    command_lines: list[tuple[int, list[str]]] = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                raw = Path("/proc", name, "cmdline").read_bytes()
            except OSError:
                continue  # The process ended during the loop.
            command_lines.append((int(name), raw.decode(errors="replace").split("\0")))
    return command_lines


def _start_time(pid: int) -> str | None:
    if not os.path.isdir("/proc/self"):
        command = ["ps", "-o", "lstart=", "-p", str(pid)]
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
        return finished.stdout.strip() or None
    try:
        status = Path("/proc", str(pid), "stat").read_text()
    except OSError:
        return None
    fields = status.rpartition(")")[2].split()  # The process name may contain spaces and brackets.
    return None if fields[0] == "Z" else fields[19]


def watch(path: Path) -> None:
    """Wait until the owner has closed its end of the pipe, then end the run if it exists."""
    while sys.stdin.buffer.read(4096):
        pass
    if path.exists():
        end_run(path)


if __name__ == "__main__":
    watch(Path(sys.argv[1]))
