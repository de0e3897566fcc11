"""Classic groups whose coordinator or leader fails during a rebalance, on real brokers too.

`tests/consumer/test_group_failures.py` has every step; these are those that need no faults.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import Client, Consumer, GroupMember
from kafka_async.cluster.client import services_of
from kafka_async.cluster.coordinator_lookup import CoordinatorKind
from tests.integration.helpers import create_topic

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kafka_async import TopicPartition
    from kafka_async.group.group_member import Member, MemberAssignment
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

SESSION = 6.0
LIMIT = 60.0
"""Seconds."""
OPTIONS: dict[str, Any] = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 200}


class HeldLeader:
    """Assigns the list of all states to each member, after a pause that the test ends."""

    def __init__(self) -> None:
        self.assigning = asyncio.Event()
        self.may_assign = asyncio.Event()

    async def __call__(self, members: Sequence[Member]) -> Mapping[str, bytes]:
        if len(members) > 1:
            self.assigning.set()
            await self.may_assign.wait()
        states = b",".join(sorted(member.metadata for member in members))
        return {member.member_id: states for member in members}


def member(client: Client, group: str, state: bytes, leader: HeldLeader) -> GroupMember:
    return GroupMember(
        client,
        group_id=group,
        protocol_type="jobs",
        protocols={"v0": leader},
        state=state,
        **OPTIONS,
    )


async def next_data(member: GroupMember, data: bytes) -> MemberAssignment:
    """Return the next assignment with these data."""
    async with asyncio.timeout(LIMIT):
        while (assignment := await anext(member)).data != data:
            pass
    return assignment


async def until_assigned(count: int, *consumers: Consumer) -> None:
    """Wait until each consumer has this many partitions."""
    async with asyncio.timeout(LIMIT):
        while any(len(each.assignment()) != count for each in consumers):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def groups_of_one_coordinator(client: Client, name: str) -> tuple[int, str, str]:
    """Return a broker, and two group ids that it coordinates."""
    find, broker = services_of(client).coordinators.find, -1
    for number in range(100):
        group = f"{name}-{number}"
        found = await find(CoordinatorKind.GROUP, group, timeout=LIMIT)
        if number == 0:
            broker = found
        elif found == broker:
            return broker, f"{name}-0", group
    raise AssertionError("one broker coordinates all groups but one")


async def test_groups_rebalance_at_the_next_coordinator(kafka_cluster: ClusterHandle) -> None:
    """One group waits for a JoinGroup, another for the SyncGroup of its leader."""
    topic = await create_topic(kafka_cluster, partitions=2)
    revoking, may_join, leader = asyncio.Event(), asyncio.Event(), HeldLeader()

    async def hold_rebalance(_: Collection[TopicPartition]) -> None:
        revoking.set()
        await may_join.wait()

    async def poll(consumer: Consumer) -> None:
        while True:
            await consumer.poll(timeout=0.1)

    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(kafka_cluster.bootstrap_servers))
        broker, joining, syncing = await groups_of_one_coordinator(client, kafka_cluster.group())
        first = await stack.enter_async_context(member(client, syncing, b"a", leader))
        await next_data(first, b"a")
        consumers = [
            Consumer(client, topics=[topic], group_id=joining, **OPTIONS) for _ in range(2)
        ]
        await stack.enter_async_context(consumers[0])
        polling = [asyncio.create_task(poll(consumers[0]))]
        await until_assigned(2, consumers[0])
        consumers[0].on_revoked(hold_rebalance)
        second = await stack.enter_async_context(member(client, syncing, b"b", leader))
        await stack.enter_async_context(consumers[1])
        polling.append(asyncio.create_task(poll(consumers[1])))
        async with asyncio.timeout(LIMIT):
            await revoking.wait()
            await leader.assigning.wait()
        control = kafka_cluster.control
        await asyncio.to_thread(control.kill_broker, broker)
        try:
            may_join.set()
            leader.may_assign.set()
            rows = [await next_data(each, b"a,b") for each in (first, second)]
            assert rows[0].generation == rows[1].generation
            await until_assigned(1, *consumers)
        finally:
            await asyncio.to_thread(control.start_broker, broker)
        for task in polling:
            task.cancel()
        await asyncio.wait(polling)
        assert all(task.cancelled() for task in polling)


async def test_others_continue_if_the_leader_dies_before_its_assignment_arrives(
    kafka_cluster: ClusterHandle,
) -> None:
    group, leader = kafka_cluster.group(), HeldLeader()
    async with Client(kafka_cluster.bootstrap_servers) as client:
        first = member(client, group, b"a", leader)
        await first.start()
        await next_data(first, b"a")
        async with member(client, group, b"b", leader) as second:
            async with asyncio.timeout(LIMIT):
                await leader.assigning.wait()
            await first._tear_down(None)  # pyright: ignore[reportPrivateUsage]  # no LeaveGroup
            died_at = time.monotonic()
            await next_data(second, b"b")
            assert time.monotonic() - died_at > SESSION / 2
