"""Chooses which tests of our own tools run: those whose tool, or what it measures, has changed.

Tests of the product always run. A run that names a directory, as `pytest tests/benchmarks`, is not
affected either.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tools.generated_page import ROOT

WIRE: Final = ("kafka_async/kernel", "kafka_async/protocol", "kafka_async/records")
WATCHED: Final[Mapping[str, Sequence[str]]] = {
    "tests/benchmarks": ("benchmarks",),
    "tests/conformance": (*WIRE, "kafka_async/spark", "tools/conformance"),
    "tests/contract": (*WIRE, "kafka_async/embedded"),
    "tests/docs": ("README.md", "CONTRIBUTING.md", "docs", "examples", "kafka_async", "tools"),
    "tests/fuzz": (*WIRE, "fuzz"),
    "tests/reliability": ("kafka_async/spark",),
    "tests/tools": (".ci", ".github", "Makefile", "tools"),
}
"""By directory of tests: the paths whose changes make its tests run, besides its own."""
SHARED: Final = ("pyproject.toml", "tests/conftest.py", "tools/changed_tools.py")
"""Files whose changes make the tests of all tools run."""


def unchanged_tests(root: Path = ROOT) -> list[str]:
    """Return the directories of tests that need not run; none if git does not know the changes."""
    changed = changed_files(root)
    if changed is None:
        return []
    return [tests for tests, paths in WATCHED.items() if not touches(changed, [tests, *paths])]


def touches(changed: Iterable[str], paths: Iterable[str]) -> bool:
    """Return True if a changed file is one of these paths, or of those that all tests share."""
    watched = [Path(path) for path in (*paths, *SHARED)]
    return any(Path(file).is_relative_to(path) for file in changed for path in watched)


def changed_files(root: Path) -> set[str] | None:
    """Return the files that a branch changes, or on main those of its last commit.

    Files that are not committed count too. None if git does not know, as in a shallow clone.
    """
    try:
        head = git(root, "rev-parse", "HEAD")
        base = git(root, "merge-base", "HEAD", main_branch(root))
        if base == head:
            base = git(root, "rev-parse", "HEAD^")
        changed = git(root, "diff", "--name-only", base[0])
        return {*changed, *git(root, "ls-files", "--others", "--exclude-standard")}
    except (OSError, subprocess.CalledProcessError):
        return None


def main_branch(root: Path) -> str:
    """Return the name of main, of the remote repository where it has one."""
    names = git(root, "for-each-ref", "--format=%(refname:short)", "refs/remotes/origin/main")
    return names[0] if names else "main"


def git(root: Path, *arguments: str) -> list[str]:
    """Return the lines that a git command prints; raise CalledProcessError if it fails."""
    command = ["git", "-C", str(root), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()
