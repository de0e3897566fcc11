"""What every peer's process does around its loop: read the task, time it, report."""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any


@dataclass(frozen=True)
class Task:
    """A case: send `records` values of `size` bytes to `topic`."""

    bootstrap: str
    topic: str
    records: int
    size: int


class Stopwatch:
    """Wall and CPU seconds of this process while the `with` block runs."""

    def __enter__(self) -> Stopwatch:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._wall
        self.cpu_seconds = time.process_time() - self._cpu


def main(produce: Callable[[Task], Coroutine[Any, Any, Stopwatch]], client: str) -> None:
    """Run the task of the command line on uvloop and print one JSON object."""
    import uvloop

    watch = uvloop.run(produce(Task(**json.loads(sys.argv[1]))))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    figures = {
        "client": client,
        "seconds": watch.seconds,
        "cpu_seconds": watch.cpu_seconds,
        "peak_mb": peak,
    }
    sys.stdout.write(json.dumps(figures) + "\n")
