"""Runs one process of atheris: `python -m fuzz.engine TARGET`, then libFuzzer's arguments."""

from __future__ import annotations

import sys
import traceback

import atheris
from atheris.instrument_bytecode import instrument_func

from fuzz.target import load

FAILED = 3
"""Exit status if fuzzing did not start."""


def main(arguments: list[str]) -> None:
    """Instrument the target and set up the fuzzer."""
    program, name, *options = arguments
    target = load(name)
    for function in target.functions():
        instrument_func(function)
    atheris.Setup([program, *options], target.run)


if __name__ == "__main__":
    try:
        main(sys.argv)
    except Exception:  # noqa: BLE001 printed, and told by the exit status
        traceback.print_exc()
        sys.exit(FAILED)
    atheris.Fuzz()
