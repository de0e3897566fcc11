"""Effects of CreateTopics, IncrementalAlterConfigs and deletion on topics and their logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafka_async.embedded.error_codes import ErrorCode
from tests.contract.cases.admin import NEW, SET, alter, create, grow
from tests.embedded.harness import Session, running_session

if TYPE_CHECKING:
    from kafka_async.embedded.state.partition import Topic

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


def topic_of(it: Session, name: str = "t") -> Topic:
    found = it.embedded.topics.get(name)
    assert found is not None
    return found


async def test_any_broker_creates_topics_with_defaults_of_settings() -> None:
    async with running_session(2, default_partitions=3) as it:
        it.broker = 2
        [result] = (await it.ask(create(7, NEW, -1, -1))).topics
        assert (result.num_partitions, result.replication_factor) == (3, 2)
        topic = topic_of(it, NEW.key)
        assert topic.id == result.topic_id
        assert [partition.replicas for partition in topic.partitions] == [(1, 2), (2, 1), (1, 2)]


async def test_recreated_topic_has_new_id() -> None:
    async with running_session() as it:
        first = topic_of(it)
        await it.embedded.delete_topic("t")
        assert (await it.embedded.create_topic("t")).id != first.id


async def test_altered_configs_apply_to_logs() -> None:
    async with running_session() as it:
        assert await it.code(alter(1, ("max.message.bytes", "100", SET))) is ErrorCode.NONE
        logs = [partition.log for partition in topic_of(it).partitions]
        assert [log.max_message_bytes for log in logs] == [100, 100]


async def test_invalid_config_leaves_the_others_unchanged() -> None:
    async with running_session() as it:
        changes = ("max.message.bytes", "100", SET), ("retention.ms", "much", SET)
        assert await it.code(alter(1, *changes)) is ErrorCode.INVALID_CONFIG
        assert topic_of(it).configs == {}
        assert 100 not in [row.log.max_message_bytes for row in topic_of(it).partitions]


async def test_refuses_more_than_10000_partitions_per_request() -> None:
    async with running_session() as it:
        assert await it.code(create(7, NEW, 10_001)) is ErrorCode.POLICY_VIOLATION
        assert it.embedded.topics.get(NEW.key) is None
        assert await it.code(grow(3, 10_003)) is ErrorCode.POLICY_VIOLATION
        assert len(topic_of(it).partitions) == 2
