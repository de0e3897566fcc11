"""The admin client on every kind of cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from kafka_async import Consumer
from kafka_async.admin import (
    Admin,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka_async.client.client import services_of
from kafka_async.errors import (
    GroupIdNotFoundError,
    GroupNotEmptyError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from kafka_async.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from tests.integration.helpers import create_topic, wait_until_known

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = [pytest.mark.asyncio, pytest.mark.any_broker]


@pytest_asyncio.fixture
async def admin(kafka_cluster: ClusterHandle) -> AsyncIterator[Admin]:
    async with Admin(kafka_cluster.bootstrap_servers, default_api_timeout_ms=30_000) as started:
        yield started


async def test_creates_describes_extends_and_deletes_a_topic(
    admin: Admin, kafka_cluster: ClusterHandle
) -> None:
    name = kafka_cluster.topic()
    created = await admin.create_topics([NewTopic(name, 3, 2)])
    assert created[name].partitions == 3
    assert (await admin.list_topics())[name] == created[name]
    topic = (await admin.describe_topics([name]))[name]
    assert topic.topic_id == created[name].topic_id
    assert [row.partition for row in topic.partitions] == [0, 1, 2]
    for row in topic.partitions:
        assert row.leader in row.replicas
        assert len(row.replicas) == 2
    await admin.create_partitions({name: 5})
    await wait_until_known(kafka_cluster, name, 5)
    assert len((await admin.describe_topics([name]))[name].partitions) == 5
    await admin.delete_topics([name])
    assert name not in await admin.list_topics()
    with pytest.raises(UnknownTopicOrPartitionError, match=name):
        await admin.describe_topics([name])
    with pytest.raises(UnknownTopicOrPartitionError, match=name):
        await admin.delete_topics([name])


async def test_creates_the_valid_topics_of_a_request(
    admin: Admin, kafka_cluster: ClusterHandle
) -> None:
    first, second = kafka_cluster.topic("first"), kafka_cluster.topic("second")
    await admin.create_topics([NewTopic(first, 1)])
    topics = [NewTopic(first, 1), NewTopic(second, 1), NewTopic("no/name", 1)]
    with pytest.raises(TopicExistsError, match=first) as caught:
        await admin.create_topics(topics)
    assert "no/name" in caught.value.__notes__[0]
    assert second in await admin.list_topics()
    await admin.delete_topics([first, second])


async def test_error_names_a_topic_that_cannot_be_created(
    admin: Admin, kafka_cluster: ClusterHandle
) -> None:
    name = kafka_cluster.topic()
    with pytest.raises(InvalidReplicationFactorError, match=name):
        await admin.create_topics([NewTopic(name, 1, 99)])
    with pytest.raises(InvalidTopicError):
        await admin.create_topics([NewTopic("no/name", 1)])
    await admin.create_topics([NewTopic(name, 1)], validate_only=True)
    assert name not in await admin.list_topics()


async def test_describes_the_cluster(admin: Admin, kafka_cluster: ClusterHandle) -> None:
    cluster = await admin.describe_cluster()
    addresses = {f"{node.host}:{node.port}" for node in cluster.brokers}
    assert addresses == set(kafka_cluster.bootstrap_servers.split(","))
    assert cluster.cluster_id == services_of(admin.client).metadata.snapshot.cluster_id
    assert cluster.controller_id in {node.id for node in cluster.brokers}


async def test_describes_configurations_with_their_source(
    admin: Admin, kafka_cluster: ClusterHandle
) -> None:
    name = kafka_cluster.topic()
    await admin.create_topics([NewTopic(name, 1, configs={"retention.ms": "60000"})])
    topic, broker = (
        ConfigResource(ResourceType.TOPIC, name),
        ConfigResource(ResourceType.BROKER, "2"),
    )
    found = await admin.describe_configs([topic, broker])
    assert found[topic]["retention.ms"].value == "60000"
    assert found[topic]["retention.ms"].source is ConfigSource.DYNAMIC_TOPIC
    assert found[topic]["cleanup.policy"].source is ConfigSource.DEFAULT
    assert found[broker]
    missing = ConfigResource(ResourceType.TOPIC, kafka_cluster.topic("missing"))
    with pytest.raises(UnknownTopicOrPartitionError, match="topic missing"):
        await admin.describe_configs([missing], timeout=1.0)


async def test_lists_offsets_of_an_empty_topic(admin: Admin, kafka_cluster: ClusterHandle) -> None:
    name = kafka_cluster.topic()
    await admin.create_topics([NewTopic(name, 3)])
    zero, one, two = (TopicPartition(name, index) for index in range(3))
    found = await admin.list_offsets(
        {zero: OffsetSpec.EARLIEST, one: OffsetSpec.LATEST, two: 1_600_000_000}
    )
    assert found[zero].offset == found[one].offset == 0
    assert found[two] == OffsetAndTimestamp(-1, -1, None)


async def test_error_names_a_missing_group(admin: Admin, kafka_cluster: ClusterHandle) -> None:
    group = kafka_cluster.group()
    assert group not in await admin.list_groups()
    with pytest.raises(GroupIdNotFoundError, match=group):
        await admin.describe_groups([group])
    with pytest.raises(GroupIdNotFoundError, match=group):
        await admin.delete_groups([group])
    assert await admin.list_group_offsets(group) == {}


async def test_offsets_of_a_group_without_members_are_altered(
    admin: Admin, kafka_cluster: ClusterHandle
) -> None:
    topic, group = await create_topic(kafka_cluster, partitions=2), kafka_cluster.group()
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await admin.alter_group_offsets(group, {first: 3, second: OffsetAndMetadata(4, None, "note")})
    assert await admin.list_group_offsets(group) == {
        first: OffsetAndMetadata(3),
        second: OffsetAndMetadata(4, None, "note"),
    }
    await admin.alter_group_offsets(group, {first: 1})
    assert (await admin.list_group_offsets(group, [first]))[first].offset == 1
    with pytest.raises(UnknownTopicOrPartitionError, match=f"{topic}-7"):
        await admin.alter_group_offsets(group, {TopicPartition(topic, 7): 1})


async def test_offsets_of_a_group_with_members_are_not_altered(
    admin: Admin, kafka_cluster: ClusterHandle
) -> None:
    topic, group = await create_topic(kafka_cluster), kafka_cluster.group()
    async with Consumer(
        kafka_cluster.bootstrap_servers, topics=[topic], group_id=group, enable_auto_commit=False
    ) as consumer:
        async with asyncio.timeout(30):
            while not consumer.assignment():
                await consumer.poll(timeout=0.1)
        with pytest.raises(GroupNotEmptyError, match=f"group {group} has members"):
            await admin.alter_group_offsets(group, {TopicPartition(topic, 0): 0})
    assert await admin.list_group_offsets(group) == {}
