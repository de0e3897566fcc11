"""Runs the handlers of `Consumer.process`: several at a time, in the order chosen.

`HandlerQueue` decides which record is next. Records in a lane, those of one key or one partition,
are handled one after another; lanes are independent of each other. `RecordProcessor` polls, runs
the handlers in at most `concurrency` tasks, and stops polling while too much is unfinished.

The offsets of unfinished records are in the state of their partition (`OffsetsInProgress`), so that
every commit, automatic or not, ends at the first unfinished record.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from anyio import create_task_group

from kafka_async.callbacks import awaitable_result
from kafka_async.consumer.draining import RunningHandlers, first_failure
from kafka_async.fairness import MAX_LOOP_SECONDS
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Hashable

    from anyio.abc import TaskGroup

    from kafka_async.consumer.fetch_buffer import AnyRecord
    from kafka_async.consumer.subscription import OffsetsInProgress, PartitionState, Subscription

Ordering: TypeAlias = Literal["key", "partition", "none"]
Handler: TypeAlias = "Callable[[AnyRecord], Awaitable[object]]"
Poll: TypeAlias = "Callable[[int], Awaitable[list[AnyRecord] | None]]"

MAX_RECORDS_PER_HANDLER: Final = 100
"""Unfinished records per handler that may run at a time; then no more are polled."""


@dataclass(slots=True, eq=False)
class Unfinished:
    """A record whose handler has not returned, in its lane; None is a lane without order."""

    record: AnyRecord
    partition: TopicPartition
    offsets: OffsetsInProgress
    lane: Hashable | None
    size: int


class HandlerQueue:
    """Orders records: the first record of each lane is ready once the one before it is done.

    Attributes:
        count: Records that are not done, running ones included.
        bytes: Bytes of their keys and values.
    """

    def __init__(self, ordering: Ordering) -> None:
        self.count = self.bytes = 0
        self._ordering = ordering
        self._ready: deque[Unfinished] = deque()
        self._waiting: dict[Hashable, deque[Unfinished]] = {}  # by lane, behind the first record

    @property
    def ready(self) -> int:
        """Records that `take` can return."""
        return len(self._ready)

    def add(
        self,
        record: AnyRecord,
        partition: TopicPartition,
        offsets: OffsetsInProgress,
        size: int,
    ) -> None:
        """Add a record behind the others of its lane."""
        added = Unfinished(record, partition, offsets, self._lane_of(record, partition), size)
        self.count += 1
        self.bytes += size
        waiting = None if added.lane is None else self._waiting.get(added.lane)
        if waiting is not None:
            waiting.append(added)
            return
        if added.lane is not None:
            self._waiting[added.lane] = deque()
        self._ready.append(added)

    def take(self) -> Unfinished:
        """Take the first record that is ready."""
        return self._ready.popleft()

    def done(self, finished: Unfinished) -> None:
        """Let the next record of the lane follow one that was taken."""
        self._forget(finished)
        if finished.lane is not None:
            waiting = self._waiting[finished.lane]
            if waiting:
                self._ready.append(waiting.popleft())
            else:
                del self._waiting[finished.lane]

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Remove the records of these partitions that were not taken."""
        kept: deque[Unfinished] = deque()
        for each in self._ready:
            if each.partition not in partitions:
                kept.append(each)
                continue
            self._forget(each)
            if each.lane is not None:
                for behind in self._waiting.pop(each.lane):
                    self._forget(behind)
        self._ready = kept
        for waiting in self._waiting.values():
            if waiting and waiting[0].partition in partitions:  # behind a record that was taken
                for behind in waiting:
                    self._forget(behind)
                waiting.clear()

    def _forget(self, each: Unfinished) -> None:
        self.count -= 1
        self.bytes -= each.size

    def _lane_of(self, record: AnyRecord, partition: TopicPartition) -> Hashable | None:
        if self._ordering == "partition":
            return partition
        if self._ordering == "key" and record.key is not None:
            return partition, record.key
        return None


