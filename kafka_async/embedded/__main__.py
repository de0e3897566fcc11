"""Runs an embedded cluster as a process: `python -m kafka_async.embedded --port 9092 --brokers 3`.

Once all brokers listen, it prints one line with the bootstrap servers. It exits with status 0 on
SIGINT or SIGTERM, and with --while-stdin also at the end of standard input: if that is a pipe, the
process ends with its parent, even if the parent was killed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_async.embedded.cluster import EmbeddedCluster
from kafka_async.embedded.security.options import SecurityOptions
from kafka_async.embedded.settings import RACK_AWARE_REPLICA_SELECTOR, SettingOptions
from kafka_async.errors import InvalidConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


async def serve(
    cluster: EmbeddedCluster, announce: Callable[[str], None], stopping: asyncio.Event | None = None
) -> None:
    """Run a cluster until SIGINT, SIGTERM or `stopping`; call `announce` with its addresses."""
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
    """Return consecutive ports from `first` on, or free ports if it is 0."""
    return [first + index if first else 0 for index in range(brokers)]


def rack_settings(racks: str, brokers: int) -> SettingOptions:
    """Return the settings for comma-separated racks in the order of broker ids, or no settings.

    Raises InvalidConfigurationError if the number of racks differs from the number of brokers.
    """
    if not racks:
        return {}
    names = [rack.strip() for rack in racks.split(",")]
    if len(names) != brokers or not all(names):
        raise InvalidConfigurationError(
            f"{racks!r} must name one rack for each of {brokers} brokers"
        )
    return {
        "racks": dict(enumerate(names, 1)),
        "replica_selector_class": RACK_AWARE_REPLICA_SELECTOR,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m kafka_async.embedded",
        description="A Kafka cluster in memory, for development and tests only.",
    )
    parser.add_argument(
        "--port", type=int, default=9092, help="port of the first broker; 0: free ports"
    )
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--racks", default="", help="racks of the brokers, separated by commas")
    for option, meaning in (
        ("--security-protocol", "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"),
        ("--users-file", "users for SASL: a line name:password for each, readable by you only"),
        ("--ssl-certfile", "the broker's certificate, and its key, as PEM"),
        ("--ssl-keyfile", "the broker's key, if it has a separate file"),
        ("--ssl-cafile", "authorities of client certificates, which are then required"),
    ):
        protocol = option == "--security-protocol"
        parser.add_argument(
            option,
            type=str if protocol else Path,
            default="PLAINTEXT" if protocol else None,
            metavar="PROTOCOL" if protocol else "FILE",
            help=meaning,
        )
    parser.add_argument(
        "--while-stdin", action="store_true", help="exit at the end of standard input, too"
    )
    options = parser.parse_args(arguments)
    security = SecurityOptions(
        options.security_protocol,
        options.users_file,
        options.ssl_certfile,
        options.ssl_keyfile,
        options.ssl_cafile,
    )
    try:
        cluster = EmbeddedCluster(
            options.brokers,
            ports=ports_from(options.port, options.brokers),
            listeners=security.listeners(),
            users=security.users(),
            **rack_settings(options.racks, options.brokers),
        )
    except InvalidConfigurationError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1

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
    """Set the event at the end of standard input, from a daemon thread."""
    loop = asyncio.get_running_loop()

    def watch() -> None:
        while os.read(0, 4096):
            pass
        try:
            loop.call_soon_threadsafe(stopping.set)
        except RuntimeError:
            pass  # the process is already stopping

    threading.Thread(target=watch, name="standard input", daemon=True).start()


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop factory if uvloop is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


if __name__ == "__main__":
    sys.exit(main())
