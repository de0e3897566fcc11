"""Tests of the admin client's requests for ACLs, SCRAM credentials and delegation tokens."""

from __future__ import annotations

import hashlib
import logging
import traceback
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

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
    DelegationToken,
    ScramCredential,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka_async.errors import (
    ClusterAuthorizationError,
    DelegationTokenDisabledError,
    DelegationTokenNotFoundError,
    InvalidRequestError,
    KafkaError,
    ResourceNotFoundError,
    SecurityDisabledError,
    UnacceptableCredentialError,
)
from kafka_async.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from kafka_async.protocol.messages.create_acls import AclCreationResult, CreateAclsResponse
from kafka_async.protocol.messages.create_delegation_token import CreateDelegationTokenResponse
from kafka_async.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from kafka_async.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from kafka_async.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
)
from kafka_async.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kafka_async.protocol.messages.expire_delegation_token import ExpireDelegationTokenResponse
from kafka_async.protocol.messages.renew_delegation_token import RenewDelegationTokenResponse
from kafka_async.secrets import Secret, SecretBytes
from tests.client.scripted import World, always

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = 29, 30, 31
CREATE_TOKEN, RENEW_TOKEN, EXPIRE_TOKEN, DESCRIBE_TOKEN = 38, 39, 40, 41
DESCRIBE_SCRAM, ALTER_SCRAM = 50, 51
READ = AclBinding(AclResourceType.TOPIC, "orders", "User:alice", AclOperation.READ)
DENY = AclBinding(
    AclResourceType.GROUP,
    "app-",
    "User:bob",
    AclOperation.ALL,
    AclPermission.DENY,
    "10.0.0.7",
    AclPatternType.PREFIXED,
)
PASSWORD = "correct horse battery"  # not a credential of anything
TOKEN = DelegationToken("id", SecretBytes(b"\x01\x02"), "User:a", "User:a", (), 1, 2, 3)


class Setup(NamedTuple):
    """Holds a scripted cluster and a started admin client."""

    world: World
    admin: Admin

    def requests(self, api_key: int) -> list[Any]:
        """Return the requests of an API that the broker received."""
        return self.world.brokers[1].requests(api_key)


@pytest_asyncio.fixture
async def setup() -> AsyncIterator[Setup]:
    world = World()
    async with world.client(default_api_timeout_ms=5_000) as client, Admin(client) as admin:
        yield Setup(world, admin)


# -- ACLs -----------------------------------------------------------------------------------------


async def test_create_acls_sends_each_binding_once(setup: Setup) -> None:
    ok = AclCreationResult(error_message=None)
    setup.world.handlers[CREATE_ACLS] = always(CreateAclsResponse(results=[ok, ok]))
    await setup.admin.create_acls([READ, DENY, READ])
    [request] = setup.requests(CREATE_ACLS)
    rows = [
        (
            row.resource_type,
            row.resource_name,
            row.resource_pattern_type,
            row.principal,
            row.host,
            row.operation,
            row.permission_type,
        )
        for row in request.creations
    ]
    assert rows == [
        (2, "orders", 3, "User:alice", "*", 3, 3),
        (3, "app-", 4, "User:bob", "10.0.0.7", 2, 2),
    ]


async def test_error_of_create_acls_names_its_binding(setup: Setup) -> None:
    failed = [AclCreationResult(error_message=None), AclCreationResult(error_code=42)]
    setup.world.handlers[CREATE_ACLS] = always(CreateAclsResponse(results=failed))
    message = "ACL DENY User:bob ALL on PREFIXED GROUP app- from host 10.0.0.7"
    with pytest.raises(InvalidRequestError, match=message):
        await setup.admin.create_acls([READ, DENY])


async def test_create_acls_rejects_a_response_with_too_few_results(setup: Setup) -> None:
    setup.world.handlers[CREATE_ACLS] = always(CreateAclsResponse())
    with pytest.raises(KafkaError, match="0 of 1 results"):
        await setup.admin.create_acls([READ])


