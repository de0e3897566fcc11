"""Groups in states and times that the contract with Kafka cannot reach."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafka_async.embedded.error_codes import ErrorCode
from tests.contract.cases.groups import ME, commit, committed_by, heartbeat, join, stable, sync
from tests.contract.model import GROUP, SendRequest, reply, send
from tests.embedded.harness import Session, running_session

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
DESCRIBE = send("DescribeGroups", 6, groups=[GROUP])
SESSION_TIMEOUT = 30.0
"""Seconds, of the members in the contract."""


async def become_stable(it: Session) -> None:
    """Join as the only member of the group and synchronize, at the coordinator."""
    it.broker = it.coordinator(GROUP.key)
    for step in stable():
        assert isinstance(step, SendRequest)
        await it.ask(step)


async def join_second(it: Session) -> asyncio.Task[Any]:
    """Return the pending JoinGroup of another member, which waits for the first one's."""
    await it.ask(join(9, label="id2", connection="b"))
    waiting = asyncio.create_task(
        it.ask(join(9, reply("id2", "member_id"), label="other", connection="b"))
    )
    await asyncio.sleep(0.1)
    assert await it.code(heartbeat(4, ME)) is ErrorCode.REBALANCE_IN_PROGRESS
    return waiting


async def committed_offset(it: Session, **fields: Any) -> int:
    [found] = (await it.ask(committed_by(9, **fields))).groups
    assert found.error_code == ErrorCode.NONE
    return found.topics[0].partitions[0].committed_offset


# -- membership -----------------------------------------------------------------------------------


async def test_member_without_heartbeats_is_removed_after_session_timeout() -> None:
    async with running_session(group_initial_rebalance_delay_ms=100) as it:
        loop = asyncio.get_running_loop()
        await become_stable(it)
        assert loop.time() == pytest.approx(0.1)
        await asyncio.sleep(SESSION_TIMEOUT - 0.1)
        assert await it.code(heartbeat(4, ME)) is ErrorCode.NONE
        await asyncio.sleep(SESSION_TIMEOUT - 0.1)
        assert (await it.ask(DESCRIBE)).groups[0].group_state == "Stable"
        await asyncio.sleep(0.2)
        assert (await it.ask(DESCRIBE)).groups[0].group_state == "Empty"
        assert await it.code(heartbeat(4, ME)) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_empty_group_id_has_offsets() -> None:
    async with running_session() as it:
        describe = send("DescribeGroups", 6, groups=[""])
        assert await it.code(describe) is ErrorCode.GROUP_ID_NOT_FOUND
        await it.ask(commit(9, group_id=""))
        rows = [{"group_id": "", "topics": [{"name": "t", "partition_indexes": [0]}]}]
        assert await committed_offset(it, groups=rows) == 5
        assert (await it.ask(describe)).groups[0].group_state == "Empty"


async def test_deleting_topic_deletes_offsets() -> None:
    async with running_session() as it:
        await it.ask(commit(9))
        await it.embedded.delete_topic("t")
        await it.embedded.create_topic("t", 2)
        assert await committed_offset(it) == -1


# -- coordinators ---------------------------------------------------------------------------------


async def test_group_survives_stop_of_its_coordinator() -> None:
    async with running_session(3) as it:
        await become_stable(it)
        await it.ask(commit(9, ME, 1))
        first = it.broker

        await it.embedded.stop_broker(first)
        it.broker = it.coordinator(GROUP.key)
        assert it.broker != first
        assert await it.code(heartbeat(4, ME)) is ErrorCode.NONE
        assert (await it.ask(sync(5, ME))).assignment == b"mine"
        assert await committed_offset(it) == 5

        await it.embedded.start_broker(first)
        assert await it.code(heartbeat(4, ME)) is ErrorCode.NOT_COORDINATOR
        it.broker = first
        assert await it.code(heartbeat(4, ME)) is ErrorCode.NONE


async def test_pending_join_fails_when_broker_stops() -> None:
    async with running_session(3) as it:
        await become_stable(it)
        waiting = await join_second(it)
        await it.embedded.stop_broker(it.broker)
        with pytest.raises(ConnectionError):
            await waiting
        it.broker = it.coordinator(GROUP.key)
        assert await it.code(heartbeat(4, ME)) is ErrorCode.NONE


async def test_pending_join_fails_when_coordinator_moves_back() -> None:
    async with running_session(3) as it:
        coordinator = it.coordinator(GROUP.key)
        await it.embedded.stop_broker(coordinator)
        await become_stable(it)
        waiting = await join_second(it)
        await it.embedded.start_broker(coordinator)
        assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR


async def test_new_coordinator_responds_load_in_progress() -> None:
    async with running_session(3, coordinator_load_time_ms=2_000) as it:
        await become_stable(it)
        await it.embedded.stop_broker(it.broker)
        it.broker = it.coordinator(GROUP.key)
        assert await it.code(heartbeat(4, ME)) is LOADING
        assert await it.code(send("ListGroups", 5)) is LOADING
        await asyncio.sleep(2)
        assert await it.code(heartbeat(4, ME)) is ErrorCode.NONE


@pytest.mark.parametrize(
    "request_",
    [
        committed_by(9, topics=[]),
        send("OffsetDelete", 0, group_id=GROUP, topics=[]),
        DESCRIBE,
        send("DeleteGroups", 2, groups_names=[GROUP]),
    ],
    ids=lambda step: step.api,
)
async def test_rejects_requests_while_group_loads(request_: SendRequest) -> None:
    async with running_session(3, coordinator_load_time_ms=2_000) as it:
        it.broker = it.coordinator(GROUP.key)
        await it.ask(commit(9))
        await it.embedded.stop_broker(it.broker)
        it.broker = it.coordinator(GROUP.key)
        assert await it.code(request_) is LOADING
        await asyncio.sleep(2)
        assert await it.code(request_) is ErrorCode.NONE


async def test_stopping_cluster_ends_pending_joins() -> None:
    async with running_session() as it:
        await become_stable(it)
        waiting = await join_second(it)
        await it.embedded.stop()
        with pytest.raises(ConnectionError):
            await waiting
