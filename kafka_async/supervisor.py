"""The task that hosts all tasks of one client.

A client is started in one task and often stopped in another (web lifespans, test fixtures), which
an anyio task group does not allow; so the group lives inside a task of its own. That task, and
what it spawns, start with an empty `contextvars.Context`: nothing of the request leaks into them.

A spawned task that dies takes the client with it: `failure` is set, every listener is told at once,
the other tasks are cancelled. Nothing stalls in silence.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, TypeVarTuple

from kafka_async.clock import keeps_virtual_time
from kafka_async.errors import ClientClosedError, IllegalStateError, KafkaError, TaskDiedError
from kafka_async.hooks import Hooks, TaskDied

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio import CancelScope
    from anyio.abc import TaskGroup
R = TypeVar("R")
Args = TypeVarTuple("Args")

logger = logging.getLogger("kafka_async.supervisor")

THREADS: Final = 2
"""Threads of a client, for what would block the loop."""


class Offload(Protocol):
    """`Supervisor.offload`: what would hold the event loop is done in a thread."""

    async def __call__(self, function: Callable[[*Args], R], *args: *Args) -> R:
        """What `function(*args)` gives."""
        ...


def current_loop() -> asyncio.AbstractEventLoop | None:
    """The loop that runs in this thread; None if there is none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def wait_shielded(
    task: asyncio.Task[object],
    deadline: float | None = None,
    on_cancel: Callable[[], None] | None = None,
) -> asyncio.CancelledError | None:
    """Wait until a task has ended, however often the caller is cancelled meanwhile.

    Gives up at `deadline` (the loop's seconds), if there is one. `on_cancel` is called at each
    cancellation; those of an anyio cancel scope are not delivered here. Returns the caller's last
    cancellation, if there was any, for the caller to raise when it is through.
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


def _at_once(loop: asyncio.AbstractEventLoop, function: Callable[[], R]) -> asyncio.Future[R]:
    future: asyncio.Future[R] = loop.create_future()
    try:
        future.set_result(function())
    except Exception as error:  # noqa: BLE001 (it is for who awaits it)
        future.set_exception(error)
    return future


class SupervisedTask:
    """A task of a supervisor: it can be cancelled and waited for."""

    def __init__(self, name: str, scope: CancelScope) -> None:
        self.name = name
        self._scope = scope
        self._ended = asyncio.Event()

    @property
    def ended(self) -> bool:
        """Whether it has returned, died or been cancelled."""
        return self._ended.is_set()

    def cancel(self) -> None:
        """Ask it to end; before its first step too."""
        self._scope.cancel()

    async def wait(self) -> None:
        """Wait until it has ended, however it did."""
        await self._ended.wait()

    async def run(self, body: Callable[[], Awaitable[object]]) -> None:
        """Run `body` inside the task's own cancel scope."""
        try:
            with self._scope:
                await body()
        finally:
            self._ended.set()


