"""Runs the handlers of `Consumer.process`: several at a time, in the order chosen.

`HandlerQueue` decides which record is next. Records in a lane, those of one key or one partition,
are handled one after another; lanes are independent of each other. `RecordProcessor` polls, runs
the handlers in at most `concurrency` tasks, and stops polling while too much is unfinished.

The offsets of unfinished records are in the state of their partition (`OffsetsInProgress`), so that
every commit, automatic or not, ends at the first unfinished record.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from anyio import CancelScope

from kafka_async.consumer.delivery.running_handlers import RunningHandlers, first_failure
from kafka_async.errors import KafkaError, KafkaTimeoutError, RecordDeserializationError
from kafka_async.foundation.arguments import awaitable_result
from kafka_async.foundation.fairness import MAX_LOOP_SECONDS
from kafka_async.runner import stopped_by_signal
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Hashable

    from kafka_async.consumer.buffer.fetch_buffer import AnyRecord
    from kafka_async.consumer.delivery.undecodable import OnUndecodable, UndecodableRecords
    from kafka_async.consumer.subscription import OffsetsInProgress, PartitionState, Subscription

Ordering: TypeAlias = Literal["key", "partition", "none"]
Handler: TypeAlias = "Callable[[AnyRecord], Awaitable[object]]"
RawKeys: TypeAlias = "dict[tuple[str, int, int], bytes | None]"
"""Serialized keys by topic, partition and offset."""
Poll: TypeAlias = "Callable[[int, RawKeys], Awaitable[list[AnyRecord] | None]]"

logger = logging.getLogger("kafka_async.consumer")

MAX_RECORDS_PER_HANDLER: Final = 100
"""Unfinished records per handler that may run at a time; then no more are polled."""


@dataclass(slots=True, eq=False)
class Unfinished:
    """A record whose handler has not returned.

    Attributes:
        record: The record; the raw one if it cannot be deserialized.
        partition: Its partition.
        offsets: The offsets in progress of its partition.
        size: Bytes of key and value.
        key: The serialized key: a deserialized one need not be hashable.
        error: Error of its deserialization, or None.
    """

    record: AnyRecord
    partition: TopicPartition
    offsets: OffsetsInProgress
    size: int
    key: bytes | None
    error: RecordDeserializationError | None = None
    lane: Hashable | None = None  # None: no order


class HandlerQueue:
    """Orders records: the first record of each lane is ready once the one before it is done.

    Attributes:
        count: Records that are not done, running ones included.
        bytes: Bytes of their keys and values.
    """

    def __init__(self, ordering: Ordering) -> None:
        # Counts limit the polls; bytes too, since records differ in size.
        self.count = self.bytes = 0
        self._ordering = ordering
        # Only the first record of a lane is ready. A lane exists while one of its records is not
        # done.
        self._ready: deque[Unfinished] = deque()
        self._waiting: dict[Hashable, deque[Unfinished]] = {}  # by lane, behind the first record

    @property
    def ready(self) -> int:
        """Records that `take` can return."""
        return len(self._ready)

    def add(self, added: Unfinished) -> None:
        """Add a record behind the others of its lane."""
        added.lane = self._lane_of(added)
        self.count += 1
        self.bytes += added.size
        waiting = None if added.lane is None else self._waiting.get(added.lane)
        # Behind another record of its lane, which is ready or running.
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
        """Let the next record of the lane follow one that was taken and is done."""
        self._forget(finished)
        if finished.lane is not None:
            waiting = self._waiting[finished.lane]
            if waiting:
                self._ready.append(waiting.popleft())
            else:
                del self._waiting[finished.lane]

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Remove the records of these partitions that were not taken; they are abandoned."""
        kept: deque[Unfinished] = deque()
        dropped: list[Unfinished] = []
        for each in self._ready:
            if each.partition not in partitions:
                kept.append(each)
                continue
            dropped.append(each)
            if each.lane is not None:
                dropped += self._waiting.pop(each.lane)
        self._ready = kept
        # Lanes whose first record runs: the others have not begun.
        for waiting in self._waiting.values():
            if waiting and waiting[0].partition in partitions:  # behind a record that was taken
                dropped += waiting
                waiting.clear()
        for each in dropped:
            self._forget(each)
            each.offsets.abandon(each.record)

    def clear(self) -> None:
        """Remove all records that were not taken; they are abandoned."""
        behind = (each.partition for waiting in self._waiting.values() for each in waiting)
        self.drop({*(each.partition for each in self._ready), *behind})

    def _forget(self, each: Unfinished) -> None:
        self.count -= 1
        self.bytes -= each.size

    def _lane_of(self, added: Unfinished) -> Hashable | None:
        if self._ordering == "partition":
            return added.partition
        if self._ordering == "key" and added.key is not None:
            return added.partition, added.key
        return None


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """The arguments of `Consumer.process`; times are in seconds."""

    ordering: Ordering
    concurrency: int
    max_bytes: int
    drain_timeout: float
    handler_timeout: float | None
    on_undecodable: OnUndecodable


