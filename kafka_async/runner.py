"""Runs an application's main coroutine, with an orderly shutdown on signals."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import socket
import threading
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from types import FrameType, TracebackType
    from typing import Self

T = TypeVar("T")

logger = logging.getLogger("kafka_async.runner")

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_signalled: Final = set[asyncio.AbstractEventLoop]()
"""Event loops in which a signal has cancelled the main coroutine."""


def run(
    main: Coroutine[Any, Any, T],
    *,
    debug: bool | None = None,
    signals: Iterable[signal.Signals] = SIGNALS,
) -> T:
    """Run a coroutine as `asyncio.run` does, with an orderly shutdown on SIGTERM and SIGINT.

    The first signal cancels `main`, so that its `async with` blocks close their clients, each
    within its close_timeout_ms. Running handlers of `Consumer.process` and tasks of
    `partition_streams` may finish first, see there. A second signal kills the process. If `main`
    catches the cancellation and returns, its result is returned and the program continues. uvloop
    is used where it is installed (the `uvloop` extra); no event loop policy is set.

    Signals that already have a handler, or are ignored, keep their disposition. Outside the main
    thread no signal is handled.

    Args:
        main: The main coroutine.
        debug: The event loop's debug mode (default: asyncio's).
        signals: The signals that stop the program.

    Returns:
        The result of `main`.

    Raises:
        TypeError: `main` is not a coroutine, such as a coroutine function that was not called.
        RuntimeError: An event loop is already running, as in a notebook or an `async def` function.
        SystemExit: A signal cancelled `main`, or arrived just after it had ended; the status is
            128 plus the signal's number (143 for SIGTERM).
        KeyboardInterrupt: The same for SIGINT; Python exits with status 130.
    """
    if not inspect.isawaitable(main):
        if callable(main):
            name = getattr(main, "__name__", "main")
            raise TypeError(f"run takes a coroutine, not a function: call it, as run({name}())")
        raise TypeError(f"run takes a coroutine, not {type(main).__name__}: write run(main())")
    if _loop_runs():
        if inspect.iscoroutine(main):
            main.close()
        raise RuntimeError(
            "run starts an event loop, and one runs already in this thread, as in a notebook or in "
            "an `async def` function: await the coroutine there, as `await main()`"
        )
    with (
        asyncio.Runner(debug=debug, loop_factory=_loop_factory()) as runner,
        _Signals(runner.get_loop(), signals) as received,
    ):
        try:
            result = runner.run(received.cancel_on_signal(main))
        except asyncio.CancelledError as error:
            if received.first is None:
                raise
            for note in getattr(error, "__notes__", ()):
                logger.warning("stopped by %s: %s", received.first.name, note)
            raise _exit(received.first) from None
    if received.first is not None and not received.cancelled:
        raise _exit(received.first)
    return result


def stopped_by_signal() -> bool:
    """Return True once a signal has cancelled the main coroutine of the running event loop."""
    return asyncio.get_running_loop() in _signalled


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _exit(number: signal.Signals) -> BaseException:
    return KeyboardInterrupt() if number is signal.SIGINT else SystemExit(128 + number)


class _Signals:
    """Handles signals in a `with` block: the first cancels the main task, the second kills it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, numbers: Iterable[signal.Signals]) -> None:
        self.first: signal.Signals | None = None
        self.cancelled = False
        self._loop = loop
        self._numbers = tuple(numbers)
        self._task: asyncio.Task[Any] | None = None
        self._previous: dict[signal.Signals, Any] = {}
        self._wakeup: _Wakeup | None = None

    async def cancel_on_signal(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` in the task that the first signal cancels."""
        self._task = asyncio.current_task()
        try:
            if self.first is not None:  # The signal arrived before the first event loop iteration.
                main.close()
                raise asyncio.CancelledError
            return await main
        finally:
            self._task = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in self._numbers:
                previous = signal.getsignal(number)
                if previous in (signal.SIG_DFL, signal.default_int_handler):
                    self._previous[number] = previous
                    # The loop's add_signal_handler would not run while synchronous code blocks the
                    # event loop; a second signal has to kill the process even then.
                    signal.signal(number, self._handle)
        if self._previous:
            self._wakeup = _Wakeup(self._loop)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _signalled.discard(self._loop)
        if self._wakeup is not None:
            self._wakeup.close()
        for number, previous in self._previous.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, previous)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.first is not None:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self.first = signal.Signals(number)
        self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            _signalled.add(self._loop)
            self.cancelled = self._task.cancel()


class _Wakeup:
    """Wakes the event loop at every signal, so that Python calls the signal's handler.

    A signal that arrives just before the loop's system call, or in another thread, does not
    interrupt that call.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)
        loop.add_reader(self._receiver, self._receiver.recv, 4096)
        self._previous = signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)

    def close(self) -> None:
        signal.set_wakeup_fd(self._previous)
        self._loop.remove_reader(self._receiver)
        self._receiver.close()
        self._sender.close()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
