"""CreateAcls, DescribeAcls and DeleteAcls of the embedded cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from kafka_async.admin import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    Admin,
)
from kafka_async.embedded import AclAuthorizer, ErrorCode
from kafka_async.embedded.requests.context import ANONYMOUS
from kafka_async.errors import (
    ClusterAuthorizationError,
    InvalidRequestError,
    SecurityDisabledError,
)
from kafka_async.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kafka_async.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kafka_async.protocol.messages.describe_acls import DescribeAclsRequest
from tests.embedded_client import InMemory
from tests.raw_connection import RawConnection

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

READ = AclBinding(AclResourceType.TOPIC, "orders", "User:alice", AclOperation.READ)
PREFIXED = AclBinding(
    AclResourceType.TOPIC,
    "ord",
    "User:bob",
    AclOperation.ALL,
    AclPermission.DENY,
    "10.0.0.7",
    AclPatternType.PREFIXED,
)
GROUP = AclBinding(AclResourceType.GROUP, "orders", "User:alice", AclOperation.READ)
FIELDS: dict[str, Any] = {
    "resource_type": 2,
    "resource_name": "orders",
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


@pytest_asyncio.fixture
async def memory() -> AsyncIterator[InMemory]:
    async with InMemory(authorizer=AclAuthorizer(super_users=[ANONYMOUS])) as memory:
        yield memory


async def connect(memory: InMemory) -> RawConnection:
    return await RawConnection.open(memory.cluster, memory.network)


async def test_created_acls_are_described_once_and_deleted_by_filters(memory: InMemory) -> None:
    async with memory.admin() as admin:
        await admin.create_acls([READ, PREFIXED, GROUP])
        await admin.create_acls([READ])
        assert set(await admin.describe_acls()) == {READ, PREFIXED, GROUP}
        assert len(await admin.describe_acls()) == 3
        match = AclFilter(AclResourceType.TOPIC, "orders", pattern_type=AclPatternType.MATCH)
        assert set(await admin.describe_acls(match)) == {READ, PREFIXED}
        by_alice, by_name = AclFilter(principal="User:alice"), AclFilter(resource_name="orders")
        deleted = await admin.delete_acls([by_alice, by_name])
        assert set(deleted[by_alice]) == set(deleted[by_name]) == {READ, GROUP}
        assert await admin.describe_acls() == [PREFIXED]


@pytest.mark.parametrize(
    "changed",
    [
        {"resource_type": 1},
        {"resource_type": 99},
        {"resource_name": ""},
        {"resource_type": 4},
        {"resource_pattern_type": 1},
        {"resource_pattern_type": 2},
        {"operation": 1},
        {"permission_type": 1},
    ],
)
async def test_create_acls_rejects_an_invalid_acl_and_adds_the_others(
    memory: InMemory, changed: dict[str, Any]
) -> None:
    connection = await connect(memory)
    creations = [AclCreation(**(FIELDS | changed)), AclCreation(**FIELDS)]
    response = await connection.call(CreateAclsRequest(creations=creations))
    codes = [row.error_code for row in response.results]
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    async with memory.admin() as admin:
        assert await admin.describe_acls() == [READ]
    await connection.close()


async def test_filters_with_unknown_codes_select_nothing(memory: InMemory) -> None:
    connection = await connect(memory)
    async with memory.admin() as admin:
        await admin.create_acls([READ])
        fields: dict[str, Any] = {
            "resource_type_filter": 99,
            "resource_name_filter": None,
            "principal_filter": None,
            "host_filter": None,
            "pattern_type_filter": 1,
            "operation": 1,
            "permission_type": 1,
        }
        described = await connection.call(DescribeAclsRequest(**fields))
        assert (described.error_code, len(described.resources)) == (ErrorCode.NONE, 0)
        deleted = await connection.call(DeleteAclsRequest(filters=[DeleteAclsFilter(**fields)]))
        assert [row.error_code for row in deleted.filter_results] == [ErrorCode.INVALID_REQUEST]
        assert await admin.describe_acls() == [READ]
    await connection.close()


@pytest.mark.parametrize(
    "request_",
    [
        CreateAclsRequest(creations=[AclCreation(resource_type=2, permission_type=3)]),
        DescribeAclsRequest(operation=0, resource_type_filter=1, permission_type=1),
        DeleteAclsRequest(filters=[DeleteAclsFilter(resource_type_filter=1, operation=1)]),
    ],
    ids=["CreateAcls", "DescribeAcls", "DeleteAcls"],
)
async def test_request_with_an_unknown_element_resets_the_connection(
    memory: InMemory, request_: Any
) -> None:
    connection = await connect(memory)
    with pytest.raises(ConnectionResetError):
        await connection.call(request_)
    await connection.close()


async def calls_raise(admin: Admin, error: type[Exception]) -> None:
    with pytest.raises(error):
        await admin.describe_acls()
    with pytest.raises(error):
        await admin.create_acls([READ, GROUP])
    with pytest.raises(error):
        await admin.delete_acls([AclFilter()])


async def test_acls_are_disabled_without_an_authorizer() -> None:
    async with InMemory() as memory, memory.admin() as admin:
        await calls_raise(admin, SecurityDisabledError)


async def test_acls_need_permissions_on_the_cluster() -> None:
    async with InMemory(authorizer=True) as memory, memory.admin() as admin:
        await calls_raise(admin, ClusterAuthorizationError)


async def test_create_acls_error_names_the_acl(memory: InMemory) -> None:
    binding = READ._replace(resource_type=AclResourceType.CLUSTER)
    async with memory.admin() as admin:
        with pytest.raises(InvalidRequestError, match=r"CLUSTER orders.*only valid name"):
            await admin.create_acls([binding])
