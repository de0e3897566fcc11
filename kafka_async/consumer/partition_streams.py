"""A stream of records and a group of tasks for each partition: `Consumer.partition_streams`.

One task polls for all streams. A partition whose stream has enough records is not polled, so that a
slow one delays no other. Before a partition is revoked its stream ends, and its tasks may finish
the records at hand; then they are cancelled.

The offsets of unfinished records are in the state of their partition (`OffsetsInProgress`), so that
every commit, automatic or not, ends at the first unfinished record.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVarTuple

from anyio import create_task_group
from typing_extensions import TypeVar

from kafka_async.callbacks import awaitable_result
from kafka_async.consumer.draining import RunningHandlers, first_failure
from kafka_async.consumer.processing import record_size
from kafka_async.consumer.subscription import FetchState
from kafka_async.errors import IllegalStateError
from kafka_async.fairness import MAX_LOOP_SECONDS, MIB
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine
    from typing import Self

    from anyio.abc import TaskGroup

    from kafka_async.consumer.fetch_buffer import AnyRecord
    from kafka_async.consumer.processing import Poll
    from kafka_async.consumer.subscription import OffsetsInProgress, PartitionState, Subscription
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
    returns. The last record of a task that a task of the stream has created, and that has ended, is
    done once the task of the stream does one of these.

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
        """Commit this partition up to its first record that is not done; this task's is done.

        Several tasks may handle records of the partition: those of the others are not done.

        Raises:
            CommitFailedError: The group has assigned the partition to another member.
            KafkaTimeoutError: Not committed within default_api_timeout_ms.
            IllegalStateError: The consumer has no group_id.
        """
        self._buffer.finish_taken()
        await self._runner.commit(self.partition)

    def __aiter__(self) -> Self:
        """Return the stream; several tasks may iterate over it, each record goes to one."""
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
        self.partition = state.partition
        self._state = state
        self._runner = runner
        self._offsets = state.in_progress
        self._waiting: deque[AnyRecord] = deque()
        self._bytes = 0
        self._taken: dict[object, list[tuple[OffsetsInProgress, int]]] = {}  # by task
        self._children: dict[object, set[asyncio.Task[Any]]] = {}  # by the stream's task
        self._arrived = asyncio.Event()
        self._ended = False
        self._tasks = 0
        self._now = asyncio.get_running_loop().time
        self._yield_at = 0.0

    def request(self) -> Coroutine[Any, Any, AnyRecord]:
        """Return a coroutine that takes the next record for the current task."""
        self.finish_taken()
        task = asyncio.current_task()
        self._runner.on_request(self, task)
        return self._take(task)

    async def _take(self, owner: asyncio.Task[Any] | None) -> AnyRecord:
        """Return the next record. Raises StopAsyncIteration at the end of the stream."""
        if self._now() >= self._yield_at:
            await asyncio.sleep(0)
            self._yield_at = self._now() + self._runner.seconds_per_stream
        while not self._next_is_ready():
            if self._ended:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
            self._yield_at = self._now() + self._runner.seconds_per_stream
        record = self._waiting.popleft()
        self._bytes -= record_size(record)
        self._taken.setdefault(owner, []).append((self._offsets, record.offset))
        stream_task = _stream_task.get()
        if stream_task is not None and owner is not None and owner is not stream_task:
            self._children.setdefault(stream_task, set()).add(owner)
        self._update_full()
        return record

    @property
    def ended(self) -> bool:
        """True once no more records will come."""
        return self._ended

    def belongs_to(self, state: PartitionState | None) -> bool:
        """Return whether this is the stream of a partition's present state."""
        return self._state is state

    def add(self, record: AnyRecord) -> None:
        """Add a record that was polled."""
        self._drop_before_seek()
        self._offsets.begin(record.offset)
        self._waiting.append(record)
        self._bytes += record_size(record)
        self._arrived.set()
        self._update_full()

    def end(self) -> None:
        """Return no more records; those that wait are dropped, and remain in progress."""
        self._ended = True
        self._drop()
        self._arrived.set()

    def finish_taken(self) -> None:
        """Mark what the current task, and tasks it created that have ended, got as done."""
        task = asyncio.current_task()
        self._finish(task)
        children = self._children.get(task)
        if children:
            for child in [child for child in children if child.done()]:
                children.remove(child)
                self._finish(child)

    def _finish(self, task: object) -> None:
        for offsets, offset in self._taken.pop(task, ()):
            offsets.end(offset)

    def on_task_start(self) -> None:
        """Count a task."""
        self._tasks += 1

    def on_task_end(self, *, returned: bool) -> None:
        """Mark the record of a task that `returned` as done; warn if no task is left."""
        if returned:
            self.finish_taken()
        task = asyncio.current_task()
        self._taken.pop(task, None)
        self._children.pop(task, None)
        self._tasks -= 1
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
        """Drop the records from before a seek."""
        if self._offsets is not self._state.in_progress:
            self._offsets = self._state.in_progress
            self._drop()

    def _drop(self) -> None:
        self._waiting.clear()
        self._bytes = 0
        self._update_full()

    def _update_full(self) -> None:
        """Stop polling at the limits, and poll again once half of the records were taken."""
        share = 2 if self._state.full else 1
        full = (
            len(self._waiting) * share >= MAX_RECORDS_PER_STREAM
            or self._bytes * share >= MAX_BYTES_PER_STREAM
        )
        if full is not self._state.full:
            self._runner.set_full(self._state, full)


