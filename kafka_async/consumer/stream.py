"""Record streams: `async for record in consumer`.

A record counts as processed when the next one is requested. A stream holds the event loop for 5 ms
at most.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafka_async.errors import ClientClosedError, RecordDeserializationError
from kafka_async.kernel import NextRecord, RecordIterator

if TYPE_CHECKING:
    from kafka_async.consumer.deserialize import Convert
    from kafka_async.consumer.fetch_buffer import AnyRecord
    from kafka_async.consumer.subscription import PartitionState

MAX_LOOP_SECONDS: Final = 0.005
"""Maximum seconds for which the event loop is held."""


class RecordSource(Protocol):
    """Provides a stream's records."""

    async def next_records(self) -> tuple[PartitionState, list[AnyRecord]]:
        """Wait for records of one batch. Raises ClientClosedError once the consumer stops."""
        ...

    async def yield_to_event_loop(self) -> None:
        """Let other tasks run."""
        ...

    def put_back(self, rest: tuple[PartitionState, list[AnyRecord]] | None) -> None:
        """Take back records that were not returned."""
        ...


class StreamCursor:
    """Tracks which of the records taken for a stream were returned.

    `next_record` holds the records, and returns them while nothing else has to be checked.
    """

    __slots__ = (
        "_clock",
        "_convert",
        "_source",
        "_yield_at",
        "next_record",
        "position_version",
        "state",
    )

    def __init__(self, source: RecordSource, convert: Convert | None) -> None:
        self._source = source
        self._convert = convert
        self._clock = asyncio.get_running_loop().time
        self._yield_at = 0.0
        self.next_record = NextRecord(self._clock, self._next)
        self.state: PartitionState | None = None
        self.position_version = 0

    def stream(self) -> RecordIterator[Any, Any]:
        """Return a new iterator, which continues where the last one ended."""
        self._set_yield_time(self._clock() + MAX_LOOP_SECONDS)
        return RecordIterator[Any, Any](self.next_record)

    @property
    def record(self) -> AnyRecord | None:
        """The record returned last, before it was deserialized; None if there is none."""
        next_record = self.next_record
        return next_record.records[next_record.at - 1] if next_record.at else None

    @property
    def current(self) -> PartitionState | None:
        """The partition of the records; None if it was sought or lost since."""
        state = self.state
        return (
            state if state is not None and state.position_version == self.position_version else None
        )

    # -- returning records ------------------------------------------------------------------------

    async def _next(self) -> AnyRecord:
        """Return the next record. Raises StopAsyncIteration once the consumer stops."""
        if self._clock() >= self._yield_at:
            await self._source.yield_to_event_loop()
            self._set_yield_time(self._clock() + MAX_LOOP_SECONDS)
        next_record = self.next_record
        if next_record.at == len(next_record.records):
            await self._refill()
        record = next_record.records[next_record.at]
        if self._convert is not None:
            try:
                record = self._convert(record)
            except RecordDeserializationError:
                self._source.put_back(self._take_back_failed())
                raise
        next_record.at += 1
        return record

    async def _refill(self) -> None:
        self.finish()
        try:
            state, records = await self._source.next_records()
        except ClientClosedError:
            raise StopAsyncIteration from None
        self._set_yield_time(self._clock() + MAX_LOOP_SECONDS)
        self.state, self.position_version = state, state.position_version
        self.next_record.records, self.next_record.at = records, 0
        # The fetcher has advanced past all these records; a stream advances record by record.
        state.position = state.processed = records[0].offset

    def _set_yield_time(self, time: float) -> None:
        self._yield_at = time
        # With deserializers the kernel must not return records by itself.
        self.next_record.until = time if self._convert is None else float("-inf")

    # -- positions --------------------------------------------------------------------------------

    def update_position(self) -> None:
        """Set the partition's position after the record returned last."""
        state, record = self.current, self.record
        if state is not None and record is not None:
            epoch = record.leader_epoch
            state.advance_position(record.offset + 1, -1 if epoch is None else epoch)
            state.processed = max(state.processed, record.offset)

    def finish(self) -> None:
        """Advance the position past the records, including offsets that compaction has removed."""
        self.update_position()
        state = self.current
        if state is not None and self.next_record.at:
            state.advance_position(state.buffer.position)
            state.mark_processed()
        self._clear()

    def take_back(self) -> tuple[PartitionState, list[AnyRecord]] | None:
        """Remove the records that were not returned, and return them if they are still valid."""
        self.update_position()
        state, rest = self.current, self.next_record.records[self.next_record.at :]
        self._clear()
        return None if state is None else (state, rest)

    def _take_back_failed(self) -> tuple[PartitionState, list[AnyRecord]] | None:
        """Remove the records from the next one on, which cannot be deserialized."""
        rest = self.take_back()
        if rest is not None:
            rest[0].mark_processed()
        return rest

    def _clear(self) -> None:
        self.state = None
        self.next_record.records, self.next_record.at = [], 0
