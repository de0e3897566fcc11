"""Versions of pyspark beside the environment: installation, and processes that use them."""

from __future__ import annotations

import os
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tools import sparks


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "kafka-async" / "pyspark"


class Pip:
    """Stands for pip: records its commands, and writes a file into the target."""

    def __init__(self, status: int = 0) -> None:
        self.commands: list[list[str]] = []
        self._status = status

    def __call__(self, command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        target = Path(command[command.index("--target") + 1])
        target.mkdir()
        (target / "pyspark").touch()
        return subprocess.CompletedProcess(command, self._status, "", "no such version")


def test_installs_a_version_once(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    pip = Pip()
    monkeypatch.setattr(subprocess, "run", pip)
    assert sparks.find_or_install("4.0.5") == sparks.find_or_install("4.0.5") == cache / "4.0.5"
    assert [command[-1] for command in pip.commands] == ["pyspark==4.0.5"]
    assert [path.name for path in (cache / "4.0.5").iterdir()] == ["pyspark"]


def test_failed_installation_leaves_nothing(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setattr(subprocess, "run", Pip(status=1))
    with pytest.raises(sparks.SparkUnavailableError, match=r"4\.0\.5: no such version"):
        sparks.find_or_install("4.0.5")
    assert list(cache.iterdir()) == []


def test_version_comes_first_in_the_path(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    (cache / "4.1.4").mkdir(parents=True)
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    variables = sparks.variables_of("4.1.4")
    assert variables["PYTHONPATH"].split(os.pathsep) == [
        str(cache / "4.1.4"),
        str(sparks.ROOT),
        "/mine",
    ]
    assert "SPARK_HOME" not in variables


def test_runs_a_module_again_unless_it_has_the_version(
    monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    (cache / "4.1.4").mkdir(parents=True)
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 3)

    monkeypatch.setattr(subprocess, "run", run)
    installed = {"pyspark": "4.1.4"}
    monkeypatch.setattr(metadata, "version", installed.__getitem__)
    assert sparks.run_again_with("4.1.4", "some.module", ["--all"]) is None
    installed["pyspark"] = "4.3.0"
    assert sparks.run_again_with("4.1.4", "some.module", ["--all"]) == 3
    assert [command[1:] for command in commands] == [["-m", "some.module", "--all"]]


class Query:
    """Stands for a query and its writer: each start raises the next error, or succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.starts = 0
        self._errors = list(errors)

    def start(self) -> Query:
        self.starts += 1
        return self

    def awaitTermination(self) -> None:
        if self._errors:
            raise self._errors.pop(0)


def too_late() -> Exception:
    return RuntimeError("java.io.IOException: Python worker failed to connect back.")


def test_query_is_started_again_after_a_late_process_up_to_a_limit() -> None:
    query: Any = Query(too_late(), too_late())
    assert sparks.run_to_end(query, attempts=3) is query
    assert query.starts == 3
    late: Any = Query(*(too_late() for _ in range(9)))
    with pytest.raises(TimeoutError, match="started too late in 5 attempts"):
        sparks.run_to_end(late)
    assert late.starts == 5


def test_another_error_of_a_query_is_raised_at_once() -> None:
    query: Any = Query(ValueError("no such column"))
    with pytest.raises(ValueError, match="no such column"):
        sparks.run_to_end(query)
    assert query.starts == 1
