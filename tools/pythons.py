"""Finds the machine's other Pythons, and makes an environment with the dev dependencies for each.

A Python counts if it is 3.11 or newer and not the one that runs this: `python3.N` on the PATH, or
a version of pyenv, switched on or not. Its environment is `.venv-3.N`, made by `make dev` as
`.venv` is, and remembered by the same stamps.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
OLDEST = 11
ASK = "import sys, ensurepip, venv; print('%d.%d' % sys.version_info[:2], sys.version_info[3])"


def find_pythons() -> dict[str, str]:
    """Return an interpreter of each other version from 3.11 on, oldest version first."""
    found: dict[str, str] = {}
    for candidate in _candidates():
        version = _version(candidate)
        if version is not None:
            found.setdefault(version, candidate)
    found.pop(f"{sys.version_info.major}.{sys.version_info.minor}", None)
    return dict(sorted(found.items(), key=lambda pair: int(pair[0].partition(".")[2])))


def _candidates() -> Iterator[str]:
    """Yield what may be an interpreter, those of the PATH first."""
    minors: set[int] = set()
    for folder in os.get_exec_path():
        for path in Path(folder).glob("python3.*"):
            name = re.fullmatch(r"python3\.(\d+)", path.name)
            if name:
                minors.add(int(name[1]))
    for minor in sorted(minors):
        if minor >= OLDEST:
            yield shutil.which(f"python3.{minor}") or ""
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for path in sorted(versions.glob("3.*/bin/python"), reverse=True):
        yield str(path)


def _version(interpreter: str) -> str | None:
    """Return "3.N" of an interpreter that starts, is released, has venv and is new enough."""
    try:
        done = subprocess.run(
            [interpreter, "-c", ASK], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None  # a shim of a version manager whose version is switched off
    version, level = done.stdout.split()
    new_enough = int(version.partition(".")[2]) >= OLDEST
    return version if level == "final" and new_enough else None


def make_environment(version: str, interpreter: str) -> Path | None:
    """Make or renew the environment of a version; return its interpreter, None if that failed."""
    folder = f".venv-{version}"
    command = ["make", "--no-print-directory", f"VENV={folder}", f"PYTHON={interpreter}", "dev"]
    # Variables that make has put there for this process are not for the other environment.
    words = {name: text for name, text in os.environ.items() if not name.startswith("MAKE")}
    words.pop("MFLAGS", None)
    done = subprocess.run(command, cwd=ROOT, env=words, stdin=subprocess.DEVNULL, check=False)
    return ROOT / folder / "bin" / "python" if done.returncode == 0 else None
