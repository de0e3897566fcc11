"""Runs the command as a process, and finds the processes that it starts."""

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

MARKER = "KAFKA_ASYNC_TEST_PROGRAM"
"""Environment variable that all processes of a program inherit."""


class Program:
    """Runs `kafka-async ARGUMENTS`, or another `module` of this project, as a process."""

    def __init__(
        self,
        *arguments: str,
        module: str = "kafka_async",
        environment: Mapping[str, str] | None = None,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
    ) -> None:
        self._marker = uuid.uuid4().hex
        plain = {"PYTHONDONTWRITEBYTECODE": "", "NO_COLOR": "1", **(environment or {})}
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env={**os.environ, MARKER: self._marker, **plain},
            start_new_session=True,
        )

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.running():
            os.kill(pid, signal.SIGKILL)
        self.process.communicate()

    def wait_for(self, text: str) -> str:
        """Read standard error until it contains a text, and return what was read."""
        assert self.process.stderr is not None
        output = ""
        while text not in output:
            data = os.read(self.process.stderr.fileno(), 4096)
            assert data, f"it ended without {text!r}: {output}"
            output += data.decode()
        return output

    def write(self, data: bytes) -> None:
        """Write to standard input, and leave it open."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def read_line(self) -> bytes:
        """Read a line of standard output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def signal(self, number: int) -> None:
        """Send a signal to the process group, as Ctrl-C does to that in the foreground."""
        os.killpg(self.process.pid, number)

    def end(self, within: float = 20) -> tuple[int, str, str]:
        """Wait for the end; return the status and the rest of standard output and error."""
        out, err = self.process.communicate(timeout=within)
        return self.process.returncode, (out or b"").decode(), (err or b"").decode()

    def running(self) -> list[int]:
        """Return the ids of the program's processes."""
        variable = f"{MARKER}={self._marker}".encode()
        pids: list[int] = []
        for name in os.listdir("/proc"):
            try:
                if name.isdigit() and variable in Path("/proc", name, "environ").read_bytes():
                    pids.append(int(name))
            except OSError:
                continue  # The process has just ended, or belongs to another user.
        return pids

    def left(self, within: float = 10) -> list[str]:
        """Wait some seconds and return the commands of the processes that still run."""
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
    *arguments: str, environment: Mapping[str, str] | None = None, stdin: bytes = b""
) -> tuple[int, str, str]:
    """Run a command to its end; return its status, standard output and standard error."""
    with Program(*arguments, environment=environment, stdin=subprocess.PIPE) as program:
        out, err = program.process.communicate(stdin, timeout=60)
        return program.process.returncode, out.decode(), err.decode()
