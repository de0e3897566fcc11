"""Orders record delivery between polls and rebalances.

A returned record counts as processed once the application polls again or commits it. Until then its
partition is not revoked, so an application that polls, processes and commits in turn never loses a
partition while it processes its records. A rebalance holds the gate, waits for that moment,
invokes the listeners and releases the gate. An application that does not poll within
max_poll_interval_ms loses its partitions, and gets no more of their records.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

from anyio import move_on_after

from kafka_async.errors import IllegalStateError
from kafka_async.group.member import PollTimeoutError

if TYPE_CHECKING:
    from collections.abc import Collection, Generator
    from types import TracebackType

    from kafka_async.consumer.delivery.delivery_queue import DeliveryQueue
    from kafka_async.types import TopicPartition

_listener_call: ContextVar[object] = ContextVar("rebalance_listener_call", default=None)
"""The call of a listener that runs the current code; the tasks that it creates inherit it."""


class ConcurrentHandlers(Protocol):
    """The handlers of `Consumer.process`, or the tasks of `Consumer.partition_streams`."""

    @property
    def run_caller(self) -> bool:
        """True in a running handler, and in the tasks that it has created."""
        ...

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the records of these partitions that no handler has."""
        ...

    async def drain(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> None:
        """Wait for the handlers of these partitions, for `timeout` seconds at most."""
        ...

    def progress_at(self) -> float:
        """Return the event loop time up to which no handler has delayed the group."""
        ...


class DeliveryGate:
    """Lets either polls or rebalances proceed."""

    def __init__(self, queue: DeliveryQueue, max_poll_interval: float) -> None:
        # Progress: a poll, or another record of a stream, restarts max_poll_interval_ms.
        self._queue = queue
        self._max_poll_interval = max_poll_interval
        self._last_progress: object = None
        # The task inside a poll, the last one that polled, and the one that runs a listener.
        self._polling_task: asyncio.Task[object] | None = None
        self._last_poller: asyncio.Task[object] | None = None
        self._listener_task: asyncio.Task[object] | None = None
        self._listener_call: object = None
        # Counted, since rebalances, rewinds and a lost membership may hold at the same time.
        self._holds = 0
        self._waiting_rebalances = 0
        self._ended = False
        self._now = asyncio.get_running_loop().time
        self._last_poll = self._now()
        self._ever_polled = False
        # Set by polls and commits, for a rebalance that waits.
        self._processed = asyncio.Event()
        self._handlers: ConcurrentHandlers | None = None

    # -- polls ------------------------------------------------------------------------------------

    @property
    def held(self) -> bool:
        """True while no records may be returned."""
        return self._holds > 0

    def __enter__(self) -> None:
        """Begin a poll: the application has processed the records that it had."""
        if self.runs_listener:
            raise IllegalStateError(
                "a rebalance listener, or a task that it has created, cannot poll its consumer "
                "before the listener has returned"
            )
        if self._polling_task is not None:
            raise IllegalStateError(
                "another task waits for this consumer's records: poll, poll_batches and async for "
                "exclude each other"
            )
        # One task at a time: it is what `may_seek` compares with.
        self._polling_task = self._last_poller = asyncio.current_task()
        self._ever_polled = True
        self._note_poll()
        self._processed.set()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End a poll."""
        self._polling_task = None
        # The interval counts from the end of a poll too: waiting for records is no processing.
        self._note_poll()

    def on_processed(self) -> None:
        """Let a rebalance that waits check again whether returned records are processed."""
        self._processed.set()

    def wake_poll(self) -> None:
        """Make a waiting poll check again for errors."""
        self._queue.wake_poll()

    @property
    def ended(self) -> bool:
        """True once the consumer is being stopped."""
        return self._ended

    def end(self) -> None:
        """End all waiting: the application polls no more."""
        self._ended = True
        self._processed.set()
        self._queue.wake_poll()

    # -- rebalances -------------------------------------------------------------------------------

    def last_poll_time(self) -> float:
        """Return the event loop time of the last poll, after updating it.

        While a poll waits, or if a stream has advanced since the last call, that is now. It is
        earlier if handlers have made no progress since.
        """
        if self._polling_task is not None or self._last_progress != self._queue.last_streamed:
            self._note_poll()
        if self._handlers is None:
            return self._last_poll
        return min(self._last_poll, self._handlers.progress_at())

    @property
    def poll_timed_out(self) -> bool:
        """True if the application has not polled for max_poll_interval_ms."""
        return self.last_poll_time() + self._max_poll_interval <= self._now()

    def polled_at(self) -> float | None:
        """Return the event loop time of the last poll; None before the first."""
        return self.last_poll_time() if self._ever_polled else None

    def hold(self) -> None:
        """Return no records until `release`."""
        self._holds += 1
        # First, since taking records back changes what `last_streamed` returns.
        self.last_poll_time()
        self._queue.take_back()
        self._last_progress = self._queue.last_streamed  # else it would count as a poll

    def release(self) -> None:
        """Undo `hold`."""
        self._holds -= 1
        self._queue.wake_poll()

    @property
    def may_seek(self) -> bool:
        """True if the caller may change positions without waiting for returned records.

        There are none, or the caller itself processes them: no other task that has polled runs.
        Handlers of `process` and of streams are always waited for.
        """
        if self._handlers is not None:
            return False
        # A poll that waits has no records; its task cannot be processing any.
        if self._polling_task is not None or not self._queue.has_unprocessed:
            return True
        poller = self._last_poller
        # A task that has ended processes nothing, and the caller knows what it does itself.
        return poller is None or poller.done() or poller is asyncio.current_task()

    @property
    def runs_listener(self) -> bool:
        """True in a listener's callback that runs, and in the tasks that it has created."""
        return self._listener_call is not None and _listener_call.get() is self._listener_call

    @property
    def runs_listener_task(self) -> bool:
        """True in the task that runs a listener's callback now."""
        return self._listener_task is not None and asyncio.current_task() is self._listener_task

    @property
    def listener_running(self) -> bool:
        """True while a listener's callback runs, for all tasks: a callback may wait for them."""
        return self._listener_task is not None

    @contextmanager
    def calling_listener(self) -> Generator[None]:
        """Recognise calls of a listener's callback, which the block calls in the current task."""
        self._listener_task, self._listener_call = asyncio.current_task(), object()
        # Inherited by tasks that the callback creates, so that these are recognised too.
        outer = _listener_call.set(self._listener_call)
        try:
            yield
        finally:
            _listener_call.reset(outer)
            self._listener_task = self._listener_call = None

    def set_handlers(self, handlers: ConcurrentHandlers | None) -> None:
        """Set the concurrent handlers, for which rebalances wait, or None.

        Raises IllegalStateError if there are others already.
        """
        if handlers is not None and self._handlers is not None:
            raise IllegalStateError(
                "process or partition_streams runs already; a consumer has one at a time"
            )
        self._handlers = handlers

    @property
    def runs_handler(self) -> bool:
        """True in a concurrent handler, and in the tasks that it has created."""
        return self._handlers is not None and self._handlers.run_caller

    def check_may_wait_for_rebalance(self, call: str) -> None:
        """Raise if a rebalance would wait for the caller, which would wait for the rebalance."""
        if self.runs_listener:
            raise IllegalStateError(
                f"{call}() in a rebalance listener, or in a task that it has created, would wait "
                "for the listener itself: call it after the listener has returned, or in a task "
                f"that the listener does not await: asyncio.get_running_loop().create_task("
                f"consumer.{call}(...), context=contextvars.Context())"
            )
        if self.runs_handler:
            raise IllegalStateError(
                f"{call}() waits for the running handlers, so a handler cannot wait for it: call "
                "it in a task that was created outside of them"
            )

    async def drain(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> None:
        """Wait for the handlers of these partitions, for `timeout` seconds at most."""
        if self._handlers is not None:
            await self._handlers.drain(partitions, timeout)

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the records of these partitions that wait for handlers."""
        if self._handlers is not None:
            self._handlers.drop(partitions)

    @property
    def delays_rebalance(self) -> bool:
        """True while a rebalance waits until the application has processed returned records."""
        return self._waiting_rebalances > 0

    def _waits_for_poll(self) -> bool:
        """Return True while the application has returned records, and does not poll for more."""
        return self._polling_task is None and self._handlers is None and self._queue.has_unprocessed

    async def wait_until_processed(self, *, ignore_poll_timeout: bool = False) -> None:
        """Wait until the application has processed the returned records or polls again.

        Does not wait for handlers: `drain` does. Raises PollTimeoutError if the application has not
        polled for max_poll_interval_ms, unless ignored.
        """
        self._waiting_rebalances += 1
        try:
            await self._wait_until_processed(ignore_poll_timeout=ignore_poll_timeout)
        finally:
            self._waiting_rebalances -= 1

    async def _wait_until_processed(self, *, ignore_poll_timeout: bool) -> None:
        # Checked again after each poll and commit; ends at once when the consumer stops.
        while not self._ended and self._waits_for_poll():
            left = self.last_poll_time() + self._max_poll_interval - self._now()
            if left <= 0 and not ignore_poll_timeout:
                raise PollTimeoutError
            # Cleared before the wait, after the check above: no event is lost in between.
            self._processed.clear()
            with move_on_after(None if ignore_poll_timeout else left):
                await self._processed.wait()

    def _note_poll(self) -> None:
        self._last_poll = self._now()
        self._last_progress = self._queue.last_streamed
