"""What every peer's process does around its loop: read the task, time it, report.

`python -m benchmarks.peers.NAME JSON` runs one case and prints one JSON object, the figures. A peer
is a table from the kind of a case to the function that runs it; a kind it has not is a case it is
not in.
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
    """One case for one peer in one round.

    `kind` picks the function, `way` the call of the client where it has several (`enqueue`,
    `send_many`, `send_batch`, `send`; `poll`, `iterate`, `batches`, `arrow`). `records` is how many
    to send or read, `size` the bytes of a value, `rate` the operations a second where a case paces
    them, and `start` when the first of them is due, in seconds since the epoch: who is late then
    begins some whole turns later. `tuned` is false for the table in which everything is at its
    defaults, except what names the cluster and the topic and asks for acks=all. `verify` asks a
    consumer for the checksum.
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
    """What a run took: wall and CPU seconds of this process while the clock ran.

    `records` were sent or read in that time, `checksum` is theirs where it was asked for (see
    `benchmarks.payload`). `latency_us` has p50, p99 and p99.9 where single operations were timed.
    `settings` are the options that the client ran with, as its own documentation calls them.
    """

    seconds: float
    cpu_seconds: float
    records: int
    checksum: int | None = None
    latency_us: Mapping[str, float] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    peak_mb: float = 0.0


class Stopwatch:
    """Wall and CPU seconds of this process while the `with` block runs."""

    def __enter__(self) -> Stopwatch:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._wall
        self.cpu_seconds = time.process_time() - self._cpu


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """p50, p99 and p99.9 of some durations, in microseconds."""
    cuts = statistics.quantiles(seconds, n=1000, method="inclusive")
    return {"p50": cuts[499] * 1e6, "p99": cuts[989] * 1e6, "p99.9": cuts[998] * 1e6}


Run: TypeAlias = "Callable[[Task], Figures] | Callable[[Task], Coroutine[Any, Any, Figures]]"


def main(runs: Mapping[str, Run]) -> None:
    """Run the task of the command line, coroutines on the clients' loop, and print its figures."""
    task = Task(**json.loads(sys.argv[1]))
    payload.values(task.size, compressible=task.compression != "none")  # made before the clock runs
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
    """The most memory that this process has had resident, in MB (10**6 bytes).

    Not `ru_maxrss`, which begins with what the process had that this one was started from.
    """
    rows = Path("/proc/self/status").read_text("ascii").splitlines()
    peak = next(row for row in rows if row.startswith("VmHWM:"))
    return int(peak.split()[1]) * 1024 / 1e6