class Supervisor:
    """Owner of every task of one client, and of its two-thread pool for what would block the loop.

    `name` appears in task names, errors and warnings: "Producer client-1". A task that dies is told
    to `hooks` too. While `running`, tasks can be spawned.
    """

    def __init__(self, name: str, hooks: Hooks | None = None) -> None:
        self.name = name
        self._hooks = hooks
        self.failure: KafkaError | None = None
        self._listeners: list[Callable[[KafkaError], None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._host_task: asyncio.Task[None] | None = None
        self._group: TaskGroup | None = None
        self.running = False
        self._stopping = asyncio.Event()
        self._pool: ThreadPoolExecutor | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop it was started in."""
        if self._loop is None:
            raise ClientClosedError(f"{self.name} was not started")
        return self._loop

    @property
    def hosting(self) -> bool:
        """True while the host task runs: from `start` until all tasks have ended."""
        return self._host_task is not None and not self._host_task.done()

    async def start(self) -> None:
        """Start the host task; returns when tasks can be spawned."""
        if self._loop is not None:
            raise IllegalStateError(f"{self.name} was started before; make a new one instead")
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        ready = asyncio.Event()
        self._host_task = self._loop.create_task(
            self._host(ready), name=f"{self.name} supervisor", context=contextvars.Context()
        )
        try:
            await ready.wait()
        except BaseException:
            self._end()  # the host ends by itself
            raise

    def spawn(
        self, body: Callable[[*Args], Awaitable[object]], *args: *Args, name: str
    ) -> SupervisedTask:
        """Run `body(*args)` as a task of the client; if it raises, the client fails."""
        from anyio import CancelScope

        self.check()
        assert self._group is not None
        task = SupervisedTask(f"{self.name} {name}", CancelScope())
        group, run = self._group, partial(self._guard, task, partial(body, *args))
        contextvars.Context().run(lambda: group.start_soon(run, name=task.name))
        return task

    def on_failure(self, listener: Callable[[KafkaError], None]) -> Callable[[], None]:
        """Have `listener(error)` called, in the loop, when a task dies; returns how to undo it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def check(self) -> None:
        """Raise unless this is the loop and the process it runs in, and it runs."""
        if self.failure is None and self.running and os.getpid() == self._pid:
            try:
                if asyncio.get_running_loop() is self._loop:
                    return
            except RuntimeError:
                pass  # no loop runs in this thread: it is said below
        self._refuse()

    def _refuse(self) -> None:
        if self._loop is None:
            raise ClientClosedError(
                f"{self.name} was not started: use `async with`, or await start() first"
            )
        if os.getpid() != self._pid:
            raise IllegalStateError(
                f"{self.name} was started in process {self._pid} and cannot be used in its fork "
                f"{os.getpid()}: make a new one here"
            )
        if self.failure is not None:
            raise self.failure
        if not self.running:
            raise ClientClosedError(f"{self.name} is closed")
        if current_loop() is not self._loop:
            raise IllegalStateError(
                f"{self.name} belongs to the event loop it was started in: make one for this loop, "
                "or use kafka_async.blocking from other threads"
            )

    async def offload(self, function: Callable[[*Args], R], *args: *Args) -> R:
        """Run a blocking function in the client's own threads (inline under virtual time)."""
        return await self.submit(function, *args)

    def submit(self, function: Callable[[*Args], R], *args: *Args) -> asyncio.Future[R]:
        """Begin what `offload` does; the function runs to its end, whoever cancels the future."""
        if keeps_virtual_time(self.loop):
            return _at_once(self.loop, partial(function, *args))
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix=f"{self.name} pool")
        return self.loop.run_in_executor(self._pool, partial(function, *args))

    async def stop(self) -> None:
        """Cancel all tasks and wait for them; safe to call again."""
        self._end()
        if self._group is not None:
            self._group.cancel_scope.cancel()
        if self._host_task is not None:
            await asyncio.wait({self._host_task})
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _end(self) -> None:
        self.running = False
        self._stopping.set()

    async def _host(self, ready: asyncio.Event) -> None:
        from anyio import create_task_group

        async with create_task_group() as group:
            self._group = group
            self.running = not self._stopping.is_set()
            ready.set()
            await self._stopping.wait()
            group.cancel_scope.cancel()

    async def _guard(self, task: SupervisedTask, body: Callable[[], Awaitable[object]]) -> None:
        try:
            await task.run(body)
        except Exception as error:  # noqa: BLE001 (the client must hear of it, whatever it is)
            self._fail(task.name, error)

    def _fail(self, task_name: str, error: Exception) -> None:
        if self.failure is not None:
            logger.error("%s died too", task_name, exc_info=error)
            return
        logger.error("%s died: %s", task_name, error, exc_info=error)
        failure = TaskDiedError(f"{task_name} died: {error!r}")
        failure.__cause__ = error
        self.failure = failure
        if self._hooks is not None and self._hooks.active:
            self._hooks.emit(TaskDied(self.name, task_name, error))
        for listener in list(self._listeners):
            listener(failure)
        if self._group is not None:
            self._group.cancel_scope.cancel()
