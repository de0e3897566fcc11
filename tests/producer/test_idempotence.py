"""Sequence numbers: their assignment, and the order that they keep despite faults."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_async.errors import DeliveryError, KafkaError
from kafka_async.producer.idempotence import (
    BatchSequence,
    PartitionSequence,
    ProducerIdAndEpoch,
    Sequencer,
)
from kafka_async.testing import run_virtual
from tests.producer.bench import Bench

ID_AND_EPOCH = ProducerIdAndEpoch(7, 0)


def sequencer(id_and_epoch: ProducerIdAndEpoch = ID_AND_EPOCH) -> Sequencer:
    made = Sequencer(enabled=True)
    made.set_id_and_epoch(id_and_epoch)
    return made


def test_sequences_wrap_to_zero() -> None:
    sequences, sequence = sequencer(), PartitionSequence()
    sequences.assign_sequence(sequence, 2**31 - 2, unresolved=False)
    assert sequences.assign_sequence(sequence, 3, unresolved=False).base_sequence == 2**31 - 2
    assert sequences.assign_sequence(sequence, 1, unresolved=False).base_sequence == 1
    assert BatchSequence(ID_AND_EPOCH, 2**31 - 1).after(1).base_sequence == 0


def test_without_idempotence_batches_have_no_sequence() -> None:
    sequences = Sequencer(enabled=False)
    unassigned = sequences.assign_sequence(PartitionSequence(), 5, unresolved=False)
    assert unassigned == BatchSequence(ProducerIdAndEpoch(-1, -1), -1)
    assert unassigned.after(5) == unassigned


def test_partition_uses_a_new_epoch_once_its_batches_are_resolved() -> None:
    sequences, sequence = sequencer(), PartitionSequence()
    sequences.assign_sequence(sequence, 4, unresolved=False)
    newer = ProducerIdAndEpoch(7, 1)
    sequences.set_id_and_epoch(newer)
    assert sequences.assign_sequence(sequence, 2, unresolved=True) == BatchSequence(ID_AND_EPOCH, 4)
    assert sequences.assign_sequence(sequence, 2, unresolved=False) == BatchSequence(newer, 0)


def test_out_of_order_partitions_bump_the_epoch_once() -> None:
    sequences, one, two = sequencer(), PartitionSequence(), PartitionSequence()
    for sequence in (one, two):
        sequences.assign_sequence(sequence, 1, unresolved=False)
    for sequence in (one, one, two):  # the second's sequence is of the old epoch
        sequences.bump_epoch(sequence)
    newer = ProducerIdAndEpoch(7, 1)
    assert sequences.id_and_epoch == newer
    sequences.reset(one)
    assert sequences.assign_sequence(one, 1, unresolved=False) == BatchSequence(newer, 0)


def test_lost_batch_is_noted_until_the_next_epoch() -> None:
    sequences = sequencer()
    sequences.note_lost(None)
    sequences.note_lost(BatchSequence(ProducerIdAndEpoch(6, 0), 3))
    assert not sequences.lost_batch
    sequences.note_lost(BatchSequence(ID_AND_EPOCH, 3))
    assert sequences.lost_batch
    sequences.set_id_and_epoch(ProducerIdAndEpoch(7, 1))
    assert not sequences.lost_batch


FAULTS: list[dict[str, Any]] = [
    {"count": 1},
    {"disconnect": "after"},
    {"disconnect": "before"},
    {"hang": True, "applied": True},
    {"hang": True},
    {"delay": 1.5, "applied": True},
    {"delay": 1.5},
    {"error": "NOT_LEADER_OR_FOLLOWER"},
    {"error": "NOT_ENOUGH_REPLICAS"},
    {"error": "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "applied": True},
    {"error": "INVALID_RECORD"},
    {"error": "REQUEST_TIMED_OUT"},
    {"error": "REQUEST_TIMED_OUT", "applied": True},
    {"error": "MESSAGE_TOO_LARGE"},
    {"error": "NOT_ENOUGH_REPLICAS_AFTER_APPEND"},
]
"""Faults of a Produce request in the embedded cluster."""


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.sampled_from(FAULTS), max_size=12),
    st.lists(st.integers(1, 4), min_size=1, max_size=12),
    st.sampled_from([1, 2, 5]),
    st.sampled_from([0, 3]),
)
def test_no_record_is_lost_duplicated_or_reordered_by_faults(
    faults: list[dict[str, Any]], sizes: list[int], in_flight: int, linger: float
) -> None:
    """Acknowledged records are in the log once, at their offsets, in order."""
    run_virtual(send_with_faults(faults, sizes, in_flight, linger))


async def send_with_faults(
    faults: list[dict[str, Any]], sizes: list[int], in_flight: int, linger: float
) -> None:
    async with Bench(
        {"clicks": [1]},
        linger_ms=linger,
        max_in_flight_requests_per_connection=in_flight,
        request_timeout_ms=1_000,
        delivery_timeout_ms=20_000,
    ) as bench:
        for fault in faults:
            bench.faults.add(api="Produce", **fault)
        values = iter(range(10_000))
        deliveries: dict[bytes, Any] = {}
        for size in sizes:
            for _ in range(size):
                value = b"%04d" % next(values)
                deliveries[value] = await bench.producer.enqueue("clicks", value, partition=0)
            for _ in range(3):
                await asyncio.sleep(0)
        with suppress(DeliveryError):  # failures are checked below
            await bench.producer.flush()
        await asyncio.sleep(0.01)  # a broker may still handle a request that has timed out
        log = bench.values("clicks")
        failed = {value for value, delivery in deliveries.items() if delivery.exception()}
        assert len(set(log)) == len(log)
        assert [value for value in deliveries if value not in failed] == [
            value for value in log if value not in failed
        ]
        for value in deliveries.keys() - failed:
            offset = deliveries[value].result().offset
            assert offset == -1 or log[offset] == value
        assert all(isinstance(deliveries[value].exception(), KafkaError) for value in failed)
        assert bench.memory_in_use == 0


@pytest.mark.parametrize("code", [45, 59])
def test_restarts_sequence_after_unknown_producer_or_gap(code: int) -> None:
    async def main() -> None:
        async with Bench({"clicks": [1]}) as bench:
            await bench.producer.send("clicks", b"0")
            bench.refuse(code)
            assert (await bench.producer.send("clicks", b"1")).offset == 1

    run_virtual(main())
