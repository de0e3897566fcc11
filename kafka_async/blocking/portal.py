"""Runs the event loop of the blocking clients in a background thread.

No function waits for a lock: a signal handler may call a blocking client while the main thread
calls one, and the process may be forked at any time.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Self

from typing_extensions import TypeVar

from kafka_async.blocking.log_handlers import refuse_records_of_event_loop
from kafka_async.errors import IllegalStateError
from kafka_async.foundation.process_end import (
    END_OF_PROCESS,
    clients_of,
    finish_at_exit,
    report_lost,
)
from kafka_async.foundation.supervisor import check_standard_library

if TYPE_CHECKING:
    from kafka_async.client.request_handle import RequestHandle as AsyncRequestHandle
    from kafka_async.kernel import Record
    from kafka_async.protocol.message import Response

P = ParamSpec("P")
R = TypeVar("R")
ResponseT = TypeVar("ResponseT", bound="Response")
RecordT = TypeVar("RecordT", default="Record")


class _Call(Generic[R]):
    """Runs an async function in an event loop, and returns its result in another thread."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, function: Callable[[], Awaitable[R]]
    ) -> None:
        self._loop = loop
        self._function = function
        self._task: asyncio.Task[R] | None = None
        # The queue's methods are reentrant: a signal handler may interrupt them with another call.
        self._ended: SimpleQueue[asyncio.Task[R]] = SimpleQueue()

    def result(self) -> R:
        """Start the function and wait for its result; an exception during the wait cancels it."""
        try:
            self._loop.call_soon_threadsafe(self._start)
            task = self._ended.get()
        except BaseException:
            self._loop.call_soon_threadsafe(self._cancel)
            raise
        try:
            if task.cancelled():
                raise concurrent.futures.CancelledError
            return task.result()
        finally:
            del task  # otherwise the frame, in the traceback of the error, refers to the error

    def _start(self) -> None:
        self._task = self._loop.create_task(self._run())
        self._task.add_done_callback(self._end)

    async def _run(self) -> R:
        return await self._function()

    def _end(self, task: asyncio.Task[R]) -> None:
        self._task = None
        if not task.cancelled():
            task.exception()  # asyncio would log it if `result` was interrupted
        self._ended.put(task)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


