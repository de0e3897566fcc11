"""The low-level client on every kind of cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from kafka_async import Producer
from kafka_async.admin import Admin, NewTopic
from kafka_async.client.client import Client, services_of
from kafka_async.client.connection.broker_connection import ConnectionKind
from kafka_async.client.metadata.coordinator_lookup import CoordinatorKind
from kafka_async.client.metadata.request_router import (
    AnyBroker,
    Broker,
    Controller,
    CoordinatorOfGroup,
    Leader,
)
from kafka_async.hooks import Hooks, Rebootstrapped
from kafka_async.protocol.messages.describe_cluster import DescribeClusterRequest
from kafka_async.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafka_async.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kafka_async.types import TopicPartition
from tests.integration.helpers import create_topic, wait_until_known
from tests.raw_connection import batch

if TYPE_CHECKING:
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = [pytest.mark.asyncio, pytest.mark.any_broker]


@pytest_asyncio.fixture
async def client(kafka_cluster: ClusterHandle) -> AsyncIterator[Client]:
    async with Client(kafka_cluster.bootstrap_servers, default_api_timeout_ms=30_000) as started:
        yield started


async def test_requests_reach_every_kind_of_destination(
    client: Client, kafka_cluster: ClusterHandle
) -> None:
    name = await create_topic(kafka_cluster, partitions=3)
    request = DescribeClusterRequest()
    places = [AnyBroker(), Controller(), CoordinatorOfGroup("g"), *map(Broker, (1, 2, 3))]
    for to in [*places, Leader(TopicPartition(name, 2))]:
        response = await client.request(request, to=to)
        assert response.cluster_id == services_of(client).metadata.snapshot.cluster_id
    handles = [client.submit(request, to=to) for to in places]
    for handle in reversed(handles):  # the responses are there in any order
        assert (await handle).cluster_id == services_of(client).metadata.snapshot.cluster_id
        assert handle.done
    found = await services_of(client).coordinators.find_all(
        CoordinatorKind.GROUP, ["a", "b", "c"], timeout=10.0
    )
    assert set(found) == {"a", "b", "c"}
    assert set(found.values()) <= {1, 2, 3}


async def test_request_without_a_response_is_written_and_leaves_the_connection_usable(
    client: Client, kafka_cluster: ClusterHandle
) -> None:
    partition = TopicPartition(await create_topic(kafka_cluster), 0)
    async with Producer(kafka_cluster.bootstrap_servers) as producer:
        # Nothing is lost because the leader is not ready yet.
        await producer.send(partition.topic, b"first", partition=0)
    values = [b"%d" % number for number in range(10)]
    for number, value in enumerate(values):
        data = PartitionProduceData(index=0, records=batch(value))
        topic = TopicProduceData(name=partition.topic, partition_data=[data])
        request = ProduceRequest(acks=0, timeout_ms=10_000, topic_data=[topic])
        if number % 2:
            response = await client.submit(request, to=Leader(partition), max_version=9)
        else:
            response = await client.request(request, to=Leader(partition), max_version=9)
        assert response == ProduceResponse()
        # Matched to its request, which an entry for the Produce request would prevent.
        described = await client.request(DescribeClusterRequest(), to=Leader(partition))
        assert {broker.broker_id for broker in described.brokers} == {1, 2, 3}
    async with Producer(kafka_cluster.bootstrap_servers) as producer:
        # Once it is replicated, so are those before it, which consumers do not get until then.
        await producer.send(partition.topic, b"last", partition=0)
    found = [record.value for record in await kafka_cluster.read(partition.topic)]
    assert found == [b"first", *values, b"last"]


async def test_reads_the_finalized_features_of_the_cluster(
    client: Client, kafka_cluster: ClusterHandle
) -> None:
    """Checks transaction.version, which is 2 since Kafka 4.0."""
    before = kafka_cluster.cluster.name.startswith("apache 3.")
    assert services_of(client).brokers.finalized_feature("transaction.version") == (
        0 if before else 2
    )
    assert services_of(client).brokers.finalized_feature("no.such.feature") == 0


async def test_connects_to_the_second_bootstrap_server(kafka_cluster: ClusterHandle) -> None:
    """Checks that ApiVersions has no broker id, since Kafka 4.4 refuses a bootstrap server's."""
    servers = kafka_cluster.bootstrap_servers.split(",")
    for alive in servers:
        async with Client(f"127.0.0.1:1,{alive}", default_api_timeout_ms=20_000) as client:
            assert set(services_of(client).metadata.snapshot.brokers) == {1, 2, 3}


async def test_finds_the_name_of_a_topic_id(client: Client, kafka_cluster: ClusterHandle) -> None:
    name = kafka_cluster.topic()
    async with Admin(client) as admin:
        topic_id = (await admin.create_topics([NewTopic(name, 1)]))[name].topic_id
    await wait_until_known(kafka_cluster, name)
    assert services_of(client).metadata.snapshot.topic_name(topic_id) is None
    cluster = await services_of(client).metadata.refresh(topic_ids=[topic_id])
    assert cluster.topic_name(topic_id) == name


@pytest.mark.mainly_on("embedded", reason="test_producer restarts a leader on both")
async def test_sends_to_the_new_leader_after_the_old_one_stopped(
    client: Client, kafka_cluster: ClusterHandle
) -> None:
    name = await create_topic(kafka_cluster, assignments={0: [3, 1, 2]})
    partition = TopicPartition(name, 0)
    request = MetadataRequest(topics=[])
    await client.request(request, to=Leader(partition))
    before = services_of(client).metadata.snapshot.leader(partition)
    assert before is not None
    assert before.leader_id == 3
    control = kafka_cluster.control
    await asyncio.to_thread(control.stop_broker, 3)
    try:
        await client.request(request, to=Leader(partition))
        after = services_of(client).metadata.snapshot.leader(partition)
        assert after is not None
        assert after.leader_id in (1, 2)
        assert after.epoch > before.epoch
    finally:
        await asyncio.to_thread(control.start_broker, 3)
    await client.request(request, to=Broker(3))


async def test_rebootstraps_from_the_second_bootstrap_server(kafka_cluster: ClusterHandle) -> None:
    hooks = Hooks()
    events: list[Rebootstrapped] = []
    hooks.listen(Rebootstrapped, events.append)
    alive = kafka_cluster.bootstrap_servers.split(",")[1]
    async with Client(
        f"127.0.0.1:1,{alive}",
        hooks=hooks,
        default_api_timeout_ms=20_000,
        metadata_recovery_rebootstrap_trigger_ms=0,  # Every metadata request rebootstraps.
    ) as client:
        assert set((await services_of(client).metadata.refresh()).brokers) == {1, 2, 3}
    assert events


async def test_receives_pipelined_responses_in_order(client: Client) -> None:
    connection = services_of(client).brokers.connection(1, ConnectionKind.FETCH, client)
    await connection.connect(10.0)
    names = [f"missing-{number}" for number in range(50)]
    futures = [
        connection.submit(
            MetadataRequest(
                topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
            ),
            timeout=10.0,
        )
        for name in names
    ]
    futures[7].cancel()
    responses: list[Any] = await asyncio.gather(*futures, return_exceptions=True)
    assert isinstance(responses.pop(7), asyncio.CancelledError)
    assert [response.topics[0].name for response in responses] == names[:7] + names[8:]
    await connection.close()
