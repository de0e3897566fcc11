"""What a partition knows of its producers: sequences, epochs, open and aborted transactions. Pure.

Decides as a broker does (KIP-98, KIP-360): a batch is new, a repetition of one of the last five, or
refused. `check` decides and changes nothing; `record` and `end_transaction` take note of what was
written.
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

REMEMBERED: Final = 5
"""Batches a producer may repeat: as many as it may have in flight."""

SEQUENCES: Final = 2**31
"""Sequences go from 0 to 2^31 - 1 and then on with 0."""


class WrittenBatch(NamedTuple):
    """A batch of an idempotent producer that is in the log."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp: int


class AbortedTransaction(NamedTuple):
    """An aborted transaction: offsets of its first record and its marker, the LSO after it."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(slots=True)
class ProducerState:
    """The latest of one producer id."""

    epoch: int
    coordinator_epoch: int = -1
    written: deque[WrittenBatch] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    touched: int = 0
    last_timestamp: int = -1
    """The highest timestamp of the last batch or marker."""

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, -1 if this epoch has written none."""
        return self.written[-1].last_sequence if self.written else -1


def last_sequence(header: BatchHeader) -> int:
    """The sequence of a batch's last record."""
    return (header.base_sequence + header.last_offset_delta) % SEQUENCES


class Producers:
    """All producers of one partition. Times are milliseconds since the epoch."""

    def __init__(self, expiration_ms: int) -> None:
        self._expiration_ms = expiration_ms
        self._states: dict[int, ProducerState] = {}
        self._open: dict[int, int] = {}  # producer id -> first offset, which ascends by insertion
        self._aborted: list[AbortedTransaction] = []

    @property
    def states(self) -> dict[int, ProducerState]:
        """The latest of each producer id."""
        return self._states

    def transaction_start(self, producer_id: int) -> int | None:
        """The first offset of a producer's open transaction here."""
        return self._open.get(producer_id)

    @property
    def first_open_offset(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return next(iter(self._open.values()), None)

    def check(
        self, header: BatchHeader, now: int, *, from_zero: bool = False
    ) -> WrittenBatch | None:
        """The batch that this one repeats, None if it is new; raises what forbids it.

        A producer that is not known begins with any sequence, or `from_zero`.
        """
        self._expire(header.producer_id, now)
        state = self._states.get(header.producer_id)
        if state is None:
            if from_zero and header.base_sequence != 0:
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
        if header.producer_id in self._open and not header.is_transactional:
            raise InvalidTxnStateError(
                f"Expected transactional write from producer {header.producer_id}"
            )
        first, last = header.base_sequence, last_sequence(header)
        if epoch == state.epoch:
            for written in state.written:
                if (written.first_sequence, written.last_sequence) == (first, last):
                    return written
        expected = (state.last_sequence + 1) % SEQUENCES if epoch == state.epoch else 0
        if first != expected:
            raise OutOfOrderSequenceError(
                f"Out of order sequence number for producer {header.producer_id}: "
                f"{first} (incoming seq. number), {expected} (expected seq. number)"
            )
        return None

    def record(self, header: BatchHeader, base_offset: int, timestamp: int, now: int) -> None:
        """A batch that `check` found new is in the log."""
        state = self._states.get(header.producer_id)
        if state is None or state.epoch != header.producer_epoch:
            state = self._states[header.producer_id] = ProducerState(header.producer_epoch)
        state.touched, state.last_timestamp = now, timestamp
        state.written.append(
            WrittenBatch(header.base_sequence, last_sequence(header), base_offset, timestamp)
        )
        if header.is_transactional:
            self._open.setdefault(header.producer_id, base_offset)

    def check_marker(self, producer_id: int, epoch: int) -> None:
        """Raise if a coordinator's marker comes from an epoch that has passed."""
        state = self._states.get(producer_id)
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
        """A marker is in the log at `offset`: the producer's transaction is over."""
        state = self._states.get(producer_id)
        if state is None or state.epoch != epoch:
            state = self._states[producer_id] = ProducerState(epoch)
        state.touched = state.last_timestamp = now
        state.coordinator_epoch = coordinator_epoch
        first = self._open.pop(producer_id, None)
        if aborted and first is not None:
            stable = self.first_open_offset
            self._aborted.append(
                AbortedTransaction(
                    producer_id, first, offset, offset + 1 if stable is None else stable
                )
            )

    def aborted(self, start: int, upper: int) -> list[AbortedTransaction]:
        """The aborted transactions with records from offset `start` on and below `upper`."""
        return [
            transaction
            for transaction in self._aborted
            if transaction.last_offset >= start and transaction.first_offset < upper
        ]

    def drop_below(self, offset: int) -> None:
        """Records below an offset are gone, and with them what was aborted there."""
        self._aborted = [entry for entry in self._aborted if entry.last_offset >= offset]

    def _expire(self, producer_id: int, now: int) -> None:
        state = self._states.get(producer_id)
        if state is None or producer_id in self._open:
            return
        if now - state.touched > self._expiration_ms:
            del self._states[producer_id]
