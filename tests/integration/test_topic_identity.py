"""A topic is deleted and created again while clients use it, on every kind of cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import Admin, Consumer, NewTopic, Producer, TopicPartition
from tests.integration.helpers import elect_leader
from tests.integration.test_groups import KINDS

if TYPE_CHECKING:
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = pytest.mark.asyncio

MOVES = 3
"""Elections that raise the leader epoch of the former topic; the new one begins with 0."""
OLD, NEW = [b"old-%d" % n for n in range(5)], [b"new-%d" % n for n in range(10)]
MANUAL: Any = pytest.param({}, id="manual")


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
        for _ in range(MOVES):
            assert await elect_leader(kafka_cluster, topic, 0)
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
