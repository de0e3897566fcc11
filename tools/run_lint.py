"""Runs the checks of `make lint` on the whole project: pyright beside the others, which are fast.

All run, also if one has failed; the last line names those that have.
"""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.generated_page import ROOT

BIN = Path(sys.executable).parent
CHECKS = {
    "pyright": ["pyright", "--warnings"],
    "ruff check": ["ruff", "check", "--quiet", "."],
    "ruff format": ["ruff", "format", "--check", "--quiet", "."],
    "import-linter": ["lint-imports", "--no-logo"],
    "codespell": ["codespell"],
    "language": ["python", "tools/check_language.py"],
}
"""Commands by name, the longest first."""


def main() -> int:
    """Run the checks; return the exit status."""
    failed: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        for name, output, seconds in pool.map(check, CHECKS):
            if output is not None:
                failed.append(name)
                print(output)
            result = "ok" if output is None else "failed"
            print(f"{name:14} {seconds:6.1f} s  {result}", flush=True)
    print(f"failed: {', '.join(failed)}" if failed else "lint passed")
    return 1 if failed else 0


def check(name: str) -> tuple[str, str | None, float]:
    """Run a check; return its name, its output if it has failed, and its seconds."""
    program, *arguments = CHECKS[name]
    begun = time.monotonic()
    done = subprocess.run(
        [str(BIN / program), *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return name, done.stdout if done.returncode else None, time.monotonic() - begun


if __name__ == "__main__":
    sys.exit(main())
