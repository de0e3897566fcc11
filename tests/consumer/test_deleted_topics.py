"""A deleted topic delays neither commits nor the group's other partitions."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from kafka_async.errors import UnknownTopicOrPartitionError
from kafka_async.group.assignors.abc import Assignor
from kafka_async.hooks import Hooks, RebalanceBegun
from kafka_async.types import TopicPartition
from tests.consumer.conftest import poll_until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_async.consumer.consumer import Consumer
    from kafka_async.group.assignors.abc import Assignments, Members
    from tests.consumer.conftest import Stage, StartStage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]

KEPT, GONE = TopicPartition("kept", 0), TopicPartition("gone", 0)


async def reading_both(consumer: Consumer, each: int) -> None:
    """Poll until `each` records of both topics were returned."""
    while consumer.statistics().records_consumed_total < 2 * each:
        assert await consumer.poll(timeout=30)


async def until_owned(
    partitions: set[TopicPartition], *members: Consumer, timeout: float = 30
) -> None:
    """Poll until the members own exactly these partitions."""
    await poll_until(
        lambda: set().union(*(each.assignment() for each in members)) == partitions,
        *members,
        timeout=timeout,
    )


async def offset_of_kept(consumer: Consumer) -> int | None:
    """Return the committed offset of KEPT."""
    row = (await consumer.committed([KEPT]))[KEPT]
    return None if row is None else row.offset


@pytest_asyncio.fixture
async def stage(start_stage: StartStage) -> Stage:
    """Start one broker, where a subscription does not re-create a deleted topic."""
    return await start_stage(1, auto_create_topics=False)


async def both(stage: Stage) -> None:
    await stage.topic("kept", 1, records=3)
    await stage.topic("gone", 1, records=3)


async def test_commits_the_other_partitions_at_once(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    await both(stage)
    loop = asyncio.get_running_loop()
    async with stage.consumer("kept", "gone") as consumer:
        await reading_both(consumer, 3)
        await stage.cluster.delete_topic("gone")
        began = loop.time()
        with caplog.at_level(logging.WARNING, "kafka_async"):
            await consumer.commit()
        assert loop.time() - began < 5
        assert await offset_of_kept(consumer) == 3
    assert [r.message for r in caplog.records if "do not exist any more" in r.message] == [
        "group g: the topics of these offsets do not exist any more, so they are not committed: "
        "gone-0: 3"
    ]


async def test_auto_commit_and_stop_leave_out_deleted_topic(stage: Stage) -> None:
    await both(stage)
    loop = asyncio.get_running_loop()
    consumer = stage.consumer(
        "kept", "gone", enable_auto_commit=True, auto_commit_interval_ms=60_000
    )
    await consumer.start()
    await reading_both(consumer, 3)
    await consumer.poll(timeout=0)
    await stage.cluster.delete_topic("gone")
    began = loop.time()
    await consumer.stop()
    assert loop.time() - began < 5
    async with stage.consumer(partitions=[KEPT], group_id="g") as other:
        assert await offset_of_kept(other) == 3


async def test_member_joining_after_deletion_is_not_delayed(stage: Stage) -> None:
    await both(stage)
    options = {"enable_auto_commit": True, "auto_commit_interval_ms": 60_000}
    async with stage.consumer("kept", "gone", **options) as first:
        await reading_both(first, 3)
        await first.poll(timeout=0)
        await stage.cluster.delete_topic("gone")
        async with stage.consumer("kept", "gone", **options) as second:
            await until_owned({KEPT}, first, second, timeout=10)


async def test_leader_rejoins_when_topic_is_deleted_and_recreated(stage: Stage) -> None:
    await both(stage)
    async with stage.consumer("kept", "gone") as leader, stage.consumer("kept", "gone") as other:
        await until_owned({KEPT, GONE}, leader, other)
        await stage.cluster.delete_topic("gone")
        await until_owned({KEPT}, leader, other)
        await stage.topic("gone", 1)
        await until_owned({KEPT, GONE}, leader, other)


async def test_topic_missing_from_single_responses_is_not_deleted(stage: Stage) -> None:
    """The first response starts the check, which two more responses have to confirm."""
    await both(stage)
    hooks = Hooks()
    begun: list[RebalanceBegun] = []
    hooks.listen(RebalanceBegun, begun.append)
    async with stage.consumer("kept", "gone", hooks=hooks, metadata_max_age_ms=2000) as consumer:
        await reading_both(consumer, 3)
        fault = stage.cluster.faults.add(
            api="Metadata", topic="gone", error="UNKNOWN_TOPIC_OR_PARTITION", count=2
        )
        await fault.wait(2)
        for _ in range(100):
            await consumer.poll(timeout=0.1)
        assert consumer.assignment() == {KEPT, GONE}
        assert len(begun) == 1


class AssignsMissingTopics(Assignor):
    """Assigns the partitions of both topics to its only member, even if they do not exist."""

    name = "stubborn"

    def assign(self, partitions: Mapping[str, int], members: Members) -> Assignments:
        (member,) = members
        return {member: [KEPT, GONE]}


async def test_missing_assigned_topic_does_not_delay_others(stage: Stage) -> None:
    await stage.topic("kept", 1, records=3)
    fetches = stage.cluster.faults.add(api="OffsetFetch", count=None)
    async with stage.consumer(
        "kept", partition_assignment_strategy=[AssignsMissingTopics()]
    ) as consumer:
        assert [record.topic for record in await consumer.poll(timeout=20)] == ["kept"] * 3
        assert consumer.assignment() == {KEPT, GONE}
    assert fetches.hits == 1


async def test_seek_to_committed_skips_topic_deleted_meanwhile(stage: Stage) -> None:
    """It looks up the other member's offsets too: its own partitions may be new."""
    await stage.topic("kept", 2)
    await stage.topic("gone", 2)
    first = stage.consumer("kept", "gone", auto_offset_reset="latest")
    second = stage.consumer("kept", "gone", auto_offset_reset="latest")
    async with first, second, asyncio.timeout(60):
        await poll_until(
            lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second
        )
        for partition in second.assignment():
            await second.position(partition)
        fetch = stage.cluster.faults.add(api="OffsetFetch", skip=1, hang=True)
        seeking = asyncio.create_task(second.seek_to_committed())
        await fetch.wait()
        await stage.cluster.delete_topic("gone")
        fetch.release()
        await seeking
        (kept,) = (p for p in second.assignment() if p.topic == "kept")
        await second.position(kept)
        stage.produce(kept, ["new"])
        assert [record.value for record in await second.poll(timeout=30)] == [b"new"]


async def test_committing_named_offset_of_missing_topic_raises(stage: Stage) -> None:
    await both(stage)
    typo = TopicPartition("ketp", 0)
    loop = asyncio.get_running_loop()
    async with stage.consumer("kept") as consumer:
        await consumer.poll(timeout=30)
        began = loop.time()
        with pytest.raises(UnknownTopicOrPartitionError, match="ketp"):
            await consumer.commit({typo: 1, KEPT: 2})
        with pytest.raises(UnknownTopicOrPartitionError, match="ketp"):
            await consumer.committed([typo])
        assert loop.time() - began < 5
        assert await offset_of_kept(consumer) == 2
