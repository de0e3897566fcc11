"""Assignors in consumer groups: errors, user data, committers, explanations and rebalance rates."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.client.client import services_of
from kafka_async.errors import (
    AssignorError,
    IllegalStateError,
    InconsistentGroupProtocolError,
    KafkaError,
)
from kafka_async.group.assignors import (
    CompositeAssignor,
    CoPartitionedAssignor,
    GroupAssignment,
    RangeAssignor,
    RedundantAssignor,
)
from kafka_async.protocol.messages.join_group import JoinGroupRequest
from kafka_async.protocol.messages.leave_group import LeaveGroupRequest
from kafka_async.types import TopicPartition
from tests.consumer.conftest import poll_until
from tests.embedded_client import Received, until
from tests.failing_assignor import FailingAssignor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafka_async.consumer.consumer import Consumer
    from kafka_async.group.assignors.abc import Members
    from tests.consumer.conftest import Stage, StartStage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]


class SilentAssignor(FailingAssignor):
    """Does not declare that it reads errors, as assignors of other clients."""

    reads_errors = False


async def rebalance(stage: Stage, leader: Consumer, partitions: int) -> None:
    """Let the leader see that topic "t" has more partitions."""
    await stage.cluster.add_partitions("t", partitions)
    await services_of(leader.client).metadata.refresh()


async def first_request(stage: Stage, kind: type[Any]) -> Received:
    """Wait until a broker has received a request of a class; return it."""

    def rows() -> list[Received]:
        return [row for row in stage.received if isinstance(row.request, kind)]

    async with asyncio.timeout(60):
        await until(lambda: bool(rows()))
    return rows()[0]


async def poll_for_error(consumer: Consumer, kind: type[KafkaError] = AssignorError) -> KafkaError:
    """Poll until the consumer raises an error of this class."""
    async with asyncio.timeout(15):
        while True:
            try:
                await consumer.poll(timeout=0.1)
            except kind as error:
                return error


@pytest.mark.parametrize("instances", [[{}, {}], [{"group_instance_id": n} for n in "ab"]])
async def test_error_of_leaders_assignor_is_raised_by_all_members_that_read_it(
    stage: Stage, instances: list[dict[str, str]]
) -> None:
    """No member waits for the session of another to expire, after 45 s."""
    await stage.topic("t", 2)
    assignors = [FailingAssignor(), FailingAssignor()]
    leader, other = (
        stage.consumer("t", partition_assignment_strategy=[assignor], **instance)
        for assignor, instance in zip(assignors, instances, strict=True)
    )
    async with leader, other:
        await poll_until(lambda: leader.assignment() and other.assignment(), leader, other)
        assignors[0].broken = True
        await rebalance(stage, leader, 3)
        errors = await asyncio.gather(poll_for_error(leader), poll_for_error(other))
        assert isinstance(errors[0].__cause__, ZeroDivisionError)
        assert "on the group leader: the assignor failing raised" in str(errors[1])
        assignors[0].broken = False
        async with asyncio.timeout(15):
            await poll_until(
                lambda: len(leader.assignment()) + len(other.assignment()) == 3, leader, other
            )


async def test_coordinator_can_forward_the_error_of_the_leaders_assignor(
    start_stage: StartStage,
) -> None:
    """With the embedded cluster's option the members' SyncGroup fails, and each joins again."""
    stage = await start_stage(group_forward_assignor_errors=True)
    await stage.topic("t", 2)
    assignors = [FailingAssignor(), FailingAssignor()]
    leader, other = (stage.consumer("t", partition_assignment_strategy=[it]) for it in assignors)
    async with leader, other:
        await poll_until(lambda: leader.assignment() and other.assignment(), leader, other)
        assignors[0].broken = True
        # The other member waits for its assignment when the leader's request arrives.
        stage.cluster.faults.add(
            api="SyncGroup", when=lambda _, request: bool(request.assignments), delay=1.0
        )
        polling = asyncio.create_task(poll_for_error(leader))
        await rebalance(stage, leader, 3)
        await poll_for_error(other, InconsistentGroupProtocolError)
        assert isinstance((await polling).__cause__, ZeroDivisionError)
        assignors[0].broken = False
        async with asyncio.timeout(15):
            await poll_until(
                lambda: len(leader.assignment()) + len(other.assignment()) == 3, leader, other
            )


async def test_leader_leaves_so_that_members_that_do_not_read_errors_rejoin(stage: Stage) -> None:
    """The other member leads then, and raises nothing."""
    await stage.topic("t", 2)
    assignors = [SilentAssignor(), SilentAssignor()]
    leader, other = (stage.consumer("t", partition_assignment_strategy=[a]) for a in assignors)
    async with leader, other:
        await poll_until(lambda: leader.assignment() and other.assignment(), leader, other)
        assert leader.explain().leads
        assignors[0].broken = True
        await rebalance(stage, leader, 3)
        loop = asyncio.get_running_loop()
        started = loop.time()
        await poll_until(
            lambda: len(other.assignment()) + len(leader.assignment()) == 3, other, leader
        )
        assert loop.time() - started < 15
        assert other.explain().leads


async def test_members_rejoin_within_a_heartbeat_interval_after_the_leader_has_failed(
    stage: Stage,
) -> None:
    await stage.topic("t", 2)
    assignors = [SilentAssignor() for _ in range(3)]
    members = [stage.consumer("t", partition_assignment_strategy=[each]) for each in assignors]
    async with members[0] as leader, members[1] as second, members[2] as third:
        await poll_until(lambda: leader.assignment() and second.assignment(), *members)
        leaders_id = leader.group_metadata().member_id
        others = {it.group_metadata().member_id for it in (second, third)}
        assignors[0].broken = True
        await rebalance(stage, leader, 4)
        polling = asyncio.ensure_future(poll_until(lambda: False, *members))
        left = await first_request(stage, LeaveGroupRequest)
        assert [row.member_id for row in left.request.members] == [leaders_id]
        await asyncio.sleep(3.0 + 0.1)  # heartbeat_interval_ms
        joined = {
            row.request.member_id
            for row in stage.received
            if isinstance(row.request, JoinGroupRequest) and row.time >= left.time
        }
        assert others <= joined
        polling.cancel()
        await asyncio.wait({polling})
        await poll_until(
            lambda: sum(len(it.assignment()) for it in members) == 4, *members, timeout=30
        )


async def test_leader_that_fails_three_times_running_raises(stage: Stage) -> None:
    await stage.topic("t", 2)
    assignor = SilentAssignor()
    assignor.broken = True
    calls = 0
    assign = assignor.assign

    def count(partitions: Mapping[str, int], members: Members) -> Any:
        nonlocal calls
        calls += 1
        return assign(partitions, members)

    assignor.assign = count  # type: ignore[method-assign]
    async with stage.consumer("t", partition_assignment_strategy=[assignor]) as consumer:
        error = await poll_for_error(consumer)
        assert isinstance(error.__cause__, ZeroDivisionError)
        assert calls == 3
        assignor.broken = False
        await poll_until(lambda: len(consumer.assignment()) == 2, consumer)


class PassingAssignor(RangeAssignor):
    """Sends each member the user data and the versions of all members."""

    name = "passing"
    version = 3

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.received: list[tuple[frozenset[TopicPartition], bytes | None, int]] = []

    def user_data(self, topics: Iterable[str]) -> bytes | None:
        return self.data

    def assign(self, partitions: Mapping[str, int], members: Members) -> GroupAssignment:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        rows = sorted(f"{m.user_data!r} {m.version}" for m in members.values())
        found = super().assign(partitions, members)
        return GroupAssignment(found, dict.fromkeys(members, " ".join(rows).encode()))

    def on_assignment(
        self, partitions: frozenset[TopicPartition], user_data: bytes | None, generation: int
    ) -> None:
        self.received.append((partitions, user_data, generation))


async def test_user_data_go_to_the_leader_and_back_to_each_member(stage: Stage) -> None:
    await stage.topic("t", 2)
    assignors = [PassingAssignor(b"one"), PassingAssignor(b"two")]
    first, second = (stage.consumer("t", partition_assignment_strategy=[a]) for a in assignors)
    async with first, second:
        await poll_until(lambda: first.assignment() and second.assignment(), first, second)
        for consumer, assignor in zip((first, second), assignors, strict=True):
            partitions, data, generation = assignor.received[-1]
            assert partitions == consumer.assignment()
            assert data == b"b'one' 3 b'two' 3"
            assert generation == consumer.group_metadata().generation_id


async def test_error_in_on_assignment_is_raised(stage: Stage) -> None:
    await stage.topic("t", 1)

    class Raising(RangeAssignor):
        broken = True

        def on_assignment(
            self, partitions: frozenset[TopicPartition], user_data: bytes | None, generation: int
        ) -> None:
            if self.broken:
                raise ZeroDivisionError("a bug")

    assignor = Raising()
    async with stage.consumer("t", partition_assignment_strategy=[assignor]) as consumer:
        assert "a bug" in str(await poll_for_error(consumer))
        assignor.broken = False
        await poll_until(consumer.assignment, consumer)


async def test_only_the_committer_of_a_redundant_partition_commits(stage: Stage) -> None:
    """The first member remains the committer, since it has owned the partitions before."""
    partitions = await stage.topic("t", 2)
    options = {"partition_assignment_strategy": [RedundantAssignor]}
    async with stage.consumer("t", **options) as first, stage.consumer("t", **options) as second:
        both = (first, second)
        await poll_until(lambda: all(len(c.assignment()) == 2 for c in both), *both)
        for partition in partitions:
            stage.produce(partition, range(3))
        seen: Counter[TopicPartition] = Counter()
        async with asyncio.timeout(60):
            while sum(seen.values()) < 12:
                for consumer in both:
                    records = await consumer.poll(timeout=0.1)
                    seen.update(TopicPartition(r.topic, r.partition) for r in records)
        assert set(seen.values()) == {6}
        await second.commit()
        assert set((await second.committed()).values()) == {None}
        for what in (partitions[0], {partitions[0]: 1}):
            with pytest.raises(IllegalStateError, match="another one commits its offset"):
                await second.commit(what)
        await first.commit()
        assert [row and row.offset for row in (await second.committed()).values()] == [3, 3]


async def test_composite_assigns_topics_by_different_strategies(stage: Stage) -> None:
    for name in ("a", "b", "c"):
        await stage.topic(name, 2)

    def assignor() -> CompositeAssignor:
        return CompositeAssignor([(CoPartitionedAssignor(), {"a", "b"})], RedundantAssignor())

    first, second = (
        stage.consumer("a", "b", "c", partition_assignment_strategy=[assignor()]) for _ in range(2)
    )
    async with first, second:
        await poll_until(
            lambda: len(first.assignment()) == len(second.assignment()) == 4, first, second
        )
        for consumer in (first, second):
            topics: dict[str, set[int]] = {"a": set(), "b": set(), "c": set()}
            for partition in consumer.assignment():
                topics[partition.topic].add(partition.partition)
            assert topics["a"] == topics["b"]
            assert topics["c"] == {0, 1}


async def test_explains_the_assignment_on_leader_and_follower(stage: Stage) -> None:
    await stage.topic("t", 2)
    options = {"partition_assignment_strategy": ["cooperative-sticky"]}
    async with stage.consumer("t", **options) as leader:
        assert leader.explain().members == {}
        await poll_until(leader.assignment, leader)
        member_id = leader.group_metadata().member_id
        async with stage.consumer("t", **options) as other:
            await poll_until(lambda: len(other.assignment()) == 1, leader, other)
            explained, partial = leader.explain(), other.explain()
            other_id = other.group_metadata().member_id
            (kept,), (moved,) = leader.assignment(), other.assignment()
            assert explained.leads
            assert explained.assignor == "cooperative-sticky"
            assert explained.generation == leader.group_metadata().generation_id
            assert explained.reason == "partitions were revoked for other members"
            assert explained.members[member_id].partitions == {kept: "kept"}
            assert explained.members[other_id].partitions == {moved: "no member owned it"}
            assert not partial.leads
            assert partial.members.keys() == {other_id}
            assert "only its own partitions are known" in str(partial)
            assert f"{moved}: no member owned it" in str(explained)


async def test_logs_inputs_generation_and_reason_of_an_assignment(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "kafka_async")
    await stage.topic("t", 2)
    async with stage.consumer("t") as leader:
        await poll_until(leader.assignment, leader)
        await rebalance(stage, leader, 3)
        await poll_until(lambda: len(leader.assignment()) == 3, leader)
        generation = leader.group_metadata().generation_id
        member_id = leader.group_metadata().member_id
    lines = [record.getMessage() for record in caplog.records]
    reason = "topic t has 3 partitions, not 2"
    assert f"group g: generation {generation}, assigned by range: {reason}" in lines
    inputs = [it for it in lines if it.startswith("as the leader: range of")]
    for each in ("{'t': 3}", f"'{member_id}': MemberSubscription(topics=frozenset({{'t'}})"):
        assert each in inputs[-1]


async def test_explain_needs_a_group(stage: Stage) -> None:
    async with stage.reader() as (consumer, _):
        with pytest.raises(IllegalStateError, match="has no group"):
            consumer.explain()


async def test_leader_limits_the_rate_of_rebalances_for_changed_topics(stage: Stage) -> None:
    """Two changes within a minute are one rebalance."""
    await stage.topic("t", 1)
    options: dict[str, Any] = {"rebalance_min_interval_ms": 60_000}
    async with stage.consumer("t", **options) as consumer:
        await poll_until(consumer.assignment, consumer)
        loop = asyncio.get_running_loop()
        assigned_at = loop.time()
        for partitions in (2, 3):
            await rebalance(stage, consumer, partitions)
            await consumer.poll(timeout=1)
        await poll_until(lambda: len(consumer.assignment()) == 3, consumer)
        assert 59 < loop.time() - assigned_at < 65
        assert consumer.statistics().rebalance_total == 2


async def test_members_get_partitions_of_their_rack(start_stage: StartStage) -> None:
    stage = await start_stage(2)
    for number, broker_id in enumerate(stage.cluster.brokers):
        stage.cluster.brokers[broker_id].rack = f"r{number}"
    await stage.cluster.create_topic("t", 4, replication_factor=1)
    leaders = services_of(stage.shared_client).metadata
    snapshot = await leaders.refresh(topics={"t"})
    racks = snapshot.replica_racks(["t"])
    assert len(set(racks.values())) == 2
    first, second = (stage.consumer("t", client_rack=f"r{n}") for n in range(2))
    async with first, second:
        await poll_until(
            lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second
        )
        for number, consumer in enumerate((first, second)):
            assert all(racks[p] == {f"r{number}"} for p in consumer.assignment())
