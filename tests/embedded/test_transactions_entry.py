"""One transactional id, driven by hand: who is fenced, who may go on, what a retry is answered."""

from __future__ import annotations

import itertools

import pytest

from kafka_async.embedded.codes import Code
from kafka_async.embedded.transactions.entry import (
    LAST_EPOCH,
    ProducerIdAndEpoch,
    TransactionEntry,
)
from kafka_async.embedded.transactions.state import TransactionState
from kafka_async.types import TopicPartition

TP = TopicPartition("t", 0)
HOUR = 3_600_000


class Driver:
    """An entry whose markers are written when `complete` is called."""

    def __init__(self, bumps: bool = True) -> None:
        self._ids = itertools.count(100)
        self.bumps = bumps
        self.now = 0
        self.entry = TransactionEntry("t", next(self._ids), 60_000)

    def init(self, expected: tuple[int, int] | None = None) -> tuple[Code, int, int]:
        given = None if expected is None else ProducerIdAndEpoch(*expected)
        code = self.entry.initialize(given, 60_000, self.now, lambda: next(self._ids))
        identity = self.entry.identity
        return code, identity.producer_id, identity.epoch

    def add(self, producer: tuple[int, int]) -> Code:
        return self.entry.add(ProducerIdAndEpoch(*producer), [TP], self.now)

    def end(self, producer: tuple[int, int], commit: bool = True) -> Code:
        return self.entry.end(
            ProducerIdAndEpoch(*producer),
            self.now,
            lambda: next(self._ids),
            commit=commit,
            bumps=self.bumps,
        )

    def fence(self) -> Code:
        return self.entry.fence(self.now, lambda: next(self._ids), bumps=self.bumps)

    def complete(self) -> None:
        self.entry.complete(self.now)

    def exhaust(self) -> None:
        """Use up the epochs of this producer id."""
        while self.entry.epoch < LAST_EPOCH:
            assert self.init()[0] is Code.NONE


# -- InitProducerId -------------------------------------------------------------------------------


def test_each_initialization_raises_the_epoch() -> None:
    driver = Driver()
    assert driver.init() == (Code.NONE, 100, 0)
    assert driver.init() == (Code.NONE, 100, 1)


def test_an_older_producer_is_fenced() -> None:
    driver = Driver()
    driver.init()
    driver.init()
    assert driver.add((100, 0)) is Code.PRODUCER_FENCED
    assert driver.end((100, 0)) is Code.PRODUCER_FENCED
    assert driver.init((100, 0))[0] is Code.PRODUCER_FENCED
    assert driver.add((99, 1)) is Code.INVALID_PRODUCER_ID_MAPPING
    assert driver.add((100, 1)) is Code.NONE


@pytest.mark.parametrize("bumps", [False, True])
def test_a_new_producer_has_the_ongoing_transaction_aborted_first(bumps: bool) -> None:
    driver = Driver(bumps)
    driver.init()
    driver.add((100, 0))
    assert driver.init()[0] is Code.CONCURRENT_TRANSACTIONS
    assert driver.entry.state is TransactionState.PREPARE_EPOCH_FENCE
    assert driver.fence() is Code.NONE
    assert driver.entry.state is TransactionState.PREPARE_ABORT
    assert driver.entry.epoch == 1  # the markers' epoch, which locks the old producer out
    assert driver.init()[0] is Code.CONCURRENT_TRANSACTIONS
    driver.complete()
    assert driver.init() == (Code.NONE, 100, 2)


def test_a_producer_recovers_with_its_id_and_epoch() -> None:  # KIP-360
    driver = Driver()
    driver.init()
    assert driver.init((100, 0)) == (Code.NONE, 100, 1)
    assert driver.init((100, 0)) == (Code.NONE, 100, 1)  # the answer was lost
    assert driver.init((100, 1)) == (Code.NONE, 100, 2)
    assert driver.init((100, 0))[0] is Code.PRODUCER_FENCED
    assert driver.init((98, 2))[0] is Code.PRODUCER_FENCED


def test_recovery_after_another_producer_came_is_fenced() -> None:
    driver = Driver()
    driver.init()
    driver.init()
    assert driver.init((100, 0))[0] is Code.PRODUCER_FENCED


def test_an_id_without_epochs_left_is_replaced() -> None:
    driver = Driver()
    driver.exhaust()
    assert driver.init() == (Code.NONE, 101, 0)


def test_recovery_with_the_last_epoch_may_be_repeated() -> None:
    driver = Driver()
    driver.exhaust()
    assert driver.init((100, LAST_EPOCH)) == (Code.NONE, 101, 0)
    assert driver.init((100, LAST_EPOCH)) == (Code.NONE, 101, 0)


# -- EndTxn with transactions v1 ------------------------------------------------------------------


def test_v1_keeps_the_epoch() -> None:
    driver = Driver(bumps=False)
    driver.init()
    driver.add((100, 0))
    assert driver.end((100, 0)) is Code.NONE
    assert driver.entry.state is TransactionState.PREPARE_COMMIT
    assert driver.end((100, 0)) is Code.CONCURRENT_TRANSACTIONS
    assert driver.add((100, 0)) is Code.CONCURRENT_TRANSACTIONS
    driver.complete()
    assert driver.end((100, 0)) is Code.NONE  # a repetition
    assert driver.end((100, 0), commit=False) is Code.INVALID_TXN_STATE
    assert driver.entry.identity == (100, 0)


def test_v1_cannot_end_what_has_not_begun() -> None:
    driver = Driver(bumps=False)
    driver.init()
    assert driver.end((100, 0)) is Code.INVALID_TXN_STATE
    assert driver.end((100, 0), commit=False) is Code.INVALID_TXN_STATE


