"""Groups with members of both protocols: policies, times and limits that the contract lacks."""

from __future__ import annotations

import asyncio

import pytest

from kafka_async.embedded import EmbeddedCluster
from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.errors import InvalidConfigurationError
from tests.contract.cases.consumer_groups import describe, join, owned, stay
from tests.contract.cases.groups import heartbeat, leave, sync
from tests.contract.cases.migration import CLASSIC, classic, ranged, stable_classic_group
from tests.contract.cases.migration import join as join_classic
from tests.contract.model import GROUP, Step, Subscription, send
from tests.embedded.harness import Session, running_session

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

REBALANCE, UNKNOWN = ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID
NONE, NOT_FOUND = ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND
DESCRIBED_AS_CLASSIC = send("DescribeGroups", 6, groups=[GROUP])


async def ask_all(it: Session, steps: list[Step]) -> None:
    for step in steps:
        await it.ask(step)  # pyright: ignore[reportArgumentType]


async def mixed(it: Session) -> None:
    """Make a group of a member of each protocol; the classic one must revoke partition 1."""
    await ask_all(it, stable_classic_group())
    assert await it.code(join(1)) is NONE


async def members(it: Session) -> list[str]:
    [found] = (await it.ask(describe(1))).groups
    return sorted(member.member_id for member in found.members)


async def test_disabled_policy_keeps_the_protocols_apart() -> None:
    async with running_session(group_consumer_migration_policy="disabled") as it:
        await ask_all(it, stable_classic_group())
        assert await it.code(join(1)) is NOT_FOUND
        assert await it.code(heartbeat(4, CLASSIC, 1)) is NONE
        assert await it.code(leave(5, (CLASSIC, None))) is NONE
        assert await it.code(join(1)) is NONE
        assert await it.code(join_classic(9)) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


async def test_upgrade_policy_keeps_a_consumer_group_without_consumer_members() -> None:
    async with running_session(group_consumer_migration_policy="upgrade") as it:
        await mixed(it)
        assert await it.code(stay(1, epoch=-1)) is NONE
        assert await it.code(heartbeat(4, CLASSIC, 1)) is REBALANCE
        joined = await it.ask(join_classic(9, CLASSIC, ranged()))
        assert (joined.generation_id, joined.leader) == (3, "")
        [found] = (await it.ask(describe(1))).groups
        assert found.group_state == "Stable"


async def test_downgrade_policy_converts_in_one_direction() -> None:
    async with running_session(group_consumer_migration_policy="downgrade") as it:
        assert await it.code(join(1)) is NONE
        await ask_all(it, classic())
        assert await it.code(stay(1, epoch=-1)) is NONE
        [found] = (await it.ask(DESCRIBED_AS_CLASSIC)).groups
        assert found.group_state == "PreparingRebalance"
        assert await it.code(join(1)) is NOT_FOUND


async def test_policy_must_be_one_of_kafkas() -> None:
    with pytest.raises(InvalidConfigurationError, match=r"bidirectional.*disabled.*'both'"):
        EmbeddedCluster(1, group_consumer_migration_policy="both")


async def test_classic_member_that_does_not_join_again_loses_its_place() -> None:
    async with running_session(group_consumer_session_timeout_ms=200_000) as it:
        await mixed(it)
        assert await it.code(heartbeat(4, CLASSIC, 1)) is REBALANCE
        for _ in range(5):  # Its session, 30 s, is kept; the rebalance timeout is 60 s.
            await asyncio.sleep(11.9)
            assert await it.code(heartbeat(4, CLASSIC, 1)) is REBALANCE
        await asyncio.sleep(0.6)
        assert await it.code(heartbeat(4, CLASSIC, 1)) is UNKNOWN
        assert await members(it) == ["m1"]


