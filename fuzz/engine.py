"""Runs one fuzzing process: `python -m fuzz.engine TARGET SEEDS`, then libFuzzer's options."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import atheris
from atheris.instrument_bytecode import instrument_func

from fuzz.target import load

FAILED = 3
"""Exit status if fuzzing did not start."""


def main(arguments: list[str]) -> None:
    """Write the seeds, instrument the target and set up the fuzzer."""
    program, name, folder, *options = arguments
    target = load(name)
    seeds = Path(folder)
    seeds.mkdir(parents=True, exist_ok=True)
    for label, data in target.seeds():
        (seeds / label).write_bytes(data)
    for function in target.functions():
        instrument_func(function)
    atheris.Setup([program, *options, folder], target.run)


if __name__ == "__main__":
    try:
        main(sys.argv)
    except Exception:  # noqa: BLE001 printed, and told by the exit status
        traceback.print_exc()
        sys.exit(FAILED)
    atheris.Fuzz()
