"""Sequence numbers: how they are given out, and that they keep order through any misfortune."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_async.errors import DeliveryError, KafkaError
from kafka_async.producer.idempotence import Chain, ProducerIdentity, Sequencer, Stamp
from kafka_async.testing import run_virtual
from tests.producer.bench import Bench

IDENTITY = ProducerIdentity(7, 0)


def sequencer(identity: ProducerIdentity = IDENTITY) -> Sequencer:
    made = Sequencer(enabled=True)
    made.adopt(identity)
    return made


def test_sequences_count_records() -> None:
    numbers, chain = sequencer(), Chain()
    assert numbers.stamp(chain, 10, unresolved=False) == Stamp(IDENTITY, 0)
    assert numbers.stamp(chain, 3, unresolved=True) == Stamp(IDENTITY, 10)
    assert numbers.stamp(chain, 1, unresolved=False) == Stamp(IDENTITY, 13)


def test_sequences_wrap_to_zero() -> None:
    numbers, chain = sequencer(), Chain()
    numbers.stamp(chain, 2**31 - 2, unresolved=False)
    assert numbers.stamp(chain, 3, unresolved=False).sequence == 2**31 - 2
    assert numbers.stamp(chain, 1, unresolved=False).sequence == 1
    assert Stamp(IDENTITY, 2**31 - 1).after(1).sequence == 0


def test_without_idempotence_stamps_are_empty() -> None:
    numbers = Sequencer(enabled=False)
    assert numbers.ready
    stamp = numbers.stamp(Chain(), 5, unresolved=False)
    assert stamp == Stamp(ProducerIdentity(-1, -1), -1)
    assert stamp.after(5) == stamp


def test_nothing_is_stamped_before_there_is_an_identity() -> None:
    assert not Sequencer(enabled=True).ready


def test_a_chain_takes_a_new_identity_once_nothing_is_unresolved() -> None:
    numbers, chain = sequencer(), Chain()
    numbers.stamp(chain, 4, unresolved=False)
    newer = ProducerIdentity(7, 1)
    numbers.adopt(newer)
    assert numbers.stamp(chain, 2, unresolved=True) == Stamp(IDENTITY, 4)
    assert numbers.stamp(chain, 2, unresolved=False) == Stamp(newer, 0)


def test_breaking_a_chain_bumps_the_epoch_once() -> None:
    numbers, one, two = sequencer(), Chain(), Chain()
    numbers.stamp(one, 1, unresolved=False)
    numbers.stamp(two, 1, unresolved=False)
    numbers.break_chain(one)
    numbers.break_chain(one)
    numbers.break_chain(two)  # it is of the old epoch: the new one serves it as well
    assert numbers.identity == ProducerIdentity(7, 1)
    numbers.mend(one)
    assert numbers.stamp(one, 1, unresolved=False) == Stamp(ProducerIdentity(7, 1), 0)


def test_after_the_last_epoch_there_is_no_identity() -> None:
    numbers, chain = sequencer(ProducerIdentity(7, 2**15 - 1)), Chain()
    numbers.stamp(chain, 1, unresolved=False)
    numbers.break_chain(chain)
    assert numbers.identity is None
    assert not numbers.ready


def test_losing_a_stamped_batch_is_noted_until_the_next_identity() -> None:
    numbers = sequencer()
    numbers.tear(None)
    numbers.tear(Stamp(ProducerIdentity(6, 0), 3))
    assert not numbers.torn
    numbers.tear(Stamp(IDENTITY, 3))
    assert numbers.torn
    numbers.adopt(ProducerIdentity(7, 1))
    assert not numbers.torn


MISFORTUNES: list[dict[str, Any]] = [
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
"""Misfortunes of a Produce request, as faults of the embedded cluster."""


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.sampled_from(MISFORTUNES), max_size=12),
    st.lists(st.integers(1, 4), min_size=1, max_size=12),
    st.sampled_from([1, 2, 5]),
    st.sampled_from([0, 3]),
)
def test_whatever_happens_nothing_is_doubled_lost_or_reordered(
    faults: list[dict[str, Any]], sizes: list[int], in_flight: int, linger: float
) -> None:
    """Acknowledged records are in the log once, where they were said to be, in order."""
    run_virtual(misfortune(faults, sizes, in_flight, linger))


async def misfortune(
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
        with suppress(DeliveryError):  # what failed is looked at below
            await bench.producer.flush()
        await asyncio.sleep(0.01)  # a broker may still handle a request that was given up
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
        statistics = bench.producer.statistics()
        assert statistics.buffer_available_bytes == statistics.buffer_total_bytes


@pytest.mark.parametrize("code", [45, 59])
def test_a_broker_that_forgot_the_producer_is_started_over(code: int) -> None:
    async def main() -> None:
        async with Bench({"clicks": [1]}) as bench:
            await bench.producer.send("clicks", b"0")
            bench.refuse(code)
            assert (await bench.producer.send("clicks", b"1")).offset == 1

    run_virtual(main())
