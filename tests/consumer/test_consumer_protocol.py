"""Groups of the consumer protocol (KIP-848): the coordinator computes the assignment."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.errors import (
    CommitFailedError,
    InvalidRegularExpressionError,
    KafkaError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
    UnsupportedVersionError,
)
from kafka_async.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafka_async.protocol.messages.offset_commit import OffsetCommitRequest
from kafka_async.protocol.messages.offset_fetch import OffsetFetchRequest
from kafka_async.types import TopicPartition
from tests.consumer.conftest import poll_until
from tests.recording_listener import RecordingListener

if TYPE_CHECKING:
    from kafka_async.consumer.consumer import Consumer
    from tests.consumer.conftest import Stage, StartStage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]

PROTOCOL: dict[str, Any] = {"group_protocol": "consumer"}


def owned(*consumers: Consumer) -> list[list[int]]:
    return [sorted(p.partition for p in consumer.assignment()) for consumer in consumers]


def heartbeats(stage: Stage) -> list[ConsumerGroupHeartbeatRequest]:
    return stage.requests(ConsumerGroupHeartbeatRequest)


async def poll_for(seconds: float, *consumers: Consumer) -> None:
    """Poll all in turn for a time."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    await poll_until(lambda: loop.time() >= end, *consumers)


async def poll_until_split(count: int, *consumers: Consumer) -> None:
    """Poll all in turn until they own `count` partitions, disjoint and balanced."""

    def split() -> bool:
        sizes = [len(assigned) for assigned in owned(*consumers)]
        different = set[int]().union(*owned(*consumers))
        return len(different) == sum(sizes) == count and max(sizes) - min(sizes) <= 1

    await poll_until(split, *consumers)


async def test_joins_and_gets_all_partitions(stage: Stage) -> None:
    await stage.topic("t", 3, records=2)
    async with stage.consumer("t", **PROTOCOL) as consumer:
        await poll_until(lambda: owned(consumer) == [[0, 1, 2]], consumer)
        await poll_for(1, consumer)
        await consumer.commit()
        committed = await consumer.committed(consumer.assignment())
        assert [it and it.offset for it in committed.values()] == [2, 2, 2]
    assert [it.member_epoch for it in heartbeats(stage)][-1] == -1
    group = stage.cluster.groups.consumer("g")
    assert group is not None
    assert not group.members


async def test_heartbeats_state_only_changes_at_the_interval_of_the_broker(
    start_stage: StartStage,
) -> None:
    stage = await start_stage(group_consumer_heartbeat_interval_ms=2_000)
    await stage.topic("t", 1)
    async with stage.consumer("t", **PROTOCOL, client_rack="r") as consumer:
        await poll_for(1, consumer)
        joins, acknowledges = heartbeats(stage)
        assert (joins.rack_id, joins.rebalance_timeout_ms) == ("r", 300_000)
        assert joins.subscribed_topic_names == ["t"]
        assert joins.topic_partitions is not None
        assert len(joins.topic_partitions) == 0
        assert acknowledges.subscribed_topic_names is None
        assert [list(row.partitions) for row in acknowledges.topic_partitions or ()] == [[0]]
        await poll_for(10, consumer)
        later = heartbeats(stage)[2:]
        assert len(later) == 5
        assert all(it.topic_partitions is None and it.rack_id is None for it in later)


@pytest.mark.parametrize("assignor", [None, "range"])
async def test_members_split_partitions_and_revoke_before_others_get_them(
    stage: Stage, assignor: str | None
) -> None:
    await stage.topic("t", 4)
    first, second = RecordingListener(), RecordingListener()
    options = PROTOCOL | {"group_remote_assignor": assignor}
    async with stage.consumer("t", **options, listener=first) as one:
        await poll_until(lambda: owned(one) == [[0, 1, 2, 3]], one)
        async with stage.consumer("t", **options, listener=second) as two:
            await poll_until_split(4, one, two)
        await poll_until(lambda: owned(one) == [[0, 1, 2, 3]], one)
    moved = second.lines[-1][1]
    assert len(moved) == 2
    assert first.lines[:2] == [("assigned", [0, 1, 2, 3]), ("revoked", moved)]
    assert first.lines[-1] == ("revoked", [0, 1, 2, 3])
    assert second.lines[-2:] == [("assigned", moved), ("revoked", moved)]


async def test_subscription_change_is_sent_at_once(stage: Stage) -> None:
    await stage.topic("t", 1)
    await stage.topic("u", 1)
    async with stage.consumer("t", **PROTOCOL) as consumer:
        await poll_until(lambda: consumer.assignment(), consumer)
        consumer.subscribe(["u"])
        await poll_until(
            lambda: TopicPartition("u", 0) in consumer.assignment(), consumer, timeout=2
        )


