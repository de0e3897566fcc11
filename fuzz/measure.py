"""Replays a corpus without instrumentation: checks promises, measures CPU time and memory.

    python -m fuzz.measure TARGET FILE_OR_FOLDER...
    python -m fuzz.measure --check TARGET FILE_OR_FOLDER...    measures nothing

It prints each input's name before the input runs, and JSON at the end. The fastest of several runs
of an input counts, in CPU time of this process, so that a noisy machine makes no finding. Memory is
the peak of Python objects, measured by tracemalloc.
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

from fuzz.oracle import CPU_BYTES, CPU_FLOOR, MEMORY_LIMIT, allowed_cpu, allowed_memory
from fuzz.target import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from fuzz.target import Target

REPEATS, MORE_REPEATS = 3, 20
"""Runs of an input, and additional runs of one that seems too slow."""

INPUT = "input: "


@dataclass
class Finding:
    """Describes a broken promise of one input."""

    file: str
    what: str


@dataclass
class Replay:
    """Holds the broken promises of a corpus, and maximum figures.

    `cpu_ms` is per 64 KiB, of inputs above `CPU_FLOOR`; `memory_factor` is the bytes of memory per
    byte of input, without the target's overhead.
    """

    inputs: int = 0
    cpu_ms: float = 0
    cpu_ms_input: float = 0
    memory_factor: float = 0
    memory_mib: float = 0
    rss_mib: float = 0
    findings: list[Finding] = field(default_factory=list[Finding])


def replay(target: Target, files: Iterable[Path], *, measured: bool = True) -> Replay:
    """Check every promise for each input, then measure the client's code alone."""
    made = Replay()
    before = _peak_of_process()
    inputs: list[tuple[Path, bytes]] = []
    for file in files:
        print(f"{INPUT}{file}", flush=True)
        inputs.append((file, file.read_bytes()))
        made.inputs += 1
        if _keeps_promises(target, *inputs[-1], made) and measured:
            _measure_cpu(target, *inputs[-1], made)
    if measured:
        tracemalloc.start()
        for file, data in inputs:
            _measure_memory(target, file, data, made)
            # The peak of the process includes the decompressors' memory, unlike tracemalloc's.
            if (grown := _peak_of_process() - before) > MEMORY_LIMIT:
                made.findings.append(
                    Finding(str(file), f"the process has grown by {grown:,} bytes")
                )
        tracemalloc.stop()
    made.rss_mib = round(_peak_of_process() / 1024 / 1024, 1)
    return made


def _keeps_promises(target: Target, file: Path, data: bytes, made: Replay) -> bool:
    try:
        target.run(data)
    except Exception as error:  # noqa: BLE001 any other exception is a finding
        made.findings.append(Finding(str(file), f"{type(error).__name__}: {str(error)[:700]}"))
        return False
    return True


def _measure_cpu(target: Target, file: Path, data: bytes, made: Replay) -> None:
    size = target.size(data)
    subject = target.subject(data)
    allowed = allowed_cpu(size)
    best = min(cpu_seconds(subject) for _ in range(REPEATS))
    if best > allowed:
        best = min(best, *(cpu_seconds(subject) for _ in range(MORE_REPEATS)))
    if best > CPU_FLOOR:
        made.cpu_ms = max(made.cpu_ms, round(1000 * best * CPU_BYTES / size, 2))
    made.cpu_ms_input = max(made.cpu_ms_input, round(1000 * best, 2))
    if best > allowed:
        what = f"{1000 * best:.1f} ms of CPU, {1000 * allowed:.1f} are allowed for {size} bytes"
        made.findings.append(Finding(str(file), what))


def cpu_seconds(subject: Callable[[], object]) -> float:
    """Return the CPU time of one call in seconds."""
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
    """Return the peak bytes of Python objects of one call; tracemalloc must be running."""
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    kept = subject()
    _, peak = tracemalloc.get_traced_memory()
    del kept
    return peak - before


def _peak_of_process() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def files_of(arguments: Iterable[str]) -> Iterator[Path]:
    """Yield the given files, and the files in the given folders."""
    for path in map(Path, arguments):
        yield from sorted(path.iterdir()) if path.is_dir() else [path]


if __name__ == "__main__":
    check = sys.argv[1] == "--check"
    name, *places = sys.argv[2:] if check else sys.argv[1:]
    print(json.dumps(asdict(replay(load(name), files_of(places), measured=not check))))
