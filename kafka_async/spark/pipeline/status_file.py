"""File that reports a pipeline's status from the process that runs it to other processes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from kafka_async.spark.pipeline.status import ACTIVE, PipelineStatus


def status_path(name: str) -> Path:
    """Return a pipeline's status file, below XDG_STATE_HOME (default: `~/.local/state`)."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home, "kafka-async", "pipelines", f"{name}.json")


def write_status(status: PipelineStatus) -> None:
    """Replace a pipeline's status file atomically, so that readers never see a partial file."""
    path = status_path(status.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f".{os.getpid()}.new")
    new.write_text(status.to_json(), "utf-8")
    new.replace(path)


def read_status(name: str) -> PipelineStatus | None:
    """Return the last status report of a pipeline on this machine, or None.

    The state is "ended" if the process ended without a report. Raises ValueError if the file is
    malformed.
    """
    try:
        status = PipelineStatus.from_json(status_path(name).read_text("utf-8"))
    except FileNotFoundError:
        return None
    if status.state in ACTIVE and not _alive(status.process_id):
        return replace(status, state="ended")
    return status


def _alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # the process of another user
        return True
    return True
