"""The second look at a corpus, in a process without instruments: promises, CPU time and memory.

    python -m fuzz.measure TARGET FILE_OR_FOLDER...    prints JSON

The best of several runs of an input counts, in time of this process: a noisy machine must not make
a finding. Memory is what Python objects take at their peak, by tracemalloc.
"""

from __future__ import annotations

import json
import resource
import sys
import time
import tracemalloc
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fuzz.oracle import CPU_BYTES, CPU_FLOOR, allowed_cpu, allowed_memory
from fuzz.target import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from fuzz.target import Target

TIMES, MORE_TIMES = 3, 20
"""Runs of an input, and of one that seems too slow."""


@dataclass
class Finding:
    """What is wrong with one input."""

    file: str
    what: str


@dataclass
class Replay:
    """What came of a corpus.

    Attributes:
        inputs: how many there were.
        cpu_ms: the most CPU for 64 KiB, in milliseconds, of the inputs that take longer than any
            input may.
        cpu_ms_input: the most CPU that an input took, whatever its size.
        memory_factor: the most bytes of memory for a byte, above what any input may cost.
        memory_mib: the most memory that an input took, in MiB.
        rss_mib: the most memory that the process had, in MiB.
    """

    inputs: int = 0
    cpu_ms: float = 0
    cpu_ms_input: float = 0
    memory_factor: float = 0
    memory_mib: float = 0
    rss_mib: float = 0
    findings: list[Finding] = field(default_factory=list[Finding])


def replay(target: Target, files: Iterable[Path]) -> Replay:
    """Hold every promise against each input, then measure the product's part alone."""
    made = Replay()
    inputs = [(file, file.read_bytes()) for file in files]
    for file, data in inputs:
        made.inputs += 1
        _judge(target, file, data, made)
    tracemalloc.start()
    for file, data in inputs:
        _measure_memory(target, file, data, made)
    tracemalloc.stop()
    made.rss_mib = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
    return made


def _judge(target: Target, file: Path, data: bytes, made: Replay) -> None:
    try:
        target.run(data)
    except Exception as error:  # noqa: BLE001 whatever is not allowed is what is looked for
        made.findings.append(Finding(str(file), f"{type(error).__name__}: {str(error)[:200]}"))
        return
    size = target.size(data)
    subject = target.subject(data)
    allowed = allowed_cpu(size)
    best = min(cpu_seconds(subject) for _ in range(TIMES))
    if best > allowed:
        best = min(best, *(cpu_seconds(subject) for _ in range(MORE_TIMES)))
    if best > CPU_FLOOR:
        made.cpu_ms = max(made.cpu_ms, round(1000 * best * CPU_BYTES / size, 2))
    made.cpu_ms_input = max(made.cpu_ms_input, round(1000 * best, 2))
    if best > allowed:
        what = f"{1000 * best:.1f} ms of CPU, {1000 * allowed:.1f} are allowed for {size} bytes"
        made.findings.append(Finding(str(file), what))


def cpu_seconds(subject: Callable[[], object]) -> float:
    """CPU time of one call."""
    begun = time.process_time()
    subject()
    return time.process_time() - begun


def _measure_memory(target: Target, file: Path, data: bytes, made: Replay) -> None:
    size = target.size(data)
    peak = memory_peak(target.subject(data))
    allowed = allowed_memory(size, target.overhead, target.factor)
    made.memory_factor = max(made.memory_factor, round((peak - target.overhead) / max(size, 1), 1))
    made.memory_mib = max(made.memory_mib, round(peak / 1024 / 1024, 2))
    if peak > allowed:
        what = f"{peak:,} bytes of memory, {allowed:,} are allowed for {size:,}"
        made.findings.append(Finding(str(file), what))


def memory_peak(subject: Callable[[], object]) -> int:
    """Bytes of Python objects that one call takes at its peak; tracemalloc is running."""
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    kept = subject()
    _, peak = tracemalloc.get_traced_memory()
    del kept
    return peak - before


def files_of(arguments: Iterable[str]) -> Iterator[Path]:
    """The files that are named, and those in the folders that are named."""
    for path in map(Path, arguments):
        yield from sorted(path.iterdir()) if path.is_dir() else [path]


if __name__ == "__main__":
    print(json.dumps(asdict(replay(load(sys.argv[1]), files_of(sys.argv[2:])))))
