"""Runs handlers in tasks, waits for the handlers of some partitions, and cancels late ones.

The tasks are outside the application's cancel scopes, so that a shutdown can wait for them: a scope
around `Consumer.process` would cancel them at once. The owner cancels them in `close`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from contextvars import ContextVar
from typing import TYPE_CHECKING

from anyio import CancelScope, current_effective_deadline

from kafka_async.foundation.supervisor import wait_shielded

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Generator
    from typing import Any

    from kafka_async.types import TopicPartition

logger = logging.getLogger("kafka_async.consumer")
_enclosing: ContextVar[tuple[tuple[RunningHandlers, CancelScope], ...]] = ContextVar(
    "enclosing_handlers", default=()
)
"""The handlers that run the current code; the tasks that they create inherit it."""


class RunningHandlers:
    """Tracks the running handlers by partition, and the tasks in which they run."""

    def __init__(self) -> None:
        # Tasks run handlers one after another; scopes are the handlers that run now.
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._scopes: dict[TopicPartition, set[CancelScope]] = {}
        # Set when a handler or task ends; those that wait check again.
        self._ended = asyncio.Event()
        self._now = asyncio.get_running_loop().time

    @property
    def closed(self) -> bool:
        """True once no handler may begin."""
        return self._closed

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that runs handlers."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_end)

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._ended.set()

    def cancel(self) -> None:
        """Cancel all handlers, and let none begin."""
        # First, so that none begins while the others are cancelled.
        self._closed = True
        for scopes in self._scopes.values():
            for scope in scopes:
                scope.cancel()

    async def close(self) -> None:
        """Cancel all handlers, and wait until all tasks have ended."""
        self.cancel()
        if not self._tasks:
            return
        # Shielded: the tasks must end even if the caller is cancelled again.
        ending = asyncio.get_running_loop().create_task(self._wait_for_tasks())
        if (cancelled := await wait_shielded(ending)) is not None:
            raise cancelled

    async def _wait_for_tasks(self) -> None:
        while self._tasks:
            self._ended.clear()
            await self._ended.wait()

    @contextlib.contextmanager
    def running(
        self, partition: TopicPartition, timeout: float | None = None
    ) -> Generator[CancelScope]:
        """Track a handler while the block runs; its scope is cancelled if it ends too late.

        With a timeout in seconds it is cancelled after that time.

        Raises RuntimeError in place of a CancelledError that the handler raises without having been
        cancelled: a task group would take it for its own cancellation, and end without an error.
        """
        deadline = math.inf if timeout is None else self._now() + timeout
        with CancelScope(deadline=deadline) as scope:
            scopes = self._scopes.setdefault(partition, set())
            scopes.add(scope)
            # Handlers of other consumers that enclose this one, as far as they still run.
            outer = tuple(each for each in _enclosing.get() if each[0].runs(each[1]))
            _enclosing.set((*outer, (self, scope)))
            try:
                yield scope
            except asyncio.CancelledError as error:
                # Cancelled through the scope or the task: as usual.
                if _is_cancelled():
                    raise
                raise RuntimeError(
                    f"a handler of {partition} raised CancelledError, although it was not "
                    "cancelled: a task or future that it awaits was; find out who cancels that, "
                    "or catch CancelledError in the handler"
                ) from error
            finally:
                _enclosing.set(outer)
                scopes.discard(scope)
                # `drain` may have looked at this set, and another may exist by now.
                if not scopes and self._scopes.get(partition) is scopes:
                    del self._scopes[partition]
                self._ended.set()

    def runs(self, scope: CancelScope) -> bool:
        """Return True while the handler of a scope runs."""
        return any(scope in scopes for scopes in self._scopes.values())

    @property
    def run_caller(self) -> bool:
        """True in a running handler, and in the tasks that it has created."""
        return any(each is self and self.runs(scope) for each, scope in _enclosing.get())

    async def drain(self, partitions: Collection[TopicPartition], timeout: float) -> None:
        """Wait for the handlers of these partitions; cancel those that run after `timeout` seconds.

        Returns once all have ended.
        """
        try:
            if await self._wait(partitions, self._now() + timeout):
                return
            late = [scope for scope in self._of(partitions) if not scope.cancel_called]
            if late:
                logger.warning(
                    "%d handlers of %s did not end within %g s, while their partitions are "
                    "revoked or the consumer stops, and are cancelled: their records will be read "
                    "again",
                    len(late),
                    ", ".join(str(p) for p in sorted(partitions) if p in self._scopes),
                    timeout,
                )
        finally:  # even if this is cancelled
            for scope in self._of(partitions):
                scope.cancel()
        # Cancelled handlers may need time to end; their partitions are revoked after that.
        await self._wait(partitions, None)

    def _of(self, partitions: Collection[TopicPartition]) -> list[CancelScope]:
        return [scope for p in partitions for scope in self._scopes.get(p, ())]

    async def _wait(self, partitions: Collection[TopicPartition], deadline: float | None) -> bool:
        """Wait until no handler of these partitions runs; return False at the deadline."""
        try:
            async with asyncio.timeout_at(deadline):
                while self._of(partitions):
                    self._ended.clear()
                    await self._ended.wait()
        except TimeoutError:
            return False
        return True


def first_failure(first: BaseException | None, error: BaseException) -> BaseException:
    """Return the exception to raise; log `error` if there was one before it."""
    if first is None:
        return error
    if error is not first:
        logger.warning("another handler failed too: %r", error, exc_info=error)
    return first


def _is_cancelled() -> bool:
    """Return True if a scope around the current task has cancelled it."""
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling() > 0 and current_effective_deadline() == -math.inf
