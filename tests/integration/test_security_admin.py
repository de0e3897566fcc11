"""The admin client's calls for ACLs, SCRAM users and delegation tokens on every cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from kafka_async import Client
from kafka_async.admin import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    Admin,
    ScramCredential,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka_async.errors import (
    ClusterAuthorizationError,
    DelegationTokenAuthorizationError,
    DelegationTokenNotFoundError,
    DuplicateResourceError,
    InvalidRequestError,
    KafkaError,
    ResourceNotFoundError,
    SaslAuthenticationError,
    UnacceptableCredentialError,
    UnsupportedByAuthenticationError,
)
from tests.integration.secure_cluster import ADMIN, ALICE

if TYPE_CHECKING:
    from kafka_async.admin.security_values import ScramAlteration
    from tests.integration.secure_cluster import SecureCluster

pytestmark = [pytest.mark.asyncio, pytest.mark.any_broker]

TIMEOUT = 20.0
"""Seconds for a change to reach all nodes."""
SCRAM_256, SCRAM_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


@pytest_asyncio.fixture
async def admin(secure_cluster: SecureCluster) -> AsyncIterator[Admin]:
    """Return an admin client of a super user."""
    async with Admin(**secure_cluster.options("SASL_PLAINTEXT", "SCRAM-SHA-512")) as started:
        yield started


async def eventually(condition: Callable[[], Any]) -> None:
    """Call until the result is true; fail after `TIMEOUT`."""
    async with asyncio.timeout(TIMEOUT):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


# -- ACLs -----------------------------------------------------------------------------------------


async def test_acls_are_created_found_and_deleted(
    secure_cluster: SecureCluster, admin: Admin
) -> None:
    topic = secure_cluster.handle.topic()
    literal = AclBinding(AclResourceType.TOPIC, topic, "User:carol", AclOperation.READ)
    prefixed = AclBinding(
        AclResourceType.TOPIC,
        topic[:-1],
        "User:dave",
        AclOperation.ALL,
        AclPermission.DENY,
        "10.0.0.7",
        AclPatternType.PREFIXED,
    )
    group = AclBinding(AclResourceType.GROUP, topic, "User:carol", AclOperation.READ)
    mine = {literal, prefixed, group}
    await admin.create_acls([literal, prefixed, group, literal])
    await admin.create_acls([literal])

    async def found(**fields: Any) -> set[AclBinding]:
        return mine & set(await admin.describe_acls(AclFilter(**fields)))

    async def all_are_found() -> bool:
        return await found() == mine

    await eventually(all_are_found)
    kind = AclResourceType.TOPIC
    match = AclPatternType.MATCH
    assert await found(resource_type=kind, resource_name=topic, pattern_type=match) == {
        literal,
        prefixed,
    }
    assert await found(resource_name=topic) == {literal, group}
    assert await found(principal="User:dave") == {prefixed}
    assert await found(operation=AclOperation.READ) == {literal, group}
    assert await found(permission=AclPermission.DENY) == {prefixed}
    assert await found(host="10.0.0.7") == {prefixed}
    filters = [AclFilter(resource_name=topic), AclFilter(resource_name=topic[:-1])]
    deleted = await admin.delete_acls([*filters, AclFilter(resource_name=f"{topic}-missing")])
    assert [set(rows) for rows in deleted.values()] == [{literal, group}, {prefixed}, set()]

    async def none_is_found() -> bool:
        return await found() == set()

    await eventually(none_is_found)


async def test_an_invalid_acl_is_rejected_and_the_others_are_created(
    secure_cluster: SecureCluster, admin: Admin
) -> None:
    topic = secure_cluster.handle.topic()
    valid = AclBinding(AclResourceType.TOPIC, topic, "User:carol", AclOperation.READ)
    wrong = valid._replace(resource_type=AclResourceType.CLUSTER)
    with pytest.raises(InvalidRequestError, match=f"CLUSTER {topic}"):
        await admin.create_acls([wrong, valid])
    assert await admin.delete_acls([AclFilter(resource_name=topic)]) == {
        AclFilter(resource_name=topic): [valid]
    }


async def test_calls_need_permissions_on_the_cluster(secure_cluster: SecureCluster) -> None:
    options = secure_cluster.options("SASL_PLAINTEXT", "SCRAM-SHA-256", user=ALICE)
    acl = AclBinding(AclResourceType.TOPIC, "t", "User:alice", AclOperation.READ)
    upsertion = UserScramCredentialUpsertion(ALICE, SCRAM_256, "new password")
    async with Admin(**options) as admin:
        calls: list[tuple[str, Callable[[], Awaitable[object]]]] = [
            ("ALTER", lambda: admin.create_acls([acl])),
            ("DESCRIBE", admin.describe_acls),
            ("ALTER", lambda: admin.delete_acls([AclFilter()])),
            ("DESCRIBE", admin.describe_user_scram_credentials),
            ("DESCRIBE", lambda: admin.describe_user_scram_credentials([ALICE])),
            ("ALTER", lambda: admin.alter_user_scram_credentials([upsertion])),
        ]
        for operation, call in calls:
            with pytest.raises(ClusterAuthorizationError, match=f"lacks {operation} on the clus"):
                await asyncio.wait_for(call(), 2)


# -- SCRAM credentials ----------------------------------------------------------------------------


async def connects(secure_cluster: SecureCluster, mechanism: str, **options: Any) -> bool:
    """Return whether a client with these credentials can connect."""
    client = Client(**secure_cluster.options("SASL_PLAINTEXT", mechanism, **options))
    try:
        await client.start()
    except SaslAuthenticationError:
        return False
    await client.stop()
    return True


async def test_a_scram_user_is_created_changed_and_deleted(
    secure_cluster: SecureCluster, admin: Admin
) -> None:
    user = secure_cluster.handle.topic("user")

    async def set_password(mechanism: ScramMechanism, password: str, iterations: int) -> None:
        change = UserScramCredentialUpsertion(user, mechanism, password, iterations)
        await admin.alter_user_scram_credentials([change])

    async def may_connect(mechanism: str, password: str) -> bool:
        credentials = {"sasl_username": user, "sasl_password": password}
        return await connects(secure_cluster, mechanism, **credentials)

    async def are(*credentials: ScramCredential) -> None:
        async def applied() -> bool:
            try:
                found = await admin.describe_user_scram_credentials([user])
            except ResourceNotFoundError:
                return credentials == ()
            return set(found[user]) == set(credentials)

        await eventually(applied)

    await set_password(SCRAM_256, "first \u00fc", 4096)
    await are(ScramCredential(SCRAM_256, 4096))
    assert await may_connect("SCRAM-SHA-256", "first \u00fc")
    assert not await may_connect("SCRAM-SHA-512", "first \u00fc")
    await set_password(SCRAM_256, "second", 8192)
    await set_password(SCRAM_512, "third", 4096)
    await are(ScramCredential(SCRAM_256, 8192), ScramCredential(SCRAM_512, 4096))
    assert not await may_connect("SCRAM-SHA-256", "first \u00fc")
    assert await may_connect("SCRAM-SHA-256", "second")
    assert await may_connect("SCRAM-SHA-512", "third")
    for mechanism in (SCRAM_256, SCRAM_512):
        deletion = UserScramCredentialDeletion(user, mechanism)
        await admin.alter_user_scram_credentials([deletion])
    await are()
    assert not await may_connect("SCRAM-SHA-512", "third")


async def test_describes_all_scram_users(admin: Admin) -> None:
    found = await admin.describe_user_scram_credentials()
    assert {ADMIN, ALICE} <= found.keys()
    assert {credential.mechanism for credential in found[ALICE]} == {SCRAM_256, SCRAM_512}


def deletion(user: str) -> Sequence[ScramAlteration]:
    return [UserScramCredentialDeletion(user, SCRAM_256)]


def too_many_iterations(user: str) -> Sequence[ScramAlteration]:
    return [UserScramCredentialUpsertion(user, SCRAM_256, "password", 16_385)]


def both_mechanisms(user: str) -> Sequence[ScramAlteration]:
    return [UserScramCredentialUpsertion(user, name, "password") for name in (SCRAM_256, SCRAM_512)]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        (
            deletion,
            ResourceNotFoundError,
        ),
        (
            too_many_iterations,
            UnacceptableCredentialError,
        ),
        (
            both_mechanisms,
            DuplicateResourceError,
        ),
    ],
    ids=["missing", "iterations", "twice"],
)
async def test_error_of_an_alteration_names_its_user(
    secure_cluster: SecureCluster,
    admin: Admin,
    changes: Callable[[str], Sequence[ScramAlteration]],
    error: type[KafkaError],
) -> None:
    user = secure_cluster.handle.topic("user")
    with pytest.raises(error, match=f"user {user}: "):
        await admin.alter_user_scram_credentials(changes(user))
    with pytest.raises(ResourceNotFoundError, match=f"user {user}: "):
        await admin.describe_user_scram_credentials([user])


# -- delegation tokens ----------------------------------------------------------------------------


async def test_a_delegation_token_authenticates_until_it_expires(
    secure_cluster: SecureCluster, admin: Admin
) -> None:
    [token] = await admin.create_delegation_tokens(
        renewers=[f"User:{ALICE}"], max_lifetime_ms=3_600_000
    )
    assert token.owner == token.requester == f"User:{ADMIN}"
    assert token.max_timestamp == token.issue_timestamp + 3_600_000

    async def described() -> bool:
        return token in await admin.describe_delegation_tokens([f"User:{ADMIN}"])

    await eventually(described)
    credentials: dict[str, Any] = {
        "sasl_username": token.token_id,
        "sasl_password": token.password.reveal(),
        "sasl_delegation_token": True,
    }
    assert await connects(secure_cluster, "SCRAM-SHA-256", **credentials)
    options = secure_cluster.options("SASL_PLAINTEXT", "SCRAM-SHA-256", **credentials)
    async with Admin(**options) as by_token:
        with pytest.raises(UnsupportedByAuthenticationError):
            await by_token.create_delegation_tokens()
    alice = secure_cluster.options("SASL_PLAINTEXT", "SCRAM-SHA-256", user=ALICE)
    async with Admin(**alice) as renewer:
        [renewed] = await renewer.renew_delegation_tokens([token], renew_period_ms=600_000)
        assert token.issue_timestamp < renewed <= token.max_timestamp
    [expired] = await admin.expire_delegation_tokens([token.hmac])
    assert expired < renewed

    async def is_gone() -> bool:
        return not await described()

    await eventually(is_gone)
    assert not await connects(secure_cluster, "SCRAM-SHA-256", **credentials)
    with pytest.raises(DelegationTokenNotFoundError, match=token.token_id):
        await admin.renew_delegation_tokens([token])


async def test_a_delegation_token_of_another_owner_needs_a_permission(
    secure_cluster: SecureCluster, admin: Admin
) -> None:
    [token] = await admin.create_delegation_tokens([f"User:{ALICE}"], renewers=[f"User:{ADMIN}"])
    assert (token.owner, token.requester) == (f"User:{ALICE}", f"User:{ADMIN}")
    alice = secure_cluster.options("SASL_PLAINTEXT", "SCRAM-SHA-256", user=ALICE)
    async with Admin(**alice) as other:
        with pytest.raises(DelegationTokenAuthorizationError, match="lacks CREATE_TOKENS on the"):
            await other.create_delegation_tokens([f"User:{ADMIN}"])

        async def described() -> bool:
            return token in await other.describe_delegation_tokens()

        await eventually(described)
    await admin.expire_delegation_tokens([token])


async def test_delegation_tokens_need_an_authenticated_connection(
    secure_cluster: SecureCluster,
) -> None:
    async with Admin(secure_cluster.servers("PLAINTEXT")) as admin:
        with pytest.raises(UnsupportedByAuthenticationError, match="authenticate with SASL or"):
            await admin.create_delegation_tokens()
        with pytest.raises(UnsupportedByAuthenticationError):
            await admin.describe_delegation_tokens()
