"""Groups that move to the consumer protocol and back, member by member (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.consumer.conftest import poll_until
from tests.recording_listener import RecordingListener
from tests.rolling_group import RollingGroup

if TYPE_CHECKING:
    from kafka_async.consumer.consumer import Consumer
    from tests.consumer.conftest import StartStage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

PARTITIONS, MEMBERS = 6, 3
CONSUMER: dict[str, Any] = {"group_protocol": "consumer"}


def classic(*assignors: str) -> dict[str, Any]:
    return {
        "partition_assignment_strategy": list(assignors),
        "session_timeout_ms": 10_000,
        "heartbeat_interval_ms": 500,
    }


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
            await poll_until(
                lambda: (
                    all(len(it.assignment()) == 1 for it in members)
                    and len({it.group_metadata().generation_id for it in members}) == 1
                ),
                *members,
            )
            heartbeat = stage.hang("Heartbeat")
            await heartbeat.wait()
        assert stage.cluster.groups.consumer("g") is None
        await stage.cluster.stop_broker(stage.coordinator("g"))
        heartbeat.remove()
        await poll_until(lambda: len(stays.assignment()) == 2, stays)
