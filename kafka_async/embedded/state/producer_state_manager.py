"""Producer state of a partition: sequences, epochs, ongoing and aborted transactions. Pure.

As on a broker (KIP-98, KIP-360), a batch is new, a duplicate of one of the last five, or refused.
`check_batch_sequence` only removes the batch's producer if it has expired; `update` and
`end_transaction` are called after a batch or a marker was written.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_async.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
)

if TYPE_CHECKING:
    from kafka_async.records.batch import BatchHeader

NUM_BATCHES_TO_RETAIN: Final = 5
"""Batches per producer that are checked for duplicates: the maximum in flight."""

SEQUENCE_MODULUS: Final = 2**31
"""Sequence numbers wrap from 2^31 - 1 to 0."""


class BatchMetadata(NamedTuple):
    """Describes a batch of an idempotent producer in the log."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp: int


class AbortedTxn(NamedTuple):
    """Describes an aborted transaction.

    `last_offset` is the marker's, `last_stable_offset` the LSO after the transaction.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(slots=True)
class ProducerStateEntry:
    """Holds the state of one producer id."""

    epoch: int
    coordinator_epoch: int = -1
    batches: deque[BatchMetadata] = field(
        default_factory=lambda: deque(maxlen=NUM_BATCHES_TO_RETAIN)
    )
    last_update_ms: int = 0
    last_timestamp: int = -1
    """Highest timestamp of the last batch or marker."""

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record in this epoch, or -1."""
        return self.batches[-1].last_sequence if self.batches else -1


def last_sequence(header: BatchHeader) -> int:
    """Return the sequence of a batch's last record."""
    return (header.base_sequence + header.last_offset_delta) % SEQUENCE_MODULUS


class ProducerStateManager:
    """Tracks the producers of one partition. Times are milliseconds since the epoch."""

    def __init__(self, expiration_ms: int) -> None:
        self._expiration_ms = expiration_ms
        self._producers: dict[int, ProducerStateEntry] = {}
        self._ongoing_txns: dict[int, int] = {}  # first offsets, ascending
        self._aborted_txns: list[AbortedTxn] = []

    @property
    def producers(self) -> dict[int, ProducerStateEntry]:
        """The state of each producer id."""
        return self._producers

    def current_txn_start_offset(self, producer_id: int) -> int | None:
        """Return the first offset of a producer's ongoing transaction, or None."""
        return self._ongoing_txns.get(producer_id)

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest ongoing transaction, or None."""
        return next(iter(self._ongoing_txns.values()), None)

    def check_batch_sequence(
        self, header: BatchHeader, now: int, *, requires_zero_sequence: bool = False
    ) -> BatchMetadata | None:
        """Return the earlier batch that a batch duplicates, or None for a new batch.

        With `requires_zero_sequence` a producer without state must begin with sequence 0.
        """
        self._remove_expired(header.producer_id, now)
        state = self._producers.get(header.producer_id)
        if state is None:
            if requires_zero_sequence and header.base_sequence != 0:
                raise OutOfOrderSequenceError(
                    f"Invalid sequence number for producer {header.producer_id}, which has "
                    f"written nothing yet: {header.base_sequence}"
                )
            return None
        epoch = header.producer_epoch
        if epoch < state.epoch:
            raise InvalidProducerEpochError(
                f"Epoch of producer {header.producer_id} is {epoch}, which is smaller than the "
                f"last seen epoch {state.epoch}"
            )
        if header.producer_id in self._ongoing_txns and not header.is_transactional:
            raise InvalidTxnStateError(
                f"Expected transactional write from producer {header.producer_id}"
            )
        first, last = header.base_sequence, last_sequence(header)
        if epoch == state.epoch:
            for batch in state.batches:
                if (batch.first_sequence, batch.last_sequence) == (first, last):
                    return batch
        expected = (state.last_sequence + 1) % SEQUENCE_MODULUS if epoch == state.epoch else 0
        if first != expected:
            raise OutOfOrderSequenceError(
                f"Out of order sequence number for producer {header.producer_id}: "
                f"{first} (incoming seq. number), {expected} (expected seq. number)"
            )
        return None

    def update(self, header: BatchHeader, base_offset: int, timestamp: int, now: int) -> None:
        """Update a producer's state after a new batch was written."""
        state = self._producers.get(header.producer_id)
        if state is None or state.epoch != header.producer_epoch:
            state = self._producers[header.producer_id] = ProducerStateEntry(header.producer_epoch)
        state.last_update_ms, state.last_timestamp = now, timestamp
        state.batches.append(
            BatchMetadata(header.base_sequence, last_sequence(header), base_offset, timestamp)
        )
        if header.is_transactional:
            self._ongoing_txns.setdefault(header.producer_id, base_offset)

    def check_marker_epoch(self, producer_id: int, epoch: int) -> None:
        """Raise InvalidProducerEpochError if a marker's epoch is older than the producer's."""
        state = self._producers.get(producer_id)
        if state is not None and epoch < state.epoch:
            raise InvalidProducerEpochError(
                f"a marker of producer {producer_id} has epoch {epoch}, not {state.epoch}"
            )

    def end_transaction(
        self,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        offset: int,
        now: int,
        *,
        aborted: bool,
    ) -> None:
        """End a producer's transaction after its marker was written at `offset`."""
        state = self._producers.get(producer_id)
        if state is None or state.epoch != epoch:
            state = self._producers[producer_id] = ProducerStateEntry(epoch)
        state.last_update_ms = state.last_timestamp = now
        state.coordinator_epoch = coordinator_epoch
        first = self._ongoing_txns.pop(producer_id, None)
        if aborted and first is not None:
            unstable = self.first_unstable_offset
            last_stable_offset = offset + 1 if unstable is None else unstable
            self._aborted_txns.append(AbortedTxn(producer_id, first, offset, last_stable_offset))

    def aborted_txns(self, start: int, upper: int) -> list[AbortedTxn]:
        """Return the aborted transactions with records from offset `start` to below `upper`."""
        return [
            transaction
            for transaction in self._aborted_txns
            if transaction.last_offset >= start and transaction.first_offset < upper
        ]

    def delete_below(self, offset: int) -> None:
        """Drop the aborted transactions below an offset, after their records were deleted."""
        self._aborted_txns = [entry for entry in self._aborted_txns if entry.last_offset >= offset]

    def _remove_expired(self, producer_id: int, now: int) -> None:
        state = self._producers.get(producer_id)
        if state is None or producer_id in self._ongoing_txns:
            return
        if now - state.last_update_ms > self._expiration_ms:
            del self._producers[producer_id]