class RecordProcessor:
    """Polls records and runs their handlers.

    Args:
        poll: Returns at most this number of records, once there are any; None at the end.
        subscription: The consumer's subscription.
        handler: Handles a record.
        queue: An empty queue.
        concurrency: Maximum number of handlers at a time.
        max_bytes: Bytes of unfinished records from which on no more are polled.
        drain_timeout: Seconds for which a revocation waits for running handlers.
    """

    def __init__(
        self,
        poll: Poll,
        subscription: Subscription,
        handler: Handler,
        queue: HandlerQueue,
        *,
        concurrency: int,
        max_bytes: int,
        drain_timeout: float,
    ) -> None:
        self._poll = poll
        self._subscription = subscription
        self._handler = handler
        self._queue = queue
        self._concurrency = concurrency
        self._max_bytes = max_bytes
        self._max_records = concurrency * MAX_RECORDS_PER_HANDLER
        self._drain_timeout = drain_timeout
        self._handlers = RunningHandlers()
        self._workers = 0
        self._room = asyncio.Event()
        self._failure: Exception | None = None
        self._now = asyncio.get_running_loop().time

    async def run(self) -> None:
        """Poll and handle records until `poll` ends; raise what it or a handler raises first."""
        async with create_task_group() as group:
            try:
                await self._run_polls(group)
            except Exception as error:  # noqa: BLE001  # raised below, without an ExceptionGroup
                self._fail(error)
            group.cancel_scope.cancel()
        if self._failure is not None:
            raise self._failure

    async def _run_polls(self, group: TaskGroup) -> None:
        while True:
            await self._wait_for_room()
            records = await self._poll(self._max_records - self._queue.count)
            if records is None:
                await self.drain(frozenset(self._subscription.states))
                return
            self._add(records, group)

    @property
    def run_caller(self) -> bool:
        """True in a running handler, and in the tasks that it has created."""
        return self._handlers.run_caller

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Begin no handler of these partitions; the next poll waits for one that runs."""
        self._queue.drop(partitions)

    def progress_at(self) -> float:
        """Return the current time: handlers may take long; a full queue delays the next poll."""
        return self._now()

    async def drain(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> None:
        """Begin no handler of these partitions, and wait for those that run."""
        self.drop(partitions)
        self._room.set()
        limit = self._drain_timeout
        await self._handlers.drain(partitions, limit if timeout is None else min(limit, timeout))

    async def _wait_for_room(self) -> None:
        while self._queue.count >= self._max_records or self._queue.bytes >= self._max_bytes:
            self._room.clear()
            await self._room.wait()

    def _add(self, records: list[AnyRecord], group: TaskGroup) -> None:
        states: dict[TopicPartition, PartitionState] = {}
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            states[partition] = state = self._subscription.state(partition)
            state.in_progress.begin(record.offset)
            self._queue.add(record, partition, state.in_progress, record_size(record))
        for state in states.values():
            state.mark_processed()  # except for what is in progress, also before the next poll
        for _ in range(min(self._queue.ready, self._concurrency - self._workers)):
            self._workers += 1
            group.start_soon(self._work, group)

    async def _work(self, group: TaskGroup) -> None:
        """Handle records until none is ready."""
        yield_at = self._now() + MAX_LOOP_SECONDS
        try:
            while self._queue.ready:
                if self._now() >= yield_at:
                    await asyncio.sleep(0)
                    yield_at = self._now() + MAX_LOOP_SECONDS
                    continue
                unfinished = self._queue.take()
                if self._is_outdated(unfinished):
                    self._queue.done(unfinished)
                    self._room.set()
                else:
                    await self._handle(unfinished)
        except Exception as error:  # noqa: BLE001  # raised by `run`
            self._fail(error)
            group.cancel_scope.cancel()
        finally:
            self._workers -= 1

    def _is_outdated(self, unfinished: Unfinished) -> bool:
        """Return True for a record from before a seek, or of a topic that was created again."""
        state = self._subscription.states.get(unfinished.partition)
        return state is None or state.in_progress is not unfinished.offsets

    async def _handle(self, unfinished: Unfinished) -> None:
        with self._handlers.running(unfinished.partition) as scope:
            result = self._handler(unfinished.record)
            await awaitable_result(result, self._handler, "handler")
        if not scope.cancelled_caught:
            unfinished.offsets.end(unfinished.record.offset)
        self._queue.done(unfinished)
        self._room.set()

    def _fail(self, error: Exception) -> None:
        self._failure = first_failure(self._failure, error)


def record_size(record: AnyRecord) -> int:
    """Return the bytes of key and value, as far as they are bytes or text."""
    return sum(len(part) for part in (record.key, record.value) if isinstance(part, bytes | str))
