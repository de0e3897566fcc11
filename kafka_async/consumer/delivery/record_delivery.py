"""Returns records to the application: `poll`, `poll_batches` and `async for`.

A record of a stream counts as processed when the next one is requested. Polls and streams hold the
event loop for at most 5 ms.
"""

from __future__ import annotations

import asyncio
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from kafka_async.consumer.buffer.fetch_buffer import MAX_DECOMPRESSED_BYTES_PER_POLL, AnyRecord
from kafka_async.consumer.delivery.partition_batch import PartitionBatch
from kafka_async.consumer.delivery.record_processor import place_of
from kafka_async.errors import (
    ClientClosedError,
    IllegalStateError,
    KafkaError,
)
from kafka_async.foundation.fairness import MAX_LOOP_SECONDS, MAX_PARSE_SECONDS, RECORDS_PER_CHUNK
from kafka_async.kernel import NextRecord, RecordIterator
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.consumer.buffer.deserialize import Convert
    from kafka_async.consumer.delivery.delivery_gate import DeliveryGate
    from kafka_async.consumer.delivery.delivery_queue import DeliveryQueue
    from kafka_async.consumer.delivery.record_processor import RawKeys
    from kafka_async.consumer.fetch.fetcher import Fetcher
    from kafka_async.consumer.interceptors import ConsumerInterceptors
    from kafka_async.consumer.subscription import PartitionState

T = TypeVar("T")
Chunk = tuple["PartitionState", list[AnyRecord]]


