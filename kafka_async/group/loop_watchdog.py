"""Logs the stack of code that blocks the event loop of a group member.

A blocked event loop sends no heartbeats, and at the end of its session the member loses its
assignment, without a cause in the log. One daemon thread per process repeatedly requests a callback
of every watched loop. If a loop has not run it in half of a session, the thread logs what the
loop's thread does at that moment. The thread ends with the last member; a fork has none until a
member is started there.

`LoopCheck` decides from clock readings; it does not wait.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import os
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("kafka_async.group")

CHECKS_PER_LIMIT: Final = 8
"""Callbacks that a running loop must run in the time after which it counts as blocked."""
MAX_STACK_FRAMES: Final = 20
"""Innermost frames of a blocked loop's thread that are logged."""


class LoopAction(enum.Enum):
    """Action of the watchdog for one loop."""

    WAIT = "wait"
    REQUEST_CALLBACK = "request callback"
    WARN = "warn"


class LoopCheck:
    """Decides when an event loop counts as blocked; times in seconds of one monotonic clock.

    Args:
        limit: Time without a run of the loop after which it counts as blocked.
        now: Current time; the loop runs.
    """

    def __init__(self, limit: float, now: float) -> None:
        self.limit = limit
        # When the loop last ran, the request that it has not run yet, and one warning per blockage.
        self._ran_at = now
        self._requested_at: float | None = None  # of the callback that has not run yet
        self._warned = False

    def check(self, now: float) -> LoopAction:
        """Return what to do now; the caller does it before the next check."""
        if self._requested_at is None:
            if now < self._ran_at + self.limit / CHECKS_PER_LIMIT:
                return LoopAction.WAIT
            self._requested_at = now
            return LoopAction.REQUEST_CALLBACK
        if self._warned or now < self._requested_at + self.limit:
            return LoopAction.WAIT
        self._warned = True
        return LoopAction.WARN

    def blocked_for(self, now: float) -> float:
        """Return the seconds for which the requested callback has not run."""
        return 0.0 if self._requested_at is None else now - self._requested_at

    def on_run(self, now: float) -> float | None:
        """Note that the loop runs; return the length in seconds of a logged blockage."""
        blocked = self.blocked_for(now) if self._warned else None
        self._ran_at, self._requested_at, self._warned = now, None, False
        return blocked

    def next_check_at(self) -> float | None:
        """Return the time of the next action, or None until the loop runs."""
        if self._warned:
            return None
        if self._requested_at is None:
            return self._ran_at + self.limit / CHECKS_PER_LIMIT
        return self._requested_at + self.limit


class WatchdogClock(Protocol):
    """The clock of the watchdog's thread."""

    def now(self) -> float:
        """Return the monotonic time in seconds."""
        ...

    def wait(self, changed: threading.Condition, timeout: float | None) -> None:
        """Wait for a notification, at most `timeout` seconds; the caller holds the condition."""
        ...


class SystemClock:
    """The real clock."""

    def now(self) -> float:
        """Return the monotonic time in seconds."""
        return time.monotonic()

    def wait(self, changed: threading.Condition, timeout: float | None) -> None:
        """Wait for a notification, at most `timeout` seconds."""
        changed.wait(timeout)


