"""Description of the machine of a result."""

from __future__ import annotations

import asyncio
import importlib.metadata
import sys
from typing import TYPE_CHECKING

from benchmarks import machine
from benchmarks.peers import loop

if TYPE_CHECKING:
    import pytest


def version(name: str) -> str:
    if name == "uvloop":
        raise importlib.metadata.PackageNotFoundError(name)
    return "1.0"


def test_reports_missing_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", version)
    context = machine.describe("embedded")
    assert "uvloop not installed (asyncio's own loop)" in machine.sentence(context)


async def running() -> str:
    return type(asyncio.get_running_loop()).__module__


def test_clients_run_on_asyncio_without_uvloop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (loop.name(), loop.run(running())) == ("uvloop", "uvloop")
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert loop.name() == "asyncio"
    assert loop.run(running()).startswith("asyncio.")


def test_revision_mentions_uncommitted_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outputs = {"rev-parse": "abc1234", "status": " M kafka_async/clock.py"}

    def git(command: str, *_: str) -> str:
        return outputs[command]

    monkeypatch.setattr(machine, "_git", git)
    assert machine.describe("embedded")["revision"] == "abc1234 with changes"
    outputs["status"] = ""
    assert machine.describe("embedded")["revision"] == "abc1234"
