"""State of a transactional id: producer id, epoch and transaction. Pure.

Times are milliseconds since the epoch. `new_id()` allocates producer ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.transactions.transaction_state import (
    TransactionEvent,
    TransactionState,
    transition_for,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafka_async.types import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
MAX_PRODUCER_EPOCH: Final = 0x7FFF - 1
"""The highest epoch of a producer; the next one is reserved for fencing."""


class ProducerIdAndEpoch(NamedTuple):
    """Identifies a producer."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


class TransactionMetadata:
    """Holds the coordinator's state of a transactional id."""

    def __init__(self, transactional_id: str, producer_id: int, timeout_ms: int) -> None:
        self.id = transactional_id
        self.state = TransactionState.EMPTY
        self.producer_id = producer_id
        self.epoch = NO_EPOCH
        self.timeout_ms = timeout_ms
        self.partitions: set[TopicPartition] = set()
        self.start_time_ms = -1
        self.last_update_ms = 0
        # The last epoch and the previous id recognize a retry after a lost response (KIP-360). The
        # next id is set while the markers are written, if the epochs of the current id are used up.
        self._last_producer_epoch = NO_EPOCH
        self._prev_producer_id = NO_PRODUCER_ID
        self._next_producer_id = NO_PRODUCER_ID

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """The current producer id and epoch."""
        if self._next_producer_id != NO_PRODUCER_ID:
            return ProducerIdAndEpoch(self._next_producer_id, 0)
        return ProducerIdAndEpoch(self.producer_id, self.epoch)

    # -- requests ---------------------------------------------------------------------------------

    def init_producer_id(
        self,
        expected: ProducerIdAndEpoch | None,
        timeout_ms: int,
        now: int,
        new_id: Callable[[], int],
    ) -> ErrorCode:
        """Handle InitProducerId: bump the epoch; `producer` is for the response.

        `expected` is the producer's previous id and epoch (KIP-360); it is fenced if another
        producer has taken over. With an ongoing transaction, the state becomes PrepareEpochFence,
        and the caller must call `fence`.
        """
        if expected is not None and not self._is_expected_producer(expected):
            return ErrorCode.PRODUCER_FENCED
        next_state = transition_for(TransactionEvent.INIT, self.state)
        if isinstance(next_state, ErrorCode):
            return next_state
        if next_state is TransactionState.PREPARE_EPOCH_FENCE:
            self.state = next_state
            return ErrorCode.CONCURRENT_TRANSACTIONS
        code = self._bump_epoch(expected, new_id)
        if code is ErrorCode.NONE:
            self.state, self.timeout_ms = next_state, timeout_ms
            self.partitions.clear()
            self.start_time_ms, self.last_update_ms = -1, now
        return code

    def add(
        self, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition], now: int
    ) -> ErrorCode:
        """Add partitions to the transaction, and begin it if needed."""
        code = self._validate_producer(producer)
        if code is not ErrorCode.NONE:
            return code
        next_state = transition_for(TransactionEvent.ADD, self.state)
        if isinstance(next_state, ErrorCode):
            return next_state
        if self.state is not TransactionState.ONGOING:
            self.start_time_ms = now
        self.state, self.last_update_ms = next_state, now
        self.partitions.update(partitions)
        return ErrorCode.NONE

    def verify(self, producer: ProducerIdAndEpoch, partition: TopicPartition) -> ErrorCode:
        """Return NONE if a partition is in the producer's transaction."""
        code = self._validate_producer(producer)
        if code is not ErrorCode.NONE:
            return code
        next_state = transition_for(TransactionEvent.ADD, self.state)
        if isinstance(next_state, ErrorCode):
            return next_state
        return ErrorCode.NONE if partition in self.partitions else ErrorCode.TRANSACTION_ABORTABLE

    def end(
        self,
        producer: ProducerIdAndEpoch,
        now: int,
        new_id: Callable[[], int],
        *,
        commit: bool,
        bumps_epoch: bool,
    ) -> ErrorCode:
        """Handle EndTxn; `bumps_epoch` is True with transactions v2.

        The argument `producer` is from the request; the attribute `producer` is for the response. A
        retry returns NONE too: `state` shows if markers must be written.
        """
        is_retry = bumps_epoch and self._is_end_txn_retry(producer)
        if producer.producer_id != self.producer_id and not is_retry:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if producer.epoch != self.epoch and not is_retry:
            return ErrorCode.PRODUCER_FENCED
        next_state = transition_for(END_TXN_EVENTS[commit, bumps_epoch, is_retry], self.state)
        if isinstance(next_state, ErrorCode):
            return next_state
        self._prepare_end(next_state, now, new_id, bumps_epoch=bumps_epoch)
        return ErrorCode.NONE

    def fence(self, now: int, new_id: Callable[[], int], *, bumps_epoch: bool) -> ErrorCode:
        """Abort the ongoing transaction and fence its producer."""
        next_state = transition_for(TransactionEvent.FENCE, self.state)
        if isinstance(next_state, ErrorCode):
            return next_state
        if not bumps_epoch:
            self.epoch, self._last_producer_epoch = self.epoch + 1, NO_EPOCH
        self._prepare_end(next_state, now, new_id, bumps_epoch=bumps_epoch)
        return ErrorCode.NONE

    def complete(self, now: int) -> None:
        """Complete the transaction after all markers were written."""
        next_state = transition_for(TransactionEvent.MARKERS_WRITTEN, self.state)
        if isinstance(next_state, ErrorCode):
            return
        self.state, self.last_update_ms = next_state, now
        self.partitions.clear()
        if self._next_producer_id != NO_PRODUCER_ID:
            self._rotate_producer_id(self._next_producer_id)

    def expire(self, now: int, expiration_ms: int) -> bool:
        """Change the state to Dead if the id has expired; return True if so."""
        next_state = transition_for(TransactionEvent.EXPIRE, self.state)
        if isinstance(next_state, ErrorCode) or now - self.last_update_ms < expiration_ms:
            return False
        self.state = next_state
        return True

    # -- epochs -----------------------------------------------------------------------------------

    def _validate_producer(self, producer: ProducerIdAndEpoch) -> ErrorCode:
        if producer.producer_id != self.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE if producer.epoch == self.epoch else ErrorCode.PRODUCER_FENCED

    def _is_expected_producer(self, expected: ProducerIdAndEpoch) -> bool:
        """Return False if `expected` is another producer.

        It may have the previous producer id if the response with the new one was lost.
        """
        rotated = (
            expected.producer_id == self._prev_producer_id and expected.epoch >= MAX_PRODUCER_EPOCH
        )
        return self.epoch == NO_EPOCH or expected.producer_id == self.producer_id or rotated

    def _bump_epoch(
        self, expected: ProducerIdAndEpoch | None, new_id: Callable[[], int]
    ) -> ErrorCode:
        current = expected is None or self.epoch in (NO_EPOCH, expected.epoch)
        if not current:
            # The same producer retries after a lost response; otherwise another producer has bumped
            # the epoch.
            response_lost = expected is not None and expected.epoch == self._last_producer_epoch
            return ErrorCode.NONE if response_lost else ErrorCode.PRODUCER_FENCED
        last_epoch = NO_EPOCH if expected is None else self.epoch
        if self.epoch >= MAX_PRODUCER_EPOCH:
            self._rotate_producer_id(new_id())
        else:
            self.epoch += 1
        self._last_producer_epoch = last_epoch
        return ErrorCode.NONE

    def _rotate_producer_id(self, producer_id: int) -> None:
        self._prev_producer_id, self.producer_id = self.producer_id, producer_id
        self.epoch, self._next_producer_id = 0, NO_PRODUCER_ID

    def _is_end_txn_retry(self, producer: ProducerIdAndEpoch) -> bool:
        """Return True if an earlier EndTxn with this epoch has already bumped it."""
        if producer.producer_id == self.producer_id:
            return self.epoch == producer.epoch + 1
        return producer == (self._prev_producer_id, MAX_PRODUCER_EPOCH) and self.epoch == 0

    def _prepare_end(
        self,
        next_state: TransactionState,
        now: int,
        new_id: Callable[[], int],
        *,
        bumps_epoch: bool,
    ) -> None:
        if self.state not in (TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE):
            self.start_time_ms = now
        if bumps_epoch:
            if self.epoch >= MAX_PRODUCER_EPOCH:
                self._next_producer_id = new_id()
            self.epoch, self._last_producer_epoch = self.epoch + 1, self.epoch
        self.state, self.last_update_ms = next_state, now


END_TXN_EVENTS: Final = {
    # commit, bumps_epoch, is_retry
    (True, False, False): TransactionEvent.COMMIT_V1,
    (False, False, False): TransactionEvent.ABORT_V1,
    (True, True, False): TransactionEvent.COMMIT,
    (False, True, False): TransactionEvent.ABORT,
    (True, True, True): TransactionEvent.RETRY_COMMIT,
    (False, True, True): TransactionEvent.RETRY_ABORT,
}
