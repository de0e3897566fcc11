"""Other installed Python versions, in the PATH and of pyenv, and their environments."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import pythons

OWN = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Set an empty PATH and an empty pyenv in a temporary folder."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return tmp_path


def interpreter(path: Path, *, printed: str = "", status: int = 0) -> str:
    """Write a script that stands for an interpreter and prints a text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{printed}'\nexit {status}\n")
    path.chmod(0o755)
    return str(path)


def test_finds_pythons_in_path_and_of_pyenv(machine: Path) -> None:
    on_path = interpreter(machine / "bin/python3.97", printed="3.97 final")
    interpreter(machine / "bin/python3.98", status=127)  # a shim of a version that is not enabled
    interpreter(machine / "pyenv/versions/3.97.2/bin/python", printed="3.97 final")
    not_enabled = interpreter(machine / "pyenv/versions/3.98.1/bin/python", printed="3.98 final")
    assert pythons.find_pythons() == {"3.97": on_path, "3.98": not_enabled}


def test_excludes_own_older_and_unreleased_versions(machine: Path) -> None:
    interpreter(machine / f"bin/python{OWN}", printed=f"{OWN} final")
    interpreter(machine / "bin/python3.10", printed="3.10 final")
    interpreter(machine / "pyenv/versions/3.9.1/bin/python", printed="3.9 final")
    interpreter(machine / "pyenv/versions/3.99.0b1/bin/python", printed="3.99 beta")
    assert pythons.find_pythons() == {}


@pytest.mark.parametrize(("status", "made"), [(0, True), (2, False)])
def test_makes_environment_with_makefile(
    monkeypatch: pytest.MonkeyPatch, status: int, made: bool
) -> None:
    calls: list[tuple[list[str], dict[str, str]]] = []

    def run(
        command: list[str], *, env: dict[str, str], **_: object
    ) -> subprocess.CompletedProcess[str]:
        calls.append((command, env))
        return subprocess.CompletedProcess(command, status)

    monkeypatch.setenv("MAKEFLAGS", "VENV=.venv-another")
    monkeypatch.setattr(pythons.subprocess, "run", run)
    found = pythons.make_environment("3.97", "/opt/python3.97")
    assert found == (pythons.ROOT / ".venv-3.97/bin/python" if made else None)
    ((command, environment),) = calls
    assert command[-3:] == ["VENV=.venv-3.97", "PYTHON=/opt/python3.97", "dev"]
    assert "MAKEFLAGS" not in environment