async def test_new_partitions_of_a_topic_are_assigned(stage: Stage) -> None:
    await stage.topic("t", 1)
    async with stage.consumer("t", **PROTOCOL) as consumer:
        await poll_until(lambda: owned(consumer) == [[0]], consumer)
        await stage.cluster.add_partitions("t", 3)
        await poll_until(lambda: owned(consumer) == [[0, 1, 2]], consumer)


async def test_broker_matches_a_str_and_the_client_a_compiled_pattern(stage: Stage) -> None:
    await stage.topic("ab", 1)
    await stage.topic("b", 1)
    async with stage.consumer("b", **PROTOCOL) as consumer:
        await poll_until(lambda: consumer.assignment(), consumer)
        consumer.subscribe(pattern="a[[:alpha:]]")
        await poll_until(lambda: TopicPartition("ab", 0) in consumer.assignment(), consumer)
        consumer.subscribe(pattern=re.compile("b|ab"))
        await poll_until(lambda: len(consumer.assignment()) == 2, consumer)
    patterns = [it.subscribed_topic_regex for it in heartbeats(stage)]
    assert [it for it in patterns if it is not None] == ["a[[:alpha:]]", ""]


async def test_member_without_heartbeats_loses_its_partitions_and_joins_again(
    start_stage: StartStage,
) -> None:
    stage = await start_stage(group_consumer_session_timeout_ms=10_000)
    await stage.topic("t", 1)
    listener = RecordingListener()
    async with stage.consumer("t", **PROTOCOL, listener=listener) as consumer:
        await poll_until(lambda: consumer.assignment(), consumer)
        fault = stage.cluster.faults.add(
            api="ConsumerGroupHeartbeat", error="COORDINATOR_LOAD_IN_PROGRESS", count=None
        )
        await poll_for(11, consumer)
        assert listener.lines == [("assigned", [0])]
        fault.remove()
        await poll_until(lambda: len(listener.lines) == 3, consumer)
    assert listener.lines == [("assigned", [0]), ("lost", [0]), ("assigned", [0]), ("revoked", [0])]


@pytest.mark.parametrize("error", ["FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID"])
async def test_rejoins_after_partitions_were_lost(stage: Stage, error: Any) -> None:
    await stage.topic("t", 1)
    listener = RecordingListener()
    async with stage.consumer("t", **PROTOCOL, listener=listener) as consumer:
        await poll_until(lambda: consumer.assignment(), consumer)
        stage.cluster.faults.add(api="ConsumerGroupHeartbeat", error=error)
        await poll_until(lambda: len(listener.lines) == 3, consumer)
        assert listener.lines == [("assigned", [0]), ("lost", [0]), ("assigned", [0])]
        assert heartbeats(stage)[-2].member_epoch == 0


async def test_loss_of_the_coordinator_keeps_the_membership(start_stage: StartStage) -> None:
    stage = await start_stage(3)
    await stage.topic("t", 2)
    listener = RecordingListener()
    async with stage.consumer("t", **PROTOCOL, listener=listener) as consumer:
        await poll_until(lambda: consumer.assignment(), consumer)
        await stage.cluster.stop_broker(stage.coordinator("g"))
        await poll_for(30, consumer)
        assert listener.lines == [("assigned", [0, 1])]
        await consumer.commit({TopicPartition("t", 0): 0})
        assert {it.member_epoch for it in heartbeats(stage)} == {0, 2}


async def test_commit_with_a_stale_epoch_is_retried_with_the_present_one(stage: Stage) -> None:
    (partition,) = await stage.topic("t", 1, records=1)
    async with stage.consumer("t", **PROTOCOL) as consumer:
        await poll_until(lambda: consumer.assignment(), consumer)
        stage.cluster.faults.add(api="OffsetCommit", error="STALE_MEMBER_EPOCH")
        await consumer.commit({partition: 1})
        commits = stage.requests(OffsetCommitRequest)
        assert [it.generation_id_or_member_epoch for it in commits] == [2, 2]
        committed = await consumer.committed(partition)
        assert committed is not None


async def test_offsets_are_fetched_with_the_present_epoch_of_the_member(stage: Stage) -> None:
    await stage.topic("t", 2)
    async with stage.consumer("t", **PROTOCOL) as first:
        await poll_until(lambda: first.assignment(), first)
        async with stage.consumer("t", **PROTOCOL) as second:
            await poll_until_split(2, first, second)
            await first.committed(first.assignment())
            identity = first.group_metadata()
        rows = [it.groups[0] for it in stage.requests(OffsetFetchRequest)]
        assert {it.member_epoch for it in rows} == {2, 3}
        assert (rows[-1].member_id, rows[-1].member_epoch) == (identity.member_id, 3)


async def test_members_of_the_classic_protocol_fetch_offsets_without_an_epoch(stage: Stage) -> None:
    await stage.topic("t", 1)
    async with stage.consumer("t") as consumer:
        await poll_until(lambda: consumer.assignment(), consumer)
        await consumer.committed(consumer.assignment())
    rows = [it.groups[0] for it in stage.requests(OffsetFetchRequest)]
    assert {(it.member_id, it.member_epoch) for it in rows} == {(None, -1)}


