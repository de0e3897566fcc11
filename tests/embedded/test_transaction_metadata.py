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


def test_other_producer_id_with_current_epoch_is_fenced() -> None:
    driver = Driver()
    driver.init()
    assert driver.init((98, 0))[0] is ErrorCode.PRODUCER_FENCED
    assert driver.init((100, 0)) == (ErrorCode.NONE, 100, 1)


def test_exhausted_producer_id_is_replaced() -> None:
    driver = Driver()
    driver.exhaust()
    assert driver.init() == (ErrorCode.NONE, 101, 0)


def test_recovery_with_last_epoch_can_be_retried() -> None:
    driver = Driver()
    driver.exhaust()
    assert driver.init((100, MAX_PRODUCER_EPOCH)) == (ErrorCode.NONE, 101, 0)
    assert driver.init((100, MAX_PRODUCER_EPOCH)) == (ErrorCode.NONE, 101, 0)


# -- EndTxn with transactions v2 (KIP-890) --------------------------------------------------------


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


def test_fence_without_transaction_fails() -> None:
    driver = Driver()
    driver.init()
    assert driver.fence() is ErrorCode.INVALID_TXN_STATE
    assert driver.metadata.producer == (100, 0)


# -- partitions and expiration --------------------------------------------------------------------


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
