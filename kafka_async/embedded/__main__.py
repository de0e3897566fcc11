"""Run an embedded cluster as a process: `python -m kafka_async.embedded --port 9092 --brokers 3`.

It prints one line with its bootstrap servers, flushed, when it serves, and ends with status 0 on
SIGINT or SIGTERM. With --while-stdin it ends with its standard input too: if that is a pipe, then
together with whoever started it, even by kill -9.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

from kafka_async.embedded.cluster import EmbeddedCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


async def serve(
    cluster: EmbeddedCluster, announce: Callable[[str], None], stopping: asyncio.Event | None = None
) -> None:
    """Run a cluster until SIGINT or SIGTERM (or `stopping`); `announce` gets its addresses."""
    stop = asyncio.Event() if stopping is None else stopping
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        async with cluster:
            announce(cluster.bootstrap_servers)
            await stop.wait()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def ports_from(first: int, brokers: int) -> list[int]:
    """Consecutive ports from the first on; all free ones for 0."""
    return [first + index if first else 0 for index in range(brokers)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments, serve, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m kafka_async.embedded",
        description="A Kafka cluster in memory, for development and tests only.",
    )
    parser.add_argument("--port", type=int, default=9092, help="of the first broker; 0: free ones")
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument(
        "--while-stdin", action="store_true", help="end when standard input does, too"
    )
    options = parser.parse_args(arguments)
    cluster = EmbeddedCluster(options.brokers, ports=ports_from(options.port, options.brokers))

    def announce(servers: str) -> None:
        sys.stdout.write(f"{servers}\n")
        sys.stdout.flush()

    async def run() -> None:
        stopping = asyncio.Event()
        if options.while_stdin:
            _watch_standard_input(stopping)
        await serve(cluster, announce, stopping)

    try:
        with asyncio.Runner(loop_factory=_fast_loop()) as runner:
            runner.run(run())
    except OSError as error:
        sys.stderr.write(f"cannot listen at port {options.port}: {error}\n")
        return 1
    return 0


def _watch_standard_input(stopping: asyncio.Event) -> None:
    """Set the event when standard input ends; a daemon thread waits for that."""
    loop = asyncio.get_running_loop()

    def watch() -> None:
        while os.read(0, 4096):
            pass
        try:
            loop.call_soon_threadsafe(stopping.set)
        except RuntimeError:
            pass  # the loop is closed: it has ended already

    threading.Thread(target=watch, name="standard input", daemon=True).start()


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's loop where that is installed: a process of its own may choose."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


if __name__ == "__main__":
    sys.exit(main())
