"""Runs all tasks of one client, and ends them together.

A client is started in one task and often stopped in another (web lifespans, test fixtures), which
an anyio task group does not allow; therefore the supervisor keeps a set of tasks. They start with
an empty `contextvars.Context`, so that no context of a web request leaks into them. Callbacks of
the event loop spawn tasks too, and anyio's objects cannot be made there: with sniffio installed,
anyio finds the event loop by the current task. So each task makes its own cancel scope.

A spawned task that raises stops the client: `failure` is set, every listener is called at once, and
the other tasks are cancelled. No caller waits for a task that has died.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar, TypeVarTuple

from kafka_async.errors import ClientClosedError, IllegalStateError, KafkaError, TaskDiedError
from kafka_async.foundation.clock import keeps_virtual_time
from kafka_async.foundation.listeners import Listeners
from kafka_async.foundation.process_end import CANCELLED, clients_of, report_lost, unwatch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio import CancelScope
R = TypeVar("R")
Args = TypeVarTuple("Args")

logger = logging.getLogger("kafka_async.supervisor")

THREADS: Final = 2
"""Threads per client, for functions that would block the event loop."""


OnTaskDied: TypeAlias = "Callable[[str, str, BaseException], None]"


class Offload(Protocol):
    """Runs a function that would block the event loop in a thread, see `Supervisor.offload`."""

    async def __call__(self, function: Callable[[*Args], R], *args: *Args) -> R:
        """Return the result of `function(*args)`."""
        ...


def current_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def check_event_loop(
    name: str,
    loop: asyncio.AbstractEventLoop,
    closing: asyncio.Task[None] | None,
    pid: int | None = None,
) -> None:
    """Raise if a client that is not closed was started in another event loop or process.

    Args:
        name: Name of the client.
        loop: The event loop in which the client was started.
        closing: The task that closes the client; None before `stop`.
        pid: The process in which the client was started; None skips this check.
    """
    if current_loop() is loop or (closing is not None and closing.done()):
        return
    if pid is not None:
        check_process(name, pid)
    raise IllegalStateError(
        f"{name} belongs to the event loop it was started in: make one for this loop, "
        "or use kafka_async.blocking from other threads"
    )


def check_process(name: str, pid: int) -> None:
    """Raise if `name` was started in another process, whose id is `pid`."""
    if os.getpid() != pid:
        raise IllegalStateError(
            f"{name} was started in process {pid} and cannot be used in its fork "
            f"{os.getpid()}: make a new one here"
        )


def check_standard_library() -> None:
    """Raise if gevent or eventlet has replaced sockets and threads of the standard library.

    An event loop in a patched thread waits in C and stops all green threads, without an error.

    Raises:
        IllegalStateError: A library has replaced them; the message includes its name.
    """
    for library, module, is_patched in _PATCHING_LIBRARIES:
        patcher = sys.modules.get(module)
        if patcher is not None and any(map(getattr(patcher, is_patched), _PATCHED_MODULES)):
            raise IllegalStateError(
                f"{library} has replaced modules of the standard library (monkey patching), with "
                "which asyncio's event loop hangs: run kafka_async in a process without it, or "
                "patch neither socket, select nor threads"
            )


_PATCHING_LIBRARIES: Final = (
    ("gevent", "gevent.monkey", "is_module_patched"),
    ("eventlet", "eventlet.patcher", "is_monkey_patched"),
)
"""Name, module and function of each library that patches the standard library."""
_PATCHED_MODULES: Final = ("socket", "select", "threading", "thread")


def not_started_error(name: str) -> ClientClosedError:
    """Return the error for a call to an asyncio or blocking client that was not started."""
    return ClientClosedError(
        f"{name} was not started: use `async with` (kafka_async.blocking: `with`), "
        "or call start() first"
    )


def started_before_error(name: str) -> IllegalStateError:
    """Return the error for a second start of a client."""
    return IllegalStateError(f"{name} was started before; make a new one instead")


async def wait_shielded(
    task: asyncio.Future[Any],
    deadline: float | None = None,
    on_cancel: Callable[[], None] | None = None,
) -> asyncio.CancelledError | None:
    """Wait until a task has ended, even if the caller is cancelled.

    Args:
        task: The task or future to wait for.
        deadline: Time of the loop's clock after which to stop waiting; None for no limit.
        on_cancel: Called at each cancellation of the caller. Cancellations by an anyio cancel scope
            are not delivered here.

    Returns:
        The caller's last cancellation, if any, which the caller raises after its cleanup.
    """
    from anyio import CancelScope

    loop = asyncio.get_running_loop()
    cancelled: asyncio.CancelledError | None = None
    with CancelScope(shield=True):
        while not task.done() and (deadline is None or loop.time() < deadline):
            left = None if deadline is None else deadline - loop.time()
            try:
                await asyncio.wait({task}, timeout=left)
            except asyncio.CancelledError as error:
                cancelled = error
                if on_cancel is not None:
                    on_cancel()
    return cancelled


def _call_inline(loop: asyncio.AbstractEventLoop, function: Callable[[], R]) -> asyncio.Future[R]:
    future: asyncio.Future[R] = loop.create_future()
    try:
        future.set_result(function())
    except Exception as error:  # noqa: BLE001 (raised when the future is awaited)
        future.set_exception(error)
    return future


class SupervisedTask:
    """A task of a supervisor that can be cancelled and waited for.

    Attributes:
        name: Name of the task.
        cancelled: True after `cancel`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.cancelled = False
        self._scope: CancelScope | None = None
        self._ended = asyncio.Event()

    @property
    def ended(self) -> bool:
        """True if the task has returned, raised or been cancelled."""
        return self._ended.is_set()

    def cancel(self) -> None:
        """Cancel the task; a task that has not begun is cancelled at its first await."""
        self.cancelled = True
        if self._scope is not None:
            self._scope.cancel()

    async def wait(self) -> None:
        """Wait until the task has ended; its exception is not raised."""
        await self._ended.wait()

    async def run(self, body: Callable[[], Awaitable[object]]) -> None:
        """Run `body` inside the task's own cancel scope."""
        from anyio import CancelScope

        with CancelScope() as self._scope:
            if self.cancelled:
                self._scope.cancel()
            await body()

    def end(self, task: asyncio.Task[None]) -> None:
        """Mark the task as ended. A task cancelled before its first step never runs `run`."""
        self._ended.set()


