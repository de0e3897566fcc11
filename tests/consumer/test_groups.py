"""Consumers that share topics: who owns what, when it changes hands, what is committed then."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.consumer.consumer import Consumer, RebalanceListener
from kafka_async.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    GroupAuthorizationError,
    IllegalStateError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    KafkaError,
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
from kafka_async.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection

    from tests.consumer.conftest import Stage, StartStage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

COOPERATIVE: dict[str, Any] = {"partition_assignment_strategy": ["cooperative-sticky"]}
STRATEGIES = [pytest.param({}, id="eager"), pytest.param(COOPERATIVE, id="cooperative")]


class Diary(RebalanceListener):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, list[int]]] = []

    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.lines.append(("assigned", sorted(p.partition for p in partitions)))

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.lines.append(("revoked", sorted(p.partition for p in partitions)))

    async def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.lines.append(("lost", sorted(p.partition for p in partitions)))


def owned(*consumers: Consumer) -> list[set[int]]:
    return [{p.partition for p in consumer.assignment()} for consumer in consumers]


async def at_rest(count: int, *consumers: Consumer) -> None:
    """Poll all in turn until they own so many partitions, none of them twice, and all evenly."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 200
    while True:
        for consumer in consumers:
            await consumer.poll(timeout=0.1)
        shares = owned(*consumers)
        sizes = [len(share) for share in shares]
        if len(set[int]().union(*shares)) == sum(sizes) == count and max(sizes) - min(sizes) <= 1:
            return
        assert loop.time() < deadline, f"no rest: {shares}"


async def kill(consumer: Consumer) -> None:
    """It ends without a word to its group."""
    await consumer._tear_down()  # pyright: ignore[reportPrivateUsage]


async def committed(consumer: Consumer, *partitions: TopicPartition) -> list[int | None]:
    found = await consumer.committed(partitions)
    return [None if (row := found[p]) is None else row.offset for p in partitions]


# -- sharing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_one_two_three_and_back(stage: Stage, strategy: dict[str, Any]) -> None:
    await stage.topic("t", 6)
    async with stage.consumer("t", **strategy) as first:
        await at_rest(6, first)
        async with stage.consumer("t", **strategy) as second:
            await at_rest(6, first, second)
            async with stage.consumer("t", **strategy) as third:
                await at_rest(6, first, second, third)
            await at_rest(6, first, second)
        await at_rest(6, first)


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_a_member_that_dies_is_missed_after_its_session(
    stage: Stage, strategy: dict[str, Any]
) -> None:
    await stage.topic("t", 4)
    async with stage.consumer("t", **strategy) as first:
        second = stage.consumer("t", session_timeout_ms=20_000, **strategy)
        await second.start()
        await at_rest(4, first, second)
        loop = asyncio.get_running_loop()
        died = loop.time()
        await kill(second)
        await at_rest(4, first)
        assert 16 < loop.time() - died < 26


async def test_eagerly_everything_is_given_up_before_it_is_shared_out_anew(stage: Stage) -> None:
    await stage.topic("t", 4)
    diary = Diary()
    async with stage.consumer("t", listener=diary) as first:
        await at_rest(4, first)
        async with stage.consumer("t") as second:
            await at_rest(4, first, second)
    assert diary.lines == [
        ("assigned", [0, 1, 2, 3]),
        ("revoked", [0, 1, 2, 3]),
        ("assigned", diary.lines[2][1]),
        ("revoked", diary.lines[2][1]),
    ]
    assert len(diary.lines[2][1]) == 2


async def test_cooperatively_only_what_moves_is_given_up(stage: Stage) -> None:
    await stage.topic("t", 4, records=1)
    one, two = Diary(), Diary()
    async with stage.consumer("t", listener=one, **COOPERATIVE) as first:
        await at_rest(4, first)
        async with stage.consumer("t", listener=two, **COOPERATIVE) as second:
            await at_rest(4, first, second)
            kept, moved = owned(first, second)
            assert one.lines == [
                ("assigned", [0, 1, 2, 3]),
                ("revoked", sorted(moved)),
                ("assigned", []),
                ("assigned", []),
            ]
            assert two.lines == [("assigned", []), ("assigned", sorted(moved))]
        await at_rest(4, first)
        assert one.lines[-1] == ("assigned", sorted(moved))
        assert kept | moved == {0, 1, 2, 3}