@pytest.mark.parametrize(
    "error", ["STALE_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH"]
)
async def test_fetch_of_offsets_with_an_outdated_epoch_is_retried(stage: Stage, error: Any) -> None:
    (partition,) = await stage.topic("t", 1, records=1)
    stage.cluster.faults.add(api="OffsetFetch", error=error, count=3)
    async with stage.consumer("t", **PROTOCOL) as consumer:
        await poll_until(lambda: consumer.statistics().records_consumed_total, consumer)
        assert await consumer.committed(partition) == {partition: None}
        assert len(stage.requests(OffsetFetchRequest)) == 5


async def test_commit_of_an_unknown_member_fails(stage: Stage) -> None:
    (partition,) = await stage.topic("t", 1, records=1)
    async with stage.consumer("t", **PROTOCOL) as consumer:
        await poll_until(lambda: consumer.assignment(), consumer)
        stage.cluster.faults.add(api="OffsetCommit", error="UNKNOWN_MEMBER_ID")
        with pytest.raises(CommitFailedError):
            await consumer.commit({partition: 1})


async def test_leaves_without_polls_and_joins_again_at_the_next(stage: Stage) -> None:
    await stage.topic("t", 1)
    listener = RecordingListener()
    options = PROTOCOL | {"max_poll_interval_ms": 10_000}
    async with stage.consumer("t", **options, listener=listener) as consumer:
        await poll_until(lambda: consumer.assignment(), consumer)
        await asyncio.sleep(11)
        assert heartbeats(stage)[-1].member_epoch == -1
        await poll_until(lambda: len(listener.lines) == 3, consumer)
    assert listener.lines[1:3] == [("lost", [0]), ("assigned", [0])]


async def test_static_member_keeps_its_partitions_for_its_return(stage: Stage) -> None:
    await stage.topic("t", 2)
    static = PROTOCOL | {"group_instance_id": "i"}
    async with stage.consumer("t", **PROTOCOL) as other:
        async with stage.consumer("t", **static) as first:
            await poll_until_split(2, other, first)
            before = owned(first)
        assert heartbeats(stage)[-1].member_epoch == -2
        await poll_for(5, other)
        assert len(other.assignment()) == 1
        async with stage.consumer("t", **static) as second:
            await poll_until(lambda: owned(second) == before, second, other)


async def refused(
    stage: Stage, error: type[KafkaError], words: str | None = None, **options: Any
) -> None:
    """Check that each poll of a new consumer raises an error."""
    async with stage.consumer("t", **PROTOCOL, **options) as consumer:
        for _ in range(2):
            with pytest.raises(error, match=words):
                await consumer.poll(timeout=5)


@pytest.mark.parametrize(
    ("assignor", "name"),
    [(None, "the coordinator's default assignor"), ("range", "range")],
)
async def test_explains_which_assignor_of_the_coordinator_assigns(
    stage: Stage, caplog: pytest.LogCaptureFixture, assignor: str | None, name: str
) -> None:
    caplog.set_level("INFO", "kafka_async.group")
    await stage.topic("t", 1)
    async with stage.consumer("t", **PROTOCOL, group_remote_assignor=assignor) as consumer:
        await poll_until(lambda: consumer.assignment(), consumer)
        assert consumer.explain().assignor == name
        assert f"assigned by {name}: " in str(consumer.explain())
    assert f"assigned by {name}: " in caplog.text


async def test_unsupported_assignor_is_raised_at_polls(stage: Stage) -> None:
    await stage.topic("t", 1)
    await refused(stage, UnsupportedAssignorError, group_remote_assignor="nonsense")


async def test_instance_id_in_use_is_raised_at_polls(stage: Stage) -> None:
    await stage.topic("t", 1)
    async with stage.consumer("t", **PROTOCOL, group_instance_id="i") as first:
        await poll_until(lambda: first.assignment(), first)
        words = "running member of group g has the group_instance_id 'i': give each member"
        await refused(stage, UnreleasedInstanceIdError, words, group_instance_id="i")
        assert first.assignment()


async def test_regular_expression_that_the_broker_refuses_is_raised_at_polls(stage: Stage) -> None:
    async with stage.consumer(group_id="g", **PROTOCOL) as consumer:
        consumer.subscribe(pattern="(?=a)")
        with pytest.raises(InvalidRegularExpressionError, match="not a valid regular expression"):
            await consumer.poll(timeout=5)


@pytest.mark.parametrize("settings", [{"group_version": 0}, {"api_versions": {68: (0, -1)}}])
async def test_broker_without_the_protocol_is_raised_at_polls(
    start_stage: StartStage, settings: Any
) -> None:
    stage = await start_stage(**settings)
    await stage.topic("t", 1)
    await refused(stage, UnsupportedVersionError)
