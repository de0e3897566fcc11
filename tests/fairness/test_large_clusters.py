"""Neither thousands of partitions nor hundreds of members hold the loop for more than 5 ms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.cluster.client import Client
from kafka_async.consumer.consumer import Consumer
from kafka_async.group.assignors import MemberSubscription
from kafka_async.group.embedded_protocol import decode_assignment, encode_subscription
from kafka_async.group.membership import Member
from kafka_async.producer.producer import Producer
from kafka_async.types import TopicPartition
from tests.fairness.conftest import VALUE
from tests.fairness.holds import LIMIT, longest_hold

if TYPE_CHECKING:
    from kafka_async.embedded import BlockingCluster

pytestmark = pytest.mark.asyncio

WIDE, PARTITIONS = "wide", 10_000
TOPICS = [f"service.events-{number}" for number in range(5_000)]
MEMBERS = 500


@pytest.fixture(scope="session")
def large(cluster: BlockingCluster) -> BlockingCluster:
    """The cluster with one topic of 10,000 partitions, and many small ones."""
    cluster.create_topic(WIDE, PARTITIONS)
    for name in TOPICS:
        cluster.create_topic(name, 1)
    return cluster


async def test_the_metadata_of_all_topics_is_taken_in(large: BlockingCluster) -> None:
    async def work() -> None:
        async with Client(large.bootstrap_servers) as client:
            await client.refresh_metadata(all_topics=True)  # what is new, and then what was known
            metadata = await client.refresh_metadata(all_topics=True)
            assert len(metadata.topics[WIDE].partitions) == PARTITIONS

    assert await longest_hold(work) <= LIMIT


async def test_a_record_goes_to_a_topic_of_10000_partitions(large: BlockingCluster) -> None:
    async def work() -> None:
        async with Producer(large.bootstrap_servers) as producer:
            await producer.send(WIDE, VALUE)
            await producer.client.refresh_metadata(topics=[WIDE])

    assert await longest_hold(work) <= LIMIT


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_a_leader_shares_10000_partitions_out_among_500_members(
    large: BlockingCluster, strategy: str
) -> None:
    share = PARTITIONS // MEMBERS
    members = [
        Member(f"member-{number:03}", None, subscription(number * share, share))
        for number in range(MEMBERS)
    ]
    options: dict[str, Any] = {"partition_assignment_strategy": [strategy], "group_id": strategy}

    async def work() -> None:
        async with Consumer(large.bootstrap_servers, topics=["clicks"], **options) as consumer:
            protocol = consumer._engine._protocol  # pyright: ignore[reportPrivateUsage]  # no other way to lead so many
            assert protocol is not None
            shares = await protocol.assign(strategy, members)
            assert {len(decode_assignment(one)) for one in list(shares.values())[:9]} == {share}

    assert await longest_hold(work) <= LIMIT


def subscription(start: int, count: int) -> bytes:
    """Of a member that wants the wide topic, and owns some of it."""
    owned = frozenset(TopicPartition(WIDE, start + number) for number in range(count))
    return encode_subscription(MemberSubscription(frozenset([WIDE]), owned, generation=3))