async def test_a_mixed_group_moves_from_range_to_cooperative_without_a_stop(stage: Stage) -> None:
    """The rolling upgrade of seed 001 and KIP-429: both names first, then the new one alone."""
    await stage.topic("t", 4)
    strategies = [["range"], ["range", "cooperative-sticky"], ["cooperative-sticky"]]
    members = [stage.consumer("t", partition_assignment_strategy=strategies[0]) for _ in range(2)]
    for member in members:
        await member.start()
    await at_rest(4, *members)
    for strategy in strategies[1:]:
        for place in range(2):
            await members[place].stop()
            members[place] = stage.consumer("t", partition_assignment_strategy=strategy)
            await members[place].start()
            await at_rest(4, *members)
    for member in members:
        await member.stop()


async def test_members_get_only_what_they_subscribe_to(stage: Stage) -> None:
    await stage.topic("a", 2)
    await stage.topic("b", 2)
    async with (
        stage.consumer("a", **COOPERATIVE) as first,
        stage.consumer("a", "b", **COOPERATIVE) as second,
    ):
        for _ in range(100):
            await first.poll(timeout=0.1)
            await second.poll(timeout=0.1)
        assert {p.topic for p in first.assignment()} == {"a"}
        assert first.assignment().isdisjoint(second.assignment())
        assert first.assignment() | second.assignment() == {
            TopicPartition(t, n) for t in "ab" for n in range(2)
        }


async def test_a_group_shares_topics_and_a_member_reads_static_partitions_besides(
    stage: Stage,
) -> None:
    (extra,) = await stage.topic("extra", 1, records=2)
    shared = await stage.topic("t", 2, records=1)
    async with stage.consumer("t", partitions=[extra]) as consumer:
        seen: set[TopicPartition] = set()
        while len(seen) < 3:
            records = await consumer.poll(timeout=10)
            seen |= {TopicPartition(r.topic, r.partition) for r in records}
        assert seen == consumer.assignment() == {extra, *shared}
        await consumer.commit()
        assert await committed(consumer, extra, *shared) == [2, 1, 1]
        await consumer.unsubscribe()
        assert consumer.assignment() == {extra}


async def test_subscriptions_change_while_it_polls(stage: Stage) -> None:
    await stage.topic("a", 1, records=1)
    await stage.topic("b", 1, records=1)
    async with stage.consumer("a") as consumer:
        assert [r.topic for r in await consumer.poll(timeout=10)] == ["a"]
        await consumer.commit()
        consumer.subscribe(["b"])
        assert [r.topic for r in await consumer.poll(timeout=10)] == ["b"]
        assert {p.topic for p in consumer.assignment()} == {"b"}
        await consumer.unsubscribe()
        assert consumer.assignment() == frozenset()
        with pytest.raises(TypeError, match="topics or pattern="):
            consumer.subscribe(["a"], pattern="b")


async def test_a_pattern_finds_topics_old_and_new(stage: Stage) -> None:
    await stage.topic("log-a", 1)
    await stage.topic("other", 1)
    async with stage.consumer(group_id="g", metadata_max_age_ms=5000) as consumer:
        consumer.subscribe(pattern="log-.*")
        await at_rest(1, consumer)
        await stage.topic("log-b", 1)
        for _ in range(200):
            await consumer.poll(timeout=0.1)
        assert {p.topic for p in consumer.assignment()} == {"log-a", "log-b"}
        assert consumer.subscription() == {"log-a", "log-b"}


