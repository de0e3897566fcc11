"""Time and timers of the cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVarTuple

from kafka_async.errors import ClientClosedError
from kafka_async.foundation.clock import Clock, LoopClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.embedded.failures import FailureList

Args = TypeVarTuple("Args")


class Scheduler:
    """The time, and timers in the cluster's event loop.

    Timestamps come from `clock`, by default the event loop's; `failures` collects the exceptions of
    timers.
    """

    def __init__(self, clock: Clock | None, failures: FailureList) -> None:
        self._clock = clock
        self._failures = failures
        self._timers: set[asyncio.TimerHandle] = set()

    def start(self) -> None:
        """Begin to use the running event loop."""
        self._clock = self._clock or LoopClock(asyncio.get_running_loop())

    def close(self) -> None:
        """Cancel all timers."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def now(self) -> float:
        """Return the event loop's time in seconds."""
        return asyncio.get_running_loop().time()

    def now_ms(self) -> int:
        """Return the wall clock's time in milliseconds since the epoch."""
        if self._clock is None:
            raise ClientClosedError("the EmbeddedCluster is not running")
        return int(self._clock.wall() * 1000)

    def call_later(
        self, delay: float, callback: Callable[[*Args], object], *args: *Args
    ) -> asyncio.TimerHandle:
        """Schedule a callback after `delay` seconds, which `close` cancels.

        An exception in the callback counts as a failure of the cluster.
        """

        def run() -> None:
            self._timers.discard(timer)
            try:
                callback(*args)
            except Exception as error:  # noqa: BLE001  # a bug must not stop the cluster
                self._failures.record(f"timer {callback!r}", error)

        timer = asyncio.get_running_loop().call_later(delay, run)
        self._timers = {handle for handle in self._timers if not handle.cancelled()}
        self._timers.add(timer)
        return timer
