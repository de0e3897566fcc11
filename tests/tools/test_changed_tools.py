"""Tests of tools run if the tool changed, if what it measures changed, or if git does not know."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.programs import ROOT
from tools.changed_tools import SHARED, WATCHED, changed_files, unchanged_tests


def git(folder: Path, *arguments: str) -> None:
    names = ("AUTHOR", "COMMITTER")
    who = {f"GIT_{name}_{key}": "a@b" for name in names for key in ("NAME", "EMAIL")}
    subprocess.run(["git", "-C", str(folder), *arguments], env={**os.environ, **who}, check=True)


def commit(folder: Path, *files: str) -> None:
    for name in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{path.read_text() if path.exists() else ''}x", "utf-8")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "Change")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-qb", "main")
    commit(tmp_path, "first")
    commit(tmp_path, "fuzz/run.py", "kafka_async/errors.py")
    return tmp_path


def test_last_commit_of_main_decides(repository: Path) -> None:
    assert changed_files(repository) == {"fuzz/run.py", "kafka_async/errors.py"}
    assert {"tests/fuzz", "tests/docs"} == WATCHED.keys() - {*unchanged_tests(repository)}


def test_all_commits_of_a_branch_and_uncommitted_files_decide(repository: Path) -> None:
    git(repository, "switch", "-qc", "branch")
    commit(repository, "benchmarks/cases.py")
    commit(repository, "kafka_async/embedded/cluster.py")
    (repository / "first").write_text("changed", "utf-8")
    (repository / "Makefile").write_text("new", "utf-8")
    assert changed_files(repository) == {
        *("benchmarks/cases.py", "kafka_async/embedded/cluster.py", "first", "Makefile")
    }
    assert unchanged_tests(repository) == ["tests/conformance", "tests/fuzz", "tests/reliability"]


@pytest.mark.parametrize("shared", SHARED)
def test_files_of_all_tests_make_all_tests_run(repository: Path, shared: str) -> None:
    commit(repository, shared)
    assert unchanged_tests(repository) == []


def test_all_tests_run_if_git_does_not_know(repository: Path, tmp_path: Path) -> None:
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth=1", repository.as_uri(), str(shallow))
    assert changed_files(shallow) is None
    assert unchanged_tests(shallow) == []
    (tmp_path / "empty").mkdir()
    assert unchanged_tests(Path("/")) == []


def test_watched_paths_exist() -> None:
    paths = [*WATCHED, *SHARED, *(path for each in WATCHED.values() for path in each)]
    assert [path for path in paths if not (ROOT / path).exists()] == []
