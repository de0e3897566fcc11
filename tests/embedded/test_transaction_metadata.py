"""The state of a transactional id: epochs, fencing, retries, expiration."""

from __future__ import annotations

import itertools

import pytest

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.transactions.transaction_metadata import (
    MAX_PRODUCER_EPOCH,
    ProducerIdAndEpoch,
    TransactionMetadata,
)
from kafka_async.embedded.transactions.transaction_state import TransactionState
from kafka_async.types import TopicPartition

TP = TopicPartition("t", 0)
HOUR = 3_600_000


class Driver:
    """Drives a transactional id; `complete` stands for written markers."""

    def __init__(self, bumps_epoch: bool = True) -> None:
        self._ids = itertools.count(100)
        self.bumps_epoch = bumps_epoch
        self.now = 0
        self.metadata = TransactionMetadata("t", next(self._ids), 60_000)

    def init(self, expected: tuple[int, int] | None = None) -> tuple[ErrorCode, int, int]:
        given = None if expected is None else ProducerIdAndEpoch(*expected)
        code = self.metadata.init_producer_id(given, 60_000, self.now, lambda: next(self._ids))
        producer = self.metadata.producer
        return code, producer.producer_id, producer.epoch

    def add(self, producer: tuple[int, int]) -> ErrorCode:
        return self.metadata.add(ProducerIdAndEpoch(*producer), [TP], self.now)

    def end(self, producer: tuple[int, int], commit: bool = True) -> ErrorCode:
        return self.metadata.end(
            ProducerIdAndEpoch(*producer),
            self.now,
            lambda: next(self._ids),
            commit=commit,
            bumps_epoch=self.bumps_epoch,
        )

    def fence(self) -> ErrorCode:
        return self.metadata.fence(self.now, lambda: next(self._ids), bumps_epoch=self.bumps_epoch)

    def complete(self) -> None:
        self.metadata.complete(self.now)

    def exhaust(self) -> None:
        """Use up the epochs of this producer id."""
        while self.metadata.epoch < MAX_PRODUCER_EPOCH:
            assert self.init()[0] is ErrorCode.NONE


# -- InitProducerId -------------------------------------------------------------------------------


def test_each_init_bumps_epoch() -> None:
    driver = Driver()
    assert driver.init() == (ErrorCode.NONE, 100, 0)
    assert driver.init() == (ErrorCode.NONE, 100, 1)


