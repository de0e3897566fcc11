"""Clients in processes of their own: started all at once, each prints one JSON object."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TIME_LIMIT = 120.0
"""Seconds that a process may take."""
ROOT = Path(__file__).parents[2]


class ClientFailedError(RuntimeError):
    """A client's process ended badly; with what it said."""


def start(module: str, task: Mapping[str, Any]) -> subprocess.Popen[str]:
    """Run `python -m benchmarks.special.MODULE JSON`."""
    command = [sys.executable, "-m", f"benchmarks.special.{module}", json.dumps(task)]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(processes: Sequence[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    """What each of them printed; none is left running.

    Raises:
        ClientFailedError: one failed, or took too long.
    """
    try:
        return [_printed(process) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _printed(process: subprocess.Popen[str]) -> dict[str, Any]:
    try:
        output, errors = process.communicate(timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired as error:
        raise ClientFailedError(f"{process.args} took longer than {TIME_LIMIT:g} s") from error
    if process.returncode:
        raise ClientFailedError(f"{process.args}: {errors[-800:]}")
    printed: dict[str, Any] = json.loads(output.splitlines()[-1])
    return printed
