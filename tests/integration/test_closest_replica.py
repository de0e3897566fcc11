"""Consumers in racks: fetches from the closest replica (KIP-392) and assignments (KIP-881)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from kafka_async import Consumer, Producer, TopicPartition
from kafka_async.hooks import Fetched, Hooks
from kafka_async.protocol.messages.delete_records import DeleteRecordsRequest
from tests.integration.helpers import create_topic, poll_until

if TYPE_CHECKING:
    from kafka_async.testing.fixtures import ClusterHandle
    from tests.integration.raw_cluster import RawCluster

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

LEADER, FOLLOWER, OTHER = 1, 2, 3
LIMIT: Final = 90.0


def rack_of(broker: int) -> str:
    """Return the rack of a broker of the session's cluster."""
    return f"rack-{broker}"


def consumer_in_rack(
    cluster: ClusterHandle, broker: int, **options: Any
) -> tuple[Consumer, list[int]]:
    """Return a consumer in a broker's rack, and the brokers of its responses with records."""
    hooks, sources = Hooks(), list[int]()
    hooks.listen(Fetched, lambda event: sources.append(event.node_id))
    given: dict[str, Any] = {"auto_offset_reset": "earliest", "hooks": hooks}
    given |= {"client_rack": rack_of(broker), **options}
    return Consumer(cluster.bootstrap_servers, **given), sources


class Exchange(NamedTuple):
    """Sends numbers to a partition and reads them with a consumer, each once and in order."""

    producer: Producer
    consumer: Consumer
    partition: TopicPartition
    sources: list[int]
    sent: list[int]
    read: list[int]

    async def run(self, count: int) -> set[int]:
        """Send and read `count` numbers; return the brokers that they came from."""
        self.sources.clear()
        numbers = range(len(self.sent), len(self.sent) + count)
        topic, partition = self.partition
        async with asyncio.timeout(LIMIT):
            values = [b"%d" % number for number in numbers]
            for delivery in await self.producer.send_many(topic, values, partition=partition):
                await delivery
            self.sent.extend(numbers)
            while len(self.read) < len(self.sent):
                records = await self.consumer.poll(timeout=1)
                self.read.extend(int(record.value or b"") for record in records)
        assert self.read == self.sent
        return set(self.sources)

    async def run_until_from(self, broker: int) -> None:
        """Send and read numbers until one comes from a broker.

        A leader names a follower once it knows that the follower has the offset.
        """
        async with asyncio.timeout(LIMIT):
            while await self.run(1) != {broker}:
                pass


async def test_consumers_read_from_the_replica_in_their_rack(kafka_cluster: ClusterHandle) -> None:
    topic = await create_topic(kafka_cluster, assignments={0: [LEADER, FOLLOWER, OTHER]})
    await kafka_cluster.produce(topic, [b"%d" % number for number in range(500)])
    for broker in (LEADER, FOLLOWER, OTHER):
        consumer, sources = consumer_in_rack(
            kafka_cluster, broker, partitions=[TopicPartition(topic, 0)]
        )
        values: list[bytes | None] = []
        async with consumer, asyncio.timeout(LIMIT):
            while len(values) < 500:
                values += [record.value for record in await consumer.poll(timeout=1)]
        assert values == [b"%d" % number for number in range(500)]
        assert set(sources) == {broker}


async def test_leader_serves_a_consumer_without_a_replica_in_its_rack(
    kafka_cluster: ClusterHandle,
) -> None:
    topic = await create_topic(kafka_cluster, assignments={0: [LEADER, FOLLOWER]})
    await kafka_cluster.produce(topic, [b"v"])
    consumer, sources = consumer_in_rack(
        kafka_cluster, OTHER, partitions=[TopicPartition(topic, 0)]
    )
    async with consumer:
        assert len(await consumer.poll(timeout=LIMIT)) == 1
    assert sources == [LEADER]