async def test_the_leader_shares_out_new_partitions(stage: Stage) -> None:
    await stage.topic("t", 2)
    async with (
        stage.consumer("t", metadata_max_age_ms=5000) as first,
        stage.consumer("t", metadata_max_age_ms=5000) as second,
    ):
        await at_rest(2, first, second)
        await stage.cluster.add_partitions("t", 4)
        await at_rest(4, first, second)


async def test_a_topic_may_come_after_its_consumer(start_stage: StartStage) -> None:
    stage = await start_stage(1, auto_create_topics=False)
    async with stage.consumer("t") as consumer:
        assert await consumer.poll(timeout=10) == []
        (partition,) = await stage.topic("t", 1, records=1)
        assert len(await consumer.poll(timeout=10)) == 1
        assert consumer.assignment() == {partition}


async def test_static_members_come_back_to_what_they_had(stage: Stage) -> None:
    await stage.topic("t", 4)
    hooks = Hooks()
    begun: list[RebalanceBegun] = []
    hooks.listen(RebalanceBegun, begun.append)
    async with stage.consumer("t", group_instance_id="one", hooks=hooks) as first:
        second = stage.consumer("t", group_instance_id="two")
        await second.start()
        await at_rest(4, first, second)
        share, rebalances = owned(second), len(begun)
        await second.stop()  # a static member does not leave
        second = stage.consumer("t", group_instance_id="two")
        await second.start()
        while owned(second) != share:
            await second.poll(timeout=0.1)
            await first.poll(timeout=0.1)
        assert len(begun) == rebalances
        await second.stop()


async def test_of_two_static_members_of_one_name_the_older_is_fenced(stage: Stage) -> None:
    await stage.topic("t", 1)
    first = stage.consumer("t", group_instance_id="one")
    await first.start()
    await at_rest(1, first)
    async with stage.consumer("t", group_instance_id="one") as second:
        await at_rest(1, second)
        for _ in range(2):
            with pytest.raises(FencedInstanceIdError):
                await first.poll(timeout=30)
        await first.stop()


# -- what is in hand stays ------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("way", ["poll", "stream"])
async def test_no_partition_leaves_while_its_records_are_in_hand(
    stage: Stage, strategy: dict[str, Any], way: str
) -> None:
    partitions = await stage.topic("t", 2, records=5)
    async with stage.consumer("t", enable_auto_commit=True, **strategy) as first:
        stream = aiter(first)
        records = (
            [await anext(stream)]
            if way == "stream"
            else await first.poll(max_records=1, timeout=10)
        )
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


async def test_a_commit_lets_partitions_go_without_another_question(stage: Stage) -> None:
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


async def test_one_that_never_asks_again_loses_its_place(stage: Stage) -> None:
    partitions = await stage.topic("t", 2, records=5)
    diary = Diary()
    async with stage.consumer("t", listener=diary, max_poll_interval_ms=60_000) as first:
        records = await first.poll(timeout=10)
        zombie = first.group_metadata()
        async with stage.consumer("t") as second:
            loop = asyncio.get_running_loop()
            before = loop.time()
            while len(second.assignment()) < 2:
                await second.poll(timeout=1)
            assert 50 < loop.time() - before < 70
            # It is fenced, not misled: it still stands where it stood, and cannot commit.
            assert first.group_metadata() == zombie
            assert first.uncommitted().keys() == {TopicPartition("t", r.partition) for r in records}
            with pytest.raises(CommitFailedError):
                await first.commit()
            await at_rest(2, first, second)
    assert [kind for kind, _ in diary.lines][:2] == ["assigned", "lost"]
    assert first.assignment() <= set(partitions)


async def test_a_slow_stream_that_goes_on_keeps_its_place(stage: Stage) -> None:
    await stage.topic("t", 1, records=5)
    diary = Diary()
    async with stage.consumer("t", listener=diary, max_poll_interval_ms=60_000) as consumer:
        async for record in consumer:
            await asyncio.sleep(50)
            if record.offset == 4:
                break
        assert diary.lines == [("assigned", [0])]


