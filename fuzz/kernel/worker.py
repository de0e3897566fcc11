"""One target under libFuzzer, in a process of its own: libFuzzer ends it when it is through.

python -m fuzz.kernel.worker TARGET KERNEL ENGINE EVERY [libFuzzer's arguments]
"""

from __future__ import annotations

import functools
import importlib
import sys
from pathlib import Path

from fuzz.kernel.loading import use_kernel


def main(name: str, kernel: str, engine: str, every: str, *arguments: str) -> int:
    """Fuzz; returns only if libFuzzer does not end the process."""
    fuzzer = use_kernel(Path(kernel), Path(engine))
    assert fuzzer is not None
    # Only now, since it imports kafka_async.
    target = importlib.import_module("fuzz.kernel.targets").TARGETS[name]
    twins = importlib.import_module("fuzz.kernel.twins").Twins.loaded(int(every))
    return fuzzer.run(arguments, functools.partial(target.check, twins))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
