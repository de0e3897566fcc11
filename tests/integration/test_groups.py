"""Consumer groups on every kind of cluster: joins, leaves, crashes, static members, listeners."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from kafka_async.admin import Admin, NewTopic
from kafka_async.client.client import Client, services_of
from kafka_async.consumer.consumer import Consumer
from kafka_async.errors import (
    AssignorError,
    IllegalGenerationError,
    KafkaError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
)
from kafka_async.producer.producer import Producer
from kafka_async.types import GroupMetadata, TopicPartition
from tests.failing_assignor import FailingAssignor
from tests.integration.helpers import create_topic, find_group, poll_until, wait_until_known
from tests.recording_listener import RecordingListener
from tests.rolling_group import RollingGroup

if TYPE_CHECKING:
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = pytest.mark.asyncio

PARTITIONS = 6
CLASSIC: dict[str, Any] = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 200}
CONSUMER: dict[str, Any] = {"group_protocol": "consumer"}
KINDS = [
    pytest.param({**CLASSIC, "partition_assignment_strategy": ["range"]}, id="range"),
    pytest.param(
        {**CLASSIC, "partition_assignment_strategy": ["cooperative-sticky"]},
        id="cooperative-sticky",
    ),
    pytest.param(CONSUMER, id="consumer"),
]
"""Options of members of both group protocols; brokers of tests have sessions of 6 s too."""


class Group:
    """Runs consumers of one topic, each in a task, and collects the returned records in `seen`."""

    def __init__(self, cluster: ClusterHandle, topic: str, **options: Any) -> None:
        self.seen: list[tuple[int, int]] = []
        self.members: dict[str, Consumer] = {}
        self._cluster = cluster
        self._topic = topic
        self._options: dict[str, Any] = {
            "auto_offset_reset": "earliest",
            "group_id": cluster.group(),
            **options,
        }
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def consumer(self, name: str, **options: Any) -> Consumer:
        """Return a consumer in the group that was not started."""
        return Consumer(
            self._cluster.bootstrap_servers,
            topics=[self._topic],
            client_id=name,
            **{**self._options, **options},
        )

    async def join(self, name: str, **options: Any) -> Consumer:
        member = self.consumer(name, **options)
        await member.start()
        self.members[name] = member
        self._tasks[name] = asyncio.create_task(self._poll(member))
        return member

    async def leave(self, name: str) -> None:
        await self._stop_polling(name)
        await self.members.pop(name).stop()

    async def kill(self, name: str) -> None:
        """End a member without a LeaveGroup request."""
        await self._stop_polling(name)
        await self.members.pop(name)._tear_down()  # pyright: ignore[reportPrivateUsage]

    async def close(self) -> None:
        for name in list(self.members):
            await self.leave(name)

    def assignments(self) -> dict[str, set[int]]:
        return {n: {p.partition for p in m.assignment()} for n, m in self.members.items()}

    async def wait_until_balanced(self) -> dict[str, set[int]]:
        """Wait until every partition has one owner and assignments are even; return them."""

        def even() -> bool:
            assignments = list(self.assignments().values())
            sizes = [len(assigned) for assigned in assignments]
            whole = len(set[int]().union(*assignments)) == sum(sizes) == PARTITIONS
            return whole and max(sizes) - min(sizes) <= 1

        await wait_until(even, lambda: str(self.assignments()))
        return self.assignments()

    async def _poll(self, member: Consumer) -> None:
        while True:
            records = await member.poll(timeout=0.2)
            self.seen += [(record.partition, record.offset) for record in records]

    async def _stop_polling(self, name: str) -> None:
        task = self._tasks.pop(name)
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()


async def wait_until(true: Callable[[], bool], describe: Callable[[], str]) -> None:
    try:
        async with asyncio.timeout(40):
            while not true():  # noqa: ASYNC110  # assignments change in several consumers
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"the condition did not become true: {describe()}")


MakeGroup = Callable[..., Coroutine[Any, Any, Group]]


@pytest_asyncio.fixture
async def make_group(kafka_cluster: ClusterHandle) -> AsyncIterator[MakeGroup]:
    """Return a function that creates a topic and a group, which is closed at the end."""

    async def make(**options: Any) -> Group:
        group = Group(
            kafka_cluster, await create_topic(kafka_cluster, partitions=PARTITIONS), **options
        )
        stack.push_async_callback(group.close)
        return group

    async with AsyncExitStack() as stack:
        yield make


async def produce(cluster: ClusterHandle, each: int) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        for number in range(each):
            for partition in range(PARTITIONS):
                value = str(number).encode()
                await producer.enqueue(cluster.topic(), value, partition=partition)


@pytest.mark.parametrize("kind", KINDS)
async def test_group_rebalances_after_joins_a_leave_and_a_crash(
    make_group: MakeGroup, kind: dict[str, Any]
) -> None:
    group = await make_group(**kind)
    await group.join("one")
    assert await group.wait_until_balanced() == {"one": set(range(PARTITIONS))}
    await group.join("two")
    await group.wait_until_balanced()
    await group.join("three")
    assert list(map(len, (await group.wait_until_balanced()).values())) == [2, 2, 2]
    await group.leave("one")
    assert list(map(len, (await group.wait_until_balanced()).values())) == [3, 3]
    await group.kill("two")
    assert await group.wait_until_balanced() == {"three": set(range(PARTITIONS))}


@pytest.mark.parametrize("kind", KINDS)
async def test_each_record_is_read_once_during_rebalances(
    make_group: MakeGroup, kafka_cluster: ClusterHandle, kind: dict[str, Any]
) -> None:
    group = await make_group(**kind)
    await group.join("one", max_poll_records=7)
    await produce(kafka_cluster, 50)
    await group.join("two", max_poll_records=5)
    await group.wait_until_balanced()
    await produce(kafka_cluster, 50)
    await group.leave("one")
    await group.join("three")
    await group.wait_until_balanced()
    await produce(kafka_cluster, 50)
    await wait_until(lambda: len(group.seen) >= 150 * PARTITIONS, lambda: str(len(group.seen)))
    assert sorted(group.seen) == [(p, o) for p in range(PARTITIONS) for o in range(150)]


@pytest.mark.parametrize(
    "kind", [{**CLASSIC, "session_timeout_ms": 30_000}, CONSUMER], ids=["classic", "consumer"]
)
async def test_static_member_gets_its_partitions_back(
    make_group: MakeGroup, kind: dict[str, Any]
) -> None:
    group = await make_group(**kind)
    one = await group.join("one", group_instance_id="one")
    await group.join("two", group_instance_id="two")
    before = await group.wait_until_balanced()
    generation = one.group_metadata().generation_id
    await group.leave("two")
    await group.join("two", group_instance_id="two")
    assert await group.wait_until_balanced() == before
    assert one.group_metadata().generation_id == generation


async def test_group_assigns_new_partitions(kafka_cluster: ClusterHandle) -> None:
    topic = kafka_cluster.topic("growing")
    async with Admin(kafka_cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(topic, 2, 1)])
        async with Consumer(
            kafka_cluster.bootstrap_servers,
            topics=[topic],
            group_id=kafka_cluster.group(),
            metadata_max_age_ms=300,
        ) as consumer:
            await poll_until(lambda: len(consumer.assignment()) == 2, consumer)
            await admin.create_partitions({topic: PARTITIONS})
            await poll_until(lambda: len(consumer.assignment()) == PARTITIONS, consumer)


@pytest.mark.parametrize("while_away", [False, True])
async def test_static_leader_that_came_back_assigns_new_partitions(
    kafka_cluster: ClusterHandle, while_away: bool
) -> None:
    topic = await create_topic(kafka_cluster, partitions=1)

    def member() -> Consumer:
        return Consumer(
            kafka_cluster.bootstrap_servers,
            topics=[topic],
            group_id=kafka_cluster.group(),
            group_instance_id="i",
            metadata_max_age_ms=300,
        )

    async with Admin(kafka_cluster.bootstrap_servers) as admin:
        async with member() as first:
            await poll_until(lambda: len(first.assignment()) == 1, first)
        if while_away:
            await admin.create_partitions({topic: 3})
        async with member() as again:
            await poll_until(lambda: again.assignment(), again)
            if not while_away:
                await admin.create_partitions({topic: 3})
            await poll_until(lambda: len(again.assignment()) == 3, again)


async def test_broker_finds_the_topics_of_a_regular_expression(
    kafka_cluster: ClusterHandle,
) -> None:
    topic = await create_topic(kafka_cluster, partitions=2)
    async with Consumer(
        kafka_cluster.bootstrap_servers, group_id=kafka_cluster.group(), group_protocol="consumer"
    ) as consumer:
        consumer.subscribe(pattern=topic.replace(".", r"\."))
        await poll_until(lambda: len(consumer.assignment()) == 2, consumer)
        await consumer.commit({TopicPartition(topic, 0): 0})


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"group_remote_assignor": "nonsense"}, UnsupportedAssignorError),
        ({"group_instance_id": "i"}, UnreleasedInstanceIdError),
    ],
)
async def test_coordinator_refuses_a_member_of_the_consumer_protocol(
    make_group: MakeGroup, options: dict[str, Any], error: type[KafkaError]
) -> None:
    group = await make_group(**CONSUMER, group_instance_id="i")
    member = await group.join("one")
    await group.wait_until_balanced()
    refused = group.consumer("two", **{"group_instance_id": None, **options})
    async with refused:
        with pytest.raises(error):
            await refused.poll(timeout=20)
    assert len(member.assignment()) == PARTITIONS


async def test_members_move_to_the_consumer_protocol_and_back_while_records_flow(
    kafka_cluster: ClusterHandle,
) -> None:
    servers = kafka_cluster.bootstrap_servers
    topic, group_id = await create_topic(kafka_cluster, partitions=4), kafka_cluster.group()

    def member(**options: Any) -> Consumer:
        given: dict[str, Any] = {"group_id": group_id, "auto_offset_reset": "earliest", **options}
        return Consumer(servers, topics=[topic], **given)

    group = RollingGroup(member, partitions=4)
    async with Admin(servers) as admin, group.producing(Producer(servers), topic, interval=0.02):
        await group.start("one", **CLASSIC)
        await group.start("two", **CLASSIC)
        for name, options, expected in (
            ("one", CONSUMER, "consumer"),
            ("two", CONSUMER, "consumer"),
            ("one", CLASSIC, "consumer"),
            ("two", CLASSIC, "classic"),
        ):
            await group.restart(name, **options)
            await group.wait_until_balanced()
            await find_group(partial(admin.list_groups, types=[expected]), group_id)
    await group.close()
    group.check()


@pytest.mark.parametrize("kind", KINDS[1:])
async def test_transaction_commits_offsets_of_the_present_member_only(
    kafka_cluster: ClusterHandle, kind: dict[str, Any]
) -> None:
    servers, group_id = kafka_cluster.bootstrap_servers, kafka_cluster.group()
    place = TopicPartition(await create_topic(kafka_cluster), 0)
    options: dict[str, Any] = {"topics": [place.topic], "group_instance_id": "i", **kind}
    transactional_id = kafka_cluster.transactional_id()

    async def commit(offset: int, identity: GroupMetadata) -> None:
        async with (
            Producer(servers, transactional_id=transactional_id) as producer,
            producer.transaction() as txn,
        ):
            await txn.commit_offsets({place: offset}, identity)

    async with Consumer(servers, group_id=group_id, **options) as consumer:
        await poll_until(consumer.assignment, consumer)
        member = consumer.group_metadata()
        await commit(5, member)
        for wrong, error in (
            # Versions of the request that our producer sends have this error for epochs too.
            (replace(member, generation_id=member.generation_id + 1), IllegalGenerationError),
            (replace(member, member_id="stranger", group_instance_id=None), UnknownMemberIdError),
        ):
            with pytest.raises(KafkaError) as raised:
                await commit(9, wrong)
            assert error in (type(raised.value), type(raised.value.__cause__))
        committed = (await consumer.committed(place))[place]
        assert committed is not None
        assert committed.offset == 5


@pytest.mark.slow
async def test_strategy_is_upgraded_member_by_member_while_records_flow(
    kafka_cluster: ClusterHandle,
) -> None:
    servers, topic = (
        kafka_cluster.bootstrap_servers,
        await create_topic(kafka_cluster, partitions=6),
    )
    group_id = kafka_cluster.group()

    def member(**options: Any) -> Consumer:
        given: dict[str, Any] = {"group_id": group_id, "auto_offset_reset": "earliest", **options}
        return Consumer(servers, topics=[topic], heartbeat_interval_ms=100, **given)

    group = RollingGroup(member, partitions=6)
    async with group.producing(Producer(servers), topic, interval=0.05):
        await group.upgrade_strategy(6)
    await group.close()
    group.check()
    assert group.most_rebalances_without_owner == 1


@pytest.mark.any_broker
async def test_auto_protocol_follows_the_brokers_and_the_members_of_the_group(
    kafka_cluster: ClusterHandle, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kafka_async.group")
    topic = await create_topic(kafka_cluster, partitions=2)
    auto: dict[str, Any] = {"topics": [topic], "group_protocol": "auto"}

    async def choice(group_id: str, *others: Consumer) -> str:
        caplog.clear()
        async with Consumer(kafka_cluster.bootstrap_servers, group_id=group_id, **auto) as consumer:
            members = (consumer, *others)
            await poll_until(lambda: all(it.assignment() for it in members), *members)
        [chosen] = [it for it in caplog.messages if "group_protocol is" in it]
        return chosen.partition("group_protocol is ")[2]

    group = kafka_cluster.group("classic")
    options: dict[str, Any] = {"topics": [topic], "group_id": group}
    async with Client(kafka_cluster.bootstrap_servers) as client:
        supported = services_of(client).brokers.finalized_feature("group.version") > 0
    if not supported:
        assert await choice(group) == "classic: the brokers do not have the consumer protocol"
        return
    async with Consumer(kafka_cluster.bootstrap_servers, **options, **CLASSIC) as consumer:
        await poll_until(consumer.assignment, consumer)
        members = "classic: the group has members of the classic protocol"
        assert await choice(group, consumer) == members
    assert await choice(group) == "consumer: the group has no members"
    async with Consumer(kafka_cluster.bootstrap_servers, **options, **CONSUMER) as consumer:
        await poll_until(consumer.assignment, consumer)
        assert await choice(group, consumer) == "consumer: the group is of this protocol"


async def test_deleted_topic_stops_neither_commits_nor_the_group(
    kafka_cluster: ClusterHandle,
) -> None:
    """Commits the offsets of both topics after the deletion, since auto-commit is rare."""
    kept = TopicPartition(kafka_cluster.topic("kept"), 0)
    gone = TopicPartition(kafka_cluster.topic("gone"), 0)
    options: dict[str, Any] = {
        "topics": [kept.topic, gone.topic],
        "group_id": kafka_cluster.group(),
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 600_000,
        "heartbeat_interval_ms": 200,
        "allow_auto_create_topics": False,
    }
    servers = kafka_cluster.bootstrap_servers
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(Admin(servers))
        await admin.create_topics([NewTopic(kept.topic, 1, 1), NewTopic(gone.topic, 1, 1)])
        producer = await stack.enter_async_context(Producer(servers))
        for topic in (kept.topic, gone.topic):
            await producer.send(topic, b"value")
        leader = await stack.enter_async_context(Consumer(servers, **options))
        seen = 0
        while seen < 2:
            seen += len(await leader.poll(timeout=1))
        await leader.poll(timeout=0)
        await admin.delete_topics([gone.topic])
        async with asyncio.timeout(20):
            await leader.commit()
            await poll_until(lambda: set(leader.assignment()) == {kept}, leader)
            async with Consumer(servers, **options) as second:

                def shared() -> bool:
                    members = (leader.group_metadata(), second.group_metadata())
                    [generation, *others] = {member.generation_id for member in members}
                    joined = generation >= 0 and not others
                    return joined and set(leader.assignment() | second.assignment()) == {kept}

                await poll_until(shared, leader, second)
        # A coordinator that loads its groups while the topic is deleted keeps the offsets of it.
        committed = await admin.list_group_offsets(options["group_id"], [kept], require_stable=True)
        assert {p: row.offset for p, row in committed.items()} == {kept: 1}


@pytest.mark.parametrize(("policy", "expected"), [("earliest", 3), ("latest", 0)])
async def test_reads_a_new_partition_from_its_first_record(
    kafka_cluster: ClusterHandle, policy: str, expected: int
) -> None:
    """Writes before a consumer has discovered the partition; "latest" skips these records."""
    topic, servers = kafka_cluster.topic(), kafka_cluster.bootstrap_servers
    added = TopicPartition(topic, 1)
    options: dict[str, Any] = {
        "topics": [topic],
        "auto_offset_reset_new_partitions": policy,
        "heartbeat_interval_ms": 200,
    }

    async def read(consumer: Consumer) -> int:
        """Count the records until the new partition has a position and a poll returns none."""
        count = 0
        while True:
            records = await consumer.poll(timeout=2)
            count += len(records)
            if not records and added in consumer.assignment():
                return count

    async with AsyncExitStack() as stack, asyncio.timeout(60):
        admin = await stack.enter_async_context(Admin(servers))
        producer = await stack.enter_async_context(Producer(servers))
        await admin.create_topics([NewTopic(topic, 1, 1)])
        await producer.send(topic, b"old")
        member = await stack.enter_async_context(
            Consumer(servers, group_id=kafka_cluster.group("member"), **options)
        )
        async with Consumer(servers, group_id=kafka_cluster.group("later"), **options) as first:
            for consumer in (member, first):
                await poll_until(consumer.assignment, consumer)
                assert await consumer.poll(timeout=1) == []  # Starts at the end.
            await first.commit({TopicPartition(topic, 0): 1})
        await admin.create_partitions({topic: 2})
        await wait_until_known(kafka_cluster, topic, 2)
        for _ in range(3):
            await producer.send(topic, b"new", partition=1)
        await services_of(member.client).metadata.refresh()
        assert await read(member) == expected
        async with Consumer(servers, group_id=kafka_cluster.group("later"), **options) as later:
            assert await read(later) == expected


async def test_cooperative_rebalance_revokes_only_partitions_that_move(
    make_group: MakeGroup,
) -> None:
    group = await make_group(**CLASSIC, partition_assignment_strategy=["cooperative-sticky"])
    listener = RecordingListener()
    await group.join("one", listener=listener)
    await group.wait_until_balanced()
    await group.join("two")
    assignments = await group.wait_until_balanced()
    assert [line for line in listener.lines if line[1]] == [
        ("assigned", list(range(PARTITIONS))),
        ("revoked", sorted(assignments["two"])),
    ]


async def test_eager_rebalance_revokes_and_assigns_all_partitions(make_group: MakeGroup) -> None:
    group = await make_group(**CLASSIC, partition_assignment_strategy=["range"])
    listener = RecordingListener()
    await group.join("one", listener=listener)
    await group.wait_until_balanced()
    await group.join("two")
    assigned = (await group.wait_until_balanced())["one"]
    await group.leave("one")
    everything = list(range(PARTITIONS))
    assert listener.lines[0] == ("assigned", everything)
    assert listener.lines[1] == ("revoked", everything)
    assert listener.lines[-2:] == [("assigned", sorted(assigned)), ("revoked", sorted(assigned))]


async def test_leader_whose_assignor_raises_leaves_before_its_session_expires(
    kafka_cluster: ClusterHandle,
) -> None:
    servers = kafka_cluster.bootstrap_servers
    options: dict[str, Any] = {
        "topics": [await create_topic(kafka_cluster, partitions=2)],
        "group_id": kafka_cluster.group(),
        "session_timeout_ms": 30_000,
        "heartbeat_interval_ms": 200,
    }
    failing = FailingAssignor()
    leader = Consumer(servers, partition_assignment_strategy=[failing], **options)
    other = Consumer(servers, partition_assignment_strategy=[FailingAssignor()], **options)
    async with leader:
        await poll_until(leader.assignment, leader)
        failing.broken = True
        async with other, asyncio.timeout(20):  # Less than the session.
            with pytest.raises(AssignorError, match="no shares"):
                await poll_until(lambda: False, leader)
            failing.broken = False
            with pytest.raises(AssignorError, match="on the group leader: the assignor failing"):
                await poll_until(other.assignment, other)
            await poll_until(other.assignment, other)
