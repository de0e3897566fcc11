"""Runs Python programs in new processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def python_path() -> str:
    """Return PYTHONPATH of a program: this checkout, and a version of pyspark that tests run on."""
    return os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


def run_python(
    *arguments: str | Path, cwd: Path = ROOT, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments and environment variables; keep its output."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def output_of(*arguments: str | Path, **variables: str) -> str:
    """Run a program that must succeed; return its standard output."""
    done = run_python(*arguments, cwd=ROOT, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
