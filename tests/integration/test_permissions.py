"""Permissions of users on Apache Kafka and on the embedded cluster: the same error codes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from kafka_async.admin import AclFilter, Admin, NewTopic
from kafka_async.embedded import ErrorCode
from kafka_async.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kafka_async.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.integration.permission_cases import CASES, Case, Names, offset_commit
from tests.integration.raw_cluster import RawCluster, when_ready
from tests.integration.tokens import unsecured_token
from tests.raw_connection import RawConnection

if TYPE_CHECKING:
    from tests.integration.secure_cluster import SecureCluster

pytestmark = [pytest.mark.asyncio, pytest.mark.any_broker]

TIMEOUT = 20.0
"""Seconds for an ACL to reach broker and controller."""


@pytest_asyncio.fixture
async def admin(secure_cluster: SecureCluster) -> AsyncIterator[Admin]:
    """Return an admin client of a super user."""
    async with Admin(secure_cluster.servers("PLAINTEXT")) as started:
        yield started


@pytest_asyncio.fixture
async def names(secure_cluster: SecureCluster, admin: Admin) -> Names:
    """Create the topics of a test, and commit offsets of its group."""
    handle = secure_cluster.handle
    topic, other = handle.topic(), handle.topic("other")
    created = await admin.create_topics([NewTopic(name, 1, 1) for name in (topic, other)])
    names = Names(
        user=topic,
        topic=topic,
        other=other,
        missing=handle.topic("missing"),
        group=handle.group(),
        txn=handle.transactional_id(),
        topic_id=created[topic].topic_id,
        other_id=created[other].topic_id,
    )
    await _commit(secure_cluster, names)
    return names


async def _commit(cluster: SecureCluster, names: Names) -> None:
    """Commit offsets of both topics, when the coordinator is ready."""
    raw = await RawCluster.open(cluster.servers("PLAINTEXT"))
    try:
        connection = await raw.coordinator(0, names.group)

        async def commit() -> Any:
            response = await connection.call(offset_commit(names), 9)
            return response.topics[0].partitions[0]

        assert (await when_ready(commit)).error_code == 0
    finally:
        await raw.close()


@asynccontextmanager
async def connected_as(cluster: SecureCluster, user: str) -> AsyncGenerator[RawConnection]:
    """Open an authenticated connection of a user."""
    host, _, port = cluster.servers("SASL_PLAINTEXT").rpartition(":")
    connection = await RawConnection.dial(host, int(port))
    try:
        handshake = await connection.call(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        assert handshake.error_code == 0
        token = f"n,,\x01auth=Bearer {unsecured_token(user).value.reveal()}\x01\x01"
        response = await connection.call(SaslAuthenticateRequest(auth_bytes=token.encode()), 2)
        assert (response.error_code, response.auth_bytes) == (0, b"")
        yield connection
    finally:
        await connection.close()


UNSUPPORTED: Mapping[str, frozenset[str]] = {
    "apache 3.9.1": frozenset(
        {
            "alter_configurations_of_a_group",
            "alter_share_group_offsets",
            "consumer_group_describe",
            "consumer_group_heartbeat",
            "delete_share_group_offsets",
            "describe_configurations_of_a_group",
            "describe_share_group_offsets",
            "produce_by_id",
            "share_acknowledge",
            "share_fetch",
            "share_group_describe",
            "share_group_heartbeat",
        }
    )
}
"""Cases whose request a broker does not support, by cluster; other clusters support all."""


async def check_refusal(connection: RawConnection, names: Names, case: Case) -> None:
    """Check that a broker refuses a request that it does not support."""
    if case.needs is None:
        with pytest.raises(ConnectionResetError):
            await connection.call(case.request(names), case.version)
        return
    response = await connection.call(case.request(names), case.version)
    assert case.result(names, response) == [ErrorCode.INVALID_REQUEST]


async def test_brokers_support_the_requests_of_all_cases(
    secure_cluster: SecureCluster, names: Names
) -> None:
    raw = await RawCluster.open(secure_cluster.servers("PLAINTEXT"))
    versions = await raw.any.api_versions()
    await raw.close()
    unsupported = {case.name for case in CASES if not case.is_supported(versions, names)}
    assert unsupported == UNSUPPORTED.get(secure_cluster.handle.cluster.name, frozenset())


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
async def test_error_codes_depend_on_acls(
    secure_cluster: SecureCluster, admin: Admin, names: Names, case: Case
) -> None:
    async with connected_as(secure_cluster, names.user) as connection:
        if not case.is_supported(await connection.api_versions(), names):
            await check_refusal(connection, names, case)
            return
        for number, phase in enumerate(case.phases):
            await admin.create_acls([grant(names) for grant in phase.grants])
            expected = list(phase.expected(names) if callable(phase.expected) else phase.expected)
            found = None
            with suppress(TimeoutError):
                async with asyncio.timeout(TIMEOUT):
                    while found != expected:
                        response = await connection.call(case.request(names), case.version)
                        found = case.result(names, response)
                        if number == 0:
                            break  # Without ACLs, the first response counts.
                        await asyncio.sleep(0.05)
            assert (number, found) == (number, expected)
    mine = [AclFilter(resource_name=name) for name in (names.topic, names.missing)]
    await admin.delete_acls([AclFilter(principal=f"User:{names.user}"), *mine])
