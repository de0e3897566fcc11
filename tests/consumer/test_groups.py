"""Consumer groups: assignments, rebalances and the commits in them."""

from __future__ import annotations

import asyncio
from itertools import cycle
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.client.client import services_of
from kafka_async.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    GroupAuthorizationError,
    IllegalStateError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidRequestError,
    KafkaError,
    RebalanceInProgressError,
)
from kafka_async.hooks import (
    ClientEvent,
    Committed,
    Fetched,
    Hooks,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    RebalanceBegun,
    RebalanceEnded,
)
from kafka_async.protocol.messages.join_group import JoinGroupRequest
from kafka_async.protocol.messages.offset_commit import OffsetCommitRequest
from kafka_async.records.batch import RecordBatch
from kafka_async.types import OffsetAndMetadata, ProducerRecord, TopicPartition
from tests.compacted_batch import end_later
from tests.consumer.conftest import poll_until
from tests.recording_listener import RecordingListener
from tests.rows import pairs

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kafka_async.consumer.consumer import Consumer
    from tests.consumer.conftest import Stage, StartStage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]

_REBALANCES = "the group rebalances"
"""Reason of members that join since the coordinator says so."""
COOPERATIVE: dict[str, Any] = {"partition_assignment_strategy": ["cooperative-sticky"]}
AUTO_COMMIT: dict[str, Any] = {"enable_auto_commit": True, "auto_commit_interval_ms": 1000}
EAGER: dict[str, Any] = {}
STRATEGIES = [EAGER, COOPERATIVE]


def owned(*consumers: Consumer) -> list[set[int]]:
    return [{p.partition for p in consumer.assignment()} for consumer in consumers]


async def poll_until_balanced(count: int, *consumers: Consumer) -> None:
    """Poll all in turn until they own `count` partitions, disjoint and balanced."""

    def balanced() -> bool:
        assignments = owned(*consumers)
        sizes = [len(assigned) for assigned in assignments]
        different = len(set[int]().union(*assignments))
        return different == sum(sizes) == count and max(sizes) - min(sizes) <= 1

    for consumer in consumers:
        await consumer.poll(timeout=0.1)
    await poll_until(balanced, *consumers)


