"""Runs clients in separate processes, each of which prints one JSON object."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TIME_LIMIT = 120.0
"""Time limit of a process in seconds."""
ROOT = Path(__file__).parents[2]


class ClientFailedError(RuntimeError):
    """A client's process failed; the message has its output."""


def start(module: str, task: Mapping[str, Any]) -> subprocess.Popen[str]:
    """Start `python -m benchmarks.special.MODULE JSON`."""
    command = [sys.executable, "-m", f"benchmarks.special.{module}", json.dumps(task)]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(processes: Sequence[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    """Wait for processes; return the object that each has printed, and kill all at an error.

    Raises:
        ClientFailedError: a process failed, or exceeded the time limit.
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
