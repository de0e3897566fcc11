"""Thousands of partitions or hundreds of members do not make an event loop iteration longer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kafka_async.client.client import Client, services_of
from kafka_async.client.metadata.metadata import LeaderHint
from kafka_async.config import ConsumerConfig
from kafka_async.consumer.group.group_leader import GroupLeader
from kafka_async.errors import DeliveryError
from kafka_async.group.assignors import MemberSubscription, create_assignors
from kafka_async.group.consumer_protocol import decode_assignment, encode_subscription
from kafka_async.group.member import Member
from kafka_async.producer.buffer.accumulator import MAX_BATCHES_PER_REQUEST
from kafka_async.producer.producer import Producer
from kafka_async.producer.topic_metadata import WARN_AFTER
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
Work = Callable[[Producer], Awaitable[None]]


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
        await services_of(client).metadata.refresh(
            all_topics=True
        )  # the first call adds the topics, the second updates them
        metadata = await services_of(client).metadata.refresh(all_topics=True)
        assert len(metadata.topics[WIDE].partitions) == PARTITIONS
    check(meter, MOST)


async def lead(client: Client, leader: int) -> None:
    """As if brokers said, some in an answer, that all the topics have another leader."""
    partitions = [TopicPartition(name, 0) for name in TOPICS]
    for at in range(0, len(partitions), MAX_BATCHES_PER_REQUEST):
        hints = [
            LeaderHint(
                partition, leader, services_of(client).metadata.snapshot.leader_epoch(partition) + 1
            )
            for partition in partitions[at : at + MAX_BATCHES_PER_REQUEST]
        ]
        services_of(client).metadata.update_leaders(hints)
        await asyncio.sleep(0)


async def to_every_topic(producer: Producer, times: int = 1) -> None:
    """Enqueue a record to each of the topics."""
    for _ in range(times):
        for name in TOPICS:
            await producer.enqueue(name, VALUE)


async def wait_for_metadata(producer: Producer) -> None:
    await to_every_topic(producer)
    await services_of(producer.client).metadata.wait_for_topics(TOPICS, timeout=30)
    await to_every_topic(producer)  # into batches that linger


async def refresh_metadata(producer: Producer) -> None:
    refreshing = asyncio.ensure_future(services_of(producer.client).metadata.refresh())
    await to_every_topic(producer, 2)
    assert len((await refreshing).topics) >= len(TOPICS)


async def let_batches_be_due_together(producer: Producer) -> None:
    await to_every_topic(producer)
    await producer.send(TOPICS[-1], VALUE)


async def change_leaders(producer: Producer) -> None:
    await to_every_topic(producer)
    for leader in (2, 1):  # there is no broker 2: each partition loses its leader
        await lead(producer.client, leader)


async def partition_early_records(producer: Producer) -> None:
    for _ in range(EARLY):
        await producer.enqueue(WIDE, VALUE, key=b"key")


async def send_to_wide_topic(producer: Producer) -> None:
    await producer.send(WIDE, VALUE)
    await services_of(producer.client).metadata.refresh(topics=[WIDE])


@pytest.mark.parametrize(
    ("work", "linger_ms", "records"),
    [
        (to_every_topic, 5, TOPIC_COUNT),
        (wait_for_metadata, 60_000, 2 * TOPIC_COUNT),
        (partition_early_records, 5, EARLY),
        (send_to_wide_topic, 5, 1),
    ],
)
async def test_starting_to_produce_bounds_the_iteration(
    large: BlockingCluster, meter: Meter, work: Work, linger_ms: int, records: int
) -> None:
    async with meter, Producer(large.bootstrap_servers, linger_ms=linger_ms) as producer:
        await work(producer)
        await producer.flush()
        assert producer.statistics().record_send_total == records
    check(meter, MOST)


async def test_late_metadata_of_all_topics_bounds_the_iteration(
    large: BlockingCluster, meter: Meter
) -> None:
    async with Producer(large.bootstrap_servers) as producer:
        fault = large.faults.add(api="Metadata", hang=True, count=None)
        async with meter:
            await to_every_topic(producer)
            meter.spend(WARN_AFTER)  # so that all requests time out in one iteration
            for _ in range(5):
                await asyncio.sleep(0)
        fault.remove()
        await producer.flush()
    check(meter, MOST)


@pytest.mark.parametrize(
    ("work", "linger_ms"),
    [(refresh_metadata, 5), (let_batches_be_due_together, 100), (change_leaders, 5)],
)
async def test_producing_to_2500_topics_bounds_the_iteration(
    large: BlockingCluster, meter: Meter, work: Work, linger_ms: int
) -> None:
    async with Producer(large.bootstrap_servers, linger_ms=linger_ms) as producer:
        await to_every_topic(producer)
        await producer.flush()
        async with meter:
            await work(producer)
            await producer.flush()
        check(meter, MOST)


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


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_assigning_10000_partitions_to_500_members_bounds_the_iteration(
    large: BlockingCluster, meter: Meter, strategy: str
) -> None:
    share = PARTITIONS // MEMBERS
    members = [
        Member(f"member-{number:03}", None, subscription(number * share, share))
        for number in range(MEMBERS)
    ]
    [assignor] = create_assignors([strategy])
    async with meter, Client(large.bootstrap_servers) as client:
        services = services_of(client)
        config = ConsumerConfig(large.bootstrap_servers, group_id=strategy)
        leader = GroupLeader(services, services.supervisor, config)
        shares = (await leader.assign(assignor, members)).encoded
        assert {len(decode_assignment(one).partitions) for one in list(shares.values())[:9]} == {
            share
        }
    check(meter, MOST)


def subscription(start: int, count: int) -> bytes:
    """Return the subscription of a member that owns some partitions of the wide topic."""
    owned = frozenset(TopicPartition(WIDE, start + number) for number in range(count))
    return encode_subscription(MemberSubscription(frozenset([WIDE]), owned, generation=3))