# -- EndTxn with transactions v2 (KIP-890) --------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_v2_bumps_the_epoch_with_every_end(commit: bool) -> None:
    driver = Driver()
    driver.init()
    driver.add((100, 0))
    assert driver.end((100, 0), commit) is Code.NONE
    assert driver.entry.identity == (100, 1)
    driver.complete()
    assert driver.add((100, 0)) is Code.PRODUCER_FENCED
    assert driver.add((100, 1)) is Code.NONE


@pytest.mark.parametrize("commit", [True, False])
def test_a_retried_end_is_answered_as_the_first(commit: bool) -> None:
    driver = Driver()
    driver.init()
    driver.add((100, 0))
    driver.end((100, 0), commit)
    assert driver.end((100, 0), commit) is Code.CONCURRENT_TRANSACTIONS  # until it is marked
    assert driver.end((100, 0), not commit) is Code.INVALID_TXN_STATE
    driver.complete()
    state = driver.entry.state
    assert driver.end((100, 0), commit) is Code.NONE
    assert driver.end((100, 0), not commit) is Code.INVALID_TXN_STATE
    assert driver.entry.identity == (100, 1)
    assert driver.entry.state is state


def test_a_retry_after_the_next_transaction_has_begun_is_fenced() -> None:
    driver = Driver()
    driver.init()
    driver.add((100, 0))
    driver.end((100, 0))
    driver.complete()
    driver.add((100, 1))
    assert driver.end((100, 0)) is Code.PRODUCER_FENCED
    assert driver.entry.state is TransactionState.ONGOING


def test_an_abort_of_nothing_bumps_the_epoch() -> None:
    driver = Driver()
    driver.init()
    assert driver.end((100, 0)) is Code.INVALID_TXN_STATE
    assert driver.end((100, 0), commit=False) is Code.NONE
    driver.complete()
    assert driver.entry.state is TransactionState.COMPLETE_ABORT
    assert driver.end((100, 1), commit=False) is Code.NONE
    driver.complete()
    assert driver.entry.identity == (100, 2)


def test_an_end_that_uses_up_the_epochs_gives_the_next_producer_id() -> None:
    driver = Driver()
    driver.exhaust()
    driver.add((100, LAST_EPOCH))
    assert driver.end((100, LAST_EPOCH)) is Code.NONE
    assert driver.entry.identity == (101, 0)
    assert (driver.entry.producer_id, driver.entry.epoch) == (100, LAST_EPOCH + 1)  # the markers'
    driver.complete()
    assert driver.end((100, LAST_EPOCH)) is Code.NONE  # a repetition
    assert driver.entry.identity == (101, 0)
    assert driver.add((101, 0)) is Code.NONE


# -- time-outs ------------------------------------------------------------------------------------


def test_a_time_out_locks_a_v1_producer_out() -> None:
    driver = Driver(bumps=False)
    driver.init()
    driver.add((100, 0))
    assert driver.fence() is Code.NONE
    driver.complete()
    assert driver.entry.state is TransactionState.COMPLETE_ABORT
    assert driver.end((100, 0)) is Code.PRODUCER_FENCED
    assert driver.init((100, 0))[0] is Code.PRODUCER_FENCED


def test_a_time_out_looks_to_a_v2_producer_like_an_abort_it_has_sent() -> None:
    driver = Driver()
    driver.init()
    driver.add((100, 0))
    assert driver.fence() is Code.NONE
    driver.complete()
    assert driver.add((100, 0)) is Code.PRODUCER_FENCED
    assert driver.end((100, 0), commit=True) is Code.INVALID_TXN_STATE
    assert driver.end((100, 0), commit=False) is Code.NONE
    assert driver.init((100, 0)) == (Code.NONE, 100, 1)


def test_there_is_nothing_to_fence_without_a_transaction() -> None:
    driver = Driver()
    driver.init()
    assert driver.fence() is Code.INVALID_TXN_STATE
    assert driver.entry.identity == (100, 0)


# -- partitions and expiration --------------------------------------------------------------------


def test_partitions_are_verified() -> None:
    driver = Driver()
    driver.init()
    producer = ProducerIdAndEpoch(100, 0)
    assert driver.entry.verify(producer, TP) is Code.TRANSACTION_ABORTABLE
    driver.add(producer)
    assert driver.entry.verify(producer, TP) is Code.NONE
    assert driver.entry.verify(producer, TopicPartition("t", 1)) is Code.TRANSACTION_ABORTABLE
    assert driver.entry.verify(ProducerIdAndEpoch(100, 1), TP) is Code.PRODUCER_FENCED
    assert driver.entry.verify(ProducerIdAndEpoch(9, 0), TP) is Code.INVALID_PRODUCER_ID_MAPPING
    driver.end(producer)
    assert driver.entry.verify(ProducerIdAndEpoch(100, 1), TP) is Code.CONCURRENT_TRANSACTIONS
    driver.complete()
    assert driver.entry.partitions == set()


def test_a_transaction_begins_with_its_first_partition() -> None:
    driver = Driver()
    driver.init()
    driver.now = 5
    driver.add((100, 0))
    driver.now = 7
    driver.add((100, 0))
    assert driver.entry.started == 5


def test_an_id_that_nobody_uses_dies_but_never_in_a_transaction() -> None:
    driver = Driver()
    driver.init()
    assert not driver.entry.expired(HOUR - 1, HOUR)
    driver.add((100, 0))
    assert not driver.entry.expired(10 * HOUR, HOUR)
    driver.end((100, 0))
    driver.complete()
    assert driver.entry.expired(HOUR, HOUR)
    assert driver.entry.state is TransactionState.DEAD
    assert driver.init()[0] is Code.INVALID_PRODUCER_ID_MAPPING
