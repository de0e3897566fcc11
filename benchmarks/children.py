"""The processes that a benchmark starts: none of them outlives what it was started for.

Each leads a group of its own, so that what it starts itself ends with it.
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
    """A process was ended because it took too long."""


def run(
    command: list[str], time_limit: float, environment: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Exit code, output and complaints of a program.

    Raises:
        TimeLimitError: it took longer than `time_limit` seconds, and was ended.
    """
    with _process(command, environment) as process:
        try:
            printed, complaint = process.communicate(timeout=time_limit)
        except subprocess.TimeoutExpired:
            raise TimeLimitError(f"it took longer than {time_limit:.0f} s") from None
    return process.returncode, printed, complaint


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


def end_all() -> None:
    """End those that run; whoever waits for one of them sees that it failed."""
    for process in list(_running):
        _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def end_in_order() -> None:
    """From now on the first signal that asks this process to end is a KeyboardInterrupt.

    Those after it are ignored: what is under way then ends the broker and the clients.
    """

    def end(_number: int, _frame: FrameType | None) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    signals = [
        each
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(each) is not signal.SIG_IGN or each is signal.SIGTERM
    ]
    for each in signals:
        signal.signal(each, end)
