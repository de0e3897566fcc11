"""Measures how long one client blocks its event loop.

`python -m benchmarks.special.fairness_client JSON`: the argument is a task of `benchmarks.peers`
with a `peer`, the name of the module. The task runs twice. The first run imports modules; its
objects are then frozen, so that the second run has no full garbage collection of them, which takes
10 ms with any client. Prints the longest iteration of the event loop in the second run, in CPU
milliseconds of its thread, and the number of records.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import sys
import time
from typing import Any

from benchmarks.peers import loop
from benchmarks.peers.task import Figures, Task


class IterationTimer:
    """Measures the longest event loop iteration in a block, in CPU milliseconds of the thread."""

    longest = 0.0

    async def __aenter__(self) -> IterationTimer:
        self._task = asyncio.ensure_future(self._measure())
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0)  # include the last iteration
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _measure(self) -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest = max(self.longest, (now - last) * 1000)
            last = now


async def run_task(peer: str, task: Task) -> dict[str, Any]:
    """Run the task twice, and measure the second run."""
    run: Any = importlib.import_module(f"benchmarks.peers.{peer}").RUNS[task.kind]
    await run(task)
    gc.collect()
    gc.freeze()
    async with IterationTimer() as timer:
        figures: Figures = await run(task)
    return {"ms": timer.longest, "records": figures.records, "settings": dict(figures.settings)}


def main() -> None:
    """Run the task of the command line."""
    task = json.loads(sys.argv[1])
    peer = task.pop("peer")
    sys.stdout.write(json.dumps(loop.run(run_task(peer, Task(**task)))) + "\n")


if __name__ == "__main__":
    main()
