"""The bytes of a batch: kept once, whatever it is stamped with."""

from __future__ import annotations

import random

import pytest

from kafka_async.kernel import OpenBatch
from kafka_async.producer.idempotence import ProducerIdentity, Stamp
from kafka_async.producer.outcome import BatchOutcome
from kafka_async.producer.partition_queue import TopicQueue
from kafka_async.producer.producer_batch import ProducerBatch
from kafka_async.records.batch import iter_batches
from tests.producer.promises import FakePromise

VALUES = [b"a" * 1024, b"b"]


def sealed(values: list[bytes]) -> ProducerBatch:
    queue = TopicQueue("clicks", random.Random(1)).queue(0)
    outcome = BatchOutcome("clicks", 0, FakePromise)
    batch = ProducerBatch(queue, outcome, created=0.0, deadline=1.0, order=(0,))
    batch.section = OpenBatch(outcome, 1 << 20)
    for value in values:
        batch.section.append(1_000, None, value)
    batch.seal()
    return batch


def stamp(sequence: int) -> Stamp:
    return Stamp(ProducerIdentity(7, 1), sequence)


def test_a_frame_has_the_records_that_were_sealed_and_no_copy_of_them() -> None:
    batch = sealed(VALUES)
    payload = batch.sealed.payload
    batch.restamp(stamp(0))
    frame = batch.frame(transactional=False)
    assert frame[1] is payload
    assert batch.frame(transactional=False) is frame
    batch.restamp(stamp(5))
    assert batch.frame(transactional=False)[1] is payload


@pytest.mark.parametrize("values", [VALUES, [b"c", b"d"]], ids=["large", "small"])
def test_a_batch_that_is_stamped_anew_is_the_same_but_for_its_stamp(values: list[bytes]) -> None:
    batch = sealed(values)
    size = batch.wire_size
    for sequence in (0, 5, 9):
        batch.restamp(stamp(sequence))
        [view] = iter_batches(b"".join(batch.frame(transactional=False)))
        view.check_crc()
        assert view.header.base_sequence == sequence
        assert [record.value for record in view.records()] == values
        assert (batch.count, batch.wire_size) == (2, size)


def test_a_batch_that_was_framed_can_be_halved() -> None:
    batch = sealed(VALUES)
    batch.stamp = stamp(0)
    batch.frame(transactional=False)
    found = [next(iter_batches(half.frame())).records() for half in batch.halves()]
    assert [[record.value for record in half] for half in found] == [[each] for each in VALUES]
