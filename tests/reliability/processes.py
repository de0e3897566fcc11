"""Finds and signals the processes of a driver."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import defaultdict
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.programs import ROOT

if TYPE_CHECKING:
    from tests.reliability.streaming_driver import DriverOptions

EXECUTOR: Final = "CoarseGrainedExecutorBackend"
PYTHON_WORKER: Final = "pyspark.daemon"


class Driver:
    """Runs a driver in its own process group, with its JVM.

    It starts Spark at once, and its query by `begin`.

    Attributes:
        epochs: Number of epochs with rows that it has reported.
        error: Text of the error with which its query has failed; empty otherwise.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.pid = process.pid
        self.epochs = 0
        self.error = ""
        self.is_done = False
        self._process = process
        self._ready = asyncio.Event()
        self._first_epoch = asyncio.Event()
        self._lines = asyncio.create_task(self._read_lines())

    @classmethod
    async def start(cls, options: DriverOptions, log: Path) -> Driver:
        """Start a driver."""
        with log.open("ab") as stderr:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.reliability.streaming_driver"),
                json.dumps(asdict(options)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                limit=2**24,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                start_new_session=True,
            )
        return cls(process)

    @property
    def is_running(self) -> bool:
        """True until the process ends."""
        return self._process.returncode is None

    async def begin(self, *, finish: bool = False) -> None:
        """Continue the query of the checkpoint; `finish`: up to the present end of the input."""
        await self._until(self._ready)
        if self.is_running:
            assert self._process.stdin is not None
            self._process.stdin.write(b"finish\n" if finish else b"continue\n")

    async def first_epoch(self) -> None:
        """Wait for the first epoch, or for the end of the process."""
        await self._until(self._first_epoch)

    async def _until(self, event: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(each) for each in (self.ended(), event.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    async def ended(self) -> None:
        """Wait for the end of the process and of its output."""
        await asyncio.shield(self._lines)
        await self._process.wait()

    async def kill(self) -> None:
        """Kill the process and its JVM as by kill -9; Python workers notice it themselves."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        await self.ended()

    def freeze(self) -> list[int]:
        """Freeze the process and all that it has started; return their ids."""
        frozen = [self.pid, *descendants(self.pid)]
        signal_all(frozen, signal.SIGSTOP)
        return frozen

    async def _read_lines(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            word, _, rest = line.decode("utf-8", "replace").strip().partition(" ")
            if word == "ready":
                self._ready.set()
            elif word == "epoch":
                self.epochs += 1
                self._first_epoch.set()
            elif word == "failed":
                self.error = rest
            elif word == "done":
                self.is_done = True


def signal_all(pids: list[int], number: signal.Signals) -> None:
    """Send a signal to processes that still exist."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def descendants(pid: int) -> list[int]:
    """Return the ids of the processes below a process."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = entry.joinpath("stat").read_text().rpartition(")")[2].split()
                children[int(fields[1])].append(int(entry.name))
    found = [pid]
    for parent in found:
        found += children[parent]
    return found[1:]


def executors() -> list[int]:
    """Return the executors that workers below this process have started."""
    return [pid for pid in descendants(os.getpid()) if EXECUTOR in _command(pid)]


def python_workers(pid: int) -> list[int]:
    """Return the Python workers below a process, without the daemons that fork them."""
    daemons = [each for each in descendants(pid) if PYTHON_WORKER in _command(each)]
    return [each for each in daemons if _parent(each) in daemons]


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace")
    return ""


def _parent(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0
