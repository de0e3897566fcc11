"""Replays inputs one by one, in a separate process.

python -m fuzz.kernel.replay check KERNEL TARGET DIRECTORY-OR-FILE...
python -m fuzz.kernel.replay measure - TARGET DIRECTORY-OR-FILE...

`check` runs every input on both kernels; with the kernel built with AddressSanitizer it checks
memory accesses. `measure` measures time and memory of the installed kernel (-). The name of an
input is printed before it runs, so that it is known if the process ends; its findings follow.
"""

from __future__ import annotations

import importlib
import resource
import sys
import time
import traceback
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fuzz.kernel.loading import use_kernel

CPU_SECONDS = 0.050
CPU_SIZE = 64 * 1024
MEMORY_FACTOR = 32
# Bytes that any call may take, for example for an exception or a decompressor's window.
MEMORY_FLOOR = 256 * 1024
MEMORY_CAP = 256 * 1024 * 1024
INPUT, FINDING, MEASURED = "input: ", "finding: ", "measured: "


def main(mode: str, kernel: str, name: str, *places: str) -> int:
    """Replay inputs; return 1 if there is a finding."""
    use_kernel(None if kernel == "-" else Path(kernel))
    # After use_kernel, because these modules import kafka_async.
    target = importlib.import_module("fuzz.kernel.targets").TARGETS[name]
    pair = importlib.import_module("fuzz.kernel.kernel_pair").KernelPair.loaded(1)
    replay = Check(target, pair) if mode == "check" else Measure(target, pair)
    failed = False
    for file in _files(places):
        print(f"{INPUT}{file}", flush=True)
        try:
            replay.input(file.read_bytes())
        except Exception:  # noqa: BLE001 every exception is a finding
            failed = True
            print(f"{FINDING}{traceback.format_exc()}", flush=True)
    print(f"{MEASURED}{replay.summary()}")
    return 1 if failed else 0


def _files(places: tuple[str, ...]) -> Iterator[Path]:
    for place in map(Path, places):
        yield from sorted(place.iterdir()) if place.is_dir() else [place]


class Check:
    """Checks inputs on both kernels."""

    def __init__(self, target: Any, pair: Any) -> None:
        self._target = target
        self._pair = pair
        self._inputs = 0

    def input(self, data: bytes) -> None:
        """Run an input; raise Finding if a promise is broken."""
        self._inputs += 1
        self._target.check(self._pair, data)

    def summary(self) -> str:
        """Return the number of inputs."""
        return f"{self._inputs} inputs"


class Measure:
    """Measures time and memory of the compiled kernel."""

    def __init__(self, target: Any, pair: Any) -> None:
        self._target = target
        self._kernel = pair.compiled
        self._inputs = 0
        self._cpu = self._memory = 0.0
        self._before = _peak_of_process()

    def input(self, data: bytes) -> None:
        """Run an input; raise AssertionError if it takes too much time or memory."""
        self._inputs += 1
        given = self._target.prepare(data)
        size, seconds = self._timed(given)
        allowed = CPU_SECONDS * max(1, size / CPU_SIZE)
        if seconds > allowed:  # measured again, since the machine may have been busy
            seconds = min(seconds, *(self._timed(given)[1] for _ in range(3)))
        assert seconds <= allowed, f"{seconds * 1e3:.1f} ms of CPU for {size} bytes"
        tracemalloc.start()
        try:
            self._target.run(self._kernel, given)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        bound = min(MEMORY_FACTOR * size + MEMORY_FLOOR, MEMORY_CAP)
        assert peak <= bound, (
            f"{peak} bytes of memory for {size} bytes: {peak / max(size, 1):.1f} x"
        )
        # The peak of the process includes the decompressors' memory, unlike tracemalloc's.
        grown = _peak_of_process() - self._before
        assert grown <= MEMORY_CAP, f"the process has grown by {grown} bytes"
        self._cpu = max(self._cpu, seconds / max(1, size / CPU_SIZE))
        self._memory = max(self._memory, peak / max(size, MEMORY_FLOOR // MEMORY_FACTOR))

    def _timed(self, given: Any) -> tuple[int, float]:
        started = time.process_time()
        size = self._target.run(self._kernel, given)
        return size, time.process_time() - started

    def summary(self) -> str:
        """Return the number of inputs and their maximum time and memory."""
        return (
            f"{self._inputs} inputs, at most {self._cpu * 1e3:.1f} ms of CPU for 64 KiB "
            f"and memory {self._memory:.1f} times the input"
        )


def _peak_of_process() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