async def test_classic_member_that_does_not_synchronize_loses_its_place() -> None:
    async with running_session(group_consumer_session_timeout_ms=200_000) as it:
        await mixed(it)
        await it.ask(join_classic(9, CLASSIC, ranged()))
        for _ in range(5):
            await asyncio.sleep(11.9)
            assert await it.code(heartbeat(4, CLASSIC, 2)) is NONE
        await asyncio.sleep(0.6)
        assert await members(it) == ["m1"]


async def test_synchronizing_ends_the_rebalance_timeout() -> None:
    async with running_session(group_consumer_session_timeout_ms=200_000) as it:
        await mixed(it)
        await it.ask(join_classic(9, CLASSIC, ranged()))
        assert await it.code(sync(5, CLASSIC, 2)) is NONE
        for _ in range(5):
            await asyncio.sleep(25)
            assert await it.code(heartbeat(4, CLASSIC, 2)) is NONE


async def test_classic_member_has_its_own_session_timeout() -> None:
    async with running_session(group_consumer_session_timeout_ms=100_000) as it:
        await mixed(it)
        await asyncio.sleep(30.1)
        assert await members(it) == ["m1"]
        assert await it.code(stay(1)) is NONE


async def test_end_of_the_last_session_of_the_consumer_protocol_converts_the_group() -> None:
    async with running_session(group_consumer_session_timeout_ms=10_000) as it:
        await mixed(it)
        await asyncio.sleep(10.1)
        [found] = (await it.ask(DESCRIBED_AS_CLASSIC)).groups
        assert found.group_state == "PreparingRebalance"
        assert await it.code(heartbeat(4, CLASSIC, 2)) is REBALANCE
        joined = await it.ask(join_classic(9, CLASSIC, ranged(), label="again"))
        assert (joined.generation_id, joined.leader) == (3, joined.member_id)


async def test_classic_group_that_is_too_large_is_not_converted() -> None:
    async with running_session(group_consumer_max_size=1) as it:
        await ask_all(it, stable_classic_group())
        second = join_classic(3, "", ranged(), connection="b")
        waiting = asyncio.create_task(it.ask(second))
        await asyncio.sleep(0.1)
        assert await it.code(heartbeat(4, CLASSIC, 1)) is REBALANCE
        response = await it.ask(join(1))
        assert response.error_code == NOT_FOUND
        assert "maximum size" in response.error_message
        assert await it.code(join_classic(9, CLASSIC, ranged(), label="again")) is NONE
        assert (await waiting).generation_id == 2


async def test_consumer_group_that_is_too_large_is_not_converted() -> None:
    async with running_session(group_max_size=1) as it:
        assert await it.code(join(1)) is NONE
        await ask_all(it, [*classic(), *classic(label="other")])
        assert await it.code(stay(1, epoch=-1)) is NONE
        [found] = (await it.ask(describe(1))).groups
        assert found.error_code == NONE
        assert len(found.members) == 2


async def test_new_coordinator_loads_members_of_both_protocols() -> None:
    async with running_session(3, coordinator_load_time_ms=500) as it:
        it.broker = it.coordinator(GROUP.key)
        await ask_all(it, stable_classic_group())
        await it.embedded.stop_broker(it.broker)
        it.broker = it.coordinator(GROUP.key)
        assert await it.code(join(1)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await asyncio.sleep(0.5)
        assert await it.code(join(1)) is NONE
        await it.embedded.start_broker(it.broker % 3 + 1)
        await it.embedded.stop_broker(it.broker)
        it.broker = it.coordinator(GROUP.key)
        for step in (
            heartbeat(4, CLASSIC, 1),
            sync(5, CLASSIC, 1),
            leave(5, (CLASSIC, None)),
        ):
            assert await it.code(step) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await asyncio.sleep(0.5)
        owns_first = ranged(Subscription(owned=(0,), version=1))
        assert await it.code(join_classic(9, CLASSIC, owns_first)) is NONE
        assert await it.code(stay(1, epoch=2, topic_partitions=owned())) is NONE
        assert await it.code(stay(1, epoch=2, topic_partitions=owned(1))) is NONE
