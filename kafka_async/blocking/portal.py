"""Runs the event loop of the blocking clients in a background thread."""

from __future__ import annotations

import atexit
import importlib.util
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self

from typing_extensions import TypeVar

from kafka_async.errors import IllegalStateError
from kafka_async.supervisor import check_standard_library

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from kafka_async.cluster.request_handle import RequestHandle as AsyncRequestHandle
    from kafka_async.kernel import Record
    from kafka_async.protocol.message import Response

P = ParamSpec("P")
R = TypeVar("R")
ResponseT = TypeVar("ResponseT", bound="Response")
RecordT = TypeVar("RecordT", default="Record")


class _LoopThread:
    """Runs the event loop of this process in a background thread."""

    def __init__(self) -> None:
        from anyio.from_thread import start_blocking_portal

        check_standard_library()
        self.pid = os.getpid()
        self._stack = ExitStack()
        uvloop = importlib.util.find_spec("uvloop") is not None
        self.portal: BlockingPortal = self._stack.enter_context(
            start_blocking_portal("asyncio", {"use_uvloop": uvloop})
        )
        self.thread_id: int = self.portal.call(_name_thread)
        atexit.register(self._stop)

    def _stop(self) -> None:
        if os.getpid() == self.pid:
            self.portal.call(partial(self.portal.stop, cancel_remaining=True))
            self._stack.close()


def _name_thread() -> int:
    """Name the current thread, which older versions of anyio cannot do; return its id."""
    threading.current_thread().name = "kafka-async blocking loop"
    return threading.get_ident()


_loop_thread: _LoopThread | None = None
_lock = threading.Lock()


def run(function: Callable[P, Awaitable[R]], *args: P.args, **keywords: P.kwargs) -> R:
    """Run an async function on this process's background event loop.

    An exception while waiting, such as Ctrl-C, cancels the function. Inside a running event loop,
    await the asyncio clients instead.

    Args:
        function: The async function.
        *args: Its positional arguments.
        **keywords: Its keyword arguments.

    Returns:
        The function's result.

    Raises:
        IllegalStateError: A callback or a listener calls it, in the background event loop, which
            would wait for itself. Or gevent or eventlet has patched the standard library.
    """
    global _loop_thread
    with _lock:
        # The process id differs in a forked child, where the thread does not exist.
        if _loop_thread is None or _loop_thread.pid != os.getpid():
            _loop_thread = _LoopThread()
    if _loop_thread.thread_id == threading.get_ident():
        raise IllegalStateError(
            "a callback or a listener calls a blocking client in the background event loop, which "
            "would wait for itself: define it with `async def`, and await the asyncio client, the "
            "attribute `asynchronous` of the blocking one"
        )
    future = _loop_thread.portal.start_task_soon(partial(function, *args, **keywords))
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


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
        run(self._client.__aenter__)
        return self

    def __exit__(self, *exc_info: object) -> None:
        run(self._client.__aexit__, *exc_info)


class RecordIteration(BlockingClient, Generic[RecordT]):
    """Iterates over the records of a consumer."""

    def __iter__(self) -> Iterator[RecordT]:
        """Yield records without end; requesting a record marks those before it as done.

        Waits for the next record without a limit; `poll` waits for a bounded time.
        """
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

        A request that has left already is still handled by its broker, but not sent again.

        Returns:
            False if the request was done.
        """
        return call(self._handle.cancel)

    def response(self, timeout: float | None = None) -> ResponseT:
        """Wait for the response and return it.

        Args:
            timeout: Maximum time to wait, in seconds (default: no limit but the request's). The
                request continues.

        Raises:
            KafkaTimeoutError: `timeout` is over, or the request's own timeout.
            KafkaError: The error of the request, see `Client.request`.
            concurrent.futures.CancelledError: The request was cancelled.
        """
        return run(self._handle.response, timeout)


def unwrap(value: Any) -> Any:
    """Return the asyncio client behind a blocking one, and any other value as it is."""
    return value.asynchronous if isinstance(value, BlockingClient) else value