def test_older_producer_is_fenced() -> None:
    driver = Driver()
    driver.init()
    driver.init()
    assert driver.add((100, 0)) is ErrorCode.PRODUCER_FENCED
    assert driver.end((100, 0)) is ErrorCode.PRODUCER_FENCED
    assert driver.init((100, 0))[0] is ErrorCode.PRODUCER_FENCED
    assert driver.add((99, 1)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert driver.add((100, 1)) is ErrorCode.NONE


@pytest.mark.parametrize("bumps_epoch", [False, True])
def test_new_producer_aborts_ongoing_transaction_first(bumps_epoch: bool) -> None:
    driver = Driver(bumps_epoch)
    driver.init()
    driver.add((100, 0))
    assert driver.init()[0] is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.metadata.state is TransactionState.PREPARE_EPOCH_FENCE
    assert driver.fence() is ErrorCode.NONE
    assert driver.metadata.state is TransactionState.PREPARE_ABORT
    assert driver.metadata.epoch == 1  # of the markers: fences the old producer
    assert driver.init()[0] is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.complete()
    assert driver.init() == (ErrorCode.NONE, 100, 2)


def test_producer_recovers_with_id_and_epoch() -> None:  # KIP-360
    driver = Driver()
    driver.init()
    assert driver.init((100, 0)) == (ErrorCode.NONE, 100, 1)
    assert driver.init((100, 0)) == (ErrorCode.NONE, 100, 1)  # a retry after a lost response
    assert driver.init((100, 1)) == (ErrorCode.NONE, 100, 2)
    assert driver.init((100, 0))[0] is ErrorCode.PRODUCER_FENCED
    assert driver.init((98, 2))[0] is ErrorCode.PRODUCER_FENCED


def test_recovery_after_other_producer_is_fenced() -> None:
    driver = Driver()
    driver.init()
    driver.init()
    assert driver.init((100, 0))[0] is ErrorCode.PRODUCER_FENCED


def test_exhausted_producer_id_is_replaced() -> None:
    driver = Driver()
    driver.exhaust()
    assert driver.init() == (ErrorCode.NONE, 101, 0)


def test_recovery_with_last_epoch_can_be_retried() -> None:
    driver = Driver()
    driver.exhaust()
    assert driver.init((100, MAX_PRODUCER_EPOCH)) == (ErrorCode.NONE, 101, 0)
    assert driver.init((100, MAX_PRODUCER_EPOCH)) == (ErrorCode.NONE, 101, 0)


# -- EndTxn with transactions v1 ------------------------------------------------------------------


def test_v1_keeps_epoch() -> None:
    driver = Driver(bumps_epoch=False)
    driver.init()
    driver.add((100, 0))
    assert driver.end((100, 0)) is ErrorCode.NONE
    assert driver.metadata.state is TransactionState.PREPARE_COMMIT
    assert driver.end((100, 0)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.add((100, 0)) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.complete()
    assert driver.end((100, 0)) is ErrorCode.NONE  # a retry
    assert driver.end((100, 0), commit=False) is ErrorCode.INVALID_TXN_STATE
    assert driver.metadata.producer == (100, 0)


def test_v1_rejects_end_without_transaction() -> None:
    driver = Driver(bumps_epoch=False)
    driver.init()
    assert driver.end((100, 0)) is ErrorCode.INVALID_TXN_STATE
    assert driver.end((100, 0), commit=False) is ErrorCode.INVALID_TXN_STATE


# -- EndTxn with transactions v2 (KIP-890) --------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_v2_bumps_epoch_with_every_end(commit: bool) -> None:
    driver = Driver()
    driver.init()
    driver.add((100, 0))
    assert driver.end((100, 0), commit) is ErrorCode.NONE
    assert driver.metadata.producer == (100, 1)
    driver.complete()
    assert driver.add((100, 0)) is ErrorCode.PRODUCER_FENCED
    assert driver.add((100, 1)) is ErrorCode.NONE


@pytest.mark.parametrize("commit", [True, False])
def test_retried_end_gets_same_result(commit: bool) -> None:
    driver = Driver()
    driver.init()
    driver.add((100, 0))
    driver.end((100, 0), commit)
    assert (
        driver.end((100, 0), commit) is ErrorCode.CONCURRENT_TRANSACTIONS
    )  # until the markers are written
    assert driver.end((100, 0), not commit) is ErrorCode.INVALID_TXN_STATE
    driver.complete()
    state = driver.metadata.state
    assert driver.end((100, 0), commit) is ErrorCode.NONE
    assert driver.end((100, 0), not commit) is ErrorCode.INVALID_TXN_STATE
    assert driver.metadata.producer == (100, 1)
    assert driver.metadata.state is state


def test_retried_end_after_next_transaction_is_fenced() -> None:
    driver = Driver()
    driver.init()
    driver.add((100, 0))
    driver.end((100, 0))
    driver.complete()
    driver.add((100, 1))
    assert driver.end((100, 0)) is ErrorCode.PRODUCER_FENCED
    assert driver.metadata.state is TransactionState.ONGOING


def test_abort_without_transaction_bumps_epoch() -> None:
    driver = Driver()
    driver.init()
    assert driver.end((100, 0)) is ErrorCode.INVALID_TXN_STATE
    assert driver.end((100, 0), commit=False) is ErrorCode.NONE
    driver.complete()
    assert driver.metadata.state is TransactionState.COMPLETE_ABORT
    assert driver.end((100, 1), commit=False) is ErrorCode.NONE
    driver.complete()
    assert driver.metadata.producer == (100, 2)


def test_end_with_last_epoch_returns_next_producer_id() -> None:
    driver = Driver()
    driver.exhaust()
    driver.add((100, MAX_PRODUCER_EPOCH))
    assert driver.end((100, MAX_PRODUCER_EPOCH)) is ErrorCode.NONE
    assert driver.metadata.producer == (101, 0)
    markers = (driver.metadata.producer_id, driver.metadata.epoch)
    assert markers == (100, MAX_PRODUCER_EPOCH + 1)
    driver.complete()
    assert driver.end((100, MAX_PRODUCER_EPOCH)) is ErrorCode.NONE  # a retry
    assert driver.metadata.producer == (101, 0)
    assert driver.add((101, 0)) is ErrorCode.NONE


# -- timeouts -------------------------------------------------------------------------------------


def test_timeout_fences_v1_producer() -> None:
    driver = Driver(bumps_epoch=False)
    driver.init()
    driver.add((100, 0))
    assert driver.fence() is ErrorCode.NONE
    driver.complete()
    assert driver.metadata.state is TransactionState.COMPLETE_ABORT
    assert driver.end((100, 0)) is ErrorCode.PRODUCER_FENCED
    assert driver.init((100, 0))[0] is ErrorCode.PRODUCER_FENCED


def test_timeout_is_like_abort_for_v2_producer() -> None:
    driver = Driver()
    driver.init()
    driver.add((100, 0))
    assert driver.fence() is ErrorCode.NONE
    driver.complete()
    assert driver.add((100, 0)) is ErrorCode.PRODUCER_FENCED
    assert driver.end((100, 0), commit=True) is ErrorCode.INVALID_TXN_STATE
    assert driver.end((100, 0), commit=False) is ErrorCode.NONE
    assert driver.init((100, 0)) == (ErrorCode.NONE, 100, 1)


def test_fence_without_transaction_fails() -> None:
    driver = Driver()
    driver.init()
    assert driver.fence() is ErrorCode.INVALID_TXN_STATE
    assert driver.metadata.producer == (100, 0)


# -- partitions and expiration --------------------------------------------------------------------


def test_verifies_partitions() -> None:
    driver = Driver()
    driver.init()
    producer = ProducerIdAndEpoch(100, 0)
    assert driver.metadata.verify(producer, TP) is ErrorCode.TRANSACTION_ABORTABLE
    driver.add(producer)
    assert driver.metadata.verify(producer, TP) is ErrorCode.NONE
    assert (
        driver.metadata.verify(producer, TopicPartition("t", 1)) is ErrorCode.TRANSACTION_ABORTABLE
    )
    assert driver.metadata.verify(ProducerIdAndEpoch(100, 1), TP) is ErrorCode.PRODUCER_FENCED
    assert (
        driver.metadata.verify(ProducerIdAndEpoch(9, 0), TP)
        is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    )
    driver.end(producer)
    assert (
        driver.metadata.verify(ProducerIdAndEpoch(100, 1), TP) is ErrorCode.CONCURRENT_TRANSACTIONS
    )
    driver.complete()
    assert driver.metadata.partitions == set()


def test_transaction_starts_with_first_partition() -> None:
    driver = Driver()
    driver.init()
    driver.now = 5
    driver.add((100, 0))
    driver.now = 7
    driver.add((100, 0))
    assert driver.metadata.start_time_ms == 5


def test_idle_transactional_id_expires_except_in_transaction() -> None:
    driver = Driver()
    driver.init()
    assert not driver.metadata.expire(HOUR - 1, HOUR)
    driver.add((100, 0))
    assert not driver.metadata.expire(10 * HOUR, HOUR)
    driver.end((100, 0))
    driver.complete()
    assert driver.metadata.expire(HOUR, HOUR)
    assert driver.metadata.state is TransactionState.DEAD
    assert driver.init()[0] is ErrorCode.INVALID_PRODUCER_ID_MAPPING
