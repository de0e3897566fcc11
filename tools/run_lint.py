"""Runs the static checks of `make lint`, and prints the duration and the result of each."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tools.generated_page import ROOT

BIN = Path(sys.executable).parent
CHECKS = {
    "ruff check": ["ruff", "check", "--quiet", "."],
    "ruff format": ["ruff", "format", "--check", "--quiet", "."],
    "import-linter": ["lint-imports", "--no-logo"],
    "codespell": ["codespell"],
    "language": ["python", "tools/check_language.py"],
    "pyright": ["pyright", "--warnings"],
}


def main() -> int:
    """Run the checks; return the exit status."""
    failed: list[str] = []
    for name, (program, *arguments) in CHECKS.items():
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
        if done.returncode:
            failed.append(name)
            print(done.stdout)
        result = "failed" if done.returncode else "ok"
        print(f"{name:14} {time.monotonic() - begun:6.1f} s  {result}", flush=True)
    print(f"failed: {', '.join(failed)}" if failed else "lint passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
