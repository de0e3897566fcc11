"""A corpus once more, input by input, in a process of its own.

python -m fuzz.kernel.replay check KERNEL TARGET DIRECTORY-OR-FILE...
python -m fuzz.kernel.replay measure - TARGET DIRECTORY-OR-FILE...

`check` asks both kernels about every input; run on the kernel that AddressSanitizer watches it is
the check of memory. `measure`, on the installed kernel (-), takes time and memory. The names of the
inputs go to standard output as they are begun, so that the last one is known should the process
end; findings follow theirs.
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
MEMORY_TIMES = 32
# What a call costs whatever it is about: an exception, a decompressor's window.
MEMORY_FLOOR = 256 * 1024
MEMORY_CAP = 256 * 1024 * 1024
INPUT, FINDING, MEASURED = "input: ", "finding: ", "measured: "


def main(mode: str, kernel: str, name: str, *places: str) -> int:
    """Replay; returns 1 if there was a finding."""
    use_kernel(None if kernel == "-" else Path(kernel))
    # Only now, since they import kafka_async.
    target = importlib.import_module("fuzz.kernel.targets").TARGETS[name]
    twins = importlib.import_module("fuzz.kernel.twins").Twins.loaded(1)
    replay = Check(target, twins) if mode == "check" else Measure(target, twins)
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
    """Every answer, from both kernels."""

    def __init__(self, target: Any, twins: Any) -> None:
        self._target = target
        self._twins = twins
        self._inputs = 0

    def input(self, data: bytes) -> None:
        """Raises what does not hold of it."""
        self._inputs += 1
        self._target.check(self._twins, data)

    def summary(self) -> str:
        """How many there were."""
        return f"{self._inputs} inputs"


class Measure:
    """The compiled kernel's time and memory."""

    def __init__(self, target: Any, twins: Any) -> None:
        self._target = target
        self._kernel = twins.compiled
        self._inputs = 0
        self._cpu = self._memory = 0.0
        self._before = _peak_of_process()

    def input(self, data: bytes) -> None:
        """Raises AssertionError if it costs too much."""
        self._inputs += 1
        given = self._target.prepare(data)
        size, seconds = self._timed(given)
        allowed = CPU_SECONDS * max(1, size / CPU_SIZE)
        if seconds > allowed:  # once more: the machine may have been busy
            seconds = min(seconds, *(self._timed(given)[1] for _ in range(3)))
        assert seconds <= allowed, f"{seconds * 1e3:.1f} ms of CPU for {size} bytes"
        tracemalloc.start()
        try:
            self._target.run(self._kernel, given)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        bound = min(MEMORY_TIMES * size + MEMORY_FLOOR, MEMORY_CAP)
        assert peak <= bound, (
            f"{peak} bytes of memory for {size} bytes: {peak / max(size, 1):.1f} x"
        )
        # The process's own peak has what tracemalloc does not see: the decompressors' memory.
        grown = _peak_of_process() - self._before
        assert grown <= MEMORY_CAP, f"the process has grown by {grown} bytes"
        self._cpu = max(self._cpu, seconds / max(1, size / CPU_SIZE))
        self._memory = max(self._memory, peak / max(size, MEMORY_FLOOR // MEMORY_TIMES))

    def _timed(self, given: Any) -> tuple[int, float]:
        begun = time.process_time()
        size = self._target.run(self._kernel, given)
        return size, time.process_time() - begun

    def summary(self) -> str:
        """The worst of what there was."""
        return (
            f"{self._inputs} inputs, at most {self._cpu * 1e3:.1f} ms of CPU for 64 KiB "
            f"and memory {self._memory:.1f} times the input"
        )


def _peak_of_process() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