class _WatchedLoop:
    """An event loop with its members, each with a name and a limit in seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: float, now: float) -> None:
        self.loop = loop
        self.thread_id = threading.get_ident()
        self.check = LoopCheck(limit, now)
        self.members: dict[object, tuple[str, float]] = {}

    def apply_limit(self) -> None:
        """Use the shortest limit of the members."""
        self.check.limit = min(limit for _, limit in self.members.values())

    def names(self) -> str:
        """Return the names of the members, for messages."""
        return ", ".join(sorted({name for name, _ in self.members.values()}))


class LoopWatchdog:
    """Watches the event loops of all members in one thread, which runs while there are members."""

    def __init__(self, clock: WatchdogClock | None = None) -> None:
        self._clock = clock or SystemClock()
        # Protects all state: loops and the watchdog's thread change it.
        self._changed = threading.Condition()
        self._loops: dict[asyncio.AbstractEventLoop, _WatchedLoop] = {}
        self._thread: threading.Thread | None = None

    def watch(self, name: str, limit: float) -> Callable[[], None]:
        """Watch the running event loop for a member; return a function that ends it.

        Args:
            name: Name of the member for messages.
            limit: Seconds without a run of the loop after which a warning is logged.
        """
        loop, member = asyncio.get_running_loop(), object()
        with self._changed:
            watched = self._loops.get(loop)
            if watched is None:
                watched = self._loops[loop] = _WatchedLoop(loop, limit, self._clock.now())
            watched.members[member] = (name, limit)
            watched.apply_limit()
            # The thread ends with the last member.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="kafka_async loop watchdog", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()
        return lambda: self._unwatch(watched, member)

    def _unwatch(self, watched: _WatchedLoop, member: object) -> None:
        with self._changed:
            watched.members.pop(member, None)
            if watched.members:
                watched.apply_limit()
            elif self._loops.get(watched.loop) is watched:
                del self._loops[watched.loop]
            self._changed.notify_all()

    def _run(self) -> None:
        # Ends when no loop is watched. Otherwise each pass checks all loops, then logs the blocked
        # ones or waits for the next check or a change.
        while True:
            with self._changed:
                if not self._loops:
                    self._thread = None
                    return
                now = self._clock.now()
                blocked = [
                    (each, each.names(), each.check.blocked_for(now))
                    for each in list(self._loops.values())
                    if self._check(each, now)
                ]
                if self._loops and not blocked:
                    self._clock.wait(self._changed, self._time_to_next_check(now))
            for each, names, seconds in blocked:  # outside the lock: log handlers may be slow
                try:
                    _warn(each.thread_id, names, seconds)
                except Exception:  # noqa: BLE001  # raised by a log handler
                    traceback.print_exc()  # as logging does; the other loops are watched on

    def _time_to_next_check(self, now: float) -> float | None:
        times = [each.check.next_check_at() for each in self._loops.values()]
        return min((max(0.0, at - now) for at in times if at is not None), default=None)

    def _check(self, watched: _WatchedLoop, now: float) -> bool:
        """Request a callback if one is due; return True if the loop is blocked."""
        action = watched.check.check(now)
        if action is LoopAction.REQUEST_CALLBACK:
            try:
                watched.loop.call_soon_threadsafe(self._on_run, watched)
            except RuntimeError:  # the loop was closed, and its members were not
                del self._loops[watched.loop]
        return action is LoopAction.WARN

    def _on_run(self, watched: _WatchedLoop) -> None:
        """Note that a loop runs; called in that loop."""
        with self._changed:
            blocked = watched.check.on_run(self._clock.now())
            self._changed.notify_all()
        if blocked is not None:
            logger.info("the event loop runs again after %.1f s", blocked)


def _warn(thread_id: int, names: str, seconds: float) -> None:
    frames = sys._current_frames()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # documented
    frame = frames.get(thread_id)
    stack = "".join(traceback.format_stack(frame, MAX_STACK_FRAMES)) if frame else "  (it ended)"
    logger.warning(
        "the event loop has not run for %.1f s, so %s sends no heartbeats and loses its membership "
        "when the session ends: move what blocks the loop into a thread (asyncio.to_thread). The "
        "loop's thread is at:\n%s",
        seconds,
        names,
        stack.rstrip("\n"),
    )


_process_watchdog = LoopWatchdog()


def watch_loop(name: str, limit: float) -> Callable[[], None]:
    """Watch the running event loop by the process's watchdog: see `LoopWatchdog.watch`."""
    return _process_watchdog.watch(name, limit)


def _start_anew() -> None:
    """Forget the watchdog of the parent process: its thread does not run in a fork."""
    global _process_watchdog
    _process_watchdog = LoopWatchdog()


os.register_at_fork(after_in_child=_start_anew)
