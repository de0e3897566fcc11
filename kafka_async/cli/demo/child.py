"""Processes of the demo: none outlives it, whatever ends it.

Each is the leader of a session of its own, so that Ctrl-C reaches the demo alone, which ends them
in order. Each watches its standard input, which ends with the demo, even by kill -9.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from contextlib import asynccontextmanager
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping
    from pathlib import Path

GRACE: Final = 10.0
LONGEST_LINE: Final = 2**24


class Child:
    """A running module of ours. Text goes in and comes out by lines."""

    def __init__(self, process: asyncio.subprocess.Process, errors: IO[bytes]) -> None:
        self._process = process
        self._errors = errors

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._process.returncode

    @property
    def pid(self) -> int:
        """Its process id, and its process group's."""
        return self._process.pid

    def write(self, line: str) -> None:
        """Tell it something; nothing happens if it has ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")

    async def lines(self) -> AsyncIterator[str]:
        """What it says on standard output, until it ends."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            yield line.decode().rstrip("\n")

    async def ended(self) -> int:
        """Wait until it ends; its exit status."""
        return await self._process.wait()

    def kill(self) -> None:
        """End it, and what it has started in its process group, by SIGKILL."""
        if self.status is None:
            os.killpg(self.pid, signal.SIGKILL)

    async def end(self, *, force: bool) -> None:
        """End it, and wait until it has; unless by force, it gets some seconds to end in order."""
        if self.status is None and not force:
            self._process.terminate()
            try:
                async with asyncio.timeout(GRACE):
                    await self.ended()
            except TimeoutError:
                pass
        self.kill()
        await self.ended()

    def last_words(self) -> str:
        """The last line that it wrote to standard error, where an exception is named."""
        self._errors.seek(0)
        said = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return said[-1].strip() if said else "it said nothing"


@asynccontextmanager
async def child(
    module: str,
    *arguments: str,
    errors: Path | None = None,
    environment: Mapping[str, str] | None = None,
    force: bool = True,
) -> AsyncGenerator[Child]:
    """Run a module as a process; it has ended when the block is left, `force` says how.

    Its standard error goes to the file `errors`, by default to one that has no name.
    """
    with tempfile.TemporaryFile() if errors is None else errors.open("w+b") as said:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=said,
            start_new_session=True,
            limit=LONGEST_LINE,
            env={**os.environ, **(environment or {})},
        )
        running = Child(process, said)
        try:
            yield running
        finally:
            await asyncio.shield(running.end(force=force))
