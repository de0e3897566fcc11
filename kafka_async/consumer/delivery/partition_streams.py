"""A stream of records and a group of tasks for each partition: `Consumer.partition_streams`.

One task polls for all streams. A partition whose stream has enough records is not polled, so that a
slow one delays no other. Before a partition is revoked its stream ends, and its tasks may finish
the records that they have; then they are cancelled.

The offsets of unfinished records are in the state of their partition (`OffsetsInProgress`), so that
every commit, automatic or not, ends at the first unfinished record.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVarTuple

from anyio import CancelScope, create_task_group
from typing_extensions import TypeVar

from kafka_async.consumer.delivery.record_processor import record_size
from kafka_async.consumer.delivery.running_handlers import RunningHandlers, first_failure
from kafka_async.consumer.subscription import FetchState
from kafka_async.errors import IllegalStateError, KafkaError, RecordDeserializationError
from kafka_async.foundation.arguments import awaitable_result
from kafka_async.foundation.fairness import MAX_LOOP_SECONDS, MIB
from kafka_async.runner import stopped_by_signal
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine
    from typing import Self

    from anyio.abc import TaskGroup

    from kafka_async.consumer.buffer.fetch_buffer import AnyRecord
    from kafka_async.consumer.delivery.record_processor import Poll
    from kafka_async.consumer.delivery.undecodable import UndecodableRecords
    from kafka_async.consumer.subscription import PartitionState, Subscription
    from kafka_async.kernel import Record

K = TypeVar("K", default=bytes)
V = TypeVar("V", default=bytes)
Args = TypeVarTuple("Args")

RECORDS_PER_POLL: Final = 500
"""Maximum records of a poll, for all streams together."""
MAX_RECORDS_PER_STREAM: Final = 1_000
"""Records waiting in a stream from which on its partition is not polled."""
MAX_BYTES_PER_STREAM: Final = MIB
"""Bytes of keys and values waiting in a stream from which on its partition is not polled."""

logger = logging.getLogger("kafka_async.consumer")
_stream_task: ContextVar[asyncio.Task[Any] | None] = ContextVar("stream_task", default=None)
"""The task of a stream; the tasks that it creates inherit it."""


class PartitionStream(Generic[K, V]):
    """Iterates over the records of one partition, until it is revoked or the consumer stops.

    A record is done once the task that requested it requests the next one, calls `commit`, or
    returns. A task of the stream may create further tasks. The last record of a created task that
    has ended is done once the task of the stream does one of these. If the task of the stream has
    ended before, the record is done when the created task returns; an exception of the created task
    then ends the block.

    Attributes:
        partition: The partition.
    """

    def __init__(self, buffer: StreamBuffer, runner: StreamRunner) -> None:
        self.partition = buffer.partition
        self._buffer = buffer
        self._runner = runner

    def start_soon(self, function: Callable[[*Args], Awaitable[object]], *args: *Args) -> None:
        """Start a task of this partition; its exception ends the block of `partition_streams`.

        Args:
            function: An `async def` function.
            *args: Its arguments.

        Raises:
            IllegalStateError: The block of `partition_streams` has ended.
        """
        self._runner.start_task(self._buffer, function, args)

    async def commit(self) -> None:
        """Commit this partition up to its first record that is not done; this task has none.

        Several tasks may handle records of the partition: the records of the others are not done.

        Raises:
            CommitFailedError: The group has assigned the partition to another member.
            KafkaTimeoutError: Not committed within default_api_timeout_ms.
            IllegalStateError: The consumer has no group_id.
        """
        self._buffer.finish_taken()
        await self._runner.commit(self.partition)

    def __aiter__(self) -> Self:
        """Return the stream. Several tasks may iterate over it; each record goes to one task."""
        return self

    def __anext__(self) -> Coroutine[Any, Any, Record[K, V]]:
        """Return the next record, for the task that calls this: another one may await it."""
        return self._buffer.request()


class PartitionStreams(Generic[K, V]):
    """Iterates over the streams of partitions, each as soon as its partition is assigned.

    Ends once the consumer is stopped. Start a task for each stream, and request the next stream
    without delay: while the body of this loop reads a stream itself, no other stream is read.
    """

    def __init__(self, runner: StreamRunner) -> None:
        self._runner = runner

    def __aiter__(self) -> Self:
        """Return this object."""
        return self

    async def __anext__(self) -> PartitionStream[K, V]:
        """Return the stream of a newly assigned partition."""
        return PartitionStream(await self._runner.next_new(), self._runner)


class StreamBuffer:
    """Holds the records of one partition between polls and the tasks of its stream."""

    def __init__(self, state: PartitionState, runner: StreamRunner) -> None:
        # The partition, and its offsets that are not done.
        self.partition = state.partition
        self._state = state
        self._runner = runner
        self._offsets = state.in_progress
        self._seeks = state.in_progress.seeks
        # Records that no task has taken, and the errors that belong to them or follow them.
        self._waiting: deque[AnyRecord] = deque()
        self._bytes = 0
        self._undecodable: dict[int, RecordDeserializationError] = {}  # by offset
        self._error: KafkaError | None = None  # behind the last record of `_waiting`
        # Records that tasks have taken, and tasks that tasks of the stream have created.
        self._taken: dict[object, list[AnyRecord]] = {}  # by task
        self._children: dict[object, set[asyncio.Task[Any]]] = {}  # by the stream's task
        # For waiting tasks, the end of the stream, and unread streams.
        self._arrived = asyncio.Event()
        self._ended = False
        self._passed = False  # the application has requested another stream since it got this one
        self._tasks = self._requests = 0
        # For fairness, and for the group's poll timeout.
        self._now = asyncio.get_running_loop().time
        self._yield_at = 0.0
        self._unread_since = 0.0  # records wait, and no task has requested one since

    def request(self) -> Coroutine[Any, Any, AnyRecord]:
        """Return a coroutine that takes the next record for the current task."""
        # The previous record is done even if the task is cancelled while it waits for the next.
        self.finish_taken()
        task = asyncio.current_task()
        self._runner.on_request(self, task)
        return self._take(task)

    async def _take(self, owner: asyncio.Task[Any] | None) -> AnyRecord:
        """Return the next record. Raises StopAsyncIteration at the end of the stream."""
        now = self._now()
        # A stream with many records never waits, so it yields here; all streams share the time.
        if now >= self._yield_at:
            await self._wait(asyncio.sleep(0))
            now = self._now()
            self._yield_at = now + self._runner.seconds_per_stream
        # Ends with a record, with the end of the stream, or with an error after the last record.
        # Undecodable records are handled on the way if the application wants that.
        while True:
            while not self._next_is_ready():
                self._raise_error()
                if self._ended:
                    self._runner.on_progress()
                    raise StopAsyncIteration
                self._arrived.clear()
                await self._wait(self._arrived.wait())
                self._yield_at = self._now() + self._runner.seconds_per_stream
            record = self._waiting.popleft()
            self._on_taken(record, owner)
            error = self._undecodable.pop(record.offset, None) if self._undecodable else None
            if error is None:
                return record
            await self._runner.undecodable.handle(error)
            self._taken[owner] = [each for each in self._taken.get(owner, ()) if each is not record]
            self._offsets.end(record)

    async def _wait(self, waiting: Awaitable[object]) -> None:
        self._requests += 1
        try:
            await waiting
        finally:
            self._requests -= 1

    def _raise_error(self) -> None:
        """End all streams if there is an error and no record before it will be handled any more.

        If no task reads the stream, its waiting records never will be handled.
        """
        in_hand = any(self._taken.values())
        unread = self._passed and not self._tasks and not self._requests
        if self._error is not None and not in_hand and (unread or not self._waiting):
            self._runner.on_error(self._error)

    def on_passed(self) -> None:
        """Note that the application has this stream, and now requests another one."""
        self._passed = True
        self._raise_error()

    def _on_taken(self, record: AnyRecord, owner: asyncio.Task[Any] | None) -> None:
        now = self._unread_since = self._now()
        self._bytes -= record_size(record)
        self._offsets.start(record, now)
        self._taken.setdefault(owner, []).append(record)
        # Set in tasks of the stream, and inherited by tasks that they create.
        stream_task = _stream_task.get()
        if stream_task is not None and owner is not None and owner is not stream_task:
            self._add_child(stream_task, owner)
        self._update_full()

    def _add_child(self, stream_task: asyncio.Task[Any], child: asyncio.Task[Any]) -> None:
        """Note that a task of the stream has created the task that has a record."""
        children = self._children.setdefault(stream_task, set())
        if child not in children:
            children.add(child)
            child.add_done_callback(partial(self._on_child_end, stream_task))

    def _on_child_end(self, stream_task: asyncio.Task[Any], child: asyncio.Task[Any]) -> None:
        """Settle the record of a task whose creator has ended and cannot settle it any more."""
        # Its creator settles the record with its next request, commit or return.
        if not stream_task.done():
            return
        children = self._children.get(stream_task, set())
        children.discard(child)
        if not children:
            self._children.pop(stream_task, None)
        if not self._taken.get(child):
            return
        # Cancelled: the record was not handled. With an exception the block ends. Otherwise it is
        # done.
        if child.cancelled():
            logger.warning(
                "a task was cancelled that a task of the stream of %s has created, which has "
                "ended: commits end at its record until that is read again",
                self.partition,
            )
            self._abandon(child)
            self._raise_error()
        elif (error := child.exception()) is not None:
            self._abandon(child)
            self._runner.on_child_error(error)
        else:
            self._finish(child)
        self._runner.on_progress()

    @property
    def ended(self) -> bool:
        """True once no more records follow."""
        return self._ended

    def belongs_to(self, state: PartitionState | None) -> bool:
        """Return True if this is the stream of the partition's present state."""
        return self._state is state

    def progress_at(self) -> float | None:
        """Return the time since which a task has a record or none requests one, or None."""
        taken = self._offsets.oldest_start
        since = [] if taken is None else [taken]
        if self._waiting and self._tasks:
            since.append(self._unread_since)
        return min(since, default=None)

    def add(self, record: AnyRecord, error: RecordDeserializationError | None = None) -> None:
        """Add a polled record; with an error, the raw one, for `on_undecodable`."""
        self._drop_before_seek()
        if not self._waiting:
            self._unread_since = self._now()
        self._offsets.begin(record)
        if error is not None:
            self._undecodable[record.offset] = error
        self._waiting.append(record)
        self._bytes += record_size(record)
        self._arrived.set()
        self._update_full()

    def fail(self, error: KafkaError) -> None:
        """End all streams with an error once all records before it are done."""
        self._drop_before_seek()
        self._error = error
        self._update_full()
        self._raise_error()

    def close(self) -> None:
        """End the stream; the records that a task has are abandoned."""
        self.end()
        for task in list(self._taken):
            self._abandon(task)

    def end(self) -> None:
        """Return no more records. Waiting ones are dropped, and remain in progress."""
        self._ended = True
        for record in self._waiting:
            self._offsets.abandon(record)
        self._drop()
        self._arrived.set()

    def finish_taken(self) -> None:
        """Mark the records of the current task and its finished child tasks as done."""
        task = asyncio.current_task()
        self._finish(task)
        children = self._children.get(task)
        if children:
            for child in [child for child in children if child.done()]:
                children.remove(child)
                self._finish(child)

    def _finish(self, task: object) -> None:
        for record in self._taken.pop(task, ()):
            self._offsets.end(record)
        if self._error is not None:
            self._raise_error()

    def _abandon(self, task: object) -> None:
        for record in self._taken.pop(task, ()):
            self._offsets.abandon(record)

    def on_task_start(self) -> None:
        """Count a task."""
        self._tasks += 1

    def on_task_end(self, *, returned: bool) -> None:
        """Mark the record of a task that `returned` as done; warn if no task is left."""
        if returned:
            self.finish_taken()
        task = asyncio.current_task()
        children = self._children.pop(task, ())
        # Records of a task that did not return are read again.
        for ended in [task, *(child for child in children if child.done())]:
            self._abandon(ended)
        self._tasks -= 1
        if self._ended:
            self._runner.on_progress()
        if returned:
            self._raise_error()
        if returned and not self._tasks and not self._ended:
            logger.warning(
                "all tasks of the stream of %s have returned before its end, so its records are "
                "not read: iterate until it ends, or start another task",
                self.partition,
            )

    def _next_is_ready(self) -> bool:
        self._drop_before_seek()
        return bool(self._waiting)

    def _drop_before_seek(self) -> None:
        """Drop the records from before a seek, which has made them obsolete."""
        # A count, since several seeks may come between two checks.
        if self._seeks != self._offsets.seeks:
            self._seeks = self._offsets.seeks
            for record in self._waiting:
                self._offsets.end(record)
            self._drop()

    def _drop(self) -> None:
        self._waiting.clear()
        self._undecodable.clear()
        self._error = None
        self._bytes = 0
        self._update_full()

    def _update_full(self) -> None:
        """Stop polling at the limits, and poll again once half of the records were taken."""
        # Two limits, so that a stream does not alternate between full and not full with each
        # record.
        share = 2 if self._state.full else 1
        full = (
            self._error is not None
            or len(self._waiting) * share >= MAX_RECORDS_PER_STREAM
            or self._bytes * share >= MAX_BYTES_PER_STREAM
        )
        if full is not self._state.full:
            self._runner.set_full(self._state, full)