async def test_what_was_lost_in_hand_is_not_committed_by_a_transaction(stage: Stage) -> None:
    """Several polls in one transaction: the partitions leave between them, uncommitted."""
    await stage.topic("t", 2, records=5)
    async with stage.consumer("t") as first:
        await first.poll(max_records=1, timeout=10)
        async with stage.consumer("t") as second:
            await at_rest(2, first, second)
            with pytest.raises(CommitFailedError, match="seek_to_committed"):
                first.uncommitted()
            await first.seek_to_committed()
            assert first.uncommitted() == {}


# -- committing -----------------------------------------------------------------------------------


async def test_commit_takes_what_was_handed_out(stage: Stage) -> None:
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


async def test_commit_of_a_topic_or_a_partition(stage: Stage) -> None:
    a, b = (await stage.topic("a", 1, records=1))[0], (await stage.topic("b", 1, records=1))[0]
    async with stage.consumer("a", "b") as consumer:
        seen = 0
        while seen < 2:
            seen += len(await consumer.poll(timeout=10))
        await consumer.commit("b")
        assert await committed(consumer, a, b) == [None, 1]
        await consumer.commit(a)
        assert await committed(consumer, a, b) == [1, 1]


async def test_commit_includes_the_record_in_hand(stage: Stage) -> None:
    (partition,) = await stage.topic("t", 1, records=5)
    async with stage.consumer("t") as consumer:
        async for record in consumer:
            if record.offset == 2:
                assert consumer.uncommitted() == {partition: OffsetAndMetadata(3, 0)}
                await consumer.commit()
                assert await committed(consumer, partition) == [3]
                assert consumer.uncommitted() == {}
                break


async def test_auto_commit_leaves_out_what_is_in_hand(stage: Stage) -> None:
    (partition,) = await stage.topic("t", 1, records=5)
    async with stage.consumer(
        "t", enable_auto_commit=True, auto_commit_interval_ms=1000
    ) as consumer:
        async for record in consumer:
            if record.offset == 2:
                break
        await asyncio.sleep(3)
        assert await committed(consumer, partition) == [2]
        await consumer.poll()
        await asyncio.sleep(3)
        assert await committed(consumer, partition) == [3]


async def test_auto_commit_does_not_go_back_behind_a_commit_of_what_is_in_hand(
    stage: Stage,
) -> None:
    (partition,) = await stage.topic("t", 1, records=5)
    async with stage.consumer(
        "t", enable_auto_commit=True, auto_commit_interval_ms=1000
    ) as consumer:
        await consumer.poll(max_records=3, timeout=10)
        await consumer.commit()
        await asyncio.sleep(3)
        assert await committed(consumer, partition) == [3]


