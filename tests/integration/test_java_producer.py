"""Refused batches of transactions: Kafka's own producer as the judge of ours.

Java's producer meets the faults of `tests/producer/test_failed_batches.py` on the embedded cluster:
each error code, with batches in flight and queued behind the refused one. The error it raises and
its category, whether it can abort and use the next transaction, and the records that are visible
must be what `handling_of` says, which that test checks for our producer.
"""

from __future__ import annotations

import asyncio
from itertools import product

import pytest

from kafka_async import Consumer, EmbeddedCluster
from kafka_async.types import TopicPartition
from tests.integration.java_producer import JavaProducers, Outcomes, differences, java_producers
from tests.producer.produce_errors import A_THIRD, CODES, LAYOUTS, VERSIONS, Layout

pytestmark = [
    pytest.mark.slow,
    pytest.mark.foreign,
    pytest.mark.asyncio,
    pytest.mark.may_block,  # while javac runs
    pytest.mark.timeout(300),
]

WRITTEN_WITH_MARKERS = 4
"""Offset after the first transaction, the record of the second one, and its abort marker."""


async def test_java_handles_refused_batches_as_we_do() -> None:
    async with java_producers() as java:
        assert await differences(java, A_THIRD) == []


async def test_a_third_of_the_cases_has_each_code_with_each_pair_of_version_and_layout() -> None:
    """The pairs are (version, position) and (version, batches in flight behind)."""
    assert len(A_THIRD) * 3 == len(CODES) * len(LAYOUTS) * len(VERSIONS)
    found, wanted = (
        {
            (code, version, pair)
            for code, layout, version in cases
            for pair in ((layout.before, layout.queued), layout.behind)
        }
        for cases in (A_THIRD, product(CODES, LAYOUTS, VERSIONS))
    )
    assert found == wanted
    everywhere = {(layout, version) for _, layout, version in A_THIRD[: 3 * 6]}
    assert everywhere == set(product(LAYOUTS, VERSIONS))


async def send_after_timeout(java: JavaProducers, version: int) -> Outcomes:
    async with (
        EmbeddedCluster(brokers=1, transaction_version=version) as cluster,
        Consumer(
            cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer,
    ):
        late = java.transaction()
        await late.begin(cluster, "late", 0, Layout(before=1, behind=-1, queued=1), 1_000)
        partition = TopicPartition("late", 0)
        consumer.assign([partition])
        while await consumer.position(partition) < WRITTEN_WITH_MARKERS:
            await consumer.poll(timeout=1)
        await late.send()
        return await late.finish()


async def test_java_recovers_from_a_timeout_with_transactions_v2() -> None:
    """Ours recovers with both; see `test_transaction_that_timed_out_can_be_aborted`."""
    async with java_producers() as java:
        found = await asyncio.gather(*(send_after_timeout(java, version) for version in VERSIONS))
    for each in found:
        assert each.records == ["InvalidProducerEpochException"]
        assert each.commit == "InvalidProducerEpochException"
    with_v1, with_v2 = ((each.abort, each.next) for each in found)
    assert with_v1 == ("ProducerFencedException", "ProducerFencedException")
    assert with_v2 == ("ok", "ok")
