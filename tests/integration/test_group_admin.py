"""Admin calls for groups of every protocol."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

import pytest
import pytest_asyncio

from kafka_async import Consumer, Producer
from kafka_async.admin import Admin, ConfigResource, ResourceType
from kafka_async.client.metadata.request_router import CoordinatorOfGroup
from kafka_async.errors import GroupIdNotFoundError, GroupNotEmptyError
from kafka_async.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafka_async.types import TopicPartition
from tests.integration.helpers import create_topic, find_group

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from kafka_async.testing.fixtures import ClusterHandle

    Protocol: TypeAlias = Literal["classic", "consumer"]

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]


@pytest_asyncio.fixture
async def admin(kafka_cluster: ClusterHandle) -> AsyncIterator[Admin]:
    async with Admin(kafka_cluster.bootstrap_servers, default_api_timeout_ms=30_000) as started:
        yield started


@asynccontextmanager
async def member(
    kafka_cluster: ClusterHandle, protocol: Protocol, instance_id: str | None = None
) -> AsyncGenerator[tuple[str, TopicPartition]]:
    """Start the only member of a group, and return the group and the member's partition."""
    topic, group = await create_topic(kafka_cluster), kafka_cluster.group()
    async with Consumer(
        kafka_cluster.bootstrap_servers,
        topics=[topic],
        group_id=group,
        group_instance_id=instance_id,
        group_protocol=protocol,
    ) as consumer:
        async with asyncio.timeout(30):
            while not consumer.assignment():
                await consumer.poll(timeout=0.1)
        yield group, TopicPartition(topic, 0)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_committed_offsets_create_a_group(
    admin: Admin, kafka_cluster: ClusterHandle, protocol: Protocol
) -> None:
    """It is listed and described, its first member begins there, and it can be deleted."""
    partition = TopicPartition(await create_topic(kafka_cluster), 0)
    group = kafka_cluster.group()
    assert group not in await admin.list_groups()
    with pytest.raises(GroupIdNotFoundError):
        await admin.describe_groups([group])
    async with Producer(kafka_cluster.bootstrap_servers) as producer:
        await producer.send_many(partition.topic, [b"%d" % number for number in range(5)])
    await admin.alter_group_offsets(group, {partition: 3})
    listed = await find_group(partial(admin.list_groups, states=["Empty"]), group)
    assert (listed.state, listed.type.lower(), listed.protocol_type) == ("Empty", "classic", "")
    describe = partial(admin.describe_groups, [group])
    described = await find_group(describe, group)
    assert (described.state, described.members) == ("Empty", ())
    async with Consumer(
        kafka_cluster.bootstrap_servers,
        topics=[partition.topic],
        group_id=group,
        group_protocol=protocol,
    ) as consumer:
        found: list[int] = []
        state, members = "", 0
        async with asyncio.timeout(60):
            while len(found) < 2 or state != "Stable":
                found += [record.offset for record in await consumer.poll(timeout=1.0)]
                running = await find_group(describe, group)
                state, members = running.state, len(running.members)
        assert (found, members) == ([3, 4], 1)
        with pytest.raises(GroupNotEmptyError):
            await admin.delete_groups([group])
    await admin.delete_groups([group])
    assert group not in await admin.list_groups()
    with pytest.raises(GroupIdNotFoundError):
        await admin.delete_groups([group])


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_place_of_a_stopped_static_member_prevents_other_offsets(
    admin: Admin, kafka_cluster: ClusterHandle, protocol: Protocol
) -> None:
    """The error names the remedy, which works."""
    async with member(kafka_cluster, protocol, "one") as (group, partition):
        pass
    with pytest.raises(GroupNotEmptyError, match=r"A static member .* send LeaveGroupRequest"):
        await admin.alter_group_offsets(group, {partition: 3})
    response = await admin.client.request(
        LeaveGroupRequest(group_id=group, members=[MemberIdentity(group_instance_id="one")]),
        to=CoordinatorOfGroup(group),
    )
    assert [row.error_code for row in response.members] == [0]
    await admin.alter_group_offsets(group, {partition: 3})
    assert (await admin.list_group_offsets(group))[partition].offset == 3


async def test_consumer_group_has_the_session_timeout_of_its_configuration(
    admin: Admin, kafka_cluster: ClusterHandle
) -> None:
    async with member(kafka_cluster, "consumer") as (group, _), asyncio.timeout(60):
        before = (
            await find_group(partial(admin.list_groups, session_timeouts=True), group)
        ).session_timeout_ms
        assert before
        resource = ConfigResource(ResourceType.GROUP, group)
        await admin.alter_configs({resource: {"consumer.session.timeout.ms": str(before + 1000)}})
        describe = partial(admin.describe_groups, [group])
        while (  # noqa: ASYNC110  # brokers apply it one after another
            await find_group(partial(describe, session_timeouts=True), group)
        ).session_timeout_ms != before + 1000:
            await asyncio.sleep(0.05)
        assert (await find_group(describe, group)).session_timeout_ms is None


async def test_classic_group_has_no_session_timeout(
    admin: Admin, kafka_cluster: ClusterHandle
) -> None:
    """Each member has its own, which no response has."""
    async with member(kafka_cluster, "classic") as (group, _):
        for find in (partial(admin.describe_groups, [group]), admin.list_groups):
            row = await find_group(partial(find, session_timeouts=True), group)
            assert row.session_timeout_ms is None
