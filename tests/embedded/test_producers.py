"""Idempotence and transactions as one partition sees them."""

from __future__ import annotations

import pytest

from kafka_async.embedded.producers import SEQUENCES, Producers
from kafka_async.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
)
from kafka_async.records.batch import BatchHeader
from tests.embedded.wire import batch

DAY = 86_400_000


def header(
    sequence: int, count: int = 1, *, epoch: int = 0, transactional: bool = False
) -> BatchHeader:
    values = [b"v"] * count
    return BatchHeader.unpack(
        batch(*values, producer_id=9, epoch=epoch, sequence=sequence, transactional=transactional)
    )


class Partition:
    """Producers, and the log's end."""

    def __init__(self) -> None:
        self.producers = Producers(DAY)
        self.end = 0
        self.now = 0

    def write(self, sequence: int, count: int = 1, *, epoch: int = 0, txn: bool = False) -> int:
        """Write a batch of producer 9; its base offset, the first one's if it repeats."""
        head = header(sequence, count, epoch=epoch, transactional=txn)
        known = self.producers.check(head, self.now)
        if known is not None:
            return known.base_offset
        base, self.end = self.end, self.end + count
        self.producers.record(head, base, 0, self.now)
        return base

    def mark(self, *, aborted: bool, epoch: int = 0) -> int:
        self.producers.check_marker(9, epoch)
        offset, self.end = self.end, self.end + 1
        self.producers.end_transaction(9, epoch, 0, offset, self.now, aborted=aborted)
        return offset


def test_sequences_go_on_where_the_last_batch_ended() -> None:
    log = Partition()
    assert [log.write(0, 3), log.write(3), log.write(4)] == [0, 3, 4]


@pytest.mark.parametrize("sequence", [2, 3, 5, 100])
def test_a_gap_or_a_step_back_is_out_of_order(sequence: int) -> None:
    log = Partition()
    log.write(0, 4)
    with pytest.raises(OutOfOrderSequenceError):
        log.write(sequence)


def test_sequences_wrap_to_zero() -> None:
    log = Partition()
    log.write(SEQUENCES - 2, 2)
    assert log.write(0) == 2


def test_one_batch_may_wrap() -> None:
    log = Partition()
    log.write(SEQUENCES - 1, 3)
    assert log.write(2) == 3


def test_a_producer_that_nobody_knows_may_begin_anywhere() -> None:
    assert Partition().write(17) == 0


def test_each_of_the_last_five_batches_may_be_repeated() -> None:
    log = Partition()
    for sequence in range(6):
        log.write(sequence)
    assert [log.write(sequence) for sequence in range(1, 6)] == [1, 2, 3, 4, 5]
    with pytest.raises(OutOfOrderSequenceError):
        log.write(0)
    assert log.write(6) == 6


def test_a_batch_is_a_repetition_only_if_both_ends_are_the_same() -> None:
    log = Partition()
    log.write(0, 3)
    with pytest.raises(OutOfOrderSequenceError):
        log.write(0, 2)


def test_a_newer_epoch_begins_with_zero_and_fences_the_older() -> None:
    log = Partition()
    log.write(0, 5)
    with pytest.raises(OutOfOrderSequenceError):
        log.write(5, epoch=1)
    assert log.write(0, epoch=1) == 5
    with pytest.raises(InvalidProducerEpochError):
        log.write(5)


def test_a_producer_that_was_silent_for_long_is_forgotten() -> None:
    log = Partition()
    log.write(0)
    log.now = DAY + 1
    assert log.write(40) == 1


def test_a_transaction_is_open_from_its_first_record_to_its_marker() -> None:
    log = Partition()
    log.write(0, 2, txn=True)
    log.write(2, txn=True)
    assert log.producers.transaction_start(9) == log.producers.first_open_offset == 0
    log.mark(aborted=False)
    assert log.producers.transaction_start(9) is None
    assert log.producers.aborted(0, 100) == []


def test_no_record_outside_the_transaction_while_one_is_open() -> None:
    log = Partition()
    log.write(0, txn=True)
    with pytest.raises(InvalidTxnStateError):
        log.write(1)


def test_an_aborted_transaction_is_indexed_from_its_first_record_to_its_marker() -> None:
    log = Partition()
    log.write(0, 2, txn=True)
    marker = log.mark(aborted=True)
    (entry,) = log.producers.aborted(0, 100)
    assert (entry.producer_id, entry.first_offset, entry.last_offset) == (9, 0, marker)
    assert log.producers.aborted(marker, 100) == [entry]
    assert log.producers.aborted(marker + 1, 100) == []
    assert log.producers.aborted(0, 0) == []


def test_a_marker_without_a_transaction_aborts_nothing() -> None:
    log = Partition()
    log.mark(aborted=True)
    assert log.producers.aborted(0, 100) == []


def test_a_marker_of_the_next_epoch_fences_what_is_still_under_way() -> None:
    log = Partition()
    log.write(0, txn=True)
    log.mark(aborted=False, epoch=1)
    with pytest.raises(InvalidProducerEpochError):
        log.write(1, txn=True)
    assert log.write(0, epoch=1, txn=True) == 2


def test_a_marker_of_the_same_epoch_lets_sequences_go_on() -> None:
    log = Partition()
    log.write(0, txn=True)
    log.mark(aborted=False)
    assert log.write(1, txn=True) == 2


def test_a_marker_of_an_older_epoch_is_refused() -> None:
    log = Partition()
    log.write(0, epoch=3)
    with pytest.raises(InvalidProducerEpochError):
        log.mark(aborted=True, epoch=2)
