"""Random changes of a topic under all kinds of readers, on every kind of cluster."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import Admin, Consumer, Producer, ShareConsumer
from tests.integration.helpers import elect_leader
from tests.topic_changes import TopicChanges

if TYPE_CHECKING:
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = pytest.mark.asyncio


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1))
async def test_readers_follow_random_changes_of_a_topic(
    kafka_cluster: ClusterHandle, seed: int
) -> None:
    servers = kafka_cluster.bootstrap_servers

    def consumer(topic: str, **options: Any) -> Consumer:
        return Consumer(servers, topics=[topic], **options)

    def share_consumer(topic: str, **options: Any) -> ShareConsumer:
        return ShareConsumer(servers, topics=[topic], **options)

    async with (
        Admin(servers) as admin,
        Producer(servers) as producer,
        Producer(servers, transactional_id=kafka_cluster.group("x")) as transactional,
        Producer(servers, transactional_id=kafka_cluster.group("y")) as copying,
    ):
        changes = TopicChanges(
            consumer,
            share_consumer,
            admin,
            producer,
            transactional,
            copying,
            kafka_cluster.topic(),
            [1, 2],
            partial(elect_leader, kafka_cluster),
            seed,
        )
        await changes.run(20)