@pytest.mark.parametrize("seconds", [0, 1])  # per record; a stream yields to the loop by time
@pytest.mark.parametrize(("failing", "offset"), [(False, 3), (True, 2)])
async def test_stopping_commits_what_is_in_hand_only_if_all_went_well(
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


async def test_offsets_committed_elsewhere_are_noted(stage: Stage) -> None:
    (partition,) = await stage.topic("t", 1, records=5)
    async with stage.consumer("t") as consumer:
        assert consumer.uncommitted() == {}
        await consumer.poll(max_records=2, timeout=10)
        offsets = consumer.uncommitted()
        assert offsets == {partition: OffsetAndMetadata(2, 0)}
        consumer.mark_committed(offsets)
        assert consumer.uncommitted() == {}
        await consumer.poll(max_records=1)
        assert consumer.uncommitted() == {partition: OffsetAndMetadata(3, 0)}


async def test_a_group_id_without_topics_commits_too(stage: Stage) -> None:
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
async def test_passing_troubles_of_a_commit_pass(stage: Stage, error: str) -> None:
    (partition,) = await stage.topic("t", 1, records=5)
    async with stage.consumer("t") as consumer:
        await consumer.poll(max_records=2, timeout=10)
        fault = stage.cluster.faults.add(api="OffsetCommit", error=error, count=2)
        await consumer.commit()
        assert fault.hits == 2
        assert await committed(consumer, partition) == [2]


@pytest.mark.parametrize("error", ["UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"])
async def test_a_commit_that_the_group_refuses_fails(stage: Stage, error: str) -> None:
    await stage.topic("t", 1, records=5)
    async with stage.consumer("t") as consumer:
        await consumer.poll(max_records=2, timeout=10)
        stage.cluster.faults.add(api="OffsetCommit", error=error)
        with pytest.raises(CommitFailedError, match=error):
            await consumer.commit()


@pytest.mark.parametrize(
    "error", ["UNSTABLE_OFFSET_COMMIT", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"]
)
async def test_offsets_that_are_not_stable_yet_are_waited_for(stage: Stage, error: str) -> None:
    await stage.topic("t", 1, records=5)
    fault = stage.cluster.faults.add(api="OffsetFetch", error=error, count=3)
    async with stage.consumer("t") as consumer:
        assert len(await consumer.poll(timeout=30)) == 5
    assert fault.hits == 3


# -- what may go wrong ----------------------------------------------------------------------------

PASSING = {
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


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("api", "error"), [(api, error) for api, errors in PASSING.items() for error in errors]
)
async def test_a_group_outlives_every_passing_error(
    stage: Stage, api: str, error: str, strategy: dict[str, Any]
) -> None:
    await stage.topic("t", 4)
    fault = stage.cluster.faults.add(api=api, error=error, count=3)
    async with stage.consumer("t", **strategy) as first, stage.consumer("t", **strategy) as second:
        loop = asyncio.get_running_loop()
        end = loop.time() + 60
        while loop.time() < end or fault.hits < 3:
            await first.poll(timeout=0.5)
            await second.poll(timeout=0.5)
            assert loop.time() < end + 600, f"{fault.hits} hits"
        await at_rest(4, first, second)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("disconnect", ["before", "after"])
@pytest.mark.parametrize(
    "api", ["JoinGroup", "SyncGroup", "Heartbeat", "OffsetFetch", "FindCoordinator", "LeaveGroup"]
)
async def test_a_group_outlives_lost_connections(
    stage: Stage, api: str, disconnect: Any, strategy: dict[str, Any]
) -> None:
    await stage.topic("t", 4)
    stage.cluster.faults.add(api=api, disconnect=disconnect, count=3)
    async with stage.consumer("t", **strategy) as first:
        async with stage.consumer("t", **strategy) as second:
            for _ in range(60):
                await first.poll(timeout=0.5)
                await second.poll(timeout=0.5)
            await at_rest(4, first, second)
        await at_rest(4, first)


async def test_a_coordinator_that_moves_is_followed(start_stage: StartStage) -> None:
    stage = await start_stage(3)
    await stage.topic("t", 4)
    async with stage.consumer("t") as first, stage.consumer("t") as second:
        await at_rest(4, first, second)
        coordinator = stage.cluster.coordinator_for("g")
        assert coordinator is not None
        await stage.cluster.stop_broker(coordinator)
        for _ in range(40):
            await first.poll(timeout=0.5)
            await second.poll(timeout=0.5)
        await at_rest(4, first, second)
        await stage.cluster.start_broker(coordinator)
        for _ in range(40):
            await first.poll(timeout=0.5)
            await second.poll(timeout=0.5)
        await at_rest(4, first, second)


@pytest.mark.parametrize(
    ("error", "kind", "again"),
    [
        ("GROUP_AUTHORIZATION_FAILED", GroupAuthorizationError, True),
        ("INCONSISTENT_GROUP_PROTOCOL", InconsistentGroupProtocolError, True),
        ("INVALID_GROUP_ID", InvalidGroupIdError, False),
    ],
)
async def test_a_refusal_is_raised_to_who_asks(
    stage: Stage, error: str, kind: type[KafkaError], again: bool
) -> None:
    await stage.topic("t", 1, records=1)
    stage.cluster.faults.add(api="JoinGroup", error=error)
    async with stage.consumer("t") as consumer:
        with pytest.raises(kind):
            await consumer.poll(timeout=30)
        if again:
            assert len(await consumer.poll(timeout=30)) == 1
        else:
            with pytest.raises(kind):
                await consumer.poll(timeout=30)


async def test_members_without_a_common_strategy_are_refused(stage: Stage) -> None:
    await stage.topic("t", 1)
    async with stage.consumer("t", partition_assignment_strategy=["range"]) as first:
        await at_rest(1, first)
        async with stage.consumer("t", **COOPERATIVE) as second:
            with pytest.raises(InconsistentGroupProtocolError):
                await second.poll(timeout=30)


async def test_a_listener_that_fails_is_heard_of_and_stops_nothing(stage: Stage) -> None:
    await stage.topic("t", 1, records=1)
    async with stage.consumer("t") as consumer:

        def fail(_: object) -> None:
            raise RuntimeError("the listener failed")

        consumer.on_assigned(fail)
        with pytest.raises(RuntimeError, match="the listener failed"):
            await consumer.poll(timeout=30)
        assert len(await consumer.poll(timeout=30)) == 1


async def test_a_listener_may_seek_and_commit_but_not_ask(stage: Stage) -> None:
    (partition,) = await stage.topic("t", 1, records=5)
    complaints: list[Exception] = []
    async with stage.consumer("t") as consumer:

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


async def test_what_is_committed_as_partitions_leave_is_where_the_next_begins(
    stage: Stage,
) -> None:
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


async def test_events_tell_of_rebalances(stage: Stage) -> None:
    await stage.topic("t", 1)
    hooks = Hooks()
    ended: list[RebalanceEnded] = []
    assigned: list[PartitionsAssigned] = []
    hooks.listen(RebalanceEnded, ended.append)
    hooks.listen(PartitionsAssigned, assigned.append)
    async with stage.consumer("t", hooks=hooks) as consumer:
        await at_rest(1, consumer)
        assert consumer.statistics().rebalance_total == 1
        member = consumer.group_metadata()
    assert [(e.group_id, e.generation, e.member_id) for e in ended] == [
        ("g", member.generation_id, member.member_id)
    ]
    assert assigned[0].partitions == {TopicPartition("t", 0)}


async def test_events_tell_what_is_fetched_committed_and_given_up(stage: Stage) -> None:
    (partition,) = await stage.topic("t", 1, records=3)
    hooks = Hooks()
    events: list[ClientEvent] = []
    for kind in (Fetched, Committed, PartitionsRevoked, PartitionsLost):
        hooks.listen(kind, events.append)
    async with stage.consumer("t", hooks=hooks, max_poll_interval_ms=60_000) as consumer:
        await consumer.poll(timeout=10)
        await consumer.commit()
        await consumer.seek_to_beginning()
        await consumer.poll(timeout=10)
        await asyncio.sleep(70)
        await at_rest(1, consumer)
        name = consumer.config.client_id
    fetched = [event for event in events if isinstance(event, Fetched)]
    assert [(event.node_id, event.partitions, event.size > 0) for event in fetched[:1]] == [
        (1, 1, True)
    ]
    assert [event for event in events if not isinstance(event, Fetched)] == [
        Committed(name, "g", ((partition, 3),)),
        PartitionsLost(name, frozenset({partition})),
        PartitionsRevoked(name, frozenset({partition})),
    ]


async def test_a_listener_that_takes_longer_than_the_rebalance_costs_the_membership(
    stage: Stage,
) -> None:
    await stage.topic("t", 2)

    async def slow(_: object) -> None:
        await asyncio.sleep(100)

    async with stage.consumer("t", max_poll_interval_ms=30_000) as first:
        await at_rest(2, first)
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
