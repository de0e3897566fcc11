"""Groups on every kind of cluster: joins, leaves, deaths, static members, listeners."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.admin import Admin, NewTopic
from kafka_async.consumer.consumer import Consumer, RebalanceListener
from kafka_async.producer.producer import Producer
from kafka_async.types import TopicPartition
from tests.failing_assignor import FailingAssignor

if TYPE_CHECKING:
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = pytest.mark.asyncio

PARTITIONS = 6
STRATEGIES = [
    pytest.param(["range"], id="range"),
    pytest.param(["cooperative-sticky"], id="cooperative-sticky"),
]


class Diary(RebalanceListener):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, set[int]]] = []

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.lines.append(("assigned", {p.partition for p in partitions}))

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.lines.append(("revoked", {p.partition for p in partitions}))

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.lines.append(("lost", {p.partition for p in partitions}))


class Group:
    """Consumers of one topic, each polled by a task of its own; `seen` is what they were given."""

    def __init__(self, cluster: ClusterHandle, topic: str, **options: Any) -> None:
        self.seen: list[tuple[int, int]] = []
        self.members: dict[str, Consumer] = {}
        self._cluster = cluster
        self._topic = topic
        self._options: dict[str, Any] = {
            "auto_offset_reset": "earliest",
            "session_timeout_ms": 6000,
            "heartbeat_interval_ms": 200,
            "group_id": cluster.group(),
            **options,
        }
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def join(self, name: str, **options: Any) -> Consumer:
        member = Consumer(
            self._cluster.bootstrap_servers,
            topics=[self._topic],
            client_id=name,
            **{**self._options, **options},
        )
        await member.start()
        self.members[name] = member
        self._tasks[name] = asyncio.create_task(self._poll(member))
        return member

    async def leave(self, name: str) -> None:
        await self._end(name)
        await self.members.pop(name).stop()

    async def kill(self, name: str) -> None:
        """It ends without a word."""
        await self._end(name)
        await self.members.pop(name)._tear_down()  # pyright: ignore[reportPrivateUsage]

    async def close(self) -> None:
        for name in list(self.members):
            await self.leave(name)

    def shares(self) -> dict[str, set[int]]:
        return {n: {p.partition for p in m.assignment()} for n, m in self.members.items()}

    async def at_rest(self) -> dict[str, set[int]]:
        """Once every partition has one owner and shares are even."""

        def even() -> bool:
            shares = list(self.shares().values())
            sizes = [len(share) for share in shares]
            whole = len(set[int]().union(*shares)) == sum(sizes) == PARTITIONS
            return whole and max(sizes) - min(sizes) <= 1

        await until(even, lambda: str(self.shares()))
        return self.shares()

    async def _poll(self, member: Consumer) -> None:
        while True:
            records = await member.poll(timeout=0.2)
            self.seen += [(record.partition, record.offset) for record in records]

    async def _end(self, name: str) -> None:
        task = self._tasks.pop(name)
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()


async def until(true: Callable[[], bool], describe: Callable[[], str]) -> None:
    try:
        async with asyncio.timeout(40):
            while not true():  # noqa: ASYNC110  # shares change in several consumers
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"it never came to be: {describe()}")


GroupMaker = Callable[..., Awaitable[Group]]


async def make(stack: AsyncExitStack, cluster: ClusterHandle, **options: Any) -> Group:
    topic = cluster.topic()
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    group = Group(cluster, topic, **options)
    stack.push_async_callback(group.close)
    return group


async def produce(cluster: ClusterHandle, each: int) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        for number in range(each):
            for partition in range(PARTITIONS):
                value = str(number).encode()
                await producer.enqueue(cluster.topic(), value, partition=partition)


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_three_join_one_leaves_one_dies(
    kafka_cluster: ClusterHandle, strategy: list[str]
) -> None:
    async with AsyncExitStack() as stack:
        group = await make(stack, kafka_cluster, partition_assignment_strategy=strategy)
        await group.join("one")
        assert await group.at_rest() == {"one": set(range(PARTITIONS))}
        await group.join("two")
        await group.at_rest()
        await group.join("three")
        assert [len(share) for share in (await group.at_rest()).values()] == [2, 2, 2]
        await group.leave("one")
        assert [len(share) for share in (await group.at_rest()).values()] == [3, 3]
        await group.kill("two")
        assert await group.at_rest() == {"three": set(range(PARTITIONS))}


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_nothing_is_lost_and_nothing_read_twice_while_members_come_and_go(
    kafka_cluster: ClusterHandle, strategy: list[str]
) -> None:
    async with AsyncExitStack() as stack:
        group = await make(stack, kafka_cluster, partition_assignment_strategy=strategy)
        await group.join("one", max_poll_records=7)
        await produce(kafka_cluster, 50)
        await group.join("two", max_poll_records=5)
        await group.at_rest()
        await produce(kafka_cluster, 50)
        await group.leave("one")
        await group.join("three")
        await group.at_rest()
        await produce(kafka_cluster, 50)
        await until(lambda: len(group.seen) >= 150 * PARTITIONS, lambda: str(len(group.seen)))
        assert sorted(group.seen) == [(p, o) for p in range(PARTITIONS) for o in range(150)]


async def test_cooperatively_those_who_stay_are_not_disturbed(
    kafka_cluster: ClusterHandle,
) -> None:
    async with AsyncExitStack() as stack:
        group = await make(
            stack, kafka_cluster, partition_assignment_strategy=["cooperative-sticky"]
        )
        diary = Diary()
        await group.join("one", listener=diary)
        await group.at_rest()
        await group.join("two")
        shares = await group.at_rest()
        assert [line for line in diary.lines if line[1]] == [
            ("assigned", set(range(PARTITIONS))),
            ("revoked", shares["two"]),
        ]


async def test_eagerly_the_listener_hears_of_each_turn(kafka_cluster: ClusterHandle) -> None:
    async with AsyncExitStack() as stack:
        group = await make(stack, kafka_cluster, partition_assignment_strategy=["range"])
        diary = Diary()
        await group.join("one", listener=diary)
        await group.at_rest()
        await group.join("two")
        share = (await group.at_rest())["one"]
        await group.leave("one")
        everything = set(range(PARTITIONS))
        assert diary.lines[0] == ("assigned", everything)
        assert diary.lines[1] == ("revoked", everything)
        assert diary.lines[-2:] == [("assigned", share), ("revoked", share)]


async def test_a_static_member_comes_back_to_its_share(kafka_cluster: ClusterHandle) -> None:
    async with AsyncExitStack() as stack:
        group = await make(stack, kafka_cluster, session_timeout_ms=30_000)
        one = await group.join("one", group_instance_id="one")
        await group.join("two", group_instance_id="two")
        before = await group.at_rest()
        generation = one.group_metadata().generation_id
        await group.leave("two")
        await group.join("two", group_instance_id="two")
        assert await group.at_rest() == before
        assert one.group_metadata().generation_id == generation


async def test_the_group_learns_of_new_partitions(kafka_cluster: ClusterHandle) -> None:
    topic = kafka_cluster.topic("growing")
    async with Admin(kafka_cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(topic, 2, 1)])
        async with Consumer(
            kafka_cluster.bootstrap_servers,
            topics=[topic],
            group_id=kafka_cluster.group(),
            metadata_max_age_ms=300,
        ) as consumer:
            while len(consumer.assignment()) < 2:
                await consumer.poll(timeout=0.1)
            await admin.create_partitions({topic: PARTITIONS})
            async with asyncio.timeout(40):
                while len(consumer.assignment()) < PARTITIONS:
                    await consumer.poll(timeout=0.1)


@pytest.mark.parametrize("ours_first", [True, False], ids=["ours-leads", "theirs-leads"])
async def test_members_of_another_client_share_with_ours(
    kafka_cluster: ClusterHandle, ours_first: bool
) -> None:
    aiokafka: Any = importlib.import_module("aiokafka")
    assignors: Any = importlib.import_module("aiokafka.coordinator.assignors.range")
    async with AsyncExitStack() as stack:
        group = await make(stack, kafka_cluster, partition_assignment_strategy=["range"])
        if ours_first:
            await group.join("ours")
            await group.at_rest()
        theirs = aiokafka.AIOKafkaConsumer(
            kafka_cluster.topic(),
            bootstrap_servers=kafka_cluster.bootstrap_servers,
            group_id=kafka_cluster.group(),
            heartbeat_interval_ms=200,
            partition_assignment_strategy=(assignors.RangePartitionAssignor,),
        )
        await theirs.start()
        stack.push_async_callback(theirs.stop)
        if not ours_first:
            await group.join("ours")

        def shared() -> bool:
            mine = group.shares()["ours"]
            other = {partition.partition for partition in theirs.assignment()}
            return len(mine) == len(other) == 3 and mine | other == set(range(PARTITIONS))

        await until(shared, lambda: f"{group.shares()}, theirs {theirs.assignment()}")


async def test_a_deleted_topic_stops_neither_commits_nor_the_group(
    kafka_cluster: ClusterHandle,
) -> None:
    """Auto-commit is too rare to have run before the deletion: the offsets of both are due."""
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
        async with asyncio.timeout(20):  # it was 30 s for each attempt to commit
            await leader.commit()
            while set(leader.assignment()) != {kept}:
                await leader.poll(timeout=0.1)
            async with Consumer(servers, **options) as second:
                while not second.group_metadata().member_id or (
                    set(leader.assignment() | second.assignment()) != {kept}
                ):
                    await leader.poll(timeout=0.1)
                    await second.poll(timeout=0.1)
        committed = await admin.list_group_offsets(options["group_id"])
        assert {p: row.offset for p, row in committed.items()} == {kept: 1}


@pytest.mark.parametrize(("policy", "expected"), [("earliest", 3), ("latest", 0)])
async def test_records_in_a_new_partition_are_read_from_the_first(
    kafka_cluster: ClusterHandle, policy: str, expected: int
) -> None:
    """Written before any consumer has seen the partition; "latest" skips them, as Java does."""
    topic, servers = kafka_cluster.topic(), kafka_cluster.bootstrap_servers
    added = TopicPartition(topic, 1)
    options: dict[str, Any] = {
        "topics": [topic],
        "auto_offset_reset_new_partitions": policy,
        "heartbeat_interval_ms": 200,
    }

    async def read(consumer: Consumer) -> int:
        """Count the records until the new partition has a position and nothing more comes."""
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
                while not consumer.assignment():
                    await consumer.poll(timeout=0.2)
                assert await consumer.poll(timeout=1) == []  # a first start skips what is there
            await first.commit({TopicPartition(topic, 0): 1})
        await admin.create_partitions({topic: 2})
        for _ in range(3):
            await producer.send(topic, b"new", partition=1)
        await member.client.refresh_metadata()
        assert await read(member) == expected
        async with Consumer(servers, group_id=kafka_cluster.group("later"), **options) as later:
            assert await read(later) == expected


async def test_a_leader_whose_assignor_raises_leaves_at_once(kafka_cluster: ClusterHandle) -> None:
    topic, servers = kafka_cluster.topic(), kafka_cluster.bootstrap_servers
    options: dict[str, Any] = {
        "topics": [topic],
        "group_id": kafka_cluster.group(),
        "session_timeout_ms": 30_000,
        "heartbeat_interval_ms": 200,
    }
    failing = FailingAssignor()
    async with Admin(servers) as admin:
        await admin.create_topics([NewTopic(topic, 2, 1)])
    leader = Consumer(servers, partition_assignment_strategy=[failing], **options)
    other = Consumer(servers, partition_assignment_strategy=[FailingAssignor()], **options)
    async with leader:
        while not leader.assignment():
            await leader.poll(timeout=0.2)
        failing.broken = True
        async with other, asyncio.timeout(20):  # less than a session

            async def both() -> None:
                while True:
                    await leader.poll(timeout=0.1)
                    await other.poll(timeout=0.1)

            with pytest.raises(ZeroDivisionError, match="no shares"):
                await both()
            while not other.assignment():
                await other.poll(timeout=0.1)