class StreamRunner:
    """Polls for the streams and runs their tasks.

    Args:
        subscription: The consumer's subscription.
        set_full: Called when a partition is to be polled no more (True), or again (False).
        commit: Commits a partition.
        drain_timeout: Seconds for which a revocation waits for tasks.
    """

    def __init__(
        self,
        subscription: Subscription,
        set_full: Callable[[PartitionState, bool], None],
        commit: Callable[[TopicPartition], Awaitable[None]],
        drain_timeout: float,
    ) -> None:
        self.set_full = set_full
        self.commit = commit
        self._subscription = subscription
        self._drain_timeout = drain_timeout
        self._handlers = RunningHandlers()
        self._streams: dict[TopicPartition, StreamBuffer] = {}
        self._new: deque[StreamBuffer] = deque()
        self._changed = asyncio.Event()
        self._iterating: asyncio.Task[Any] | None = None
        self._nested: StreamBuffer | None = None
        self._warned = False
        self._stopped = False
        self._failure: Exception | None = None
        self._group: TaskGroup | None = None

    async def next_new(self) -> StreamBuffer:
        """Return the stream of a newly assigned partition. Raises StopAsyncIteration at the end."""
        self._iterating, self._nested = asyncio.current_task(), None
        while True:
            while self._new:
                stream = self._new.popleft()
                if not stream.ended:
                    return stream
            if self._stopped:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()

    def on_request(self, stream: StreamBuffer, task: asyncio.Task[Any] | None) -> None:
        """Note that a task requests a record of a stream."""
        if task is self._iterating:
            self._nested = stream
            self._warn_of_nested_loop()

    def _warn_of_nested_loop(self) -> None:
        """Warn once if streams wait while the task that is to get them reads another one."""
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
                    await self.drain(frozenset(self._streams))
                except Exception as error:  # noqa: BLE001  # raised below, without an ExceptionGroup
                    self._fail(error)
                self._group.cancel_scope.cancel()
        finally:  # also if the application cancels the block: full partitions are polled again
            self._group = None
            for stream in self._streams.values():
                stream.end()
        if self._failure is not None:
            raise self._failure

    def update(self) -> None:
        """Create the streams of new partitions; end those of partitions that are not read."""
        for partition, stream in list(self._streams.items()):
            if stream.belongs_to(self._subscription.states.get(partition)):
                continue
            del self._streams[partition]
            if not stream.ended and self._group is not None:
                stream.end()
                self._start(self._handlers.drain, {partition}, self._drain_timeout)
        for state in self._subscription:
            known = state.partition in self._streams
            if not known and state.fetch_state is not FetchState.AWAIT_CALLBACK:
                self._create(state)

    @property
    def run_caller(self) -> bool:
        """True in a running task of a stream, and in the tasks that it has created."""
        return self._handlers.run_caller

    async def drain(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> None:
        """End the streams of these partitions, and wait for their tasks."""
        for partition in partitions:
            if partition in self._streams:
                self._streams[partition].end()
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
        self._start(self._run_task, stream, function, args)

    def _start(
        self, function: Callable[[*Args], Coroutine[Any, Any, object]], *args: *Args
    ) -> None:
        """Start a task of the group; in a callback of the event loop, by a task of asyncio."""
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
            with self._handlers.running(stream.partition):
                result = function(*args)
                await awaitable_result(result, function, "the function of start_soon")
                returned = True
        except Exception as error:  # noqa: BLE001  # raised at the end of the block
            self._fail(error)
        finally:
            stream.on_task_end(returned=returned)

    async def _run_polls(self, poll: Poll) -> None:
        try:
            while (records := await poll(RECORDS_PER_POLL)) is not None:
                for record in records:
                    self._stream_of(TopicPartition(record.topic, record.partition)).add(record)
            await self.drain(frozenset(self._streams))
        except Exception as error:  # noqa: BLE001  # raised at the end of the block
            self._fail(error)
        self._stopped = True
        self._changed.set()

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

    def _fail(self, error: Exception) -> None:
        self._failure = first_failure(self._failure, error)
        if self._group is not None:
            self._group.cancel_scope.cancel()