class RecordDelivery:
    """Returns records, for one poll or stream at a time; `check` raises errors at a poll."""

    def __init__(
        self,
        queue: DeliveryQueue,
        gate: DeliveryGate,
        fetcher: Fetcher,
        convert: Convert | None,
        before_poll: Callable[[], None],
        check: Callable[[], None],
        interceptors: ConsumerInterceptors | None,
    ) -> None:
        # Parts of the consumer; `before_poll` and `check` run at each poll.
        self._queue = queue
        self._gate = gate
        self._fetcher = fetcher
        self._convert = convert
        self._before_poll = before_poll
        self._check = check
        self._interceptors = interceptors
        # Polls yield by `_yield_at`, streams by `_stream_yield_at`, which the kernel compares too.
        self._time = asyncio.get_running_loop().time
        self._yield_at = self._stream_yield_at = 0.0
        self._next_record = NextRecord(self._time, self._next)
        # One `async for` at a time. A weak reference: an abandoned one must not block polls
        # forever. `anext(consumer)` has no loop object, so its stream is kept.
        self._active_stream: weakref.ref[RecordIterator[Any, Any]] | None = None
        self._anext_stream: RecordIterator[Any, Any] | None = None

    # -- polls ------------------------------------------------------------------------------------

    async def poll(
        self, limit: int, timeout: float | None, keys: RawKeys | None = None
    ) -> list[AnyRecord]:
        """Return records of any partitions; add their serialized keys to `keys`."""
        take = (
            self._take_records
            if self._convert is None
            else partial(self._take_deserialized, keys=keys)
        )
        interceptors = self._interceptors
        if interceptors is None:
            return await self._poll(lambda: take(limit), timeout) or []
        deadline = None if timeout is None else self._time() + timeout
        # Interceptors may drop all records: then the poll continues for the rest of its time
        # (KIP-42).
        while True:
            records = await self._poll(lambda: take(limit), timeout) or []
            kept = interceptors.on_records(records) if records else records
            if kept or not records:
                return kept
            if deadline is not None:
                timeout = deadline - self._time()
                if timeout <= 0:
                    return []

    def pass_undecodable(self, record: AnyRecord) -> None:
        """Move the position past a record whose error a poll has just raised."""
        state = self._queue.pass_record(TopicPartition(record.topic, record.partition))
        self._fetcher.on_taken(state)

    async def poll_batches(self, timeout: float | None) -> list[PartitionBatch]:
        """Return batches by partition."""
        return await self._poll(self._take_batches, timeout, decompress=False) or []

    async def _poll(
        self, take: Callable[[], T], timeout: float | None, *, decompress: bool = True
    ) -> T | None:
        self._end_stream()
        self._anext_stream = None
        with self._gate:
            self._queue.mark_processed()
            return await self._wait_for_records(take, timeout, decompress=decompress)

    def _end_stream(self) -> None:
        """Raise an error while an `async for` is in progress; otherwise end the last stream."""
        active = None if self._active_stream is None else self._active_stream()
        # A stream that has returned nothing yet may be replaced.
        if active is not None and self._queue.last_streamed is not None:
            raise IllegalStateError(
                "an `async for` over this consumer is in progress: poll, poll_batches and "
                "async for exclude each other"
            )
        self._queue.take_back()

    async def _wait_for_records(
        self, take: Callable[[], T], timeout: float | None, *, decompress: bool = True
    ) -> T | None:
        """Return the first result of `take` that is not empty, or None at the timeout.

        With `decompress`, large batches are decompressed in a thread before they are taken.
        """
        now = self._time()
        deadline = None if timeout is None else now + timeout
        # Parsing must not begin shortly before the limit, since it can take MAX_PARSE_SECONDS.
        if now >= self._yield_at - MAX_PARSE_SECONDS:
            await asyncio.sleep(0)
            self._yield_at = self._time() + MAX_LOOP_SECONDS
        self._before_poll()
        # Ends with records, an error of `_check`, or the deadline. While the gate is held, it waits
        # for the release.
        while True:
            self._check()
            if not self._gate.held:
                if decompress and (decompression := self._queue.decompression()) is not None:
                    await decompression
                    self._yield_at = self._time() + MAX_LOOP_SECONDS
                    continue  # partitions may have changed during the wait
                taken = take()
                if taken:
                    return taken
            if not await self._queue.wait(deadline):
                return None
            self._yield_at = self._time() + MAX_LOOP_SECONDS

    # -- streams ----------------------------------------------------------------------------------

    def new_stream(self) -> RecordIterator[Any, Any]:
        """Return a stream of records; there may be one at a time."""
        self._end_stream()
        self._anext_stream = None
        stream = self._create_stream()
        self._active_stream = weakref.ref(stream)
        return stream

    def anext_stream(self) -> RecordIterator[Any, Any]:
        """Return the stream that `anext(consumer)` reads."""
        if self._anext_stream is None:
            self._end_stream()
            self._anext_stream = self._create_stream()
        return self._anext_stream

    def _create_stream(self) -> RecordIterator[Any, Any]:
        """Return a new iterator, which continues where the last one ended."""
        self._set_stream_time()
        return RecordIterator[Any, Any](self._next_record)

    async def _next(self) -> AnyRecord:
        """Return the next record. Raises StopAsyncIteration once the consumer stops."""
        while True:
            record = await self._next_deserialized()
            if self._interceptors is None:
                return record
            kept = self._interceptors.on_records([record])
            if kept:
                return kept[0]

    async def _next_deserialized(self) -> AnyRecord:
        # A fast stream never waits, so it yields here. A rebalance may come in between.
        if self._time() >= self._stream_yield_at:
            with self._gate:
                self._queue.mark_processed()
                await asyncio.sleep(0)
            self._set_stream_time()
        stream = self._next_record
        # The kernel returns lent records without this coroutine; it is called when they are used
        # up.
        if stream.at == len(stream.records):
            await self._refill()
        record = stream.records[stream.at]
        if self._convert is not None:
            try:
                record = self._convert(record)
            except KafkaError:
                # The record stays the next one, so that the application can seek past it.
                self._queue.take_back()
                self._queue.mark_processed()
                raise
        stream.at += 1
        return record

    async def _refill(self) -> None:
        """Wait for records of one batch, and let the kernel return them."""
        # Offsets without records at the end of the batch are passed.
        self._queue.take_back()
        try:
            with self._gate:
                self._queue.mark_processed()
                taken = await self._wait_for_records(self._take_chunk, None)
        # Stopping ends an `async for` without an error.
        except ClientClosedError:
            if not self._gate.ended:
                raise  # the shared client was closed, not this consumer
            raise StopAsyncIteration from None
        assert taken is not None
        self._set_stream_time()
        self._queue.lend(*taken, self._next_record)

    def _set_stream_time(self) -> None:
        self._stream_yield_at = time = self._time() + MAX_LOOP_SECONDS
        # With deserializers or interceptors the kernel must not return records by itself.
        direct = self._convert is None and self._interceptors is None
        self._next_record.until = time if direct else float("-inf")

    # -- taking records ---------------------------------------------------------------------------

    def _take_records(self, limit: int) -> list[AnyRecord]:
        """Take at most `limit` records, of as many partitions as needed, in turn.

        It stops before a batch that is `next_compressed`, so that one call decompresses only one
        such batch; after MAX_DECOMPRESSED_BYTES_PER_POLL; and after MAX_PARSE_SECONDS. Raises the
        error of the first partition, if it has no record before the error.
        """
        queue = self._queue
        taken: list[AnyRecord] = []
        # The limits of this call.
        most = queue.decompressed_bytes + MAX_DECOMPRESSED_BYTES_PER_POLL
        deadline = self._time() + MAX_PARSE_SECONDS

        def enough() -> bool:
            return (
                queue.decompressed_bytes + buffer.decompressed_bytes >= most
                or self._time() >= deadline
            )

        # Ends with enough records, before a batch that needs a thread, at a limit, or before an
        # error, which is raised only if it comes first.
        while len(taken) < limit and (state := queue.first()):
            buffer = state.buffer
            if taken and (buffer.next_compressed is not None or enough()):
                break
            try:
                records = buffer.take_records(limit - len(taken), enough)
            except KafkaError:
                if taken:
                    break
                self._fail_at_corrupt_record(state)
                raise
            self._on_taken(state, len(records))
            # An error of the partition, after its last record.
            if not records and state.error is not None:
                if taken:
                    break
                self._raise_partition_error(state)
            taken = taken + records if taken else records
        return taken

    def _take_deserialized(self, limit: int, *, keys: RawKeys | None = None) -> list[AnyRecord]:
        convert = self._convert
        assert convert is not None
        queue = self._queue
        out: list[AnyRecord] = []
        max_decompressed = queue.decompressed_bytes + MAX_DECOMPRESSED_BYTES_PER_POLL
        deadline = self._time() + MAX_PARSE_SECONDS
        while len(out) < limit and queue.decompressed_bytes < max_decompressed:
            if out and (queue.next_compressed() is not None or self._time() >= deadline):
                break
            try:
                taken = self._take_chunk(limit - len(out))
                if taken is None:
                    break
                state, raw = taken
                for place, record in enumerate(raw):
                    try:
                        out.append(convert(record))
                    except KafkaError:
                        # The bad record and those after it are returned, or raise, next time.
                        queue.put_back(state, raw[place:])
                        raise
                    if keys is not None:
                        keys[place_of(record)] = record.key
            except KafkaError:
                if not out:
                    raise
                break  # raised again once these records have been returned
        return out

    def _take_chunk(self, limit: int = RECORDS_PER_CHUNK) -> Chunk | None:
        """Take records of the next partition's next batch, as many as are parsed at a time."""
        # Partitions whose batches have no records to return are passed over.
        while state := self._queue.first():
            try:
                records = state.buffer.take_chunk(limit)
            except KafkaError:
                self._fail_at_corrupt_record(state)
                raise
            self._on_taken(state, len(records))
            if records:
                return state, records
            if state.error is not None:
                self._raise_partition_error(state)
        return None

    def _take_batches(self) -> list[PartitionBatch]:
        """Take all batches by partition."""
        taken: list[PartitionBatch] = []
        # Each partition once, so that new data does not extend the call.
        for _ in range(len(self._queue)):
            state = self._queue.first()
            if state is None:
                break
            try:
                views, start = state.buffer.take_batches()
            except KafkaError:
                # Raised by the next call.
                if taken:
                    break
                self._fail_at_corrupt_record(state)
                raise
            if views:
                taken.append(PartitionBatch(state.partition, views, start, state.position))
            self._queue.on_taken(state, len(views), counted=False)
            self._fetcher.on_taken(state)
            if state.error is not None and not taken:
                self._raise_partition_error(state)
        if taken:
            self._fetcher.wakeup()
        return taken

    def _on_taken(self, state: PartitionState, records: int) -> None:
        self._queue.on_taken(state, records)
        self._fetcher.on_taken(state)

    def _fail_at_corrupt_record(self, state: PartitionState) -> None:
        """Fail a partition whose next record cannot be read, until the application seeks."""
        # Fetching more would not help: this record stays the next one.
        state.stop_fetching()
        self._queue.on_passed(state)
        self._queue.move_to_back()
        self._fetcher.wakeup()  # its buffered bytes counted against the other partitions

    def _raise_partition_error(self, state: PartitionState) -> None:
        error = state.error
        assert error is not None
        self._fetcher.on_raised(state, error)
        raise error