class RecordProcessor:
    """Polls records and runs their handlers.

    Args:
        poll: Returns at most this number of records, once there are any, or None at the end. It
            adds the serialized keys of deserialized ones to the dict, by place.
        subscription: The consumer's subscription.
        handler: Handles a record.
        options: The arguments of `Consumer.process`.
        undecodable: Records that cannot be deserialized.
        rewind_unfinished: Seeks to the first record of each partition whose handler did not return.
        failed: Returns True once no handled record can be committed any more.
        exit_timeout: Maximum seconds for which a program that a signal stops waits for handlers.
    """

    def __init__(
        self,
        poll: Poll,
        subscription: Subscription,
        handler: Handler,
        options: ProcessOptions,
        undecodable: UndecodableRecords,
        *,
        rewind_unfinished: Callable[[], None],
        failed: Callable[[], bool],
        exit_timeout: float,
    ) -> None:
        # What the consumer passes in.
        self._poll = poll
        self._subscription = subscription
        self._handler = handler
        self._options = options
        self._undecodable = undecodable
        self._rewind_unfinished = rewind_unfinished
        self._failed = failed
        self._exit_timeout = exit_timeout
        # Records that are not done, and the tasks that run their handlers.
        self._queue = HandlerQueue(options.ordering)
        self._max_records = options.concurrency * MAX_RECORDS_PER_HANDLER
        self._handlers = RunningHandlers()
        self._workers = 0
        # Set when a record is done; ends the wait for room.
        self._room = asyncio.Event()
        self._polling = CancelScope()
        self._failure: BaseException | None = None
        self._now = asyncio.get_running_loop().time

    async def run(self) -> None:
        """Poll and handle records until `poll` ends; raise the first error of a poll or handler."""
        try:
            with self._polling:
                await self._run_polls()
        except asyncio.CancelledError:
            # Cancelled by a signal: handlers may finish. Otherwise they are cancelled with this
            # call.
            if stopped_by_signal():
                await self._drain_before_exit()
            raise
        except Exception as error:  # noqa: BLE001  # raised below, unless a handler has failed
            self._fail(error)
        finally:
            # Abandoned records stay in progress, so that no commit passes them.
            self._queue.clear()
            await self._handlers.close()
        if self._failure is not None:
            raise self._failure

    async def _run_polls(self) -> None:
        # Ends when the consumer stops, or with an error after the records before it are done. A
        # record that cannot be deserialized is skipped, handled by the application's function, or
        # such an error.
        while True:
            await self._wait_for_room()
            keys: RawKeys = {}
            try:
                # At most as many as there is room for.
                records = await self._poll(self._max_records - self._queue.count, keys)
            except RecordDeserializationError as error:
                if self._undecodable.skip(error):
                    continue
                record = self._undecodable.take(error)
                if record is None:
                    if await self._finish(error):
                        raise
                else:
                    self._add([record], {place_of(record): record.key}, error)
                continue
            except Exception as error:
                if await self._finish(error):
                    raise
                continue
            if records is None:
                await self.drain(frozenset(self._subscription.states))
                return
            self._add(records, keys)

    async def _finish(self, error: Exception) -> bool:
        """Handle the records polled before an error, so that the application can seek past it.

        Returns False if records of its partition were dropped in the meantime, for a rebalance, a
        rewind or the end of the consumer: the error comes again after those have been handled.
        """
        # Nothing can be committed any more, or nothing is left to handle.
        if self._failed() or not self._queue.count:
            return True
        partition = _partition_of(error)
        state = None if partition is None else self._subscription.states.get(partition)
        logger.warning(
            "process ends once the records polled before are handled (%d): %s",
            self._queue.count,
            error,
        )
        while self._queue.count:
            self._room.clear()
            await self._room.wait()
        if partition is None or state is None:
            return True
        # Dropped records remain in progress: they come first.
        if self._subscription.states.get(partition) is state and not len(state.in_progress):
            return True
        self._rewind_unfinished()  # no handler runs
        return False

    async def _drain_before_exit(self) -> None:
        self._queue.clear()
        with CancelScope(shield=True):
            limit = min(self._options.drain_timeout, self._exit_timeout)
            await self._handlers.drain(frozenset(self._subscription.states), limit)
        if self._failure is not None:
            logger.warning("a handler failed while the program stopped", exc_info=self._failure)

    @property
    def run_caller(self) -> bool:
        """True in a running handler, and in the tasks that it has created."""
        return self._handlers.run_caller

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Begin no handler of these partitions; the next poll waits for one that runs."""
        self._queue.drop(partitions)

    def progress_at(self) -> float:
        """Return the current time: handlers may take long, while a full queue delays polls."""
        return self._now()

    async def drain(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> None:
        """Begin no handler of these partitions, and wait for those that run."""
        # `_finish` waits for the queue to become empty, which dropping may have done.
        self.drop(partitions)
        self._room.set()
        limit = self._options.drain_timeout
        await self._handlers.drain(partitions, limit if timeout is None else min(limit, timeout))

    async def _wait_for_room(self) -> None:
        queue = self._queue
        while queue.count >= self._max_records or queue.bytes >= self._options.max_bytes:
            self._room.clear()
            await self._room.wait()

    def _add(
        self,
        records: list[AnyRecord],
        keys: RawKeys,
        error: RecordDeserializationError | None = None,
    ) -> None:
        states: dict[TopicPartition, PartitionState] = {}
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            states[partition] = state = self._subscription.state(partition)
            state.in_progress.begin(record)
            # With a deserializer the raw key is in `keys`: it decides about the order.
            key = keys.get(place_of(record)) if keys else record.key
            size = record_size(record)
            self._queue.add(Unfinished(record, partition, state.in_progress, size, key, error))
        for state in states.values():
            state.mark_processed()  # except records in progress, even before the next poll
        # Workers end when nothing is ready, so an idle consumer has none.
        for _ in range(min(self._queue.ready, self._options.concurrency - self._workers)):
            self._workers += 1
            self._handlers.start(self._work())

    async def _work(self) -> None:
        """Handle records until none is ready."""
        yield_at = self._now() + MAX_LOOP_SECONDS
        try:
            # Ends when no record is ready, or a handler has failed.
            while self._queue.ready and self._failure is None:
                # Handlers that never wait would hold the event loop.
                if self._now() >= yield_at:
                    await asyncio.sleep(0)
                    yield_at = self._now() + MAX_LOOP_SECONDS
                    continue
                unfinished = self._queue.take()
                if self._is_outdated(unfinished):
                    unfinished.offsets.abandon(unfinished.record)
                    self._queue.done(unfinished)
                    self._room.set()
                else:
                    await self._handle(unfinished)
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001  # raised by `run`
            self._fail(error)
            self._polling.cancel()
        finally:
            self._workers -= 1
            self._room.set()  # its records may have been dropped before it got one

    def _is_outdated(self, unfinished: Unfinished) -> bool:
        """Return True for a record of a topic that was created again, or of a revoked partition."""
        state = self._subscription.states.get(unfinished.partition)
        return state is None or state.in_progress is not unfinished.offsets

    async def _handle(self, unfinished: Unfinished) -> None:
        record, offsets, done = unfinished.record, unfinished.offsets, False
        timeout = self._options.handler_timeout
        offsets.start(record, self._now())
        try:
            with self._handlers.running(unfinished.partition, timeout) as scope:
                if unfinished.error is None:
                    result = self._handler(record)
                    await awaitable_result(result, self._handler, "handler")
                else:
                    await self._undecodable.handle(unfinished.error)
            # Cancelled by a rebalance or its timeout: the record is read again.
            done = not scope.cancelled_caught
        finally:
            if done:
                offsets.end(record)
            else:
                offsets.abandon(record)
        self._queue.done(unfinished)
        self._room.set()
        # Both the timeout and a rebalance cancel the scope; the deadline distinguishes them.
        if timeout is not None and scope.cancelled_caught and self._now() >= scope.deadline:
            raise KafkaTimeoutError(
                f"the handler did not return within {timeout:g} s (handler_timeout), and was "
                "cancelled: the record will be read again",
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
            )

    def _fail(self, error: BaseException) -> None:
        self._failure = first_failure(self._failure, error)


def _partition_of(error: Exception) -> TopicPartition | None:
    if isinstance(error, KafkaError) and error.topic is not None and error.partition is not None:
        return TopicPartition(error.topic, error.partition)
    return None


def place_of(record: AnyRecord) -> tuple[str, int, int]:
    """Return topic, partition and offset."""
    return record.topic, record.partition, record.offset


def record_size(record: AnyRecord) -> int:
    """Return the bytes of key and value, if they are bytes or text."""
    return sum(len(part) for part in (record.key, record.value) if isinstance(part, bytes | str))
