"""The bytes of a batch, which are kept for each of its sequences."""

from __future__ import annotations

import random

import pytest

from kafka_async.kernel import OpenBatch
from kafka_async.producer.idempotence import BatchSequence, ProducerIdAndEpoch
from kafka_async.producer.outcome import BatchOutcome
from kafka_async.producer.partition_queue import ProducerBatch, TopicQueue
from kafka_async.records.batch import iter_batches
from tests.producer.futures import FakeFuture

VALUES = [b"a" * 1024, b"b"]


def closed_batch(values: list[bytes]) -> ProducerBatch:
    queue = TopicQueue("clicks", random.Random(1)).queue(0)
    outcome = BatchOutcome("clicks", 0, FakeFuture)
    batch = ProducerBatch(queue, outcome, created=0.0, deadline=1.0, order=(0,))
    batch.section = OpenBatch(outcome, 1 << 20)
    for value in values:
        batch.section.append(1_000, None, value)
    batch.close()
    return batch


def batch_sequence(sequence: int) -> BatchSequence:
    return BatchSequence(ProducerIdAndEpoch(7, 1), sequence)


def test_frame_has_the_records_without_copying_them() -> None:
    batch = closed_batch(VALUES)
    payload = batch.record_batch.payload
    batch.set_sequence(batch_sequence(0))
    frame = batch.frame(transactional=False)
    assert frame[1] is payload
    assert batch.frame(transactional=False) is frame
    batch.set_sequence(batch_sequence(5))
    assert batch.frame(transactional=False)[1] is payload


@pytest.mark.parametrize("values", [VALUES, [b"c", b"d"]], ids=["large", "small"])
def test_new_sequence_changes_only_the_header(values: list[bytes]) -> None:
    batch = closed_batch(values)
    size = batch.wire_size
    for sequence in (0, 5, 9):
        batch.set_sequence(batch_sequence(sequence))
        [view] = iter_batches(b"".join(batch.frame(transactional=False)))
        view.check_crc()
        assert view.header.base_sequence == sequence
        assert [record.value for record in view.records()] == values
        assert (batch.count, batch.wire_size) == (2, size)


def test_framed_batch_can_be_halved() -> None:
    batch = closed_batch(VALUES)
    batch.sequence = batch_sequence(0)
    batch.frame(transactional=False)
    found = [next(iter_batches(half.frame())).records() for half in batch.halves()]
    assert [[record.value for record in half] for half in found] == [[each] for each in VALUES]
