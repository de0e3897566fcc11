"""The command as a person runs it: a process, watched with everything that it starts."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import IO

MARK = "KAFKA_ASYNC_TEST_PROGRAM"


class Program:
    """`kafka-async ARGUMENTS`, and whatever it starts: all of them inherit a word of ours.

    Another `module` than kafka_async is a program of the project's own.
    """

    def __init__(
        self,
        *arguments: str,
        module: str = "kafka_async",
        environment: Mapping[str, str] | None = None,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
    ) -> None:
        self._mark = uuid.uuid4().hex
        plain = {"PYTHONDONTWRITEBYTECODE": "", "NO_COLOR": "1", **(environment or {})}
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env={**os.environ, MARK: self._mark, **plain},
            start_new_session=True,
        )

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.running():
            os.kill(pid, signal.SIGKILL)
        self.process.communicate()

    def wait_for(self, words: str) -> str:
        """Read standard error until it says so; all of it so far."""
        assert self.process.stderr is not None
        said = ""
        while words not in said:
            data = os.read(self.process.stderr.fileno(), 4096)
            assert data, f"it ended without {words!r}: {said}"
            said += data.decode()
        return said

    def signal(self, number: int) -> None:
        """What Ctrl-C does, for SIGINT: only the foreground process group gets it."""
        os.killpg(self.process.pid, number)

    def end(self, within: float = 20) -> tuple[int, str, str]:
        """Wait until it has ended: its status, and the rest of standard output and error."""
        out, err = self.process.communicate(timeout=within)
        return self.process.returncode, (out or b"").decode(), (err or b"").decode()

    def running(self) -> list[int]:
        """The ids of the processes that carry the word."""
        word = f"{MARK}={self._mark}".encode()
        found: list[int] = []
        for name in os.listdir("/proc"):
            try:
                if name.isdigit() and word in Path("/proc", name, "environ").read_bytes():
                    found.append(int(name))
            except OSError:
                continue  # it ended while we looked, or is nobody's
        return found

    def left(self, within: float = 10) -> list[str]:
        """The commands that run still after some seconds."""
        deadline = time.monotonic() + within
        for pid in self.running():
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            try:
                select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            finally:
                os.close(descriptor)
        return [command_of(pid) for pid in self.running()]


def command_of(pid: int) -> str:
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return "gone"


def run(
    *arguments: str, environment: Mapping[str, str] | None = None, given: bytes = b""
) -> tuple[int, str, str]:
    """Run a command to its end: status, standard output, standard error."""
    with Program(*arguments, environment=environment, stdin=subprocess.PIPE) as program:
        out, err = program.process.communicate(given, timeout=60)
        return program.process.returncode, out.decode(), err.decode()
