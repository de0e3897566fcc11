"""Thousands of partitions or hundreds of members do not make an event loop iteration longer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.cluster.client import Client
from kafka_async.cluster.metadata import LeaderHint
from kafka_async.consumer.consumer import Consumer
from kafka_async.errors import DeliveryError
from kafka_async.group.assignors import MemberSubscription
from kafka_async.group.consumer_protocol import decode_assignment, encode_subscription
from kafka_async.group.member import Member
from kafka_async.producer.accumulator import MAX_BATCHES_PER_REQUEST
from kafka_async.producer.producer import Producer
from kafka_async.types import TopicPartition
from tests.fairness.conftest import VALUE
from tests.fairness.work import LIMIT, Meter, check

if TYPE_CHECKING:
    from kafka_async.embedded import BlockingCluster

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

WIDE, PARTITIONS = "wide", 10_000
TOPIC_COUNT = 2_500
TOPICS = [f"service.events-{number}" for number in range(TOPIC_COUNT)]
MEMBERS = 500
MOST = replace(LIMIT, calls=10 * TOPIC_COUNT)
"""A loop over all topics that does more than comparing them exceeds this."""
EARLY = 5_000


@pytest.fixture(scope="session")
def large(cluster: BlockingCluster) -> BlockingCluster:
    """Return the cluster with one topic of 10,000 partitions and many small ones."""
    cluster.create_topic(WIDE, PARTITIONS)
    for name in TOPICS:
        cluster.create_topic(name, 1)
    return cluster


async def test_updating_metadata_of_all_topics_bounds_the_iteration(
    large: BlockingCluster, meter: Meter
) -> None:
    async with meter, Client(large.bootstrap_servers) as client:
        await client.refresh_metadata(
            all_topics=True
        )  # the first call adds the topics, the second updates them
        metadata = await client.refresh_metadata(all_topics=True)
        assert len(metadata.topics[WIDE].partitions) == PARTITIONS
    check(meter, MOST)


async def to_every_topic(producer: Producer, times: int = 1) -> None:
    """Enqueue a record to each of the topics."""
    for _ in range(times):
        for name in TOPICS:
            await producer.enqueue(name, VALUE)


async def test_first_records_to_2500_topics_bound_the_iteration(
    large: BlockingCluster, meter: Meter
) -> None:
    async with meter, Producer(large.bootstrap_servers) as producer:
        await to_every_topic(producer)
        await producer.flush()
        assert producer.statistics().record_send_total == len(TOPICS)
    check(meter, MOST)


async def test_metadata_and_flush_of_2500_topics_bound_the_iteration(
    large: BlockingCluster, meter: Meter
) -> None:
    async with meter, Producer(large.bootstrap_servers, linger_ms=60_000) as producer:
        await to_every_topic(producer)
        await producer.client.metadata_for(TOPICS, timeout=30)
        await to_every_topic(producer)  # into batches that linger
        await producer.flush()
        assert producer.statistics().record_send_total == 2 * len(TOPICS)
    check(meter, MOST)


async def test_producing_to_2500_topics_during_metadata_refresh_bounds_the_iteration(
    large: BlockingCluster, meter: Meter
) -> None:
    async with Producer(large.bootstrap_servers) as producer:
        await to_every_topic(producer)
        await producer.flush()

        async with meter:
            renewing = asyncio.ensure_future(producer.client.refresh_metadata())
            await to_every_topic(producer, 2)
            assert len((await renewing).topics) >= len(TOPICS)
            await producer.flush()
        check(meter, MOST)


async def test_batches_of_2500_topics_due_together_bound_the_iteration(
    large: BlockingCluster, meter: Meter
) -> None:
    async with Producer(large.bootstrap_servers, linger_ms=100) as producer:
        await to_every_topic(producer)
        await producer.flush()

        async with meter:
            await to_every_topic(producer)
            await producer.send(TOPICS[-1], VALUE)
            await producer.flush()
        check(meter, MOST)


async def test_leader_change_of_2500_topics_bounds_the_iteration(
    large: BlockingCluster, meter: Meter
) -> None:
    async with Producer(large.bootstrap_servers) as producer:
        await to_every_topic(producer)
        await producer.flush()

        async with meter:
            await to_every_topic(producer)
            for leader in (2, 1):  # there is no broker 2: each partition loses its leader
                await lead(producer.client, leader)
            await producer.flush()
        check(meter, MOST)


async def lead(client: Client, leader: int) -> None:
    """As if brokers said, some in an answer, that all the topics have another leader."""
    partitions = [TopicPartition(name, 0) for name in TOPICS]
    for at in range(0, len(partitions), MAX_BATCHES_PER_REQUEST):
        hints = [
            LeaderHint(partition, leader, client.metadata.leader_epoch(partition) + 1)
            for partition in partitions[at : at + MAX_BATCHES_PER_REQUEST]
        ]
        client.update_leaders(hints)
        await asyncio.sleep(0)


@pytest.mark.parametrize("timeout", [None, 0.0], ids=["delivering", "giving up"])
async def test_stopping_a_producer_of_2500_topics_bounds_the_iteration(
    large: BlockingCluster, meter: Meter, timeout: float | None
) -> None:
    async with meter:
        producer = Producer(large.bootstrap_servers, linger_ms=60_000)
        await producer.start()
        await to_every_topic(producer)
        try:
            await producer.stop(timeout)
        except DeliveryError:
            assert timeout is not None
    check(meter, MOST)


async def test_unpartitioned_records_are_partitioned_in_slices(
    large: BlockingCluster, meter: Meter
) -> None:
    async with meter, Producer(large.bootstrap_servers) as producer:
        for _ in range(EARLY):
            await producer.enqueue(WIDE, VALUE, key=b"key")
        await producer.flush()
        assert producer.statistics().record_send_total == EARLY
    check(meter, MOST)


async def test_record_to_a_topic_of_10000_partitions_bounds_the_iteration(
    large: BlockingCluster, meter: Meter
) -> None:
    async with meter, Producer(large.bootstrap_servers) as producer:
        await producer.send(WIDE, VALUE)
        await producer.client.refresh_metadata(topics=[WIDE])
    check(meter, MOST)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_assigning_10000_partitions_to_500_members_bounds_the_iteration(
    large: BlockingCluster, meter: Meter, strategy: str
) -> None:
    share = PARTITIONS // MEMBERS
    members = [
        Member(f"member-{number:03}", None, subscription(number * share, share))
        for number in range(MEMBERS)
    ]
    options: dict[str, Any] = {"partition_assignment_strategy": [strategy], "group_id": strategy}

    consumer = Consumer(large.bootstrap_servers, topics=["clicks"], **options)
    async with meter, consumer:
        handler = consumer._active_runtime._rebalance_handler  # pyright: ignore[reportPrivateUsage]  # no public way to lead that many members
        assert handler is not None
        shares = await handler.assign(strategy, members)
        assert {len(decode_assignment(one)) for one in list(shares.values())[:9]} == {share}
    check(meter, MOST)


def subscription(start: int, count: int) -> bytes:
    """Return the subscription of a member that owns some partitions of the wide topic."""
    owned = frozenset(TopicPartition(WIDE, start + number) for number in range(count))
    return encode_subscription(MemberSubscription(frozenset([WIDE]), owned, generation=3))
