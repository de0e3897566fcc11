"""The permissions of the embedded cluster, by the cases that Apache Kafka's are compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.embedded import AclAuthorizer
from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.requests.context import ANONYMOUS
from kafka_async.embedded.state.acls import Acl, Operation, PatternType, Permission, ResourceType
from kafka_async.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafka_async.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafka_async.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from kafka_async.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.embedded_client import InMemory
from tests.integration.permission_cases import CASES, Case, Names, offset_commit
from tests.raw_connection import RawConnection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafka_async.admin import AclBinding
    from kafka_async.protocol.message import Request

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


def acl_of(binding: AclBinding) -> Acl:
    return Acl(
        ResourceType(binding.resource_type),
        binding.resource_name,
        PatternType(binding.pattern_type),
        binding.principal,
        binding.host,
        Operation(binding.operation),
        Permission(binding.permission),
    )


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
async def test_error_codes_depend_on_acls(case: Case) -> None:
    authorizer = AclAuthorizer()
    async with InMemory(authorizer=authorizer) as memory:
        topic, other = "topic-of-user", "other-topic"
        created = [await memory.cluster.create_topic(name, 1) for name in (topic, other)]
        names = Names(
            ANONYMOUS.removeprefix("User:"),
            *(topic, other, "missing-topic", "group", "transactions"),
            *(one.id for one in created),
        )
        connection = await RawConnection.open(memory.cluster, memory.network)
        everything = [
            Acl(kind, "*", PatternType.LITERAL, ANONYMOUS, "*", Operation.ALL, Permission.ALLOW)
            for kind in (ResourceType.TOPIC, ResourceType.GROUP)
        ]
        for acl in everything:
            authorizer.add(acl)
        await connection.call(offset_commit(names), 9)
        authorizer.remove(everything)
        for number, phase in enumerate(case.phases):
            for grant in phase.grants:
                authorizer.add(acl_of(grant(names)))
            expected = phase.expected(names) if callable(phase.expected) else phase.expected
            response = await connection.call(case.request(names), case.version)
            if case.name in CREATING and number == len(case.phases) - 1:
                response = await connection.call(case.request(names), case.version)
            assert (number, case.result(names, response)) == (number, list(expected))
        await connection.close()


CREATING = {"automatic_creation_needs_create", "automatic_creation_with_create_on_the_cluster"}
"""Cases whose last request creates a topic, which the next response has."""


async def join_consumer_group(connection: RawConnection) -> None:
    joins = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    assert (await connection.call(joins, 1)).error_code == ErrorCode.NONE


async def join_share_group(connection: RawConnection) -> None:
    joins = ShareGroupHeartbeatRequest(group_id="g", member_id="m", subscribed_topic_names=["t"])
    assert (await connection.call(joins, 1)).error_code == ErrorCode.NONE
    stays = ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=2)
    assert (await connection.call(stays, 1)).assignment is not None


@pytest.mark.parametrize(
    ("join", "describes"),
    [
        pytest.param(
            join_consumer_group, ConsumerGroupDescribeRequest(group_ids=["g"]), id="consumer"
        ),
        pytest.param(join_share_group, ShareGroupDescribeRequest(group_ids=["g"]), id="share"),
    ],
)
async def test_hides_groups_with_a_denied_topic(
    join: Callable[[RawConnection], Awaitable[None]],
    describes: Request[Any],
) -> None:
    authorizer = AclAuthorizer()
    async with InMemory(authorizer=authorizer) as memory:
        await memory.cluster.create_topic("t", 1)
        connection = await RawConnection.open(memory.cluster, memory.network)
        everything = [
            Acl(kind, "*", PatternType.LITERAL, ANONYMOUS, "*", Operation.ALL, Permission.ALLOW)
            for kind in (ResourceType.TOPIC, ResourceType.GROUP)
        ]
        for acl in everything:
            authorizer.add(acl)
        await join(connection)
        for expected in (ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
            [found] = (await connection.call(describes, 1)).groups
            assert (found.error_code, len(found.members)) == (expected, not expected)
            authorizer.remove(everything[:1])
        await connection.close()


async def test_cases_have_unique_names() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 40
