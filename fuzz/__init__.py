"""Fuzzes the code that reads bytes from the network.

`make fuzz` runs every target for a short time, `make fuzz-long` continues with the corpus of the
last run, `python -m fuzz TARGET --seconds N --seed S` runs one target, and `python -m fuzz replay
TARGET FILE` repeats a finding. docs/fuzzing.md lists the promises and the findings.

The environment variable FUZZ_KERNEL is the folder of a compiled kernel to use instead of the
installed one.
"""

from __future__ import annotations

import os
from pathlib import Path

if _folder := os.environ.get("FUZZ_KERNEL"):
    from fuzz.kernel.loading import use_kernel

    use_kernel(Path(_folder))
