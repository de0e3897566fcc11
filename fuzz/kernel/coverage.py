"""Counts the edges of the kernel that corpora reach, in a separate process.

python -m fuzz.kernel.coverage ENGINE TARGET=DIRECTORY... prints JSON: the reached edges and all
edges of each function of FUZZ_KERNEL. Cython's helpers and the module's initialization do not
count.
"""

from __future__ import annotations

import bisect
import ctypes
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from fuzz.kernel.loading import load_engine

# Methods, wrappers, C functions and properties that the source defines.
OURS = re.compile(r"__pyx_(pf|pw|f|getprop|setprop)_\w*?_(c(?:kernel|codec)_.+)")


def main(engine: str, *corpora: str) -> int:
    """Run every input once and print the reached edges."""
    load_engine(Path(engine))
    # After the engine, to which the kernel's counters report.
    from fuzz.kernel_pair import PAIR
    from fuzz.target import load

    PAIR.every = 0
    pairs = [corpus.split("=", 1) for corpus in corpora]
    targets = {name: load(name) for name, _ in pairs}
    modules = [Counters(file) for file in sorted(Path(os.environ["FUZZ_KERNEL"]).glob("*.so"))]
    for counters in modules:
        counters.clear()
    for name, directory in pairs:
        for file in sorted(Path(directory).iterdir()):
            targets[name].run(file.read_bytes())
            for counters in modules:
                counters.collect()  # after each input, because a counter has eight bits
    print(json.dumps({name: row for one in modules for name, row in one.by_function().items()}))
    return 0


class Counters:
    """Reads the counters of a loaded kernel, by function."""

    def __init__(self, kernel: Path) -> None:
        library = ctypes.CDLL(str(kernel))
        library.kernel_counters.restype = ctypes.c_void_p
        library.kernel_edges.restype = ctypes.c_uint64
        library.kernel_code.restype = ctypes.POINTER(ctypes.c_size_t)
        self._edges: int = library.kernel_edges()
        self._at: int = library.kernel_counters()
        self._reached = 0
        code = library.kernel_code()
        begin = ctypes.cast(library.kernel_counters, ctypes.c_void_p).value or 0
        symbols = _symbols(kernel)
        base = begin - next(at for at, name in symbols if name == "kernel_counters")
        starts = [at for at, _ in symbols]
        self._functions = [
            symbols[bisect.bisect_right(starts, code[2 * edge] - base) - 1][1]
            for edge in range(self._edges)
        ]

    def clear(self) -> None:
        """Reset the counters."""
        ctypes.memset(self._at, 0, self._edges)

    def collect(self) -> None:
        """Add the counted edges to those reached, and reset the counters."""
        self._reached |= int.from_bytes(ctypes.string_at(self._at, self._edges), "little")
        self.clear()

    def by_function(self) -> dict[str, list[int]]:
        """Return the reached edges and all edges of each kernel function."""
        flags = self._reached.to_bytes(self._edges, "little")
        found: dict[str, list[int]] = {}
        for name, flag in zip(self._functions, flags, strict=True):
            ours = OURS.match(name)
            if ours is not None:
                counts = found.setdefault(f"{ours[1]} {ours[2]}", [0, 0])
                counts[0] += flag != 0
                counts[1] += 1
        return found


def _symbols(kernel: Path) -> list[tuple[int, str]]:
    # nm is part of binutils, on which clang depends.
    command = ["nm", "--defined-only", "--numeric-sort", str(kernel)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [line.split() for line in lines]
    return [(int(at, 16), name) for at, kind, name in rows if kind in "tT"]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
