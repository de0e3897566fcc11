"""Runs one target under libFuzzer, which ends the process.

python -m fuzz.kernel.worker TARGET KERNEL ENGINE EVERY [libFuzzer's arguments]
"""

from __future__ import annotations

import functools
import importlib
import sys
from pathlib import Path

from fuzz.kernel.loading import use_kernel


def main(name: str, kernel: str, engine: str, every: str, *arguments: str) -> int:
    """Fuzz a target; return only if libFuzzer does not end the process."""
    fuzzer = use_kernel(Path(kernel), Path(engine))
    assert fuzzer is not None
    # After use_kernel, because these modules import kafka_async.
    target = importlib.import_module("fuzz.kernel.targets").TARGETS[name]
    pair = importlib.import_module("fuzz.kernel.kernel_pair").KernelPair.loaded(int(every))
    return fuzzer.run(arguments, functools.partial(target.check, pair))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
