"""The main function of all peers: reads the task, runs it, and prints the figures.

`python -m benchmarks.peers.NAME JSON` runs a case and prints the figures as a JSON object. A peer
is a table of functions by the kind of case; kinds that are not in the table are not supported.
"""

from __future__ import annotations

import inspect
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from benchmarks import payload
from benchmarks.peers import loop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence


@dataclass(frozen=True)
class Task:
    """Task of a peer: a case in a round.

    Attributes:
        kind: the key of the function in the peer's table.
        way: the call of the client if there are several: `enqueue`, `send_many`, `send_batch` or
            `send`; `poll`, `iterate`, `batches` or `arrow`.
        records: the number of records to send or read.
        size: the bytes of a value.
        rate: operations per second, 0 for no pacing.
        start: the time of the first operation in seconds since the epoch, 0 for now; see
            `paced.delay`.
        tuned: use tuned options; otherwise the defaults with acks=all.
        verify: compute the checksum of consumed values.
    """

    kind: str
    bootstrap: str
    topic: str
    way: str = ""
    partitions: int = 6
    records: int = 0
    size: int = 100
    keyed: bool = False
    compression: str = "none"
    rate: float = 0.0
    start: float = 0.0
    concurrency: int = 1
    tuned: bool = True
    verify: bool = False


@dataclass(frozen=True)
class Figures:
    """Figures of a run, of this process during the measurement.

    Attributes:
        seconds: wall clock seconds.
        cpu_seconds: CPU seconds.
        records: the number of records that were sent or read.
        checksum: their checksum if it was requested, see `benchmarks.payload`.
        latency_us: p50, p99 and p99.9 in microseconds, in cases of single operations.
        settings: the options of the client under their names in its documentation.
    """

    seconds: float
    cpu_seconds: float
    records: int
    checksum: int | None = None
    latency_us: Mapping[str, float] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    peak_mb: float = 0.0


class Stopwatch:
    """Measures wall clock and CPU seconds of this process in a `with` block."""

    def __enter__(self) -> Stopwatch:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._wall
        self.cpu_seconds = time.process_time() - self._cpu


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return p50, p99 and p99.9 of durations, in microseconds."""
    cuts = statistics.quantiles(seconds, n=1000, method="inclusive")
    return {"p50": cuts[499] * 1e6, "p99": cuts[989] * 1e6, "p99.9": cuts[998] * 1e6}


Run: TypeAlias = "Callable[[Task], Figures] | Callable[[Task], Coroutine[Any, Any, Figures]]"


def main(runs: Mapping[str, Run]) -> None:
    """Run the task of the command line, and print its figures."""
    task = Task(**json.loads(sys.argv[1]))
    payload.values(
        task.size, compressible=task.compression != "none"
    )  # cached before the measurement
    payload.keys()
    result = runs[task.kind](task)
    if inspect.iscoroutine(result):
        figures: Figures = loop.run(result)
        figures = replace(figures, settings={**figures.settings, "loop": loop.name()})
    else:
        assert isinstance(result, Figures)
        figures = result
    sys.stdout.write(
        json.dumps({**asdict(figures), "peak_mb": figures.peak_mb or peak_mb()}) + "\n"
    )


def peak_mb() -> float:
    """Return the peak resident memory of this process in MB (10**6 bytes).

    `ru_maxrss` is not suitable, because it includes the memory of the parent process.
    """
    rows = Path("/proc/self/status").read_text("ascii").splitlines()
    peak = next(row for row in rows if row.startswith("VmHWM:"))
    return int(peak.split()[1]) * 1024 / 1e6
