"""A topic is deleted and created again while clients use it, on every kind of cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import Admin, Client, Consumer, NewTopic, Producer, TopicPartition
from kafka_async.cluster.client import services_of
from kafka_async.cluster.request_router import Controller
from kafka_async.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from kafka_async.protocol.messages.elect_leaders import ElectLeadersRequest
from kafka_async.testing.backends.embedded import EmbeddedBackend
from tests.integration.test_groups import KINDS

if TYPE_CHECKING:
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = pytest.mark.asyncio

EPOCH = 3
"""Leader epoch of the former topic; the new one begins with 0."""
OLD, NEW = [b"old-%d" % n for n in range(5)], [b"new-%d" % n for n in range(10)]
MANUAL: Any = pytest.param({}, id="manual")


async def raise_leader_epoch(cluster: ClusterHandle, topic: str) -> None:
    """Move the leader to and fro until the leader epoch is EPOCH or higher."""
    partition, leader = TopicPartition(topic, 0), 1
    async with Client(cluster.bootstrap_servers) as client, asyncio.timeout(60):
        metadata = services_of(client).metadata
        while (await metadata.refresh(topics=[topic])).leader_epoch(partition) < EPOCH:
            leader = 3 - leader
            if isinstance(cluster.cluster, EmbeddedBackend):
                cluster.cluster.cluster.move_leader(partition, leader)
                continue
            row = {"partition_index": 0, "replicas": [leader, 3 - leader]}
            moves = [{"name": topic, "partitions": [row]}]
            elected = [{"topic": topic, "partitions": [0]}]
            for request in (
                AlterPartitionReassignmentsRequest.from_dict(
                    {"timeout_ms": 20_000, "topics": moves}
                ),
                ElectLeadersRequest.from_dict({"timeout_ms": 20_000, "topic_partitions": elected}),
            ):
                await client.request(request, to=Controller())
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("kind", [MANUAL, *KINDS])
async def test_topic_created_again_with_a_lower_leader_epoch_is_read(
    kafka_cluster: ClusterHandle, kind: dict[str, Any]
) -> None:
    topic = kafka_cluster.topic()
    new_topic = NewTopic(topic, -1, assignments={0: [1, 2]})
    options: dict[str, Any] = {"topics": [topic], "group_id": kafka_cluster.group(), **kind}
    if not kind:
        options = {"partitions": [TopicPartition(topic, 0)]}

    def consumer() -> Consumer:
        return Consumer(kafka_cluster.bootstrap_servers, auto_offset_reset="earliest", **options)

    async def read(reader: Consumer, count: int) -> list[bytes | None]:
        values: list[bytes | None] = []
        async with asyncio.timeout(40):
            while len(values) < count:
                values += [record.value for record in await reader.poll(timeout=1)]
        return values

    async with (
        Admin(kafka_cluster.bootstrap_servers) as admin,
        Producer(kafka_cluster.bootstrap_servers) as producer,
    ):
        await admin.create_topics([new_topic])
        await raise_leader_epoch(kafka_cluster, topic)
        async with consumer() as reader:
            await producer.send_many(topic, OLD)
            assert await read(reader, len(OLD)) == OLD
            await admin.delete_topics([topic])
            await admin.create_topics([new_topic])
            await producer.send_many(topic, NEW)
            assert await read(reader, len(NEW)) == NEW
        if kind:
            await producer.send(topic, b"last")
            async with consumer() as reader:
                assert await read(reader, 1) == [b"last"]
