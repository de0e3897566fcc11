"""The program that callgrind counts: does a path's work, and marks where it begins and ends.

    python -m tools.instructions.worker LIBRARY MODULE PATH

The path is done once to warm it up, then with N operations and with 2 N: what both have in common
(the call, the mark itself) drops out of the difference. Time is virtual and chance is seeded, so
that the same work is done each time.
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
    from tools.instructions.path import Path


class CountingLoop(VirtualClockEventLoop):
    """Virtual time, told by a function in C, as a real loop's is to the hot paths."""

    def __init__(self) -> None:
        super().__init__()
        setattr(self, "time", partial(attrgetter("_now"), self))  # noqa: B010  # a method's place


async def main(library: str, module: str, name: str) -> None:
    """Do the path of this name."""
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