class StreamRunner:
    """Polls for the streams and runs their tasks.

    Args:
        subscription: The consumer's subscription.
        set_full: Called with True when a partition is not to be polled any more, with False when it
        is again.
        commit: Commits a partition.
        on_progress: Called when a task of an ended stream requests a record, or ends.
        drain_timeout: Seconds for which a revocation waits for tasks.
        undecodable: Records that cannot be deserialized.
        exit_timeout: Maximum seconds for which a program that a signal stops waits for tasks.
    """

    def __init__(
        self,
        subscription: Subscription,
        set_full: Callable[[PartitionState, bool], None],
        commit: Callable[[TopicPartition], Awaitable[None]],
        on_progress: Callable[[], None],
        drain_timeout: float,
        undecodable: UndecodableRecords,
        exit_timeout: float,
    ) -> None:
        # Callbacks to the consumer, also used by streams.
        self.set_full = set_full
        self.commit = commit
        self.on_progress = on_progress
        self.undecodable = undecodable
        self._exit_timeout = exit_timeout
        self._subscription = subscription
        self._drain_timeout = drain_timeout
        self._handlers = RunningHandlers()
        # All streams, and those that the application has not received yet.
        self._streams: dict[TopicPartition, StreamBuffer] = {}
        self._new: deque[StreamBuffer] = deque()
        self._changed = asyncio.Event()
        # For the warning about a loop over streams that reads a stream itself.
        self._iterating: asyncio.Task[Any] | None = None
        self._last: StreamBuffer | None = None  # that the application got
        self._nested: StreamBuffer | None = None
        self._warned = False
        # The end: of the polls, and the first error, which the block raises.
        self._stopped = False
        self._failure: BaseException | None = None
        self._polling = CancelScope()
        self._group: TaskGroup | None = None
        self._now = asyncio.get_running_loop().time

    async def next_new(self) -> StreamBuffer:
        """Return the stream of a newly assigned partition. Raises StopAsyncIteration at the end."""
        # A request for the next stream ends a nested loop.
        self._iterating, self._nested = asyncio.current_task(), None
        if self._last is not None:
            self._last.on_passed()
        while True:
            while self._new:
                stream = self._new.popleft()
                if not stream.ended:
                    self._last = stream
                    return stream
            if self._stopped:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()

    def on_request(self, stream: StreamBuffer, task: asyncio.Task[Any] | None) -> None:
        """Note that a task requests a record of a stream."""
        # The task that iterates over the streams reads one of them itself.
        if task is self._iterating:
            self._nested = stream
            self._warn_of_nested_loop()

    def _warn_of_nested_loop(self) -> None:
        """Warn once if streams wait while the task that should receive them reads another one."""
        if self._nested is None or self._nested.ended or self._warned:
            return
        waiting = sorted(stream.partition for stream in self._new if not stream.ended)
        if waiting:
            self._warned = True
            logger.warning(
                "the records of %s are not read as long as the loop over the streams reads those "
                "of %s in its body: read each stream in a task, with "
                "stream.start_soon(handle, stream)",
                ", ".join(map(str, waiting)),
                self._nested.partition,
            )

    @asynccontextmanager
    async def running(self, poll: Poll) -> AsyncGenerator[Self]:
        """Poll for the streams and run their tasks while the block runs.

        An exception of a task or of a poll cancels the block and is raised at its end. At the end
        of the block, or once `poll` returns None, the streams end and their tasks are drained.
        """
        try:
            async with create_task_group() as self._group:
                try:
                    self.update()
                    self._group.start_soon(self._run_polls, poll)
                    yield self
                    # The block has ended: tasks finish. On a signal they have a limit; on an
                    # exception none.
                    await self.drain(frozenset(self._streams))
                except asyncio.CancelledError:
                    if stopped_by_signal():
                        with CancelScope(shield=True):
                            await self.drain(frozenset(self._streams), self._exit_timeout)
                    raise
                except Exception as error:  # noqa: BLE001  # raised below, without an ExceptionGroup
                    self._fail(error)
                self._group.cancel_scope.cancel()
        finally:  # also if the application cancels the block: full partitions are polled again
            self._group = None
            for stream in self._streams.values():
                stream.close()
            await self._handlers.close()
        if self._failure is not None:
            raise self._failure

    def update(self) -> None:
        """Create streams for new partitions; end streams of partitions that are not read."""
        for partition, stream in list(self._streams.items()):
            if stream.belongs_to(self._subscription.states.get(partition)):
                continue
            # The partition was revoked, or its topic created again.
            del self._streams[partition]
            if not stream.ended and self._group is not None:
                stream.end()
                self._start(self._handlers.drain, {partition}, self._drain_timeout)
        for state in self._subscription:
            known = state.partition in self._streams
            # The listener's `on_assigned` may still seek.
            if not known and state.fetch_state is not FetchState.AWAIT_CALLBACK:
                self._create(state)

    @property
    def run_caller(self) -> bool:
        """True in a running task of a stream, and in the tasks that it has created."""
        return self._handlers.run_caller

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """End the streams of these partitions; tasks may finish the records that they have."""
        for partition in partitions:
            if partition in self._streams:
                self._streams[partition].end()

    def progress_at(self) -> float:
        """Return the earliest time since which a task has not requested a record, or now."""
        times = [stream.progress_at() for stream in self._streams.values()]
        return min((at for at in times if at is not None), default=self._now())

    async def drain(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> None:
        """End the streams of these partitions, and wait for their tasks."""
        self.drop(partitions)
        limit = self._drain_timeout
        await self._handlers.drain(partitions, limit if timeout is None else min(limit, timeout))

    @property
    def seconds_per_stream(self) -> float:
        """Seconds for which the tasks of one stream may hold the event loop."""
        return MAX_LOOP_SECONDS / max(1, len(self._streams))

    def start_task(
        self,
        stream: StreamBuffer,
        function: Callable[..., Awaitable[object]],
        args: tuple[Any, ...],
    ) -> None:
        """Start a task of a stream."""
        if self._group is None:
            raise IllegalStateError("the block of partition_streams has ended")
        stream.on_task_start()  # before the task: with an eager task factory it runs at once
        self._handlers.start(self._run_task(stream, function, args))

    def _start(
        self, function: Callable[[*Args], Coroutine[Any, Any, object]], *args: *Args
    ) -> None:
        """Start a task of the group; in a callback of the event loop, through a task of asyncio."""
        assert self._group is not None
        if asyncio.current_task() is not None:
            self._group.start_soon(function, *args)
            return

        async def start_in_task(group: TaskGroup) -> None:
            if self._group is group:  # the block has not ended
                group.start_soon(function, *args)  # anyio makes objects, in tasks only

        asyncio.get_running_loop().create_task(start_in_task(self._group))

    async def _run_task(
        self,
        stream: StreamBuffer,
        function: Callable[..., Awaitable[object]],
        args: tuple[Any, ...],
    ) -> None:
        returned = False
        _stream_task.set(asyncio.current_task())
        try:
            # Created before the block ended, but not run yet.
            if self._handlers.closed:
                return
            with self._handlers.running(stream.partition):
                result = function(*args)
                await awaitable_result(result, function, "the function of start_soon")
                returned = True
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001  # raised at the end
            self._fail(error)
        finally:
            stream.on_task_end(returned=returned)

    async def _run_polls(self, poll: Poll) -> None:
        try:
            with self._polling:
                await self._poll_for_streams(poll)
            # `poll` has returned None: the consumer stops.
            await self.drain(frozenset(self._streams))
        except Exception as error:  # noqa: BLE001  # raised at the end of the block
            self._fail(error)
        if self._failure is not None:
            self._cancel()
        self._stopped = True
        self._changed.set()

    async def _poll_for_streams(self, poll: Poll) -> None:
        while not self._polling.cancel_called:  # by the error of a poll, which it may raise again
            try:
                records = await poll(RECORDS_PER_POLL, {})
            # An error of one partition goes to its stream; others end the block.
            except KafkaError as error:
                if not self._takes(error):
                    raise
                continue
            if records is None:
                return
            for record in records:
                self._stream_of(TopicPartition(record.topic, record.partition)).add(record)

    def _takes(self, error: KafkaError) -> bool:
        """Return False for a poll's error that does not concern one stream alone."""
        if error.topic is None or error.partition is None:
            return False
        partition = TopicPartition(error.topic, error.partition)
        if isinstance(error, RecordDeserializationError):
            if self.undecodable.skip(error):
                return True
            record = self.undecodable.take(error)
            if record is not None:
                self._stream_of(partition).add(record, error)
                return True
        # Revoked since the poll.
        if partition not in self._subscription.states:
            return False
        self._stream_of(partition).fail(error)
        return True

    def on_child_error(self, error: BaseException) -> None:
        """End the block with the error of a task that no task of a stream awaits."""
        if self._group is not None:
            self._fail(error)

    def on_error(self, error: KafkaError) -> None:
        """End all streams: all records of a partition before its error are done."""
        self._failure = first_failure(self._failure, error)
        for stream in self._streams.values():
            stream.end()
        # Not the whole block: tasks finish what they have.
        self._polling.cancel()

    def _stream_of(self, partition: TopicPartition) -> StreamBuffer:
        stream = self._streams.get(partition)
        if stream is None or stream.ended:  # revoked by the group, but assigned manually too
            return self._create(self._subscription.state(partition))
        return stream

    def _create(self, state: PartitionState) -> StreamBuffer:
        stream = StreamBuffer(state, self)
        self._streams[state.partition] = stream
        self._new.append(stream)
        self._changed.set()
        self._warn_of_nested_loop()
        return stream

    def _fail(self, error: BaseException) -> None:
        self._failure = first_failure(self._failure, error)
        self._cancel()

    def _cancel(self) -> None:
        """Cancel the block and all tasks."""
        self._handlers.cancel()
        if self._group is not None:
            self._group.cancel_scope.cancel()
