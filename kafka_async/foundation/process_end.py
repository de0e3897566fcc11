"""Reports records that would be lost silently at the end of an event loop or the process.

A producer is watched from its start until it is stopped. The blocking API delivers its producers'
records at the end of the process.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import sys
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("kafka_async.process_end")

CURE: Final = "use `async with` (kafka_async.blocking: `with`), or call stop()"
END_OF_PROCESS: Final = f"It was not stopped before the end of the process: {CURE}"
CANCELLED: Final = f"It was not stopped before its tasks were cancelled: {CURE}"


class Unfinished(Protocol):
    """A started producer, which may have undelivered records."""

    @property
    def name(self) -> str:
        """Name in messages."""
        ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The producer's event loop."""
        ...

    @property
    def cancelled(self) -> bool:
        """True if the event loop or the application has cancelled its tasks."""
        ...

    def lost(self) -> str:
        """Return the current loss, such as "3 records were not delivered", or an empty text."""
        ...

    def uncommitted(self) -> str:
        """Return the part of `lost` that `finish` does not deliver."""
        ...

    async def finish(self) -> None:
        """Deliver the appended records in bounded time; fail and log the rest."""
        ...


_watched: dict[Unfinished, int] = {}
"""Running producers, and the process in which each was started."""
_finished_at_exit: set[asyncio.AbstractEventLoop] = set()
"""Event loops that deliver their records at the end of the process."""
_reporting_pid = 0


def watch(client: Unfinished) -> None:
    """Report a client's losses until `unwatch`."""
    global _reporting_pid
    _watched[client] = os.getpid()
    if _reporting_pid != os.getpid():
        _reporting_pid = os.getpid()
        _call_at_exit(_report_at_exit)


def unwatch(client: Unfinished) -> None:
    """End `watch`: the client was stopped, and stopping raises its losses."""
    _watched.pop(client, None)


def clients_of(loop: asyncio.AbstractEventLoop) -> list[Unfinished]:
    """Return the watched clients of an event loop."""
    return [client for client in tuple(_watched) if client.loop is loop]


def finish_at_exit(loop: asyncio.AbstractEventLoop, finish: Callable[[], object]) -> None:
    """Call `finish` at the end of the process, to deliver and report a loop's records."""
    _finished_at_exit.add(loop)
    _call_at_exit(finish)


def report_lost(client: Unfinished, lost: str, cause: str) -> None:
    """Log a client's loss, unless it is empty, and the cause, a sentence.

    Unless the application configures logging, errors are printed to stderr.
    """
    if lost:
        logger.error("%s: %s. %s", client.name, lost, cause)


def _report_at_exit() -> None:
    for client, pid in tuple(_watched.items()):
        if pid == os.getpid() and client.loop not in _finished_at_exit:
            unwatch(client)  # multiprocessing's spawned processes call this twice
            report_lost(client, client.lost(), END_OF_PROCESS)


def _call_at_exit(function: Callable[[], object]) -> None:
    """Call a function at the end of this process, even if multiprocessing has forked it.

    Before Python 3.14, such a process does not run atexit functions.
    """
    atexit.register(function)
    if sys.version_info < (3, 14) and "multiprocessing.util" in sys.modules:
        from multiprocessing import parent_process, util

        if parent_process() is not None:
            util.Finalize(None, function, exitpriority=0)
