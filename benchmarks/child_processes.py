"""Runs the processes of a benchmark, and ends them with it.

Each process leads a process group, so that its child processes end with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from types import FrameType

ROOT: Final = Path(__file__).parent.parent
_running: set[subprocess.Popen[str]] = set()


class TimeLimitError(RuntimeError):
    """A process was stopped at its time limit."""


def run(
    command: list[str], time_limit: float, environment: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Run a program; return its exit code, its output and its error output.

    Raises:
        TimeLimitError: the program took longer than `time_limit` seconds, and was stopped.
    """
    with _process(command, environment) as process:
        try:
            output, errors = process.communicate(timeout=time_limit)
        except subprocess.TimeoutExpired:
            raise TimeLimitError(f"it took longer than {time_limit:.0f} s") from None
    return process.returncode, output, errors


@contextmanager
def _process(
    command: list[str], environment: Mapping[str, str] | None
) -> Generator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
        cwd=ROOT,
        start_new_session=True,
    )
    _running.add(process)
    try:
        yield process
    finally:
        _running.discard(process)
        if process.returncode is None:
            _kill(process)
            process.communicate()


def kill_all() -> None:
    """Kill all running processes; the callers of `run` get their exit codes."""
    for process in list(_running):
        _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def interrupt_on_signals() -> None:
    """Install signal handlers: the first signal to end this process raises KeyboardInterrupt.

    Further signals are ignored, so that they do not interrupt the clean-up of broker and clients.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    signals = [
        each
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(each) is not signal.SIG_IGN or each is signal.SIGTERM
    ]
    for each in signals:
        signal.signal(each, interrupt)
