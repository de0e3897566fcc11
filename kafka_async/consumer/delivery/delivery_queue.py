"""Partitions with records or errors to return, in turn.

A poll takes records of the first partition, which then moves to the back, so that no partition
starves another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from kafka_async.consumer.buffer.decompress_ahead import AheadDecompressor, round_robin

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from kafka_async.consumer.buffer.fetch_buffer import AnyRecord, FetchBuffer
    from kafka_async.consumer.subscription import PartitionState, Subscription
    from kafka_async.foundation.supervisor import Supervisor
    from kafka_async.kernel import NextRecord
    from kafka_async.records.batch import BatchView
    from kafka_async.types import TopicPartition


class DeliveryQueue:
    """Orders the partitions with something to return, and tracks what is being processed.

    Attributes:
        records: Records taken by polls and streams, not by `poll_batches`.
        undecodable: Records that were skipped, or given to the application, because they cannot be
            deserialized.
        decompressed_bytes: Bytes of decompressed batches that were read.
    """

    def __init__(self, supervisor: Supervisor, subscription: Subscription) -> None:
        # For statistics; `decompressed_bytes` also limits what one poll decompresses.
        self.records = self.undecodable = self.decompressed_bytes = 0
        self._supervisor = supervisor
        self._subscription = subscription
        # Partitions that may have something to return; `first` removes those that do not.
        self._partitions: deque[PartitionState] = deque()
        self._poll_wakeup = asyncio.Event()
        self._unprocessed: set[PartitionState] = set()  # records returned since the last poll
        self._streamed: PartitionState | None = None  # partition of the records lent to a stream
        # Kept until records of another partition are taken, since records may be put back into its
        # batch.
        self._last_buffer: FetchBuffer | None = None
        self._decompressor = AheadDecompressor(supervisor, lambda: round_robin(self._upcoming()))

    def __len__(self) -> int:
        return len(self._partitions)

    # -- partitions in turn -----------------------------------------------------------------------

    def add(self, state: PartitionState) -> None:
        """Add a partition that has records or an error, and wake a waiting poll."""
        if state not in self._partitions:
            self._partitions.append(state)
        self._decompressor.on_new_batches()
        self.wake_poll()

    def first(self) -> PartitionState | None:
        """Return the first partition with records or an error; removes others from the queue."""
        while self._partitions:
            state = self._partitions[0]
            # The state may have been replaced or removed since it was added.
            current = self._subscription.states.get(state.partition) is state
            if current and not state.held_back and state.has_delivery:
                return state
            self._partitions.popleft()
        return None

    def on_taken(self, state: PartitionState, records: int, *, counted: bool = True) -> None:
        """Move the first partition to the back, after records or batches of it were taken.

        If there were none, its position has only passed offsets without records to return.
        """
        buffer = state.buffer
        if self._last_buffer is not buffer:
            # None of its records is put back any more, so the batch need not be kept.
            if self._last_buffer is not None:
                self._last_buffer.release_batch()
            self._last_buffer = buffer
        if buffer.decompressed_bytes:
            self.decompressed_bytes += buffer.take_decompressed_bytes()
        self.records += records if counted else 0
        if records:
            self._unprocessed.add(state)
        else:
            self.on_passed(state)
        self._partitions.popleft()
        if state.has_delivery:
            self._partitions.append(state)

    def on_passed(self, state: PartitionState) -> None:
        """Count offsets as processed that the position has passed without a record to return."""
        # Otherwise returned records before these offsets are still being processed.
        if state not in self._unprocessed:
            state.mark_processed()

    def move_to_back(self) -> None:
        """Move the first partition to the back."""
        # Its error has been raised; the other partitions come first now.
        self._partitions.rotate(-1)

    def put_back(self, state: PartitionState, records: list[AnyRecord]) -> None:
        """Put back records of one batch that were taken but not returned."""
        state.buffer.put_back(records)
        self._on_put_back(state, len(records))

    def pass_record(self, partition: TopicPartition) -> PartitionState:
        """Take the record that was put back first, without returning it."""
        state = self._subscription.state(partition)
        state.buffer.take_chunk(1)
        self.records += 1
        self._unprocessed.add(state)
        return state

    def note_undecodable(self) -> None:
        """Count a record that is skipped, or given to the application's function."""
        self.undecodable += 1

    def _on_put_back(self, state: PartitionState, count: int) -> None:
        self.records -= count
        # At the front: these records come before those of any other partition.
        if count and state not in self._partitions:
            self._partitions.appendleft(state)

    # -- waiting polls ----------------------------------------------------------------------------

    def wake_poll(self) -> None:
        """Make a waiting poll check again for records or errors."""
        self._poll_wakeup.set()

    async def wait(self, deadline: float | None) -> bool:
        """Wait for `wake_poll`; return False at the deadline (event loop time)."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._poll_wakeup.wait()
        except TimeoutError:
            return False
        self._poll_wakeup.clear()
        return True

    # -- records being processed ------------------------------------------------------------------

    def lend(self, state: PartitionState, records: list[AnyRecord], stream: NextRecord) -> None:
        """Let a stream return the records that were taken last."""
        state.lend(records, stream)
        self._streamed = state

    def take_back(self, state: PartitionState | None = None) -> None:
        """Put back what a stream has not returned, of one partition or of all."""
        streamed = self._streamed
        if streamed is not None and state in (None, streamed):
            self._streamed = None
            self._on_put_back(streamed, streamed.take_back())

    @property
    def last_streamed(self) -> AnyRecord | None:
        """The record that a stream returned last, not deserialized, or None."""
        return None if self._streamed is None else self._streamed.buffer.last_streamed

    def mark_processed(self) -> None:
        """Mark all returned records as processed."""
        for state in self._unprocessed:
            state.mark_processed()
        self._unprocessed.clear()
        if self._streamed is not None:
            self._unprocessed.add(self._streamed)  # the stream will return more of them

    @property
    def has_unprocessed(self) -> bool:
        """True while the application processes returned records."""
        return any(
            state.has_unprocessed
            for state in self._unprocessed
            # Revoked partitions have no records to wait for.
            if self._subscription.states.get(state.partition) is state
        )

    # -- decompression ----------------------------------------------------------------------------

    def next_compressed(self) -> BatchView | None:
        """Return the batch that must be decompressed before records are taken, or None."""
        state = self.first()
        return None if state is None else state.buffer.next_compressed

    def decompression(self) -> Awaitable[object] | None:
        """Return the decompression to wait for before records are taken, or None.

        Also starts to decompress later batches.
        """
        # First, so that threads work while the application waits for this batch.
        self._decompressor.start_calls(self.decompressed_bytes)
        state = self.first()
        view = None if state is None else state.buffer.next_compressed
        if state is None or view is None:
            return None
        # A call for several batches includes this one.
        if view.decompressing and (call := self._decompressor.call_for(view)) is not None:
            return asyncio.wait({call})
        return self._supervisor.offload(_decompress, state, view)

    def _upcoming(self) -> Iterator[Iterator[BatchView]]:
        states = self._subscription.states
        for state in self._partitions:
            if not state.held_back and states.get(state.partition) is state:
                yield state.buffer.upcoming()


def _decompress(state: PartitionState, view: BatchView) -> None:
    """Decompress in a thread; drop the result if the partition was paused in the meantime."""
    view.decompress()
    if state.paused:
        view.discard_decompressed()
