"""Producer state of a partition: sequences, epochs, transactions."""

from __future__ import annotations

import pytest

from kafka_async.embedded.state.producer_state_manager import SEQUENCE_MODULUS, ProducerStateManager
from kafka_async.errors import InvalidProducerEpochError, OutOfOrderSequenceError
from kafka_async.records.batch import BatchHeader
from tests.raw_connection import batch

DAY = 86_400_000


def header(
    sequence: int, count: int = 1, *, epoch: int = 0, transactional: bool = False
) -> BatchHeader:
    values = [b"v"] * count
    return BatchHeader.unpack(
        batch(*values, producer_id=9, epoch=epoch, sequence=sequence, transactional=transactional)
    )


class ProducerLog:
    """Holds the producer state and the log end offset of a partition."""

    def __init__(self) -> None:
        self.state = ProducerStateManager(DAY)
        self.end = 0
        self.now = 0

    def write(self, sequence: int, count: int = 1, *, epoch: int = 0, txn: bool = False) -> int:
        """Write a batch of producer 9; return the base offset, of the first one for a duplicate."""
        head = header(sequence, count, epoch=epoch, transactional=txn)
        duplicate_of = self.state.check_batch_sequence(head, self.now)
        if duplicate_of is not None:
            return duplicate_of.base_offset
        base, self.end = self.end, self.end + count
        self.state.update(head, base, 0, self.now)
        return base

    def end_transaction(self, *, aborted: bool, epoch: int = 0) -> int:
        self.state.check_marker_epoch(9, epoch)
        offset, self.end = self.end, self.end + 1
        self.state.end_transaction(9, epoch, 0, offset, self.now, aborted=aborted)
        return offset


def test_sequences_wrap_to_zero() -> None:
    log = ProducerLog()
    log.write(SEQUENCE_MODULUS - 2, 2)
    assert log.write(0) == 2


def test_sequence_may_wrap_within_batch() -> None:
    log = ProducerLog()
    log.write(SEQUENCE_MODULUS - 1, 3)
    assert log.write(2) == 3


def test_last_five_batches_are_detected_as_duplicates() -> None:
    log = ProducerLog()
    for sequence in range(6):
        log.write(sequence)
    assert [log.write(sequence) for sequence in range(1, 6)] == [1, 2, 3, 4, 5]
    with pytest.raises(OutOfOrderSequenceError):
        log.write(0)
    assert log.write(6) == 6


def test_idle_producer_expires() -> None:
    log = ProducerLog()
    log.write(0)
    log.now = DAY + 1
    assert log.write(40) == 1


def test_transaction_is_ongoing_until_marker() -> None:
    log = ProducerLog()
    log.write(0, 2, txn=True)
    log.write(2, txn=True)
    assert log.state.current_txn_start_offset(9) == log.state.first_unstable_offset == 0
    log.end_transaction(aborted=False)
    assert log.state.current_txn_start_offset(9) is None
    assert log.state.aborted_txns(0, 100) == []


def test_aborted_transaction_spans_first_record_to_marker() -> None:
    log = ProducerLog()
    log.write(0, 2, txn=True)
    marker = log.end_transaction(aborted=True)
    (entry,) = log.state.aborted_txns(0, 100)
    assert (entry.producer_id, entry.first_offset, entry.last_offset) == (9, 0, marker)
    assert log.state.aborted_txns(marker, 100) == [entry]
    assert log.state.aborted_txns(marker + 1, 100) == []
    assert log.state.aborted_txns(0, 0) == []


def test_marker_without_transaction_has_no_effect() -> None:
    log = ProducerLog()
    log.end_transaction(aborted=True)
    assert log.state.aborted_txns(0, 100) == []


def test_marker_of_next_epoch_fences_older_writes() -> None:
    log = ProducerLog()
    log.write(0, txn=True)
    log.end_transaction(aborted=False, epoch=1)
    with pytest.raises(InvalidProducerEpochError):
        log.write(1, txn=True)
    assert log.write(0, epoch=1, txn=True) == 2


def test_marker_of_same_epoch_keeps_sequences() -> None:
    log = ProducerLog()
    log.write(0, txn=True)
    log.end_transaction(aborted=False)
    assert log.write(1, txn=True) == 2
