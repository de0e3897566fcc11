"""Child processes that end with the demo.

Each leads its own session, so that Ctrl-C reaches only the demo, which stops its children in order.
Each also ends with its standard input, which closes even after kill -9 of the demo.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from contextlib import asynccontextmanager
from typing import IO, TYPE_CHECKING, Final

from kafka_async.secrets import Secret

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping
    from pathlib import Path

STOP_TIMEOUT: Final = 10.0
"""Seconds from SIGTERM to SIGKILL."""
MAX_LINE_BYTES: Final = 2**24


class ChildProcess:
    """Exchanges lines of text with a running module."""

    def __init__(self, process: asyncio.subprocess.Process, errors: IO[bytes]) -> None:
        self._process = process
        self._errors = errors

    @property
    def status(self) -> int | None:
        """Exit status; None while the process runs."""
        return self._process.returncode

    @property
    def pid(self) -> int:
        """Process id, which is also the id of the process group."""
        return self._process.pid

    def write(self, line: str | Secret) -> None:
        """Write a line to standard input; do nothing if the process has ended."""
        assert self._process.stdin is not None
        text = line if isinstance(line, Secret) else Secret(line)
        self._process.stdin.write(text.reveal().encode() + b"\n")

    async def lines(self) -> AsyncIterator[str]:
        """Yield the lines of standard output until it ends."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            yield line.decode().rstrip("\n")

    async def wait(self) -> int:
        """Wait for the end of the process and return its exit status."""
        return await self._process.wait()

    def kill(self) -> None:
        """Kill the process group."""
        if self.status is None:
            os.killpg(self.pid, signal.SIGKILL)

    async def stop(self, *, force: bool) -> None:
        """Stop the process and wait for its end; with `force`, send SIGKILL at once."""
        if self.status is None and not force:
            self._process.terminate()
            try:
                async with asyncio.timeout(STOP_TIMEOUT):
                    await self.wait()
            except TimeoutError:
                pass
        self.kill()
        await self.wait()

    def last_error_line(self) -> str:
        """Return the last line of standard error: the uncaught exception."""
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip() if lines else "it printed no error"


@asynccontextmanager
async def child_process(
    module: str,
    *arguments: str,
    errors: Path | None = None,
    environment: Mapping[str, str] | None = None,
    force: bool = True,
) -> AsyncGenerator[ChildProcess]:
    """Run a module as a process; stop it or, with `force`, kill it at the end of the block."""
    with tempfile.TemporaryFile() if errors is None else errors.open("w+b") as error_file:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=error_file,
            start_new_session=True,
            limit=MAX_LINE_BYTES,
            env={**os.environ, **(environment or {})},
        )
        child = ChildProcess(process, error_file)
        try:
            yield child
        finally:
            await asyncio.shield(child.stop(force=force))