class Supervisor:
    """Owns the tasks of one client and its pools of two threads for blocking functions.

    Args:
        name: Appears in task names, errors and warnings, such as "Producer client-1".
        on_task_died: Called when a task raises, with this name, the task's and the exception.

    Attributes:
        failure: The error once a task has raised; None before.
        running: True while tasks can be spawned.
    """

    def __init__(self, name: str, on_task_died: OnTaskDied | None = None) -> None:
        self.name = name
        self._on_task_died = on_task_died
        self.failure: KafkaError | None = None
        self._failure_listeners = Listeners[KafkaError]()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._tasks: dict[asyncio.Task[None], SupervisedTask] = {}
        self.running = False
        self._pool: ThreadPoolExecutor | None = None
        self._credentials_pool: ThreadPoolExecutor | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop in which the supervisor was started."""
        if self._loop is None:
            raise ClientClosedError(f"{self.name} was not started")
        return self._loop

    @property
    def hosting(self) -> bool:
        """True from `start` until the client has stopped or failed, and all tasks have ended."""
        return bool(self._tasks) or (self.running and self.failure is None)

    @property
    def cancelled(self) -> bool:
        """True while tasks end that other code has cancelled."""
        return any(task.cancelling() and not own.cancelled for task, own in self._tasks.items())

    async def start(self) -> None:
        """Permit tasks to be spawned in this event loop."""
        if self._loop is not None:
            raise started_before_error(self.name)
        check_standard_library()
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self.running = True

    def spawn(
        self, body: Callable[[*Args], Awaitable[object]], *args: *Args, name: str
    ) -> SupervisedTask:
        """Run `body(*args)` as a task of the client; the client fails if it raises."""
        self.check()
        supervised = SupervisedTask(f"{self.name} {name}")
        # Not with the event loop's task factory: an eager one would run the body in this call.
        task = asyncio.Task(
            self._guard(supervised, partial(body, *args)),
            loop=self.loop,
            name=supervised.name,
            context=contextvars.Context(),
        )
        self._tasks[task] = supervised
        task.add_done_callback(self._tasks.pop)
        task.add_done_callback(supervised.end)
        return supervised

    def on_failure(self, listener: Callable[[KafkaError], None]) -> Callable[[], None]:
        """Call `listener(error)` when a task raises; return a function that removes it."""
        return self._failure_listeners.add(listener)

    def check(self) -> None:
        """Raise unless the client runs, and was started in this event loop and process."""
        if self.failure is None and self.running and os.getpid() == self._pid:
            try:
                if asyncio.get_running_loop() is self._loop:
                    return
            except RuntimeError:
                pass  # No event loop runs in this thread: _raise_unusable reports that.
        self._raise_unusable()

    def _raise_unusable(self) -> None:
        if self._loop is None:
            raise not_started_error(self.name)
        check_process(self.name, self._pid)
        if self.failure is not None:
            raise self.failure
        if not self.running:
            raise ClientClosedError(f"{self.name} is closed")
        self.check_event_loop()

    def check_event_loop(self, closing: asyncio.Task[None] | None = None) -> None:
        """Raise if the client was started in another event loop or process, and is not closed yet.

        Args:
            closing: The task that closes the client; None before `stop`.
        """
        if self._loop is not None:
            check_event_loop(self.name, self._loop, closing, self._pid)

    def check_loop_of_call(self, call: str) -> None:
        """Raise if the client cannot be used here; the message includes `call` if no loop runs."""
        if self._loop is not None and current_loop() is None:
            check_process(self.name, self._pid)
            raise IllegalStateError(
                f"{self.name}: {call} was called in a thread without an event loop, as frameworks "
                "call what is no coroutine function: pass them `send`, or an `async def` function "
                f"that calls {call}; in threads of your own use kafka_async.blocking"
            )
        self.check()

    def warn_never_stopped(self, client: object) -> None:
        """Warn about a client that is garbage-collected while it runs."""
        warnings.warn(
            f"{self.name} was started and never stopped: use `async with` (kafka_async.blocking: "
            "`with`), or call stop()",
            ResourceWarning,
            stacklevel=2,
            source=client,
        )

    async def offload(self, function: Callable[[*Args], R], *args: *Args) -> R:
        """Run a blocking function in the client's threads; inline under virtual time."""
        return await self.submit(function, *args)

    def submit(self, function: Callable[[*Args], R], *args: *Args) -> asyncio.Future[R]:
        """Start what `offload` does; cancelling the future does not stop the function."""
        if keeps_virtual_time(self.loop):
            return _call_inline(self.loop, partial(function, *args))
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix=f"{self.name} pool")
        return self._run_in(self._pool, partial(function, *args))

    async def offload_credentials(self, function: Callable[[*Args], R], *args: *Args) -> R:
        """Run a function that computes or fetches credentials in separate threads.

        It may wait for another system, such as a key distribution center. A thread cannot be
        cancelled, and must not delay name resolution or open connections while it waits.
        """
        if keeps_virtual_time(self.loop):
            return await _call_inline(self.loop, partial(function, *args))
        if self._credentials_pool is None:
            self._credentials_pool = ThreadPoolExecutor(
                THREADS, thread_name_prefix=f"{self.name} credentials"
            )
        return await self._run_in(self._credentials_pool, partial(function, *args))

    def _run_in(self, pool: ThreadPoolExecutor, function: Callable[[], R]) -> asyncio.Future[R]:
        """Run a function in a thread, or inline once the interpreter has shut down its pools."""
        try:
            return self.loop.run_in_executor(pool, function)
        except RuntimeError:
            if not self.running:
                raise
            return _call_inline(self.loop, function)

    async def stop(self) -> None:
        """Cancel all tasks and wait for them; may be called again."""
        if self.hosting:
            self.check_event_loop()
        self.running = False
        if self._tasks:
            self._cancel_all()
            await asyncio.wait(self._tasks)
        for pool in (self._pool, self._credentials_pool):
            if pool is not None:
                pool.shutdown(wait=False, cancel_futures=True)

    def _cancel_all(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    def _notify(self, failure: KafkaError) -> None:
        self.failure = failure
        self._failure_listeners.notify(failure)

    def _fail_cancelled(self) -> None:
        """Fail the callers that wait for tasks which other code has cancelled."""
        if not self.running:
            return
        # When the event loop ends, it cancels the tasks of all clients in any order: report the
        # failure before one client's end fails another's records.
        for client in clients_of(self.loop):
            if client.cancelled:
                unwatch(client)
                report_lost(client, client.lost(), CANCELLED)
        if self.failure is None:
            self._notify(
                ClientClosedError(f"{self.name} was not stopped, and its tasks were cancelled")
            )

    async def _guard(self, task: SupervisedTask, body: Callable[[], Awaitable[object]]) -> None:
        try:
            await task.run(body)
        except asyncio.CancelledError:  # not from `SupervisedTask.cancel`
            self._fail_cancelled()
            raise
        except Exception as error:  # noqa: BLE001 (any exception stops the client)
            # A task whose awaited result arrives just before its cancellation keeps running in the
            # closed client until its next await, or until it tries to spawn a task.
            if self.running or not isinstance(error, ClientClosedError):
                self._fail(task.name, error)

    def _fail(self, task_name: str, error: Exception) -> None:
        if self.failure is not None:
            logger.error("%s died too", task_name, exc_info=error)
            return
        logger.error("%s died: %s", task_name, error, exc_info=error)
        failure = TaskDiedError(f"{task_name} died: {error!r}")
        failure.__cause__ = error
        if self._on_task_died is not None:
            self._on_task_died(self.name, task_name, error)
        self._notify(failure)
        self._cancel_all()
