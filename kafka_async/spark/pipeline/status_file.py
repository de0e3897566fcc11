"""File in which the process that runs a pipeline reports its status to other processes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from kafka_async.spark.pipeline.status import ACTIVE, PipelineStatus


def status_path(name: str) -> Path:
    """Return the file of a pipeline, below XDG_STATE_HOME, by default `~/.local/state`."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home, "kafka-async", "pipelines", f"{name}.json")


def write_status(status: PipelineStatus) -> None:
    """Replace the file of a pipeline at once, so that readers never see half of it."""
    path = status_path(status.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f".{os.getpid()}.new")
    new.write_text(status.to_json(), "utf-8")
    new.replace(path)


def read_status(name: str) -> PipelineStatus | None:
    """Return the last report of a pipeline on this machine; None if there is none.

    The state is "ended" if the process ended without reporting its end. Raises ValueError if the
    file has other content.
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
    except PermissionError:  # a process of another user
        return True
    return True
