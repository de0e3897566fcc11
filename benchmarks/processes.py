"""Runs the clients of a benchmark in processes, and ends them with it.

Each process leads a process group, so that its child processes end with it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from benchmarks.clients import PEERS
from benchmarks.peers.task import Figures, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

T = TypeVar("T")
ROOT: Final = Path(__file__).parent.parent
TIME_LIMIT: Final = 60.0
"""Time limit of a client's process in seconds."""
LONG_TIME_LIMIT: Final = 120.0
"""Time limit of a client's process in the special cases."""
_running: set[subprocess.Popen[str]] = set()


class FailedError(RuntimeError):
    """A client's process failed, printed no figures, or exceeded its time limit."""


def launch(peer: str, task: Task, time_limit: float = TIME_LIMIT) -> Figures:
    """Run a task in the process of a client; return the figures that it prints."""
    client = PEERS[peer]
    command = [client.interpreter, "-m", client.module, json.dumps(asdict(task))]
    code, output, errors = run(command, time_limit, client.environment)
    if code:
        raise FailedError(f"exit code {code}: {_last_line(errors)}")
    try:
        return Figures(**json.loads(output.splitlines()[-1]))
    except (ValueError, IndexError, TypeError) as error:
        raise FailedError(f"it printed no figures: {output[-200:]!r}") from error


def _last_line(text: str) -> str:
    """Return the last line of error output, for example the exception of a traceback."""
    lines = text.strip().splitlines()
    return lines[-1].replace(sys.executable, "python")[-500:] if lines else "no output"


def run(
    command: list[str], time_limit: float, environment: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Run a program; return its exit code, its output and its error output."""
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
        output, errors = process.communicate(timeout=time_limit)
        return process.returncode, output, errors
    except subprocess.TimeoutExpired:
        raise FailedError(f"it took longer than {time_limit:.0f} s") from None
    finally:
        _running.discard(process)
        if process.returncode is None:
            _kill(process)
            process.communicate()


def run_together(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Run functions in threads; at the first exception, kill all processes and raise it."""
    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(call) for call in calls]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
            return [future.result() for future in futures if future.done()]
        finally:
            while wait(futures, timeout=0.1).not_done:
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