async def test_leader_confirms_an_offset_that_a_follower_does_not_have(
    kafka_cluster: ClusterHandle, raw_cluster: RawCluster
) -> None:
    """The position is reset once the leader does not have the offset either."""
    topic = await create_topic(kafka_cluster, assignments={0: [LEADER, FOLLOWER, OTHER]})
    partition = TopicPartition(topic, 0)
    consumer, sources = consumer_in_rack(kafka_cluster, FOLLOWER, partitions=[partition])
    async with Producer(kafka_cluster.bootstrap_servers) as producer, consumer:
        exchange = Exchange(producer, consumer, partition, sources, [], [])
        await exchange.run_until_from(FOLLOWER)
        assert await exchange.run(10) == {FOLLOWER}
        rows = [{"partition_index": 0, "offset": 5}]
        request = DeleteRecordsRequest.from_dict(
            {"topics": [{"name": topic, "partitions": rows}], "timeout_ms": 30_000}
        )
        deleted = await (await raw_cluster.leader(topic)).call(request, 2)
        assert deleted.topics[0].partitions[0].low_watermark == 5
        consumer.seek(partition, 2)
        exchange.read.clear()
        del exchange.sent[:5]
        async with asyncio.timeout(LIMIT):
            while len(exchange.read) < len(exchange.sent):
                records = await consumer.poll(timeout=1)
                exchange.read.extend(int(record.value or b"") for record in records)
        assert exchange.read == exchange.sent
        assert consumer.statistics().offset_reset_total == 1
        assert set(sources) == {FOLLOWER}


@pytest.mark.slow
async def test_leader_serves_while_the_follower_is_down(kafka_cluster: ClusterHandle) -> None:
    """The follower serves again after metadata_max_age_ms, once it is in sync."""
    topic = await create_topic(kafka_cluster, assignments={0: [LEADER, FOLLOWER, OTHER]})
    partition = TopicPartition(topic, 0)
    consumer, sources = consumer_in_rack(
        kafka_cluster, FOLLOWER, partitions=[partition], metadata_max_age_ms=1_000
    )
    control = kafka_cluster.control
    async with Producer(kafka_cluster.bootstrap_servers) as producer, consumer:
        exchange = Exchange(producer, consumer, partition, sources, [], [])
        await exchange.run_until_from(FOLLOWER)
        assert await exchange.run(20) == {FOLLOWER}
        await asyncio.to_thread(control.kill_broker, FOLLOWER)
        try:
            assert await exchange.run(20) == {LEADER}
            assert await exchange.run(20) == {LEADER}
        finally:
            await asyncio.to_thread(control.start_broker, FOLLOWER)
        await exchange.run_until_from(FOLLOWER)
        assert await exchange.run(20) == {FOLLOWER}


@pytest.mark.parametrize("assignor", ["range", "sticky", "cooperative-sticky"])
async def test_members_get_the_partitions_in_their_rack(
    kafka_cluster: ClusterHandle, assignor: str
) -> None:
    replicas = {0: OTHER, 1: OTHER, 2: LEADER, 3: LEADER, 4: FOLLOWER, 5: FOLLOWER}
    topic = await create_topic(
        kafka_cluster, assignments={number: [broker] for number, broker in replicas.items()}
    )
    async with AsyncExitStack() as stack:
        members: dict[int, Consumer] = {}
        for broker in (LEADER, FOLLOWER, OTHER):
            members[broker], _ = consumer_in_rack(
                kafka_cluster,
                broker,
                topics=[topic],
                group_id=kafka_cluster.group(),
                partition_assignment_strategy=[assignor],
                heartbeat_interval_ms=200,
            )
            await stack.enter_async_context(members[broker])
        expected = {
            broker: {TopicPartition(topic, n) for n, at in replicas.items() if at == broker}
            for broker in members
        }
        await poll_until(
            lambda: {broker: set(it.assignment()) for broker, it in members.items()} == expected,
            *members.values(),
        )