async def test_describe_acls_returns_bindings_and_keeps_unknown_operations(setup: Setup) -> None:
    acls = [
        AclDescription(principal="User:bob", host="10.0.0.7", operation=2, permission_type=2),
        AclDescription(principal="User:bob", host="*", operation=99, permission_type=3),
    ]
    resource = DescribeAclsResource(
        resource_type=3, resource_name="app-", pattern_type=4, acls=acls
    )
    setup.world.handlers[DESCRIBE_ACLS] = always(DescribeAclsResponse(resources=[resource]))
    acl_filter = AclFilter(AclResourceType.GROUP, "app-1", pattern_type=AclPatternType.MATCH)
    first, second = await setup.admin.describe_acls(acl_filter)
    assert first == DENY
    assert second.operation is AclOperation.UNKNOWN
    await setup.admin.describe_acls()
    sent = [
        (
            row.resource_type_filter,
            row.resource_name_filter,
            row.pattern_type_filter,
            row.principal_filter,
            row.host_filter,
            row.operation,
            row.permission_type,
        )
        for row in setup.requests(DESCRIBE_ACLS)
    ]
    assert sent == [(3, "app-1", 2, None, None, 1, 1), (1, None, 1, None, None, 1, 1)]


@pytest.mark.parametrize(
    ("code", "error"), [(31, ClusterAuthorizationError), (54, SecurityDisabledError)]
)
async def test_describe_acls_raises_the_error_without_a_retry(
    setup: Setup, code: int, error: type[KafkaError]
) -> None:
    setup.world.handlers[DESCRIBE_ACLS] = always(DescribeAclsResponse(error_code=code))
    with pytest.raises(error):
        await setup.admin.describe_acls()
    assert len(setup.requests(DESCRIBE_ACLS)) == 1


async def test_delete_acls_returns_the_deleted_bindings_by_filter(setup: Setup) -> None:
    matching = DeleteAclsMatchingAcl(
        resource_type=2,
        resource_name="orders",
        principal="User:alice",
        host="*",
        operation=3,
        permission_type=3,
    )
    results = [DeleteAclsFilterResult(matching_acls=[matching]), DeleteAclsFilterResult()]
    setup.world.handlers[DELETE_ACLS] = always(DeleteAclsResponse(filter_results=results))
    first, second = AclFilter(principal="User:alice"), AclFilter(host="10.0.0.7")
    assert await setup.admin.delete_acls([first, second]) == {first: [READ], second: []}


@pytest.mark.parametrize("of_the_filter", [True, False])
async def test_delete_acls_raises_errors_of_filters_and_of_bindings(
    setup: Setup, of_the_filter: bool
) -> None:
    result = DeleteAclsFilterResult(matching_acls=[DeleteAclsMatchingAcl(error_code=31)])
    if of_the_filter:
        result = DeleteAclsFilterResult(error_code=31)
    setup.world.handlers[DELETE_ACLS] = always(DeleteAclsResponse(filter_results=[result]))
    with pytest.raises(ClusterAuthorizationError):
        await setup.admin.delete_acls([AclFilter()])


# -- SCRAM credentials ----------------------------------------------------------------------------


async def test_describe_user_scram_credentials_returns_them_by_user(setup: Setup) -> None:
    infos = [CredentialInfo(mechanism=1, iterations=8192), CredentialInfo(mechanism=9)]
    result = DescribeUserScramCredentialsResult(user="alice", credential_infos=infos)
    setup.world.handlers[DESCRIBE_SCRAM] = always(
        DescribeUserScramCredentialsResponse(results=[result])
    )
    assert await setup.admin.describe_user_scram_credentials() == {
        "alice": (
            ScramCredential(ScramMechanism.SCRAM_SHA_256, 8192),
            ScramCredential(ScramMechanism.UNKNOWN, 0),
        )
    }
    await setup.admin.describe_user_scram_credentials(["alice"])
    everyone, one = setup.requests(DESCRIBE_SCRAM)
    assert len(everyone.users) == 0  # null gets no response from a broker that denies it
    assert [user.name for user in one.users] == ["alice"]


