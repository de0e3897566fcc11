"""Task and figures of a run, and the main function of all peers.

`python -m benchmarks.peers.NAME JSON` runs a task and prints the figures as a JSON object. A peer
is an object with a method for each kind of task that it supports.
"""

from __future__ import annotations

import gc
import inspect
import json
import statistics
import struct
import sys
import time
import zlib
from dataclasses import asdict, dataclass, field, replace
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks import payload
from benchmarks.peers import loop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence

SETTLE_SECONDS: Final = 5.0
"""Seconds before idling is measured, in which joins, first fetches and imports complete."""
_TIME: Final = struct.Struct(">d")


@dataclass(frozen=True)
class Task:
    """Task of a peer: a case in a round.

    Attributes:
        kind: the name of the peer's method.
        cafile: PEM file of the certificate authority, for a connection with TLS; empty: without.
        way: the call of the client if there are several, for example `enqueue` or `send_many`.
        topics: the number of topics; several have names that begin with `topic`.
        rate: operations per second, 0 for no pacing.
        start: the time of the first operation in seconds since the epoch, 0 for now.
        tuned: use tuned options; otherwise the defaults with acks=all.
        verify: compute the checksum of consumed values.
        time_iterations: run the task twice, and measure the longest event loop iteration.
    """

    kind: str
    bootstrap: str
    topic: str
    cafile: str = ""
    way: str = ""
    partitions: int = 6
    topics: int = 1
    records: int = 0
    seconds: float = 0.0
    size: int = 100
    keyed: bool = False
    compression: str = "none"
    rate: float = 0.0
    start: float = 0.0
    concurrency: int = 1
    tuned: bool = True
    verify: bool = False
    time_iterations: bool = False

    @property
    def topic_names(self) -> list[str]:
        """Names of the topics."""
        return payload.topic_names(self.topic, self.topics)

    @property
    def distinct_values(self) -> list[bytes]:
        """Values that are sent in cyclic order."""
        return payload.values(self.size, compressible=self.compression != "none")

    def values(self) -> Iterator[bytes]:
        """Return an iterator over the values to send."""
        return islice(cycle(self.distinct_values), self.records)

    def pairs(self) -> Iterator[tuple[bytes, bytes]]:
        """Return an iterator over the values and keys to send."""
        return zip(self.values(), cycle(payload.keys()), strict=False)

    def timed(self, value: bytes) -> bytes:
        """Return a value that begins with the current time."""
        return _TIME.pack(time.perf_counter()) + value[_TIME.size :]

    @property
    def weigh(self) -> Callable[[Any], int]:
        """Function for each value that is read: the checksum in a check run, else the length."""
        return zlib.crc32 if self.verify else len


def weigh_values(records: Iterable[Any], weigh: Callable[[Any], int]) -> int:
    """Return the sum of the weights of the records' values."""
    total = 0
    for record in records:
        total += weigh(record.value)
    return total


def latency(value: bytes) -> float:
    """Return the seconds since a value of `Task.timed` was sent."""
    return time.perf_counter() - _TIME.unpack_from(value)[0]


@dataclass(frozen=True)
class Figures:
    """Figures of a run, of this process; `settings` are named as in the client's documentation."""

    seconds: float
    cpu_seconds: float
    records: int
    checksum: int | None = None
    latency_us: Mapping[str, float] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    peak_mb: float = 0.0
    longest_iteration_ms: float | None = None


class Stopwatch:
    """Measures wall clock and CPU seconds of this process in a `with` block."""

    def __enter__(self) -> Stopwatch:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._wall
        self.cpu_seconds = time.process_time() - self._cpu

    def figures(
        self,
        records: int,
        settings: Mapping[str, Any] | None = None,
        *,
        checksum: int | None = None,
        latencies: Sequence[float] = (),
    ) -> Figures:
        """Return the figures of the block; `latencies` are in seconds."""
        latency_us = percentiles(latencies) if latencies else None
        return Figures(
            self.seconds, self.cpu_seconds, records, checksum, latency_us, settings or {}
        )


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return p50, p99 and p99.9 of durations, in microseconds."""
    cuts = statistics.quantiles(seconds, n=1000, method="inclusive")
    return {"p50": cuts[499] * 1e6, "p99": cuts[989] * 1e6, "p99.9": cuts[998] * 1e6}


def main(peer: object) -> None:
    """Run the task of the command line, and print its figures."""
    task = Task(**json.loads(sys.argv[1]))
    _ = task.distinct_values, payload.keys()  # cached before the measurement
    run: Callable[[Task], Any] = getattr(peer, task.kind)
    if inspect.iscoroutinefunction(run):
        figures: Figures = loop.run(_with_longest_iteration(run, task))
        figures = replace(figures, settings={**figures.settings, "loop": loop.name()})
    else:
        figures = run(task)
    print(json.dumps({**asdict(figures), "peak_mb": figures.peak_mb or peak_mb()}))


async def _with_longest_iteration(
    run: Callable[[Task], Coroutine[Any, Any, Figures]], task: Task
) -> Figures:
    """Run a task; if it times the iterations, run it twice and time those of the second run.

    The first run imports modules. Its objects are then frozen, so that the second run has no full
    garbage collection of them, which takes 10 ms with any client.
    """
    if not task.time_iterations:
        return await run(task)
    await run(task)
    gc.collect()
    gc.freeze()
    async with loop.IterationTimer() as timer:
        figures = await run(task)
    return replace(figures, longest_iteration_ms=timer.longest)


def peak_mb() -> float:
    """Return the peak resident memory of this process in MB (10**6 bytes).

    `ru_maxrss` is not suitable, because it includes the memory of the parent process.
    """
    rows = Path("/proc/self/status").read_text("ascii").splitlines()
    peak = next(row for row in rows if row.startswith("VmHWM:"))
    return int(peak.split()[1]) * 1024 / 1e6
