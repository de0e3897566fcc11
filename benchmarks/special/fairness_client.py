"""`python -m benchmarks.special.fairness_client JSON`: how long one client holds its event loop.

The task is one of `benchmarks.peers`, and `peer`, the name of the module that does it. A first run,
which is not watched, imports and connects what there is; that is frozen, so that no full collection
of it falls into the second one: it takes 10 ms, whatever the client does. Prints the longest turn
of the loop in the second run, in CPU milliseconds of its thread, and how many records were moved.
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


class Watch:
    """The longest turn of the loop while the block runs, in CPU milliseconds of its thread."""

    longest = 0.0

    async def __aenter__(self) -> Watch:
        self._pulse = asyncio.ensure_future(self._beat())
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0)  # so that the last turn counts
        self._pulse.cancel()
        await asyncio.wait({self._pulse})

    async def _beat(self) -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest = max(self.longest, (now - last) * 1000)
            last = now


async def hold(peer: str, task: Task) -> dict[str, Any]:
    """Do the task twice, watch the second time."""
    run: Any = importlib.import_module(f"benchmarks.peers.{peer}").RUNS[task.kind]
    await run(task)
    gc.collect()
    gc.freeze()
    async with Watch() as watch:
        figures: Figures = await run(task)
    return {"ms": watch.longest, "records": figures.records, "settings": dict(figures.settings)}


def main() -> None:
    """Run the task of the command line."""
    task = json.loads(sys.argv[1])
    peer = task.pop("peer")
    sys.stdout.write(json.dumps(loop.run(hold(peer, Task(**task)))) + "\n")


if __name__ == "__main__":
    main()
