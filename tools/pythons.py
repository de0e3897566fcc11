"""Finds the other installed Python versions, and makes a development environment for each.

A Python counts if it is 3.11 or newer and not the running version: `python3.N` in the PATH, or a
version of pyenv, enabled or not. Its environment is `.venv-3.N`, made by `make dev` like `.venv`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.generated_page import ROOT

OLDEST_MINOR = 11
PRINT_VERSION = (
    "import sys, ensurepip, venv; print('%d.%d' % sys.version_info[:2], sys.version_info[3])"
)


def find_pythons() -> dict[str, str]:
    """Return the interpreters of other versions by version, oldest first."""
    found: dict[str, str] = {}
    for candidate in _candidates():
        version = _version(candidate)
        if version is not None:
            found.setdefault(version, candidate)
    found.pop(f"{sys.version_info.major}.{sys.version_info.minor}", None)
    return dict(sorted(found.items(), key=lambda pair: int(pair[0].partition(".")[2])))


def _candidates() -> Iterator[str]:
    """Yield paths of possible interpreters, those in the PATH first."""
    minors: set[int] = set()
    for folder in os.get_exec_path():
        for path in Path(folder).glob("python3.*"):
            name = re.fullmatch(r"python3\.(\d+)", path.name)
            if name:
                minors.add(int(name[1]))
    for minor in sorted(minors):
        if minor >= OLDEST_MINOR:
            yield shutil.which(f"python3.{minor}") or ""
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for path in sorted(versions.glob("3.*/bin/python"), reverse=True):
        yield str(path)


def _version(interpreter: str) -> str | None:
    """Return "3.N" if the interpreter starts, is a release, has venv and is new enough."""
    try:
        done = subprocess.run(
            [interpreter, "-c", PRINT_VERSION],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None  # a shim of a version manager for a version that is not enabled
    version, level = done.stdout.split()
    new_enough = int(version.partition(".")[2]) >= OLDEST_MINOR
    return version if level == "final" and new_enough else None


def make_environment(version: str, interpreter: str) -> Path | None:
    """Make or update the environment of a version; return its interpreter, None on failure."""
    folder = f".venv-{version}"
    command = ["make", "--no-print-directory", f"VENV={folder}", f"PYTHON={interpreter}", "dev"]
    # Variables of the make that runs this process would change the other environment.
    variables = {name: text for name, text in os.environ.items() if not name.startswith("MAKE")}
    variables.pop("MFLAGS", None)
    done = subprocess.run(command, cwd=ROOT, env=variables, stdin=subprocess.DEVNULL, check=False)
    return ROOT / folder / "bin" / "python" if done.returncode == 0 else None
