"""Random changes of a topic under all kinds of readers, on an embedded cluster in memory."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_async.consumer.share.share_consumer import ShareConsumer
from kafka_async.types import TopicPartition
from tests.consumer.conftest import Stage
from tests.topic_changes import TopicChanges

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


async def run(seed: int, steps: int) -> None:
    async with Stage(2, auto_create_topics=False) as stage:

        def share_consumer(topic: str, **options: Any) -> ShareConsumer:
            servers, dialer = stage.cluster.bootstrap_servers, stage.network
            return ShareConsumer(servers, topics=[topic], dialer=dialer, **options)

        async def move_leader(topic: str, partition: int) -> None:
            await stage.cluster.move_leader(TopicPartition(topic, partition))

        async with (
            stage.admin() as admin,
            stage.producer(linger_ms=0) as producer,
            stage.producer(transactional_id="x") as transactional,
            stage.producer(transactional_id="y") as copying,
        ):
            changes = TopicChanges(
                stage.consumer,
                share_consumer,
                admin,
                producer,
                transactional,
                copying,
                "t",
                [1, 2],
                move_leader,
                seed,
            )
            await changes.run(steps)


@pytest.mark.parametrize("seed", [0, 1, 2, 1000])
async def test_readers_follow_random_changes_of_a_topic(seed: int) -> None:
    await run(seed, 20)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 104))
async def test_readers_follow_many_random_changes_of_a_topic(seed: int) -> None:
    await run(seed, 60)
