"""Reports records that the end of an event loop or of the process would lose without a word.

A producer is watched from its start until it is stopped. The blocking API delivers the records of
its producers at the end of the process.
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
    """A started producer, which may have records to lose."""

    @property
    def name(self) -> str:
        """Name in messages."""
        ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that it belongs to."""
        ...

    @property
    def cancelled(self) -> bool:
        """True if the event loop or the application has cancelled its tasks."""
        ...

    def lost(self) -> str:
        """Return what would be lost now, such as "3 records were not delivered"; empty if none."""
        ...

    def uncommitted(self) -> str:
        """Return the part of `lost` that `finish` does not deliver."""
        ...

    async def finish(self) -> None:
        """Deliver what was appended, in bounded time; what is left fails and is logged."""
        ...


_watched: dict[Unfinished, int] = {}
"""Running producers, and the process in which each was started."""
_finished_at_exit: set[asyncio.AbstractEventLoop] = set()
"""Event loops that deliver their records at the end of the process."""
_reporting_pid = 0


def watch(client: Unfinished) -> None:
    """Report what a client loses, until `unwatch`."""
    global _reporting_pid
    _watched[client] = os.getpid()
    if _reporting_pid != os.getpid():
        _reporting_pid = os.getpid()
        _call_at_exit(_report_at_exit)


def unwatch(client: Unfinished) -> None:
    """End `watch`: the client was stopped, which raises what it loses."""
    _watched.pop(client, None)


def clients_of(loop: asyncio.AbstractEventLoop) -> list[Unfinished]:
    """Return the watched clients of an event loop."""
    return [client for client in tuple(_watched) if client.loop is loop]


def finish_at_exit(loop: asyncio.AbstractEventLoop, finish: Callable[[], object]) -> None:
    """Call `finish` at the end of the process: it finishes and reports the clients of a loop."""
    _finished_at_exit.add(loop)
    _call_at_exit(finish)


def report_lost(client: Unfinished, lost: str, cause: str) -> None:
    """Log what a client loses, unless it is empty, and the cause, a sentence.

    Unless the application configures logging, errors are printed on stderr.
    """
    if lost:
        logger.error("%s: %s. %s", client.name, lost, cause)


def _report_at_exit() -> None:
    for client, pid in tuple(_watched.items()):
        if pid == os.getpid() and client.loop not in _finished_at_exit:
            unwatch(client)  # spawned processes of multiprocessing call this twice
            report_lost(client, client.lost(), END_OF_PROCESS)


def _call_at_exit(function: Callable[[], object]) -> None:
    """Call a function at the end of this process, also of one that multiprocessing has forked.

    Before Python 3.14, such a process does not call the functions of atexit.
    """
    atexit.register(function)
    if sys.version_info < (3, 14) and "multiprocessing.util" in sys.modules:
        from multiprocessing import parent_process, util

        if parent_process() is not None:
            util.Finalize(None, function, exitpriority=0)
