"""One transactional id: its producer, its epoch and its transaction. Pure.

Times are milliseconds since the epoch. `new_id()` makes producer ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_async.embedded.codes import Code
from kafka_async.embedded.transactions.state import Event, TransactionState, outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafka_async.types import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
LAST_EPOCH: Final = 0x7FFF - 1
"""The last epoch that a producer gets: one more is needed to fence it."""


class ProducerIdAndEpoch(NamedTuple):
    """Who a producer is."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


class TransactionEntry:
    """What the coordinator knows of a transactional id."""

    def __init__(self, transactional_id: str, producer_id: int, timeout_ms: int) -> None:
        self.id = transactional_id
        self.state = TransactionState.EMPTY
        self.producer_id = producer_id
        self.epoch = NO_EPOCH
        self.timeout_ms = timeout_ms
        self.partitions: set[TopicPartition] = set()
        self.started = -1
        self.updated = 0
        self._last_epoch = NO_EPOCH
        self._previous_id = NO_PRODUCER_ID
        self._next_id = NO_PRODUCER_ID

    @property
    def identity(self) -> ProducerIdAndEpoch:
        """What the producer is to use from now on."""
        if self._next_id != NO_PRODUCER_ID:
            return ProducerIdAndEpoch(self._next_id, 0)
        return ProducerIdAndEpoch(self.producer_id, self.epoch)

    # -- requests ------------------------------------------------------------------------------

    def initialize(
        self,
        expected: ProducerIdAndEpoch | None,
        timeout_ms: int,
        now: int,
        new_id: Callable[[], int],
    ) -> Code:
        """InitProducerId: raise the epoch; `identity` is the answer.

        `expected` is who the producer was (KIP-360): it is fenced if somebody else came after it.
        With an ongoing transaction the state becomes PrepareEpochFence: it is `fence`'s turn.
        """
        if expected is not None and not self._may_be(expected):
            return Code.PRODUCER_FENCED
        step = outcome(Event.INIT, self.state)
        if isinstance(step, Code):
            return step
        if step is TransactionState.PREPARE_EPOCH_FENCE:
            self.state = step
            return Code.CONCURRENT_TRANSACTIONS
        code = self._bump(expected, new_id)
        if code is Code.NONE:
            self.state, self.timeout_ms = step, timeout_ms
            self.partitions.clear()
            self.started, self.updated = -1, now
        return code

    def add(
        self, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition], now: int
    ) -> Code:
        """Add partitions to the transaction, and begin it if there is none."""
        code = self._check(producer)
        if code is not Code.NONE:
            return code
        step = outcome(Event.ADD, self.state)
        if isinstance(step, Code):
            return step
        if self.state is not TransactionState.ONGOING:
            self.started = now
        self.state, self.updated = step, now
        self.partitions.update(partitions)
        return Code.NONE

    def verify(self, producer: ProducerIdAndEpoch, partition: TopicPartition) -> Code:
        """Whether a partition is in the producer's transaction."""
        code = self._check(producer)
        if code is not Code.NONE:
            return code
        step = outcome(Event.ADD, self.state)
        if isinstance(step, Code):
            return step
        return Code.NONE if partition in self.partitions else Code.TRANSACTION_ABORTABLE

    def end(
        self,
        producer: ProducerIdAndEpoch,
        now: int,
        new_id: Callable[[], int],
        *,
        commit: bool,
        bumps: bool,
    ) -> Code:
        """EndTxn. `bumps` is transactions v2; `identity` is the answer's.

        NONE is the answer to a repetition too: what is to be done shows in `state`.
        """
        again = bumps and self._is_repetition(producer)
        if producer.producer_id != self.producer_id and not again:
            return Code.INVALID_PRODUCER_ID_MAPPING
        if producer.epoch != self.epoch and not again:
            return Code.PRODUCER_FENCED
        step = outcome(END_EVENTS[commit, bumps, again], self.state)
        if isinstance(step, Code):
            return step
        self._prepare(step, now, new_id, bumps=bumps)
        return Code.NONE

    def fence(self, now: int, new_id: Callable[[], int], *, bumps: bool) -> Code:
        """Abort the ongoing transaction in the producer's place, and lock the producer out."""
        if self.state is TransactionState.ONGOING:
            self.state = TransactionState.PREPARE_EPOCH_FENCE
        step = outcome(Event.FENCED, self.state)
        if isinstance(step, Code):
            return step
        if not bumps:
            self.epoch, self._last_epoch = self.epoch + 1, NO_EPOCH
        self._prepare(step, now, new_id, bumps=bumps)
        return Code.NONE

    def complete(self, now: int) -> None:
        """Every partition has its marker."""
        step = outcome(Event.MARKED, self.state)
        if isinstance(step, Code):
            return
        self.state, self.updated = step, now
        self.partitions.clear()
        if self._next_id != NO_PRODUCER_ID:
            self._rotate(self._next_id)

    def expired(self, now: int, after_ms: int) -> bool:
        """Whether nobody has used the id for so long that it is Dead now."""
        step = outcome(Event.EXPIRE, self.state)
        if isinstance(step, Code) or now - self.updated < after_ms:
            return False
        self.state = step
        return True

    # -- epochs --------------------------------------------------------------------------------

    def _check(self, producer: ProducerIdAndEpoch) -> Code:
        if producer.producer_id != self.producer_id:
            return Code.INVALID_PRODUCER_ID_MAPPING
        return Code.NONE if producer.epoch == self.epoch else Code.PRODUCER_FENCED

    def _may_be(self, expected: ProducerIdAndEpoch) -> bool:
        """Whether this is our producer, a new one, or one whose id was rotated unknown to it."""
        rotated = expected.producer_id == self._previous_id and expected.epoch >= LAST_EPOCH
        return self.epoch == NO_EPOCH or expected.producer_id == self.producer_id or rotated

    def _bump(self, expected: ProducerIdAndEpoch | None, new_id: Callable[[], int]) -> Code:
        current = expected is None or self.epoch in (NO_EPOCH, expected.epoch)
        if not current:
            # A repetition, if the answer was lost; else somebody came after it.
            lost = expected is not None and expected.epoch == self._last_epoch
            return Code.NONE if lost else Code.PRODUCER_FENCED
        last = NO_EPOCH if expected is None else self.epoch
        if self.epoch >= LAST_EPOCH:
            self._rotate(new_id())
        else:
            self.epoch += 1
        self._last_epoch = last
        return Code.NONE

    def _rotate(self, producer_id: int) -> None:
        self._previous_id, self.producer_id = self.producer_id, producer_id
        self.epoch, self._next_id = 0, NO_PRODUCER_ID

    def _is_repetition(self, producer: ProducerIdAndEpoch) -> bool:
        """Whether an EndTxn carries the epoch that an earlier one has bumped already."""
        if producer.producer_id == self.producer_id:
            return self.epoch == producer.epoch + 1
        return producer == (self._previous_id, LAST_EPOCH) and self.epoch == 0

    def _prepare(
        self, step: TransactionState, now: int, new_id: Callable[[], int], *, bumps: bool
    ) -> None:
        if self.state not in (TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE):
            self.started = now
        if bumps:
            if self.epoch >= LAST_EPOCH:
                self._next_id = new_id()
            self.epoch, self._last_epoch = self.epoch + 1, self.epoch
        self.state, self.updated = step, now


END_EVENTS: Final = {
    # commit, bumps, again
    (True, False, False): Event.COMMIT_V1,
    (False, False, False): Event.ABORT_V1,
    (True, True, False): Event.COMMIT,
    (False, True, False): Event.ABORT,
    (True, True, True): Event.COMMIT_AGAIN,
    (False, True, True): Event.ABORT_AGAIN,
}