async def poll_for(seconds: float, *consumers: Consumer) -> None:
    """Poll all in turn for a time."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    await poll_until(lambda: loop.time() >= end, *consumers)


async def kill(consumer: Consumer) -> None:
    """End a consumer without LeaveGroup."""
    await consumer._tear_down()  # pyright: ignore[reportPrivateUsage]


async def committed(consumer: Consumer, *partitions: TopicPartition) -> list[int | None]:
    found = await consumer.committed(partitions)
    return [None if (row := found[p]) is None else row.offset for p in partitions]


def uncommitted(consumer: Consumer) -> Mapping[TopicPartition, OffsetAndMetadata]:
    return consumer.__offset_source__().uncommitted()


# -- assignments ----------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_rebalances_as_members_join_and_leave(stage: Stage, strategy: dict[str, Any]) -> None:
    await stage.topic("t", 6)
    async with stage.consumer("t", **strategy) as first:
        await poll_until_balanced(6, first)
        async with stage.consumer("t", **strategy) as second:
            await poll_until_balanced(6, first, second)
            async with stage.consumer("t", **strategy) as third:
                await poll_until_balanced(6, first, second, third)
            await poll_until_balanced(6, first, second)
        await poll_until_balanced(6, first)


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_dead_member_is_removed_after_session_timeout(
    stage: Stage, strategy: dict[str, Any]
) -> None:
    await stage.topic("t", 4)
    async with stage.consumer("t", **strategy) as first:
        second = stage.consumer("t", session_timeout_ms=20_000, **strategy)
        await second.start()
        await poll_until_balanced(4, first, second)
        loop = asyncio.get_running_loop()
        died = loop.time()
        await kill(second)
        await poll_until_balanced(4, first)
        assert 16 < loop.time() - died < 26


async def test_eager_members_revoke_all_partitions_before_joining(stage: Stage) -> None:
    await stage.topic("t", 4)
    diary = RecordingListener()
    async with stage.consumer("t", listener=diary) as first:
        await poll_until_balanced(4, first)
        async with stage.consumer("t") as second:
            await poll_until_balanced(4, first, second)
    assert diary.lines == [
        ("assigned", [0, 1, 2, 3]),
        ("revoked", [0, 1, 2, 3]),
        ("assigned", diary.lines[2][1]),
        ("revoked", diary.lines[2][1]),
    ]
    assert len(diary.lines[2][1]) == 2


async def test_cooperative_members_revoke_only_moved_partitions(stage: Stage) -> None:
    await stage.topic("t", 4, records=1)
    one, two = RecordingListener(), RecordingListener()
    async with stage.consumer("t", listener=one, **COOPERATIVE) as first:
        await poll_until_balanced(4, first)
        async with stage.consumer("t", listener=two, **COOPERATIVE) as second:
            await poll_until_balanced(4, first, second)
            kept, moved = owned(first, second)
            assert one.lines == [
                ("assigned", [0, 1, 2, 3]),
                ("revoked", sorted(moved)),
                ("assigned", []),
                ("assigned", []),
            ]
            assert two.lines == [("assigned", []), ("assigned", sorted(moved))]
        await poll_until_balanced(4, first)
        assert one.lines[-1] == ("assigned", sorted(moved))
        assert kept | moved == {0, 1, 2, 3}


async def test_group_upgrades_from_range_to_cooperative_without_interruption(stage: Stage) -> None:
    """A rolling upgrade as in KIP-429: both assignors first, then the new one alone."""
    await stage.topic("t", 4)
    strategies = [["range"], ["range", "cooperative-sticky"], ["cooperative-sticky"]]
    members = [stage.consumer("t", partition_assignment_strategy=strategies[0]) for _ in range(2)]
    for member in members:
        await member.start()
    await poll_until_balanced(4, *members)
    for strategy in strategies[1:]:
        for place in range(2):
            await members[place].stop()
            members[place] = stage.consumer("t", partition_assignment_strategy=strategy)
            await members[place].start()
            await poll_until_balanced(4, *members)
    for member in members:
        await member.stop()


async def test_members_are_assigned_only_subscribed_topics(stage: Stage) -> None:
    await stage.topic("a", 2)
    await stage.topic("b", 2)
    async with (
        stage.consumer("a", **COOPERATIVE) as first,
        stage.consumer("a", "b", **COOPERATIVE) as second,
    ):
        await poll_for(20, first, second)
        assert {p.topic for p in first.assignment()} == {"a"}
        assert first.assignment().isdisjoint(second.assignment())
        assert first.assignment() | second.assignment() == {
            TopicPartition(t, n) for t in "ab" for n in range(2)
        }


async def test_change_of_a_subscription_makes_all_members_join_again(stage: Stage) -> None:
    """The member that changes it joins at once, others after their next heartbeat."""
    await stage.topic("a", 2)
    await stage.topic("b", 2)
    async with stage.consumer("a") as first, stage.consumer("a") as second:
        await poll_for(20, first, second)
        before = len(stage.received)
        changed_at = asyncio.get_running_loop().time()
        second.subscribe(["b"])
        await poll_for(4, first, second)  # more than a heartbeat interval
        joins = [
            row for row in stage.received[before:] if isinstance(row.request, JoinGroupRequest)
        ]
        assert [row.request.member_id for row in joins] == [
            second.group_metadata().member_id,
            first.group_metadata().member_id,
        ]
        assert joins[0].time - changed_at < 0.2
        assert joins[1].time - changed_at <= 3.1
        assert [row.request.reason for row in joins] == ["the consumer subscribes", _REBALANCES]
        assert first.assignment() == {TopicPartition("a", n) for n in range(2)}
        assert second.assignment() == {TopicPartition("b", n) for n in range(2)}


async def test_leader_joins_again_with_the_reason_when_its_topics_change(stage: Stage) -> None:
    """The other member, whose metadata is as new, waits for the leader."""
    await stage.topic("a", 2)
    await stage.topic("b", 2)
    async with stage.consumer("a", "b") as leader, stage.consumer("a", "b") as follower:
        await poll_for(20, leader, follower)
        assert leader.explain().leads
        clients = [services_of(it.client).metadata for it in (follower, leader)]
        for change, reason in [
            (stage.cluster.add_partitions("a", 4), "topic a has 4 partitions, not 2"),
            (stage.cluster.delete_topic("b"), "topics were deleted: b"),
        ]:
            before = len(stage.received)
            await change
            for metadata in clients:
                await metadata.refresh()
            await poll_for(60, leader, follower)
            joins = [
                row.request
                for row in stage.received[before:]
                if isinstance(row.request, JoinGroupRequest)
            ]
            assert [(row.member_id, row.reason) for row in joins] == [
                (leader.group_metadata().member_id, reason),
                (follower.group_metadata().member_id, _REBALANCES),
            ]
        assert leader.assignment() | follower.assignment() == {
            TopicPartition("a", n) for n in range(4)
        }


async def test_any_member_can_become_the_leader_of_a_generation(start_stage: StartStage) -> None:
    """The embedded cluster can elect the leader at random."""
    stage = await start_stage(group_random_leader=True)
    await stage.topic("t", 3)
    members = [stage.consumer("t") for _ in range(3)]
    leaders: set[int] = set()

    def owned() -> list[int]:
        return sorted(partition for each in members for _, partition in each.assignment())

    async with members[0], members[1], members[2]:
        await poll_until(lambda: all(each.assignment() for each in members), *members)
        for count in range(4, 50):
            await stage.cluster.add_partitions("t", count)
            for each in members:
                await services_of(each.client).metadata.refresh()
            await poll_until(lambda: owned() == list(range(count)), *members)  # noqa: B023
            leaders |= {n for n, each in enumerate(members) if each.explain().leads}
            if len(leaders) == len(members):
                break
        assert leaders == {0, 1, 2}


async def test_unsubscribe_returns_if_consumer_subscribes_while_it_leaves(stage: Stage) -> None:
    async with stage.member(records=1) as (consumer, _):
        await consumer.poll(timeout=10)
        leaves = stage.cluster.faults.add(api="LeaveGroup", hang=True)
        unsubscribing = asyncio.ensure_future(consumer.unsubscribe())
        await leaves.wait()
        consumer.subscribe(["t"])
        leaves.release()
        async with asyncio.timeout(10):
            await unsubscribing
            await poll_until_balanced(1, consumer)


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("iterations", range(1, 5))
async def test_unsubscribe_returns_if_consumer_subscribes_at_once(
    stage: Stage, joined: bool, iterations: int
) -> None:
    (u,) = await stage.topic("u", 1)
    async with stage.member() as (consumer, _):
        if joined:
            await poll_until_balanced(1, consumer)
        unsubscribing = asyncio.ensure_future(consumer.unsubscribe())
        for _ in range(iterations):
            await asyncio.sleep(0)
        consumer.subscribe(["u"])
        async with asyncio.timeout(10):
            await unsubscribing
            await poll_until(lambda: {*consumer.assignment()} == {u}, consumer)


async def test_stop_leaves_the_group_although_the_consumer_subscribes_again(stage: Stage) -> None:
    await stage.topic("t", 1)
    consumer = stage.consumer("t")
    await consumer.start()
    await poll_until_balanced(1, consumer)
    leaves = stage.cluster.faults.add(api="LeaveGroup", hang=True)
    unsubscribing = asyncio.ensure_future(consumer.unsubscribe())
    await leaves.wait()
    stopping = asyncio.ensure_future(consumer.stop())
    consumer.subscribe(["t"])
    leaves.release()
    async with asyncio.timeout(5):
        await asyncio.wait({unsubscribing, stopping})
    await stopping
    assert leaves.hits == 1


async def test_member_gives_up_leaving_after_a_failed_sync_if_the_coordinator_hangs(
    stage: Stage,
) -> None:
    """LeaveGroup is sent so that the others need not wait, and a response is not needed."""
    await stage.topic("t", 1)
    leaves = stage.cluster.faults.add(api="LeaveGroup", hang=True, count=None)
    stage.cluster.faults.add(api="SyncGroup", error="INVALID_REQUEST")
    async with stage.consumer("t") as consumer:
        polling = asyncio.ensure_future(consumer.poll(timeout=60))
        await leaves.wait()
        async with asyncio.timeout(6):
            with pytest.raises(InvalidRequestError):
                await polling
        leaves.remove()
        await poll_until_balanced(1, consumer)


async def test_pattern_matches_existing_and_new_topics(stage: Stage) -> None:
    await stage.topic("log-a", 1)
    await stage.topic("other", 1)
    async with stage.consumer(group_id="g", metadata_max_age_ms=5000) as consumer:
        consumer.subscribe(pattern="log-.*")
        await poll_until_balanced(1, consumer)
        await stage.topic("log-b", 1)
        await poll_for(20, consumer)
        assert {p.topic for p in consumer.assignment()} == {"log-a", "log-b"}
        assert consumer.subscription() == {"log-a", "log-b"}


async def test_returning_static_member_keeps_its_assignment(stage: Stage) -> None:
    await stage.topic("t", 4)
    hooks = Hooks()
    begun: list[RebalanceBegun] = []
    hooks.listen(RebalanceBegun, begun.append)
    async with stage.consumer("t", group_instance_id="one", hooks=hooks) as first:
        second = stage.consumer("t", group_instance_id="two")
        await second.start()
        await poll_until_balanced(4, first, second)
        assigned, rebalances = owned(second), len(begun)
        await second.stop()  # a static member does not leave
        second = stage.consumer("t", group_instance_id="two")
        await second.start()
        await poll_until(lambda: owned(second) == assigned, second, first)
        assert len(begun) == rebalances
        await second.stop()


@pytest.mark.parametrize("while_away", [False, True])
async def test_static_leader_that_came_back_assigns_new_partitions(
    stage: Stage, while_away: bool
) -> None:
    await stage.topic("t", 2)
    await stage.topic("u", 2)
    static: dict[str, Any] = {"group_instance_id": "one", "metadata_max_age_ms": 1000}
    leader = stage.consumer("t", **static)
    await leader.start()
    await poll_until(lambda: len(leader.assignment()) == 2, leader)
    async with stage.consumer("u", group_instance_id="two") as other:
        await poll_until(lambda: len(other.assignment()) == 2, other, leader)
        await leader.stop()  # a static member does not leave
        if while_away:
            await stage.cluster.add_partitions("u", 4)
        async with stage.consumer("t", **static) as leader:
            await poll_until(lambda: len(leader.assignment()) == 2, leader)
            if not while_away:
                await stage.cluster.add_partitions("u", 4)
            await poll_until(lambda: len(other.assignment()) == 4, other, leader)


async def test_older_of_two_static_members_with_one_name_is_fenced(stage: Stage) -> None:
    await stage.topic("t", 1)
    first = stage.consumer("t", group_instance_id="one")
    await first.start()
    await poll_until_balanced(1, first)
    async with stage.consumer("t", group_instance_id="one") as second:
        await poll_until_balanced(1, second)
        for _ in range(2):
            with pytest.raises(
                FencedInstanceIdError,
                match="running member of group g has the group_instance_id 'one': give each member",
            ):
                await first.poll(timeout=30)
        assert first.assignment() == frozenset()
        await first.stop()


# -- unprocessed records --------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("way", ["poll", "stream"])
async def test_no_partition_is_revoked_while_its_records_are_processed(
    stage: Stage, strategy: dict[str, Any], way: str
) -> None:
    partitions = await stage.topic("t", 2, records=5)
    async with stage.consumer("t", enable_auto_commit=True, **strategy) as first:
        stream = aiter(first)
        if way == "stream":
            records = [await anext(stream)]
            await asyncio.sleep(1)  # then the stream lets other tasks run first
            records.append(await anext(stream))
        else:
            records = await first.poll(max_records=1, timeout=10)
        assert records
        async with stage.consumer("t", **strategy) as second:
            for _ in range(100):
                assert await second.poll(timeout=1) == []
            assert owned(first, second) == [{0, 1}, set()]
            if way == "stream":
                rest = asyncio.ensure_future(anext(stream))
            else:
                rest = asyncio.ensure_future(first.poll(timeout=10))
            theirs = await second.poll(timeout=20)
            assert theirs
            assert not {(r.partition, r.offset) for r in records} & {
                (r.partition, r.offset) for r in theirs
            }
            assert first.assignment().isdisjoint(second.assignment())
            assert first.assignment() | second.assignment() == set(partitions)
            await rest
        del stream


async def test_stream_returns_nothing_while_a_listener_runs(stage: Stage) -> None:
    await stage.topic("t", 2, records=50)
    now = asyncio.get_running_loop().time
    callback, returned = list[float](), list[float]()

    async def revoked(_: object) -> None:
        callback.append(now())
        await asyncio.sleep(30)
        callback.append(now())

    async with (
        stage.consumer("t", **COOPERATIVE) as first,
        stage.consumer("t", **COOPERATIVE) as second,
    ):
        stream = aiter(first)
        await anext(stream)
        first.on_revoked(revoked)
        joining = asyncio.ensure_future(second.poll(timeout=100))
        while len(callback) < 2:
            await anext(stream)
            returned.append(now())
            await asyncio.sleep(1)
        assert await joining
        assert [at for at in returned if callback[0] <= at < callback[1]] == []
        del stream


async def test_commit_allows_revocation_without_another_poll(stage: Stage) -> None:
    await stage.topic("t", 2, records=5)
    async with stage.consumer("t") as first:
        assert await first.poll(timeout=10)
        async with stage.consumer("t") as second:
            for _ in range(20):
                await second.poll(timeout=1)
            assert owned(second) == [set()]
            await first.commit()
            await second.poll(timeout=10)
            assert owned(second) != [set()]


async def test_commit_of_stream_before_compacted_offsets_allows_revocation(stage: Stage) -> None:
    first_partition, _ = await stage.topic("t", 2)
    whole = RecordBatch.build([ProducerRecord("", b"v")] * 3).frame()
    stage.append(first_partition, end_later(whole, 9))
    async with stage.consumer("t") as first:
        stream = aiter(first)
        assert [(await anext(stream)).offset for _ in range(3)] == [0, 1, 2]
        await first.commit()
        async with stage.consumer("t") as second:
            await second.poll(timeout=10)
            assert owned(second) != [set()]
        del stream


async def test_member_that_stops_polling_is_removed(stage: Stage) -> None:
    partitions = await stage.topic("t", 2, records=5)
    diary = RecordingListener()
    async with stage.consumer("t", listener=diary, max_poll_interval_ms=60_000) as first:
        records = await first.poll(timeout=10)
        zombie = first.group_metadata()
        async with stage.consumer("t") as second:
            loop = asyncio.get_running_loop()
            before = loop.time()
            await poll_until(lambda: len(second.assignment()) == 2, second)
            assert 50 < loop.time() - before < 70
            # The coordinator fences it: its position is unchanged, and it cannot commit.
            assert first.group_metadata() == zombie
            assert uncommitted(first).keys() == {TopicPartition("t", r.partition) for r in records}
            with pytest.raises(CommitFailedError):
                await first.commit()
            await poll_until_balanced(2, first, second)
    assert [kind for kind, _ in diary.lines][:2] == ["assigned", "lost"]
    assert first.assignment() <= set(partitions)


async def test_slow_stream_keeps_its_membership(stage: Stage) -> None:
    diary = RecordingListener()
    await stage.topic("t", 1, records=5)
    async with stage.consumer("t", listener=diary, max_poll_interval_ms=60_000) as consumer:
        async for record in consumer:
            await asyncio.sleep(50)
            if record.offset == 4:
                break
        assert diary.lines == [("assigned", [0])]


async def test_transaction_does_not_commit_records_of_lost_partitions(stage: Stage) -> None:
    """Several polls in one transaction: the partitions are revoked between them, uncommitted."""
    await stage.topic("t", 2, records=5)
    async with stage.consumer("t") as first:
        await first.poll(max_records=1, timeout=10)
        async with stage.consumer("t") as second:
            await poll_until_balanced(2, first, second)
            with pytest.raises(CommitFailedError, match="seek_to_committed"):
                uncommitted(first)
            await first.seek_to_committed()
            assert uncommitted(first) == {}


async def test_offsets_marked_as_committed_are_reported_once(stage: Stage) -> None:
    """A transaction marks the offsets that it has committed."""
    async with stage.member(records=5) as (consumer, _):
        await consumer.poll(max_records=3, timeout=10)
        source = consumer.__offset_source__()
        offsets = source.uncommitted()
        assert [offset.offset for offset in offsets.values()] == [3]
        source.mark_committed(offsets)
        assert source.uncommitted() == {}
        await consumer.poll(max_records=1, timeout=10)
        assert [offset.offset for offset in source.uncommitted().values()] == [4]


# -- committing -----------------------------------------------------------------------------------


async def test_commit_includes_returned_records(stage: Stage) -> None:
    a, b = await stage.topic("t", 2, records=5)
    async with stage.consumer("t") as consumer:
        while consumer.statistics().records_consumed_total < 7:
            await consumer.poll(max_records=1, timeout=10)
        expected = [await consumer.position(p) for p in (a, b)]
        await consumer.commit()
        assert await committed(consumer, a, b) == expected
        await consumer.commit({a: 1, b: OffsetAndMetadata(2, 0, "note")})
        assert await consumer.committed() == {
            a: OffsetAndMetadata(1),
            b: OffsetAndMetadata(2, 0, "note"),
        }
        await consumer.seek_to_committed()
        assert [await consumer.position(p) for p in (a, b)] == [1, 2]


async def test_commits_a_topic_or_a_partition(stage: Stage) -> None:
    a, b = (await stage.topic("a", 1, records=1))[0], (await stage.topic("b", 1, records=1))[0]
    async with stage.consumer("a", "b") as consumer:
        seen = 0
        while seen < 2:
            seen += len(await consumer.poll(timeout=10))
        await consumer.commit("b")
        assert await committed(consumer, a, b) == [None, 1]
        await consumer.commit(a)
        assert await committed(consumer, a, b) == [1, 1]


async def test_refuses_to_commit_a_topic_that_is_neither_assigned_nor_subscribed_to(
    stage: Stage,
) -> None:
    (partition,) = await stage.topic("other", 1, records=1)
    async with stage.member(records=1) as (consumer, _):
        await consumer.commit("t")  # It is subscribed to, and not assigned yet.
        await consumer.poll(timeout=10)
        with pytest.raises(IllegalStateError, match="no partition of the topic 'other' is assign"):
            await consumer.commit("other")
        consumer.subscribe(pattern="t.*")
        await consumer.commit("other")  # A pattern may match it later.
    async with stage.consumer(partitions=[partition], group_id="g") as consumer:
        assert len(await consumer.poll(timeout=10)) == 1
        await consumer.commit("other")
        assert await committed(consumer, partition) == [1]


async def test_commit_includes_last_record_of_stream(stage: Stage) -> None:
    async with stage.member(records=5) as (consumer, partition):
        async for record in consumer:
            if record.offset == 2:
                assert uncommitted(consumer) == {partition: OffsetAndMetadata(3, 0)}
                await consumer.commit()
                assert await committed(consumer, partition) == [3]
                assert uncommitted(consumer) == {}
                break


async def test_auto_commit_leaves_out_unprocessed_records(stage: Stage) -> None:
    async with stage.member(records=5, **AUTO_COMMIT) as (consumer, partition):
        async for record in consumer:
            if record.offset == 2:
                break
        await asyncio.sleep(3)
        assert await committed(consumer, partition) == [2]
        await consumer.poll()
        await asyncio.sleep(3)
        assert await committed(consumer, partition) == [3]


async def test_auto_commit_does_not_go_back_behind_explicit_commit(stage: Stage) -> None:
    async with stage.member(records=5, **AUTO_COMMIT) as (consumer, partition):
        await consumer.poll(max_records=3, timeout=10)
        await consumer.commit()
        await asyncio.sleep(3)
        assert await committed(consumer, partition) == [3]


async def test_auto_commit_does_not_go_back_behind_explicit_commit_in_flight(stage: Stage) -> None:
    """The automatic commit is due while the explicit one waits for its response."""
    async with stage.member(records=5, **AUTO_COMMIT) as (consumer, partition):
        offsets: list[int] = []
        consumer.client.hooks.listen(Committed, lambda event: offsets.append(event.offsets[0][1]))
        await consumer.poll(max_records=3, timeout=10)
        stage.cluster.faults.add(api="OffsetCommit", delay=1.5, count=1)
        await consumer.commit()
        await asyncio.sleep(3)
        assert set(offsets) == {3}
        assert await committed(consumer, partition) == [3]


@pytest.mark.parametrize("seconds", [0, 1])  # per record
@pytest.mark.parametrize(("failing", "offset"), [(False, 3), (True, 2)])
async def test_block_commits_last_records_only_without_exception(
    stage: Stage, failing: bool, offset: int, seconds: int
) -> None:
    (partition,) = await stage.topic("t", 1, records=5)
    try:
        async with stage.consumer("t", enable_auto_commit=True) as consumer:
            async for record in consumer:
                await asyncio.sleep(seconds)
                if record.offset == 2:
                    if failing:
                        raise RuntimeError("processing failed")
                    break
    except RuntimeError:
        pass
    async with stage.consumer("t") as consumer:
        assert await committed(consumer, partition) == [offset]
        assert [r.offset for r in await consumer.poll(timeout=10)] == list(range(offset, 5))


@pytest.mark.parametrize("read", ["poll", "stream"])
async def test_stop_commits_the_records_before_the_last_read_call(stage: Stage, read: str) -> None:
    (partition,) = await stage.topic("t", 1, records=5)
    consumer = stage.consumer("t", enable_auto_commit=True, auto_commit_interval_ms=60_000)
    await consumer.start()
    if read == "poll":
        for _ in range(2):
            assert len(await consumer.poll(max_records=2, timeout=30)) == 2
    else:
        async for record in consumer:
            if record.offset == 2:
                break
    await consumer.stop()
    async with stage.consumer("t") as consumer:
        assert await committed(consumer, partition) == [2]


async def test_commits_with_group_id_and_without_topics(stage: Stage) -> None:
    (partition,) = await stage.topic("t", 1, records=5)
    async with stage.consumer(partitions=[partition], group_id="alone") as consumer:
        await consumer.poll(max_records=2)
        await consumer.commit()
    async with stage.consumer(partitions=[partition], group_id="alone") as consumer:
        assert [r.offset for r in await consumer.poll()] == [2, 3, 4]
    async with stage.consumer(partitions=[partition]) as consumer:
        with pytest.raises(IllegalStateError, match="group_id"):
            await consumer.commit()


@pytest.mark.parametrize(
    "error",
    [
        *("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"),
        *("REQUEST_TIMED_OUT", "REBALANCE_IN_PROGRESS"),
    ],
)
async def test_retries_commit_after_retriable_errors(stage: Stage, error: str) -> None:
    async with stage.member(records=5) as (consumer, partition):
        await consumer.poll(max_records=2, timeout=10)
        fault = stage.cluster.faults.add(api="OffsetCommit", error=error, count=2)
        await consumer.commit()
        assert fault.hits == 2
        assert await committed(consumer, partition) == [2]


async def test_commit_waits_only_for_the_first_of_two_consecutive_rebalances(stage: Stage) -> None:
    await stage.topic("t", 2)
    (other,) = await stage.topic("other", 1)
    async with stage.consumer("t", client_id="first", **COOPERATIVE) as first:
        await poll_until(lambda: len(first.assignment()) == 2, first)
        commits = stage.cluster.faults.add(api="OffsetCommit", error="REBALANCE_IN_PROGRESS")
        joins, second_join = (
            stage.cluster.faults.add(
                api="JoinGroup", when=lambda context, _: context.client_id == "first", hang=True
            )
            for _ in range(2)
        )
        async with stage.consumer("t", **COOPERATIVE) as second:
            polling = asyncio.ensure_future(second.poll(timeout=60))
            await joins.wait()
            committing = asyncio.ensure_future(first.commit({other: 0}))
            await commits.wait()
            joins.release()
            await second_join.wait()
            async with asyncio.timeout(5):
                await committing
            second_join.release()
            await polling


async def test_retried_commit_does_not_overwrite_a_later_one(stage: Stage) -> None:
    async with stage.member(records=5) as (consumer, partition):
        await consumer.poll(max_records=5, timeout=10)
        fault = stage.cluster.faults.add(api="OffsetCommit", error="COORDINATOR_LOAD_IN_PROGRESS")
        earlier = asyncio.ensure_future(consumer.commit({partition: 1}))
        await fault.wait()
        await consumer.commit({partition: 5})
        await earlier
        assert await committed(consumer, partition) == [5]


@pytest.mark.parametrize("lost", [False, True])
async def test_commit_that_a_rebalance_overtakes_is_repeated_for_partitions_still_owned(
    stage: Stage, lost: bool
) -> None:
    """The coordinator refuses the former generation as soon as all members have joined the next."""
    kept, moved = await stage.topic("t", 2, records=1)
    async with stage.consumer("t", client_id="first", **COOPERATIVE) as first:
        await poll_until(lambda: len(first.assignment()) == 2, first)
        joins = stage.cluster.faults.add(
            api="JoinGroup", when=lambda context, _: context.client_id == "first", hang=True
        )
        commits = stage.cluster.faults.add(api="OffsetCommit", error="ILLEGAL_GENERATION")
        async with stage.consumer("t", **COOPERATIVE) as second:
            polling = asyncio.ensure_future(second.poll(timeout=60))
            await joins.wait()
            committing = asyncio.ensure_future(first.commit({moved if lost else kept: 1}))
            await commits.wait()
            joins.release()
            await poll_until(lambda: len(first.assignment()) == 1, first)
            assert first.assignment() == {kept}
            if lost:
                with pytest.raises(CommitFailedError, match="another member"):
                    await committing
            else:
                await committing
            await polling
    generations = [it.generation_id_or_member_epoch for it in stage.requests(OffsetCommitRequest)]
    assert generations == ([1] if lost else [1, 2])


async def test_stop_during_a_rebalance_commits_partitions_that_move_and_those_that_stay(
    stage: Stage,
) -> None:
    partitions = await stage.topic("t", 2, records=1)
    options: dict[str, Any] = {**COOPERATIVE, "enable_auto_commit": True}
    first = stage.consumer("t", client_id="first", **options)
    await first.start()
    read = 0
    while read < 2:
        read += len(await first.poll(timeout=1))
    await first.poll(timeout=0)
    joins = stage.cluster.faults.add(
        api="JoinGroup", when=lambda context, _: context.client_id == "first", hang=True
    )
    commits = stage.cluster.faults.add(api="OffsetCommit", error="REBALANCE_IN_PROGRESS")
    async with stage.consumer("t", **COOPERATIVE) as second:
        polling = asyncio.ensure_future(second.poll(timeout=60))
        await joins.wait()
        stopping = asyncio.ensure_future(first.stop())
        await commits.wait()
        joins.release()
        await stopping
        polling.cancel()
        await asyncio.wait({polling})
        await poll_until(lambda: len(second.assignment()) == 2, second)
        committed = await second.committed(partitions)
        assert [it and it.offset for it in committed.values()] == [1, 1]


@pytest.mark.parametrize("error", ["UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"])
async def test_commit_rejected_by_group_fails(stage: Stage, error: str) -> None:
    async with stage.member(records=5) as (consumer, _):
        await consumer.poll(max_records=2, timeout=10)
        stage.cluster.faults.add(api="OffsetCommit", error=error)
        with pytest.raises(CommitFailedError, match=error):
            await consumer.commit()


@pytest.mark.parametrize(
    "error", ["UNSTABLE_OFFSET_COMMIT", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"]
)
async def test_waits_for_unstable_offsets(stage: Stage, error: str) -> None:
    fault = stage.cluster.faults.add(api="OffsetFetch", error=error, count=3)
    async with stage.member(records=5) as (consumer, _):
        assert len(await consumer.poll(timeout=30)) == 5
    assert fault.hits == 3


# -- failures -------------------------------------------------------------------------------------

PASSING_ERRORS = {
    "JoinGroup": [
        *("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"),
        *("UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "UNKNOWN_SERVER_ERROR"),
    ],
    "SyncGroup": [
        *("COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "UNKNOWN_MEMBER_ID"),
        *("ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS"),
    ],
    "Heartbeat": [
        *("COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "UNKNOWN_MEMBER_ID"),
        *("ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", "COORDINATOR_LOAD_IN_PROGRESS"),
    ],
    "FindCoordinator": ["COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"],
}
PASSING = [(api, error) for api, errors in PASSING_ERRORS.items() for error in errors]


@pytest.mark.parametrize(
    ("api", "error", "strategy"),
    [(*case, strategy) for case, strategy in zip(PASSING, cycle(STRATEGIES), strict=False)],
)
async def test_group_recovers_from_retriable_errors(
    stage: Stage, api: str, error: str, strategy: dict[str, Any]
) -> None:
    await stage.topic("t", 4)
    fault = stage.cluster.faults.add(api=api, error=error, count=3)
    async with stage.consumer("t", **strategy) as first, stage.consumer("t", **strategy) as second:
        await poll_for(60, first, second)
        await poll_until(lambda: fault.hits == 3, first, second)
        await poll_until_balanced(4, first, second)


@pytest.mark.parametrize(
    ("api", "disconnect", "strategy"),
    pairs(
        ["JoinGroup", "SyncGroup", "Heartbeat", "OffsetFetch", "FindCoordinator", "LeaveGroup"],
        ["before", "after"],
        STRATEGIES,
    ),
)
async def test_group_recovers_from_lost_connections(
    stage: Stage, api: str, disconnect: Any, strategy: dict[str, Any]
) -> None:
    await stage.topic("t", 4)
    stage.cluster.faults.add(api=api, disconnect=disconnect, count=3)
    async with stage.consumer("t", **strategy) as first:
        async with stage.consumer("t", **strategy) as second:
            await poll_for(60, first, second)
            await poll_until_balanced(4, first, second)
        await poll_until_balanced(4, first)


async def test_follows_coordinator_that_moves(start_stage: StartStage) -> None:
    stage = await start_stage(3)
    await stage.topic("t", 4)
    async with stage.consumer("t") as first, stage.consumer("t") as second:
        await poll_until_balanced(4, first, second)
        coordinator = stage.coordinator("g")
        await stage.cluster.stop_broker(coordinator)
        await poll_for(40, first, second)
        await poll_until_balanced(4, first, second)
        await stage.cluster.start_broker(coordinator)
        await poll_for(40, first, second)
        await poll_until_balanced(4, first, second)


@pytest.mark.parametrize(
    ("error", "kind", "again"),
    [
        ("GROUP_AUTHORIZATION_FAILED", GroupAuthorizationError, True),
        ("INCONSISTENT_GROUP_PROTOCOL", InconsistentGroupProtocolError, True),
        ("INVALID_GROUP_ID", InvalidGroupIdError, False),
    ],
)
async def test_fatal_group_error_is_raised_by_poll(
    stage: Stage, error: str, kind: type[KafkaError], again: bool
) -> None:
    stage.cluster.faults.add(api="JoinGroup", error=error)
    async with stage.member(records=1) as (consumer, _):
        with pytest.raises(kind):
            await consumer.poll(timeout=30)
        if again:
            assert len(await consumer.poll(timeout=30)) == 1
        else:
            with pytest.raises(kind):
                await consumer.poll(timeout=30)
            await consumer.unsubscribe()
            consumer.subscribe(["t"])
            with pytest.raises(kind):
                await consumer.poll(timeout=30)


async def test_commit_in_on_lost_of_rejected_member_fails_at_once(stage: Stage) -> None:
    commit: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    async with stage.member(records=1) as (consumer, partition):
        await consumer.poll(timeout=10)

        @consumer.on_lost
        async def lost(_: object) -> None:  # pyright: ignore[reportUnusedFunction]
            try:
                async with asyncio.timeout(1):
                    await consumer.commit({partition: 1})
            except (KafkaError, TimeoutError) as error:
                commit.set_exception(error)

        stage.cluster.faults.add(api="OffsetCommit", error="REBALANCE_IN_PROGRESS", count=None)
        stage.cluster.faults.add(api="Heartbeat", error="INVALID_GROUP_ID")
        with pytest.raises(InvalidGroupIdError):
            await consumer.poll(timeout=30)
        with pytest.raises(RebalanceInProgressError):
            await commit
        stage.cluster.faults.clear()


async def test_on_assigned_gets_positions_and_may_seek_after_that(stage: Stage) -> None:
    positions: list[int] = []
    async with stage.member(records=3) as (consumer, partition):
        await consumer.poll(timeout=10)
        await consumer.commit({partition: 2})

    consumer = stage.consumer("t")

    @consumer.on_assigned
    async def assigned(_: object) -> None:  # pyright: ignore[reportUnusedFunction]
        positions.append(await consumer.position(partition))
        consumer.seek(partition, 1)

    async with consumer:
        assert [record.offset for record in await consumer.poll(timeout=10)] == [1, 2]
    assert positions == [2]


async def test_listener_error_is_raised_and_rebalance_continues(stage: Stage) -> None:
    async with stage.member(records=1) as (consumer, _):

        def fail(_: object) -> None:
            raise RuntimeError("the listener failed")

        consumer.on_assigned(fail)
        with pytest.raises(RuntimeError, match="the listener failed"):
            await consumer.poll(timeout=30)
        assert len(await consumer.poll(timeout=30)) == 1


async def test_listener_may_seek_and_commit_but_not_poll(stage: Stage) -> None:
    complaints: list[Exception] = []
    async with stage.member(records=5) as (consumer, partition):

        async def assigned(partitions: Collection[TopicPartition]) -> None:
            for each in partitions:
                consumer.seek(each, 3)
            await consumer.commit({partition: 1})
            try:
                await consumer.poll()
            except IllegalStateError as error:
                complaints.append(error)

        consumer.on_assigned(assigned)
        assert [r.offset for r in await consumer.poll(timeout=30)] == [3, 4]
        assert await committed(consumer, partition) == [1]
        assert "listener" in str(complaints[0])


async def test_next_owner_starts_at_offset_committed_on_revoke(stage: Stage) -> None:
    partitions = await stage.topic("t", 4, records=20)
    seen: list[tuple[int, int]] = []

    async def read(consumer: Consumer, count: int) -> None:
        async for record in consumer:
            seen.append((record.partition, record.offset))
            if len(seen) >= count:
                return

    async with stage.consumer("t", enable_auto_commit=True) as first:
        await read(first, 13)
        async with stage.consumer("t", enable_auto_commit=True) as second:
            reading = asyncio.ensure_future(read(second, 80))
            await read(first, 80)
            await asyncio.wait({reading}, timeout=5)
            reading.cancel()
            await asyncio.wait({reading})
    assert sorted(seen) == [(p.partition, n) for p in partitions for n in range(20)]


async def test_emits_events(stage: Stage) -> None:
    hooks = Hooks()
    events: list[ClientEvent] = []
    kinds = (RebalanceEnded, PartitionsAssigned, Fetched, Committed)
    for kind in (*kinds, PartitionsRevoked, PartitionsLost):
        hooks.listen(kind, events.append)
    (partition,) = await stage.topic("t", 1, records=3)
    async with stage.consumer("t", hooks=hooks, max_poll_interval_ms=60_000) as consumer:
        await consumer.poll(timeout=10)
        assert consumer.statistics().rebalance_total == 1
        member = consumer.group_metadata()
        await consumer.commit()
        await consumer.seek_to_beginning()
        await consumer.poll(timeout=10)
        name = consumer.config.client_id
        assigned, ended, fetched, *others = events
        assert assigned == PartitionsAssigned(name, frozenset({partition}))
        assert isinstance(ended, RebalanceEnded)
        assert (ended.group_id, ended.generation) == ("g", member.generation_id)
        assert ended.member_id == member.member_id
        assert isinstance(fetched, Fetched)
        assert (fetched.node_id, fetched.partitions, fetched.size > 0) == (1, 1, True)
        commits = [event for event in others if isinstance(event, Committed)]
        assert commits == [Committed(name, "g", ((partition, 3),))]
        events.clear()
        await asyncio.sleep(70)
        await poll_until_balanced(1, consumer)
    dropped = [e for e in events if isinstance(e, PartitionsLost | PartitionsRevoked)]
    assert dropped == [
        PartitionsLost(name, frozenset({partition})),
        PartitionsRevoked(name, frozenset({partition})),
    ]


async def test_listener_slower_than_rebalance_timeout_loses_membership(stage: Stage) -> None:
    await stage.topic("t", 2)

    async def slow(_: object) -> None:
        await asyncio.sleep(100)

    options: dict[str, Any] = {"rebalance_listener_timeout_ms": 200_000}
    async with stage.consumer("t", max_poll_interval_ms=30_000, **options) as first:
        await poll_until_balanced(2, first)
        before = first.group_metadata().member_id
        first.on_revoked(slow)
        async with stage.consumer("t", max_poll_interval_ms=30_000) as second:
            async with asyncio.timeout(90):  # before the listener ends
                while len(second.assignment()) < 2:
                    await asyncio.gather(first.poll(timeout=1), second.poll(timeout=1))
            async with asyncio.timeout(300):
                while len(first.assignment()) != 1:
                    await asyncio.gather(first.poll(timeout=1), second.poll(timeout=1))
        assert first.group_metadata().member_id != before