async def test_error_of_describe_user_scram_credentials_names_its_user(setup: Setup) -> None:
    result = DescribeUserScramCredentialsResult(user="carol", error_code=91)
    setup.world.handlers[DESCRIBE_SCRAM] = always(
        DescribeUserScramCredentialsResponse(results=[result])
    )
    with pytest.raises(ResourceNotFoundError, match="user carol"):
        await setup.admin.describe_user_scram_credentials(["carol"])
    setup.world.handlers[DESCRIBE_SCRAM] = always(
        DescribeUserScramCredentialsResponse(error_code=31)
    )
    with pytest.raises(ClusterAuthorizationError):
        await setup.admin.describe_user_scram_credentials()


def altered(*results: tuple[str, int]) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=code) for user, code in results
        ]
    )


@pytest.mark.parametrize(
    ("mechanism", "hash_name", "code"),
    [("SCRAM-SHA-256", "sha256", 1), ("SCRAM-SHA-512", "sha512", 2)],
)
async def test_alter_user_scram_credentials_sends_the_salted_password(
    setup: Setup, mechanism: Any, hash_name: str, code: int
) -> None:
    setup.world.handlers[ALTER_SCRAM] = always(altered(("alice", 0), ("bob", 0)))
    salt = b"salt of alice"
    await setup.admin.alter_user_scram_credentials(
        [
            UserScramCredentialUpsertion("alice", mechanism, PASSWORD, 4096, salt),
            UserScramCredentialDeletion("bob", mechanism),
        ]
    )
    [request] = setup.requests(ALTER_SCRAM)
    [upsertion], [deletion] = request.upsertions, request.deletions
    assert (deletion.name, deletion.mechanism) == ("bob", code)
    assert (upsertion.name, upsertion.mechanism, upsertion.iterations) == ("alice", code, 4096)
    assert upsertion.salt == salt
    expected = hashlib.pbkdf2_hmac(hash_name, PASSWORD.encode(), salt, 4096)
    assert upsertion.salted_password == expected


async def test_upsertions_have_random_salts_and_8192_iterations(setup: Setup) -> None:
    setup.world.handlers[ALTER_SCRAM] = always(altered(("alice", 0)))
    for _ in range(2):
        await setup.admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("alice", "SCRAM-SHA-256", PASSWORD)]
        )
    first, second = (request.upsertions[0] for request in setup.requests(ALTER_SCRAM))
    assert first.iterations == 8192
    assert len(first.salt) == len(second.salt) == 24
    assert first.salt != second.salt


