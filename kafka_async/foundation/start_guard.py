"""Lets a client start once, and cancels the start if the client is stopped.

`start()` runs in its caller's task, often a web server's lifespan, and `stop()` in another, such as
a signal handler's. A start that cannot be cancelled would block the application's exit.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kafka_async.errors import ClientClosedError
from kafka_async.foundation.supervisor import check_event_loop, started_before_error, wait_shielded

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class StartGuard:
    """Guards the start of one client.

    Args:
        name: Appears in errors, such as "Producer client-1".

    Attributes:
        begun: True once a start has begun.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.begun = False
        self._start: _Start | None = None

    @asynccontextmanager
    async def starting(self) -> AsyncGenerator[None]:
        """Start a client in the block; if it is cancelled, the block must undo the start.

        Raises:
            IllegalStateError: The client was started before, even if that start has failed.
            ClientClosedError: The client was stopped while the block ran.
        """
        if self.begun:
            raise started_before_error(self._name)
        self.begun = True
        self._start = start = _Start()
        try:
            yield
        except asyncio.CancelledError:
            if not start.was_cancelled_by_stop():
                raise
            raise ClientClosedError(f"{self._name} was stopped while it started") from None
        finally:
            self._start = None
            start.ended.set_result(None)

    async def end(self) -> bool:
        """Cancel a start in progress, and wait until it has ended.

        A task that is about to start the client gets one event loop iteration to begin.

        Returns:
            False if no start has begun: the client need not be stopped, and may be started later.

        Raises:
            IllegalStateError: The client is being started in another event loop or process.
        """
        if not self.begun:
            await asyncio.sleep(0)
        start = self._start
        if start is not None:
            check_event_loop(self._name, start.loop, None, start.pid)
            start.cancel()
            cancelled = await wait_shielded(start.ended)
            if cancelled is not None:
                raise cancelled
        return self.begun


class _Start:
    """A start in progress, in the current task."""

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self.loop = asyncio.get_running_loop()
        self.pid = os.getpid()
        self.ended: asyncio.Future[None] = self.loop.create_future()
        self._cancellations = task.cancelling()
        self._cancelled = False

    def cancel(self) -> None:
        # Not with `asyncio.timeout`: it cancels in the next event loop iteration, when the start
        # may have returned.
        if not self._cancelled:
            self._cancelled = True
            self._task.cancel()

    def was_cancelled_by_stop(self) -> bool:
        """Return True if `cancel` is the only cancellation of the task."""
        return self._cancelled and self._task.uncancel() <= self._cancellations
