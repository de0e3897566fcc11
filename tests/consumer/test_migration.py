"""Groups that move to the consumer protocol and back, member by member (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.errors import InconsistentGroupProtocolError
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest
from kafka_async.protocol.messages.join_group import JoinGroupRequest
from tests.consumer.conftest import poll_until
from tests.embedded_client import now, settle
from tests.recording_listener import RecordingListener
from tests.rolling_group import RollingGroup

if TYPE_CHECKING:
    from kafka_async.consumer.consumer import Consumer
    from tests.consumer.conftest import Stage, StartStage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]

PARTITIONS, MEMBERS = 6, 3
CONSUMER: dict[str, Any] = {"group_protocol": "consumer"}


def classic(*assignors: str) -> dict[str, Any]:
    return {
        "partition_assignment_strategy": list(assignors),
        "session_timeout_ms": 10_000,
        "heartbeat_interval_ms": 500,
    }


def is_mixed(*members: Consumer) -> bool:
    """Return whether members of both protocols have a partition each in the same generation."""
    return (
        all(len(it.assignment()) == 1 for it in members)
        and len({it.group_metadata().generation_id for it in members}) == 1
    )


KINDS = [
    pytest.param(classic("range"), id="range"),
    pytest.param(classic("cooperative-sticky"), id="cooperative-sticky"),
    pytest.param(classic("range", "cooperative-sticky"), id="default"),
]


@pytest.mark.parametrize("kind", KINDS)
async def test_members_move_to_the_consumer_protocol_and_back_one_by_one(
    start_stage: StartStage, kind: dict[str, Any]
) -> None:
    stage = await start_stage(group_consumer_heartbeat_interval_ms=500)
    await stage.topic("t", PARTITIONS)

    def member(**options: Any) -> Consumer:
        return stage.consumer("t", enable_auto_commit=True, **options)

    group = RollingGroup(member, PARTITIONS)
    names = [f"m{number}" for number in range(MEMBERS)]
    kinds: list[tuple[str, bool]] = []

    async with group.producing(stage.producer(), "t", interval=0.05):
        for name in names:
            await group.start(name, **kind)
        for options in (CONSUMER, kind):
            for name in names:
                await group.restart(name, **options)
                await group.wait_until_balanced()
                kinds.append((name, stage.cluster.groups.consumer("g") is not None))
    await group.close()
    group.check()
    assert [is_consumer for _, is_consumer in kinds] == [True] * 5 + [False]


async def test_member_that_was_away_while_its_group_became_classic_joins_again(
    start_stage: StartStage,
) -> None:
    stage = await start_stage(
        group_consumer_heartbeat_interval_ms=500, group_consumer_session_timeout_ms=6_000
    )
    await stage.topic("t", 2)
    listener = RecordingListener()
    async with (
        stage.consumer("t", **classic("range")) as other,
        stage.consumer("t", **CONSUMER, client_id="away", listener=listener) as consumer,
    ):
        members = (consumer, other)
        await poll_until(lambda: all(len(it.assignment()) == 1 for it in members), *members)
        fault = stage.cluster.faults.add(
            api="ConsumerGroupHeartbeat", error="COORDINATOR_LOAD_IN_PROGRESS", count=None
        )
        await poll_until(lambda: len(other.assignment()) == 2, *members)
        assert stage.cluster.groups.consumer("g") is None
        fault.remove()
        await poll_until(lambda: all(len(it.assignment()) == 1 for it in members), *members)
        events = [event for event, partitions in listener.lines if partitions]
        assert events == ["assigned", "lost", "assigned"]
        assert stage.cluster.groups.consumer("g") is not None


async def test_partitions_of_last_new_member_have_an_owner_if_the_coordinator_fails_as_it_leaves(
    start_stage: StartStage,
) -> None:
    """The next coordinator does not know that the member of the classic protocol must rejoin."""
    stage = await start_stage(3, group_consumer_heartbeat_interval_ms=500)
    await stage.topic("t", 2)
    async with stage.consumer("t", **classic("range")) as stays:
        async with stage.consumer("t", **CONSUMER) as leaves:
            members = (stays, leaves)
            await poll_until(lambda: is_mixed(*members), *members)
            heartbeat = stage.hang("Heartbeat")
            await heartbeat.wait()
        assert stage.cluster.groups.consumer("g") is None
        await stage.cluster.stop_broker(stage.coordinator("g"))
        heartbeat.remove()
        await poll_until(lambda: len(stays.assignment()) == 2, stays)


@pytest.mark.parametrize("in_flight", [False, True], ids=["no-heartbeat", "heartbeat-in-flight"])
async def test_partitions_of_last_new_member_have_an_owner_if_its_one_broker_restarts(
    stage: Stage, in_flight: bool
) -> None:
    """The restarted broker has loaded the stable group, and the connection's loss is the only sign.

    Between two heartbeats, even that raises no error.
    """
    await stage.topic("t", 2)
    async with stage.consumer("t", **classic("range")) as stays:
        async with stage.consumer("t", **CONSUMER) as leaves:
            members = (stays, leaves)
            await poll_until(lambda: is_mixed(*members), *members)
            if in_flight:
                heartbeat = stage.hang("Heartbeat")
                await heartbeat.wait()
                heartbeat.remove()
            else:
                before = len(stage.requests(HeartbeatRequest))
                await poll_until(lambda: len(stage.requests(HeartbeatRequest)) > before, *members)
                await settle()
            before = len(stage.requests(HeartbeatRequest))
        assert stage.cluster.groups.consumer("g") is None
        await stage.cluster.stop_broker(1)
        await stage.cluster.start_broker(1)
        assert len(stage.requests(HeartbeatRequest)) == before
        await poll_until(lambda: len(stays.assignment()) == 2, stays)


@pytest.mark.parametrize("error", ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"])
async def test_member_joins_once_more_if_the_broker_was_not_the_coordinator_for_a_time(
    stage: Stage, error: str
) -> None:
    await stage.topic("t", 2)
    async with (
        stage.consumer("t", **classic("range")) as consumer,
        stage.consumer("t", **CONSUMER) as other,
    ):
        members = (consumer, other)
        await poll_until(lambda: is_mixed(*members), *members)
        joins = len(stage.requests(JoinGroupRequest))
        stage.cluster.faults.add(api="Heartbeat", error=error)
        end = now() + 30
        await poll_until(lambda: now() >= end, *members)
        assert len(stage.requests(JoinGroupRequest)) == joins + 1


async def test_error_of_a_refused_member_names_the_policy_of_migrations(
    start_stage: StartStage,
) -> None:
    stage = await start_stage(group_consumer_migration_policy="disabled")
    await stage.topic("t", 1)
    advice = (
        r'members of group_protocol="consumer", group\.consumer\.migration\.policy="bidirectional"'
    )
    async with (
        stage.consumer("t", **CONSUMER) as member,
        stage.consumer("t", **classic("range")) as refused,
    ):
        await poll_until(member.assignment, member)
        with pytest.raises(InconsistentGroupProtocolError, match=advice):
            await poll_until(refused.assignment, refused)