async def test_password_is_in_no_repr_log_or_traceback(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    setup.world.handlers[ALTER_SCRAM] = always(altered(("alice", 93)))
    upsertion = UserScramCredentialUpsertion("alice", "SCRAM-SHA-256", PASSWORD, 4096, b"pepper")
    with pytest.raises(UnacceptableCredentialError, match="user alice") as caught:
        await setup.admin.alter_user_scram_credentials([upsertion])
    shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    [request] = setup.requests(ALTER_SCRAM)
    salted = repr(request.upsertions[0].salted_password)
    for text in ("".join(shown.format()), caplog.text, repr(upsertion), repr(request)):
        assert PASSWORD not in text
        assert "pepper" not in text
        assert salted not in text


async def test_upsertion_rejects_a_password_without_showing_it() -> None:
    wrong: Any = b"hunter2"
    with pytest.raises(TypeError, match=r"password must be str or Secret, not bytes$"):
        UserScramCredentialUpsertion("alice", "SCRAM-SHA-256", wrong)


async def test_rejects_a_password_that_utf_8_cannot_encode(setup: Setup) -> None:
    upsertion = UserScramCredentialUpsertion("alice", "SCRAM-SHA-256", Secret("hunter2\ud800"))
    with pytest.raises(ValueError, match="password of user alice has characters") as caught:
        await setup.admin.alter_user_scram_credentials([upsertion])
    assert not isinstance(caught.value, UnicodeError)
    shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    assert "hunter2" not in "".join(shown.format())


# -- delegation tokens ----------------------------------------------------------------------------


async def test_creates_a_delegation_token_for_each_owner(setup: Setup) -> None:
    setup.world.handlers[CREATE_TOKEN] = always(
        CreateDelegationTokenResponse(
            principal_type="User",
            principal_name="alice",
            token_requester_principal_type="User",
            token_requester_principal_name="admin",
            issue_timestamp_ms=1,
            expiry_timestamp_ms=2,
            max_timestamp_ms=3,
            token_id="id",
            hmac=b"\x01\x02",
        )
    )
    create = setup.admin.create_delegation_tokens
    [token] = await create(["User:alice"], renewers=["User:bob"], max_lifetime_ms=1000)
    assert token == TOKEN._replace(
        owner="User:alice", requester="User:admin", renewers=("User:bob",)
    )
    assert token.password.reveal() == "AQI="
    assert "AQI=" not in repr(token)
    assert repr(b"\x01\x02") not in repr(token)
    await create()
    owned, own = setup.requests(CREATE_TOKEN)
    assert (owned.owner_principal_type, owned.owner_principal_name) == ("User", "alice")
    assert [(one.principal_type, one.principal_name) for one in owned.renewers] == [("User", "bob")]
    assert (owned.max_lifetime_ms, own.max_lifetime_ms) == (1000, -1)
    assert own.owner_principal_type is own.owner_principal_name is None


async def test_renews_and_expires_delegation_tokens(setup: Setup) -> None:
    setup.world.handlers[RENEW_TOKEN] = always(RenewDelegationTokenResponse(expiry_timestamp_ms=5))
    setup.world.handlers[EXPIRE_TOKEN] = always(
        ExpireDelegationTokenResponse(expiry_timestamp_ms=6)
    )
    assert await setup.admin.renew_delegation_tokens([TOKEN, SecretBytes(b"x")]) == [5, 5]
    assert await setup.admin.expire_delegation_tokens([TOKEN], expiry_period_ms=7) == [6]
    renewed = [(one.hmac, one.renew_period_ms) for one in setup.requests(RENEW_TOKEN)]
    assert renewed == [(b"\x01\x02", -1), (b"x", -1)]
    [expired] = setup.requests(EXPIRE_TOKEN)
    assert (expired.hmac, expired.expiry_time_period_ms) == (b"\x01\x02", 7)


async def test_error_of_a_delegation_token_names_its_id(setup: Setup) -> None:
    setup.world.handlers[RENEW_TOKEN] = always(RenewDelegationTokenResponse(error_code=62))
    with pytest.raises(DelegationTokenNotFoundError, match="delegation token id"):
        await setup.admin.renew_delegation_tokens([TOKEN])


async def test_describes_delegation_tokens(setup: Setup) -> None:
    described = DescribedDelegationToken(
        principal_type="User",
        principal_name="a",
        issue_timestamp=1,
        expiry_timestamp=2,
        max_timestamp=3,
        token_id="id",
        hmac=b"\x01\x02",
        renewers=[DescribedDelegationTokenRenewer(principal_type="User", principal_name="r")],
    )
    setup.world.handlers[DESCRIBE_TOKEN] = always(
        DescribeDelegationTokenResponse(tokens=[described])
    )
    assert await setup.admin.describe_delegation_tokens() == [TOKEN._replace(renewers=("User:r",))]
    await setup.admin.describe_delegation_tokens(["User:a"])
    assert await setup.admin.describe_delegation_tokens([]) == []
    everyone, one = setup.requests(DESCRIBE_TOKEN)
    assert everyone.owners is None
    assert [(row.principal_type, row.principal_name) for row in one.owners] == [("User", "a")]
    setup.world.handlers[DESCRIBE_TOKEN] = always(DescribeDelegationTokenResponse(error_code=61))
    with pytest.raises(DelegationTokenDisabledError):
        await setup.admin.describe_delegation_tokens()
