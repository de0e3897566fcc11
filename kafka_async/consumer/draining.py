"""Waits for the handlers of partitions that are to be revoked, and cancels late ones."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from contextvars import ContextVar
from typing import TYPE_CHECKING

from anyio import CancelScope, current_effective_deadline

if TYPE_CHECKING:
    from collections.abc import Collection, Generator

    from kafka_async.types import TopicPartition

logger = logging.getLogger("kafka_async.consumer")
_enclosing: ContextVar[tuple[tuple[RunningHandlers, CancelScope], ...]] = ContextVar(
    "enclosing_handlers", default=()
)
"""The handlers that run the current code; the tasks that they create inherit it."""


class RunningHandlers:
    """Tracks the running handlers by partition."""

    def __init__(self) -> None:
        self._scopes: dict[TopicPartition, set[CancelScope]] = {}
        self._ended = asyncio.Event()
        self._now = asyncio.get_running_loop().time

    @contextlib.contextmanager
    def running(self, partition: TopicPartition) -> Generator[CancelScope]:
        """Track a handler while the block runs; its scope is cancelled if it ends too late.

        Raises RuntimeError in place of a CancelledError that the handler raises uncancelled: task
        groups would take it for their own, and end without an error.
        """
        with CancelScope() as scope:
            scopes = self._scopes.setdefault(partition, set())
            scopes.add(scope)
            outer = tuple(each for each in _enclosing.get() if each[0].runs(each[1]))
            _enclosing.set((*outer, (self, scope)))
            try:
                yield scope
            except asyncio.CancelledError as error:
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
        """Wait for the handlers of these partitions; cancel those that run after `timeout` s.

        Returns once all have ended.
        """
        try:
            if await self._wait(partitions, self._now() + timeout):
                return
            late = [scope for scope in self._of(partitions) if not scope.cancel_called]
            if late:
                logger.warning(
                    "%d handlers of %s did not end within %g s, while their partitions are "
                    "revoked, and are cancelled: their records will be read again",
                    len(late),
                    ", ".join(str(p) for p in sorted(partitions) if p in self._scopes),
                    timeout,
                )
        finally:  # also if this is cancelled
            for scope in self._of(partitions):
                scope.cancel()
        await self._wait(partitions, None)

    def _of(self, partitions: Collection[TopicPartition]) -> list[CancelScope]:
        return [scope for p in partitions for scope in self._scopes.get(p, ())]

    async def _wait(self, partitions: Collection[TopicPartition], deadline: float | None) -> bool:
        """Wait until no handler of these partitions runs; False at the deadline."""
        try:
            async with asyncio.timeout_at(deadline):
                while self._of(partitions):
                    self._ended.clear()
                    await self._ended.wait()
        except TimeoutError:
            return False
        return True


def first_failure(first: Exception | None, error: Exception) -> Exception:
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
