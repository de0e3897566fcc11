"""Program that runs under callgrind: runs a path and marks its begin and end.

    python -m tools.instructions.worker LIBRARY MODULE PATH

Runs the path once as a warm-up, then with N and with 2 N operations: the difference excludes what
both have in common, such as the call and the marks. Time is virtual and random numbers are seeded,
so that each run does the same work.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import importlib
import sys
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from kafka_async.testing.clock import VirtualClockEventLoop

if TYPE_CHECKING:
    from tools.instructions.paths import Path


class CountingLoop(VirtualClockEventLoop):
    """Event loop with virtual time whose `time` is a C function, as in real event loops."""

    def __init__(self) -> None:
        super().__init__()
        setattr(self, "time", partial(attrgetter("_now"), self))  # noqa: B010  # replaces a method


async def main(library: str, module: str, name: str) -> None:
    """Run the path of this name."""
    requests = ctypes.CDLL(library)
    paths: tuple[Path, ...] = importlib.import_module(module).PATHS
    (path,) = [path for path in paths if path.name == name]
    async with path.prepare(path.operations) as work:
        await work()
    gc.collect()
    gc.freeze()
    gc.disable()
    for times in (1, 2):
        async with path.prepare(path.operations * times) as work:
            requests.start()
            await work()
            requests.dump()
            requests.stop()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        runner.run(main(*sys.argv[1:]))
