"""`async for record in consumer`: one record after the other, without waiting in between.

The record in hand counts as done when the next one is asked for. A stream never holds the event
loop for longer than 5 ms.
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

SLICE: Final = 0.005
"""Seconds for which the event loop may be held."""


class Supply(Protocol):
    """Where a stream gets its records from."""

    async def next_records(self) -> tuple[PartitionState, list[AnyRecord]]:
        """Some of a batch; waits. Raises ClientClosedError once the consumer stops."""
        ...

    async def breathe(self) -> None:
        """Let the event loop do something else."""
        ...

    def put_back(self, rest: tuple[PartitionState, list[AnyRecord]] | None) -> None:
        """These were not handed out after all."""
        ...


class Cursor:
    """How far the application has come in the records that were taken for its streams.

    `hand` holds them, and gives them as long as that needs no look at anything else.
    """

    __slots__ = ("_convert", "_supply", "_time", "_yield_at", "hand", "place", "state")

    def __init__(self, supply: Supply, convert: Convert | None) -> None:
        self._supply = supply
        self._convert = convert
        self._time = asyncio.get_running_loop().time
        self._yield_at = 0.0
        self.hand = NextRecord(self._time, self._more)
        self.state: PartitionState | None = None
        self.place = 0

    def stream(self) -> RecordIterator[Any, Any]:
        """A new iterator of the records, from where the last one came to."""
        self._let_go_at(self._time() + SLICE)
        return RecordIterator[Any, Any](self.hand)

    @property
    def record(self) -> AnyRecord | None:
        """The record in the application's hands, as it was before it was deserialized."""
        hand = self.hand
        return hand.records[hand.at - 1] if hand.at else None

    @property
    def current(self) -> PartitionState | None:
        """The partition that the records are of, if it still stands where they belong."""
        state = self.state
        return state if state is not None and state.place == self.place else None

    # -- asking for the next ----------------------------------------------------------------------

    async def _more(self) -> AnyRecord:
        """The next record, wherever it is. Raises StopAsyncIteration once the consumer stops."""
        if self._time() >= self._yield_at:
            await self._supply.breathe()
            self._let_go_at(self._time() + SLICE)
        hand = self.hand
        if hand.at == len(hand.records):
            await self._refill()
        record = hand.records[hand.at]
        if self._convert is not None:
            try:
                record = self._convert(record)
            except RecordDeserializationError:
                self._supply.put_back(self._stumble())
                raise
        hand.at += 1
        return record

    async def _refill(self) -> None:
        self.finish()
        try:
            state, records = await self._supply.next_records()
        except ClientClosedError:
            raise StopAsyncIteration from None
        self._let_go_at(self._time() + SLICE)
        self.state, self.place = state, state.place
        self.hand.records, self.hand.at = records, 0
        state.position = state.done = records[0].offset

    def _let_go_at(self, time: float) -> None:
        self._yield_at = time
        # What is to be deserialized is not given as it is.
        self.hand.until = time if self._convert is None else float("-inf")

    # -- what became of those before --------------------------------------------------------------

    def settle(self) -> None:
        """Note in the partition's state how far the records have gone out."""
        state, record = self.current, self.record
        if state is not None and record is not None:
            epoch = record.leader_epoch
            state.handed_out(record.offset + 1, -1 if epoch is None else epoch)
            state.done = max(state.done, record.offset)

    def finish(self) -> None:
        """The records are through: go on after them, beyond what compaction has removed."""
        self.settle()
        state = self.current
        if state is not None and self.hand.at:
            state.handed_out(state.buffer.position)
            state.asked_past()
        self._forget()

    def cut(self) -> tuple[PartitionState, list[AnyRecord]] | None:
        """Hand out no more of the records; what is left, if it is still worth something."""
        self.settle()
        state, rest = self.current, self.hand.records[self.hand.at :]
        self._forget()
        return None if state is None else (state, rest)

    def _stumble(self) -> tuple[PartitionState, list[AnyRecord]] | None:
        """The next record cannot be handed out: what is left of the records, from it on."""
        rest = self.cut()
        if rest is not None:
            rest[0].asked_past()
        return rest

    def _forget(self) -> None:
        """Hold nothing."""
        self.state = None
        self.hand.records, self.hand.at = [], 0
