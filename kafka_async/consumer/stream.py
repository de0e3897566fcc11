"""`async for record in consumer`: one batch after the other, without waiting in between.

The record in hand counts as done when the next one is asked for. A stream never holds the event
loop for longer than 5 ms.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Generic, Protocol

from typing_extensions import TypeVar

from kafka_async.errors import ClientClosedError, RecordDeserializationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka_async.consumer.buffer import AnyRecord
    from kafka_async.consumer.deserialize import Convert
    from kafka_async.consumer.subscription import PartitionState
    from kafka_async.kernel import Record

K = TypeVar("K", default=bytes)
V = TypeVar("V", default=bytes)

SLICE: Final = 0.005
"""Seconds for which the event loop may be held."""


class Supply(Protocol):
    """Where a stream gets its batches from."""

    async def next_batch(self) -> tuple[PartitionState, list[AnyRecord]]:
        """The next batch's records; waits. Raises ClientClosedError once the consumer stops."""
        ...

    async def breathe(self) -> None:
        """Let the event loop do something else."""
        ...

    def put_back(self, rest: tuple[PartitionState, list[AnyRecord]] | None) -> None:
        """These were not handed out after all."""
        ...


class Cursor:
    """How far a stream has come in its batch; the engine keeps it when the stream is gone."""

    __slots__ = ("batch", "place", "record", "rest", "state")

    def __init__(self) -> None:
        self.batch: list[AnyRecord] = []
        self.rest: Iterator[AnyRecord] = iter(())
        self.state: PartitionState | None = None
        self.place = 0
        self.record: AnyRecord | None = None
        """The record in the application's hands."""

    @property
    def current(self) -> PartitionState | None:
        """The partition that the batch is of, if it still stands where the batch belongs."""
        state = self.state
        return state if state is not None and state.place == self.place else None

    def begin(
        self, state: PartitionState, batch: list[AnyRecord], rest: Iterator[AnyRecord]
    ) -> None:
        """A batch has left the buffer, of which the first record is about to go out."""
        self.state, self.place, self.batch, self.rest = state, state.place, batch, rest
        state.position = state.done = batch[0].offset

    def settle(self) -> None:
        """Note in the partition's state how far the records have gone out."""
        state, record = self.current, self.record
        if state is not None and record is not None:
            epoch = record.leader_epoch
            state.handed_out(record.offset + 1, -1 if epoch is None else epoch)
            state.done = max(state.done, record.offset)

    def finish(self) -> None:
        """The batch is through: go on after it, beyond what compaction has removed of it."""
        self.settle()
        state = self.current
        if state is not None and self.record is not None:
            state.handed_out(state.buffer.position)
            state.asked_past()
        self.forget()

    def cut(self) -> tuple[PartitionState, list[AnyRecord]] | None:
        """Hand out no more of the batch; what is left of it, if it is still worth something."""
        self.settle()
        state = self.current
        after = -1 if self.record is None else self.record.offset
        rest = [record for record in self.batch if record.offset > after]
        self.forget()
        return None if state is None else (state, rest)

    def stumble(self, offset: int) -> tuple[PartitionState, list[AnyRecord]] | None:
        """The record at `offset` cannot be handed out: what is left of the batch, from it on."""
        self.settle()
        state = self.current
        rest = [record for record in self.batch if record.offset >= offset]
        self.forget()
        if state is None:
            return None
        state.asked_past()
        return state, rest

    def forget(self) -> None:
        """Hold nothing."""
        self.state, self.record, self.batch, self.rest = None, None, [], iter(())


class RecordStream(Generic[K, V]):
    """The iterator of one `async for`."""

    def __init__(self, supply: Supply, cursor: Cursor, convert: Convert | None) -> None:
        self._supply = supply
        self._cursor = cursor
        self._convert = convert
        self._time = asyncio.get_running_loop().time
        self._yield_at = self._time() + SLICE

    def __aiter__(self) -> RecordStream[K, V]:
        """Itself."""
        return self

    async def __anext__(self) -> Record[K, V]:
        """The next record. Raises what stands in its way; StopAsyncIteration once stopped."""
        if self._time() >= self._yield_at:
            await self._supply.breathe()
            self._yield_at = self._time() + SLICE
        cursor = self._cursor
        try:
            record = next(cursor.rest, None) or await self._refill()
        except RecordDeserializationError as error:
            self._supply.put_back(cursor.stumble(-1 if error.offset is None else error.offset))
            raise
        cursor.record = record
        return record

    async def _refill(self) -> AnyRecord:
        self._cursor.finish()
        try:
            state, batch = await self._supply.next_batch()
        except ClientClosedError:
            raise StopAsyncIteration from None
        self._yield_at = self._time() + SLICE
        rest = iter(batch) if self._convert is None else map(self._convert, batch)
        self._cursor.begin(state, batch, rest)
        return next(rest)