class _LoopThread:
    """Runs the event loop of this process in a daemon thread until the process ends.

    Exit handlers and logging handlers that were registered earlier run after `finish`, and may call
    their clients. So the event loop keeps running, and each later call delivers its records before
    it returns.
    """

    def __init__(self) -> None:
        check_standard_library()
        self.thread_id = 0
        self.loop = _new_event_loop()
        self._claimed = threading.Lock()
        self._exiting = False

    def start(self) -> None:
        """Start the thread, unless it runs."""
        if self.thread_id:
            return
        thread = threading.Thread(target=self._run, name="kafka-async blocking loop", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if "interpreter shutdown" not in str(error):
                raise
            raise IllegalStateError(
                "the program ends, and Python starts no thread for the blocking clients any more: "
                "make the first call of a blocking client earlier"
            ) from error

    def _run(self) -> None:
        # A signal handler may start a second thread before the first thread gets here.
        if not self._claimed.acquire(blocking=False):
            return
        self.thread_id = threading.get_ident()
        while True:
            # The application's functions raise these; the calling thread gets them too.
            with suppress(SystemExit, KeyboardInterrupt):
                self.loop.run_forever()

    def call(self, function: Callable[[], Awaitable[R]]) -> R:
        """Run an async function in the event loop and return its result."""
        result = _Call(self.loop, function).result()
        if self._exiting:
            _Call(self.loop, self._finish).result()
        return result

    def finish(self) -> None:
        """Deliver the records of all producers at the end of the process, and report the rest."""
        if _loop_threads.get(os.getpid()) is not self:
            return  # A forked child calls the exit handlers of its parent.
        self._exiting = True
        try:
            _Call(self.loop, self._finish).result()
        except BaseException:  # Ctrl-C
            for client in clients_of(self.loop):
                report_lost(client, client.lost(), END_OF_PROCESS)
            raise
        # Daemon threads may have added records, which their calls deliver themselves.
        for client in clients_of(self.loop):
            report_lost(client, client.uncommitted(), END_OF_PROCESS)

    async def _finish(self) -> None:
        await asyncio.gather(*(client.finish() for client in clients_of(self.loop)))


_loop_threads: dict[int, _LoopThread] = {}
"""By process id; a forked child makes another one, since it lacks its parent's thread."""


MAX_FORK_DELAY: Final = 5.0
"""Maximum seconds for which a fork waits for the construction and start of clients."""

_importing: dict[object, int] = {}
"""Running blocks of `delaying_forks`, and their threads."""


@contextmanager
def delaying_forks() -> Generator[None]:
    """Let other threads fork the process only after this block, which imports modules.

    A module that another thread is importing during a fork stays locked in the child forever.
    """
    block = object()
    _importing[block] = threading.get_ident()
    try:
        yield
    finally:
        _importing.pop(block, None)


def _wait_for_imports() -> None:
    end = time.monotonic() + MAX_FORK_DELAY
    own = threading.get_ident()  # A signal handler may fork within such a block.
    while any(thread != own for thread in tuple(_importing.values())) and time.monotonic() < end:
        time.sleep(0.001)


os.register_at_fork(before=_wait_for_imports, after_in_child=_importing.clear)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _loop_thread() -> _LoopThread:
    """Return the loop thread of this process, started."""
    found = _loop_threads.get(os.getpid())
    if found is None:
        with delaying_forks():
            new = _LoopThread()
        found = _loop_threads.setdefault(os.getpid(), new)
        if found is new:
            finish_at_exit(new.loop, new.finish)
        else:  # another thread or a signal handler was first
            new.loop.close()
    found.start()
    return found


def _event_loop_thread_id() -> int:
    """Return the id of the thread that runs this process's event loop, or 0."""
    thread = _loop_threads.get(os.getpid())
    return 0 if thread is None else thread.thread_id


def run(function: Callable[P, Awaitable[R]], *args: P.args, **keywords: P.kwargs) -> R:
    """Run an async function on this process's background event loop.

    An exception during the wait, such as Ctrl-C, cancels the function. Inside a running event loop,
    await the asyncio clients instead.

    Args:
        function: The async function.
        *args: Its positional arguments.
        **keywords: Its keyword arguments.

    Returns:
        The function's result.

    Raises:
        IllegalStateError: A callback or listener calls it in the background event loop, which would
            wait for itself; it is the first call, and the program is ending; a logging handler
            calls it for the first time while the background event loop waits for that handler; or
            gevent or eventlet has patched the standard library.
    """
    refuse_records_of_event_loop(_event_loop_thread_id)
    thread = _loop_thread()
    if thread.thread_id == threading.get_ident():
        raise IllegalStateError(
            "a callback or a listener calls a blocking client in the background event loop, which "
            "would wait for itself: define it with `async def`, and await the asyncio client, the "
            "attribute `asynchronous` of the blocking one"
        )
    return thread.call(partial(function, *args, **keywords))


def start(function: Callable[P, Awaitable[R]], *args: P.args, **keywords: P.kwargs) -> R:
    """Run the start of a client like `run`, and delay forks until it has ended."""
    with delaying_forks():
        return run(function, *args, **keywords)


def call(function: Callable[P, R], *args: P.args, **keywords: P.kwargs) -> R:
    """Call a synchronous function in the event loop's thread."""

    async def called() -> R:
        return function(*args, **keywords)

    return run(called)


class BlockingClient:
    """Wraps an asyncio client, and starts and stops it in a `with` block."""

    def __init__(self, client: Any) -> None:
        self._client = client

    @property
    def asynchronous(self) -> Any:
        """Asyncio client behind this one; it belongs to the background event loop."""
        return self._client

    def __enter__(self) -> Self:
        start(self._client.__aenter__)
        return self

    def __exit__(self, *exc_info: object) -> None:
        run(self._client.__aexit__, *exc_info)


class RecordIteration(BlockingClient, Generic[RecordT]):
    """Iterates over the records of a consumer."""

    def __iter__(self) -> Iterator[RecordT]:
        """Yield records; requesting a record marks those before it as done.

        Waits for the next record without a limit; `poll` waits for a bounded time. Ends when
        another thread, or a signal handler, stops the consumer.
        """
        with suppress(StopAsyncIteration):
            while True:
                yield run(self._client.__anext__)


class RequestHandle(Generic[ResponseT]):
    """A request that `Client.submit` has started, with blocking calls."""

    def __init__(self, handle: AsyncRequestHandle[ResponseT]) -> None:
        self._handle = handle

    @property
    def done(self) -> bool:
        """True if there is a response or an error, or the request was cancelled."""
        return self._handle.done

    @property
    def cancelled(self) -> bool:
        """True if the request was cancelled before it was done."""
        return self._handle.cancelled

    def cancel(self) -> bool:
        """Cancel the request; `response` then raises concurrent.futures.CancelledError.

        A request that was already sent is still handled by its broker, but not retried.

        Returns:
            False if the request was done.
        """
        return call(self._handle.cancel)

    def response(self, timeout: float | None = None) -> ResponseT:
        """Wait for the response and return it.

        Args:
            timeout: Maximum time to wait, in seconds (default: the request's own limit). The
                request continues afterwards.

        Raises:
            KafkaTimeoutError: `timeout` or the request's own time-out has passed.
            KafkaError: The error of the request, see `Client.request`.
            concurrent.futures.CancelledError: The request was cancelled.
        """
        return run(self._handle.response, timeout)


def unwrap(value: Any) -> Any:
    """Return the asyncio client behind a blocking client, or any other value unchanged."""
    return value.asynchronous if isinstance(value, BlockingClient) else value
