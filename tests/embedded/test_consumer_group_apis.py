"""Groups of the consumer protocol in states and times that the contract with Kafka cannot reach."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.types import TopicPartition
from tests.contract.cases.consumer_groups import describe, join, owned, stay
from tests.contract.cases.groups import commit, committed_by, delete_offsets
from tests.contract.cases.groups import join as join_classic
from tests.contract.model import GROUP, send
from tests.embedded.harness import Session, running_session

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
TOPIC = "t"


async def assignment(it: Session, step: Any) -> list[int] | None:
    """Send a heartbeat; return the partitions in its response, None if they are unchanged."""
    response = await it.ask(step)
    assert response.error_code == ErrorCode.NONE, response.error_message
    if response.assignment is None:
        return None
    return [index for row in response.assignment.topic_partitions for index in row.partitions]


async def state_of(it: Session) -> str:
    [found] = (await it.ask(describe(1))).groups
    assert found.error_code == ErrorCode.NONE
    return found.group_state


async def split_in_two(it: Session) -> None:
    """Let two members join, of which the first must revoke partition 1."""
    assert await assignment(it, join(1, "m1")) == [0, 1]
    assert await assignment(it, join(1, "m2")) == []
    assert await assignment(it, stay(1, "m1", 2)) == [0]


async def test_removes_a_member_at_the_end_of_its_session() -> None:
    async with running_session(group_consumer_session_timeout_ms=10_000) as it:
        assert await assignment(it, join(1)) == [0, 1]
        await asyncio.sleep(9)
        assert await it.code(stay(1)) is ErrorCode.NONE
        await asyncio.sleep(9.9)
        assert await state_of(it) == "Stable"
        await asyncio.sleep(0.2)
        assert await state_of(it) == "Empty"
        assert await it.code(stay(1)) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_removes_a_member_that_does_not_revoke_within_its_rebalance_timeout() -> None:
    async with running_session(group_consumer_session_timeout_ms=120_000) as it:
        await split_in_two(it)
        await asyncio.sleep(59.9)
        assert await it.code(stay(1, "m1", 2)) is ErrorCode.NONE
        assert await assignment(it, stay(1, "m2", 3)) is None
        await asyncio.sleep(0.2)
        assert await it.code(stay(1, "m1", 2)) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await assignment(it, stay(1, "m2", 3)) == [0, 1]


async def test_revocation_ends_the_rebalance_timeout() -> None:
    async with running_session(group_consumer_session_timeout_ms=120_000) as it:
        await split_in_two(it)
        assert await assignment(it, stay(1, "m1", 2, topic_partitions=owned(0))) is None
        await asyncio.sleep(61)
        assert await it.code(stay(1, "m1", 3)) is ErrorCode.NONE
        assert await assignment(it, stay(1, "m2", 3)) == [1]
        assert await state_of(it) == "Stable"


async def test_limits_the_number_of_members() -> None:
    async with running_session(group_consumer_max_size=1) as it:
        assert await assignment(it, join(1, "m1", instance_id="i")) == [0, 1]
        assert await it.code(join(1, "m2")) is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert await assignment(it, join(1, "m1")) == [0, 1]
        await it.ask(stay(1, "m1", -2, instance_id="i"))
        assert await assignment(it, join(1, "m2", instance_id="i")) == [0, 1]


async def test_computes_no_second_assignment_within_the_interval() -> None:
    async with running_session(group_consumer_assignment_interval_ms=1_000) as it:
        assert await assignment(it, join(1, "m1")) == [0, 1]
        assert await assignment(it, join(1, "m2")) == []
        assert await state_of(it) == "Assigning"
        assert await assignment(it, stay(1, "m1", 2)) is None
        await asyncio.sleep(1)
        assert await assignment(it, stay(1, "m1", 2)) == [0]
        assert await state_of(it) == "Reconciling"


async def test_finds_new_topics_of_a_pattern_after_ten_seconds() -> None:
    async with running_session() as it:
        pattern = {"subscribed_topic_names": None, "subscribed_topic_regex": "t.*"}
        assert await assignment(it, join(1, **pattern)) == []
        assert await assignment(it, stay(1, epoch=1)) == [0, 1]
        await it.embedded.create_topic("tt", 1)
        await asyncio.sleep(10)
        assert await assignment(it, stay(1)) is None
        await asyncio.sleep(0.1)
        assert await assignment(it, stay(1)) is None
        assert sorted(await assignment(it, stay(1)) or ()) == [0, 0, 1]


async def test_loads_members_when_the_coordinator_moves() -> None:
    async with running_session(3, coordinator_load_time_ms=500) as it:
        it.broker = it.coordinator(GROUP.key)
        await split_in_two(it)
        assert await it.code(commit(9, "m1", 2)) is ErrorCode.NONE
        await it.embedded.stop_broker(it.broker)
        it.broker = it.coordinator(GROUP.key)
        for step in (
            stay(1, "m1", 2),
            stay(1, "m1", -1),
            describe(1),
            commit(9, "m1", 2),
            committed_by(9),
            delete_offsets(0, (TOPIC, 0)),
            send("DeleteGroups", 2, groups_names=[GROUP]),
            join_classic(9),
        ):
            assert await it.code(step) is LOADING
        await asyncio.sleep(0.5)
        assert await it.code(stay(1, "m1", 2)) is ErrorCode.NONE
        # The time to revoke partitions begins anew.
        await asyncio.sleep(40)
        assert await it.code(stay(1, "m1", 2)) is ErrorCode.NONE
        await asyncio.sleep(20)
        assert await it.code(stay(1, "m1", 2)) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_another_broker_does_not_coordinate_the_group() -> None:
    async with running_session(3) as it:
        it.broker = it.coordinator(GROUP.key) % 3 + 1
        for step in (join(1), describe(1)):
            assert await it.code(step) is ErrorCode.NOT_COORDINATOR


async def test_group_version_zero_has_the_classic_protocol_only() -> None:
    async with running_session(group_version=0) as it:
        for step in (join(1), describe(1)):
            assert await it.code(step) is ErrorCode.UNSUPPORTED_VERSION


async def test_deleted_topic_leaves_the_assignment() -> None:
    async with running_session() as it:
        assert await assignment(it, join(1)) == [0, 1]
        await it.embedded.delete_topic(TOPIC)
        assert await assignment(it, stay(1)) == []
        assert it.embedded.topics.partition(TopicPartition(TOPIC, 0)) is None
        assert await it.code(stay(1, topic_partitions=[])) is ErrorCode.NONE
        assert await state_of(it) == "Stable"
