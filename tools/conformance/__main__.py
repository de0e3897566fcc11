"""Compares our wire format with Kafka's Java classes.

python -m tools.conformance [--count N] [--seed N] [--only NAME[:VERSION] ...] [--part NAME ...]

Requires a Java development kit, version 17, and Maven, which downloads Kafka's jars on first use.
The exit status is 1 if there is a difference, and 2 if a requirement is missing (1 with CI=true) or
if a name does not exist.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from kafka_async.protocol.api import KAFKA_VERSION
from kafka_async.testing.backends.base import BackendUnavailableError
from kafka_async.testing.environment import in_ci
from tools.conformance.parts import PARTS, Options, load

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the selected parts; return the exit status."""
    parts, options = read_arguments(arguments)
    print(f"Kafka {KAFKA_VERSION}, seed {options.seed}, count {options.count}", flush=True)
    differences = 0
    try:
        for name in parts:
            differences += run(name, options)
    except BackendUnavailableError as error:
        print(f"not run: {error}")
        return 1 if in_ci() else 2
    if unknown := sorted({*options.only} - options.found):
        print(f"not run: there is no {', '.join(unknown)}")
        return 2
    print(f"again: {options.replay()}")
    print(f"failed: {differences:,} differences" if differences else "passed: no difference")
    return 1 if differences else 0


def read_arguments(arguments: Sequence[str] | None) -> tuple[list[str], Options]:
    """Return the names of the parts to run, and the options."""
    parser = argparse.ArgumentParser(prog="python -m tools.conformance", description=__doc__)
    parser.add_argument(
        "--count", type=int, default=Options.count, help="cases of each kind and version"
    )
    parser.add_argument("--seed", type=int, help="seed; without it a random one, which is printed")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME[:VERSION]", help="may be repeated"
    )
    parser.add_argument("--part", action="append", choices=PARTS, help="may be repeated")
    parsed = parser.parse_args(arguments)
    options = Options(count=parsed.count, only=tuple(parsed.only))
    if parsed.seed is not None:
        options = Options(parsed.count, parsed.seed, options.only)
    return parsed.part or list(PARTS), options


def run(name: str, options: Options) -> int:
    """Run one part and print its result; return the number of differences."""
    begun = time.monotonic()
    result = load(name)(options)
    spent = time.monotonic() - begun
    found = f"{result.differences:,} differences"
    print(f"{name:10} {result.summary}: {found}, {spent:.0f} s", flush=True)
    for text in result.shown:
        print(text)
    if rest := result.differences - len(result.shown):
        print(f"and {rest:,} more")
    return result.differences


if __name__ == "__main__":
    sys.exit(main())
