"""Share groups in states and times that the contract with Kafka cannot reach."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.types import TopicPartition
from tests.contract.cases.log import SEED, produce
from tests.contract.cases.share_groups import (
    ACCEPT,
    GROUP_CONFIG,
    RELEASE,
    acknowledge,
    alter_configs,
    alter_offsets,
    delete_share_offsets,
    describe,
    describe_offsets,
    empty_fetch,
    fetch,
    join,
    partition,
    stay,
)
from tests.contract.model import GROUP, Batch, SendRequest, T, send
from tests.embedded.harness import Session, running_session

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
LOCK_SECONDS = 10
LOCK_MS = LOCK_SECONDS * 1000
PARTITION = TopicPartition("t", 0)


def _set(name: str, value: str) -> SendRequest:
    return alter_configs(1, (name, value, 0), kind=GROUP_CONFIG, name=GROUP)


async def acquired(it: Session, step: SendRequest) -> list[tuple[int, int, int]]:
    """Send a ShareFetch; return first offset, last offset and delivery count of each row."""
    response = await it.ask(step)
    assert response.error_code == ErrorCode.NONE
    return [
        (row.first_offset, row.last_offset, row.delivery_count)
        for topic in response.responses
        for one in topic.partitions
        for row in one.acquired_records
    ]


async def offsets(it: Session) -> tuple[int, int]:
    """Return start offset and lag of partition 0."""
    response = await it.ask(describe_offsets(1, (T, [0])))
    [row] = response.groups[0].topics[0].partitions
    return row.start_offset, row.lag


async def begin(it: Session, member: str = "m1") -> None:
    """Write three records, and let a member join that reads them from the start."""
    it.broker = it.partition().leader
    assert await it.code(SEED) is ErrorCode.NONE
    assert await it.code(_set("share.auto.offset.reset", "earliest")) is ErrorCode.NONE
    await heartbeat(it, join(1, member))


async def heartbeat(it: Session, step: SendRequest) -> Any:
    """Send a request to the coordinator of the group."""
    leader, it.broker = it.broker, it.coordinator(GROUP.key)
    try:
        return await it.ask(step)
    finally:
        it.broker = leader


async def test_lock_expires_after_its_duration() -> None:
    async with running_session(group_share_record_lock_duration_ms=LOCK_MS) as it:
        await begin(it)
        assert await acquired(it, fetch(1)) == [(0, 2, 1)]
        await asyncio.sleep(LOCK_SECONDS - 0.1)
        assert await acquired(it, empty_fetch(1, 0, "m2", max_wait_ms=0)) == []
        await asyncio.sleep(0.1)
        assert await acquired(it, fetch(1, 1, "m2")) == [(0, 2, 2)]
        assert await it.code(acknowledge(1, 1, (0, 2, [ACCEPT]))) is ErrorCode.INVALID_RECORD_STATE
        assert await it.code(acknowledge(1, 2, (0, 2, [ACCEPT]), member="m2")) is ErrorCode.NONE


async def test_renewal_extends_the_lock() -> None:
    async with running_session(group_share_record_lock_duration_ms=LOCK_MS) as it:
        await begin(it)
        assert await acquired(it, fetch(2)) == [(0, 2, 1)]
        await asyncio.sleep(LOCK_SECONDS - 1)
        renewal = acknowledge(2, 1, (0, 1, [4]), is_renew_ack=True)
        assert await it.code(renewal) is ErrorCode.NONE
        await asyncio.sleep(LOCK_SECONDS - 1)
        assert await acquired(it, fetch(2, 0, "m2")) == [(2, 2, 2)]
        assert await it.code(acknowledge(2, 2, (0, 1, [ACCEPT]))) is ErrorCode.NONE


async def test_waiting_fetch_gets_records_whose_lock_expires() -> None:
    async with running_session(group_share_record_lock_duration_ms=LOCK_MS) as it:
        await begin(it)
        assert await acquired(it, fetch(1)) == [(0, 2, 1)]
        began = asyncio.get_running_loop().time()
        assert await acquired(it, fetch(1, 0, "m2", max_wait_ms=14_000)) == [(0, 2, 2)]
        assert asyncio.get_running_loop().time() - began == pytest.approx(LOCK_SECONDS, abs=0.01)


async def test_record_is_archived_when_its_last_lock_expires() -> None:
    async with running_session(group_share_record_lock_duration_ms=LOCK_MS) as it:
        await begin(it)
        assert await it.code(_set("share.delivery.count.limit", "2")) is ErrorCode.NONE
        assert await acquired(it, fetch(1)) == [(0, 2, 1)]
        assert await acquired(it, fetch(1, 1, max_wait_ms=14_000)) == [(0, 2, 2)]
        await asyncio.sleep(LOCK_SECONDS)
        assert await acquired(it, empty_fetch(1, 2)) == []
        assert (await offsets(it))[1] == 0


async def test_new_leader_reads_the_state_and_ends_sessions_and_locks() -> None:
    async with running_session(3) as it:
        await begin(it)
        assert await acquired(it, fetch(1)) == [(0, 2, 1)]
        assert await it.code(acknowledge(1, 1, (0, 0, [ACCEPT]), (2, 2, [RELEASE]))) == 0
        former = it.broker
        it.broker = await it.embedded.move_leader(PARTITION)
        # The lock of record 1 was not stored, so it has not been delivered.
        assert await it.code(acknowledge(1, 2, (1, 1, [ACCEPT]))) is (
            ErrorCode.SHARE_SESSION_NOT_FOUND
        )
        assert await acquired(it, fetch(1)) == [(1, 1, 1), (2, 2, 2)]
        it.broker = former
        response = await it.ask(acknowledge(1, 2, (1, 1, [ACCEPT])))
        [row] = response.responses[0].partitions
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        response = await it.ask(fetch(1, 3))
        [row] = response.responses[0].partitions
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (
            it.partition().leader,
            it.partition().leader_epoch,
        )


async def test_leader_that_returns_reads_the_state_again() -> None:
    async with running_session(3) as it:
        await begin(it)
        assert await acquired(it, fetch(1)) == [(0, 2, 1)]
        former = it.broker
        it.broker = await it.embedded.move_leader(PARTITION)
        assert await acquired(it, fetch(1)) == [(0, 2, 1)]
        assert await it.code(acknowledge(1, 1, (0, 0, [ACCEPT]))) is ErrorCode.NONE
        it.broker = await it.embedded.move_leader(PARTITION, former)
        # The session of the former leader has not ended, but it has no locks.
        assert await it.code(acknowledge(1, 1, (0, 2, [ACCEPT]))) is (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        assert await acquired(it, fetch(1, 2)) == [(1, 2, 1)]


async def test_states_outlive_brokers() -> None:
    async with running_session(2) as it:
        await begin(it)
        assert await acquired(it, fetch(1)) == [(0, 2, 1)]
        assert await it.code(acknowledge(1, 1, (0, 0, [ACCEPT]))) is ErrorCode.NONE
        for broker in (1, 2):
            await it.embedded.stop_broker(broker)
            await it.embedded.start_broker(broker)
        it.broker = it.partition().leader
        assert await it.code(fetch(1, 2)) is ErrorCode.SHARE_SESSION_NOT_FOUND
        assert await acquired(it, fetch(1)) == [(1, 2, 1)]
        [group] = (await heartbeat(it, describe(1))).groups
        assert group.group_state == "Stable"
        described = await it.ask(
            send("DescribeConfigs", 4, resources=[{"resource_type": 32, "resource_name": GROUP}])
        )
        values = {row.name: row.value for row in described.results[0].configs}
        assert values["share.auto.offset.reset"] == "earliest"


async def test_broker_limits_its_sessions() -> None:
    async with running_session(group_share_max_share_sessions=1) as it:
        await begin(it)
        assert await acquired(it, fetch(1)) == [(0, 2, 1)]
        began = asyncio.get_running_loop().time()
        refused = fetch(1, 0, "m2", max_wait_ms=2_000)
        assert await it.code(refused) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert asyncio.get_running_loop().time() - began == pytest.approx(2.0, abs=0.01)
        assert await it.code(fetch(1, -1)) is ErrorCode.NONE
        assert await acquired(it, fetch(1, 0, "m2")) == [(0, 2, 2)]


async def test_fetch_shares_its_records_among_partitions() -> None:
    async with running_session() as it:
        await begin(it)
        both = [partition(0), partition(1)]
        assert await it.code(SEED) is ErrorCode.NONE
        second = produce(9, Batch((b"d", b"e", b"f")), index=1)
        assert await it.code(second) is ErrorCode.NONE
        assert await acquired(it, fetch(1, topics=both, max_records=3)) == [(0, 2, 1)]
        # The next request begins with the other partition.
        assert await acquired(it, fetch(1, 1, max_records=3)) == [(0, 2, 1)]
        assert await acquired(it, fetch(1, 2, max_records=3)) == [(3, 5, 1)]


async def test_altered_offsets_fence_a_leader_with_the_former_state() -> None:
    async with running_session() as it:
        await begin(it)
        assert await acquired(it, fetch(1)) == [(0, 2, 1)]
        assert await it.code(stay(1, epoch=-1)) is ErrorCode.NONE
        assert await it.code(alter_offsets(0, (0, 2))) is ErrorCode.NONE
        response = await it.ask(acknowledge(1, 1, (0, 2, [ACCEPT])))
        [row] = response.responses[0].partitions
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert row.current_leader.leader_id == it.partition().leader
        assert [node.node_id for node in response.node_endpoints] == [it.partition().leader]
        assert await acquired(it, fetch(1, 2)) == [(2, 2, 1)]


async def test_acknowledgement_fails_after_offsets_were_deleted() -> None:
    async with running_session() as it:
        await begin(it)
        assert await acquired(it, fetch(1)) == [(0, 2, 1)]
        assert await it.code(stay(1, epoch=-1)) is ErrorCode.NONE
        assert await it.code(delete_share_offsets(0)) is ErrorCode.NONE
        assert await it.code(acknowledge(1, 1, (0, 2, [ACCEPT]))) is (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )


async def test_removes_a_member_at_the_end_of_its_session() -> None:
    async with running_session(group_share_session_timeout_ms=10_000) as it:
        assert await it.code(join(1)) is ErrorCode.NONE
        await asyncio.sleep(9)
        assert await it.code(stay(1, epoch=2)) is ErrorCode.NONE
        await asyncio.sleep(10.1)
        [group] = (await it.ask(describe(1))).groups
        assert group.group_state == "Empty"
        assert await it.code(stay(1)) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_configurations_of_a_group_replace_the_brokers() -> None:
    async with running_session(group_share_min_session_timeout_ms=500) as it:
        assert await it.code(_set("share.session.timeout.ms", "50000")) is ErrorCode.NONE
        assert await it.code(_set("share.heartbeat.interval.ms", "7000")) is ErrorCode.NONE
        response = await it.ask(join(1))
        assert response.heartbeat_interval_ms == 7_000
        await asyncio.sleep(49)
        assert await it.code(stay(1, epoch=2)) is ErrorCode.NONE


async def test_limits_the_number_of_members() -> None:
    async with running_session(group_share_max_size=1) as it:
        assert await it.code(join(1)) is ErrorCode.NONE
        assert await it.code(join(1, "m2")) is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert await it.code(join(1)) is ErrorCode.NONE


async def test_computes_no_second_assignment_within_the_interval() -> None:
    async with running_session(group_share_assignment_interval_ms=1_000) as it:
        assert (await it.ask(join(1))).assignment is not None
        assert (await it.ask(stay(1, epoch=2))).assignment is None
        await asyncio.sleep(1)
        assert (await it.ask(stay(1, epoch=2))).assignment is not None


async def test_loads_members_when_the_coordinator_moves() -> None:
    async with running_session(3, coordinator_load_time_ms=500) as it:
        it.broker = it.coordinator(GROUP.key)
        assert await it.code(join(1)) is ErrorCode.NONE
        await it.embedded.stop_broker(it.broker)
        it.broker = it.coordinator(GROUP.key)
        steps = (
            stay(1),
            stay(1, epoch=-1),
            describe(1),
            send("DeleteGroups", 2, groups_names=[GROUP]),
        )
        for step in steps:
            assert await it.code(step) is LOADING
        await asyncio.sleep(0.5)
        assert await it.code(stay(1, epoch=2)) is ErrorCode.NONE


async def test_another_broker_does_not_coordinate_the_group() -> None:
    async with running_session(3) as it:
        it.broker = it.coordinator(GROUP.key) % 3 + 1
        steps = (
            join(1),
            describe(1),
            alter_offsets(0, (0, 0)),
            delete_share_offsets(0),
            describe_offsets(1, every=True),
        )
        for step in steps:
            assert await it.code(step) is ErrorCode.NOT_COORDINATOR


async def test_share_version_zero_has_no_share_groups() -> None:
    async with running_session(share_version=0) as it:
        steps = (
            join(1),
            describe(1),
            fetch(1),
            acknowledge(1, 1),
            alter_offsets(0, (0, 0)),
            delete_share_offsets(0),
            describe_offsets(1, (T, [0])),
        )
        for step in steps:
            assert await it.code(step) is ErrorCode.UNSUPPORTED_VERSION


async def test_deleted_topic_leaves_the_group() -> None:
    async with running_session() as it:
        await begin(it)
        assert (await it.ask(stay(1, epoch=2))).assignment.topic_partitions
        assert await acquired(it, fetch(1)) == [(0, 2, 1)]
        await it.embedded.delete_topic("t")
        assert not (await it.ask(stay(1))).assignment.topic_partitions
        response = await it.ask(fetch(1, 1))
        assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        response = await it.ask(describe_offsets(1, every=True))
        assert not response.groups[0].topics
