"""Runs one process of libFuzzer: `python -m fuzz.kernel.worker ENGINE TARGET`, then its arguments.

The instrumented kernel is the one of FUZZ_KERNEL. libFuzzer ends the process.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fuzz.kernel.loading import load_engine

PURE_EVERY = 16
"""The kernel in plain Python, which is much slower, runs every 16th input."""


def main(engine: str, name: str, *arguments: str) -> int:
    """Fuzz a target; return only if libFuzzer does not end the process."""
    fuzzer = load_engine(Path(engine))
    # After the engine, to which the kernel's counters report.
    from fuzz.kernel_pair import PAIR
    from fuzz.target import load

    PAIR.every = PURE_EVERY
    return fuzzer.run(arguments, load(name).run)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
