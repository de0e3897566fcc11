"""Delegation tokens: the requests, their rules, and SCRAM with a token."""

from __future__ import annotations

import asyncio
import base64
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Unpack

import pytest

from kafka_async.embedded import AclAuthorizer, EmbeddedCluster, ErrorCode
from kafka_async.foundation.memory_network import MemoryNetwork
from kafka_async.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kafka_async.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from kafka_async.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kafka_async.protocol.messages.metadata import MetadataRequest
from kafka_async.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.embedded.sasl_client import log_in, scram
from tests.raw_connection import RawConnection

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine

    from kafka_async.embedded.settings import SettingOptions
    from kafka_async.protocol.message import Request

    Connect = Callable[[str | None], Coroutine[None, None, RawConnection]]

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

USERS = {"alice": "alice-secret", "bob": "bob-secret", "carol": "carol-secret"}
DAY = 86_400_000
"""Milliseconds."""
CREATE = CreateDelegationTokenRequest(max_lifetime_ms=-1)
METADATA = MetadataRequest(topics=[])


@asynccontextmanager
async def logged_in(
    authorizer: AclAuthorizer | None = None, **settings: Unpack[SettingOptions]
) -> AsyncGenerator[Connect]:
    """Yield a function that connects as a user, or without authentication."""
    network = MemoryNetwork()
    async with EmbeddedCluster(
        network=network,
        listeners={"SASL_PLAINTEXT": "SASL_PLAINTEXT", "PLAINTEXT": "PLAINTEXT"},
        users=USERS,
        authorizer=authorizer,
        **settings,
    ) as cluster:
        connections: list[RawConnection] = []

        async def connect(user: str | None) -> RawConnection:
            listener = "PLAINTEXT" if user is None else "SASL_PLAINTEXT"
            port = cluster.brokers[1].ports[listener]
            connection = await RawConnection.dial("127.0.0.1", port, network)
            connections.append(connection)
            if user:
                assert (await log_in(connection, user, USERS[user])).error_code == 0
            return connection

        yield connect
        for connection in connections:
            await connection.close()
        assert cluster.failures == []


async def use(connect: Connect, token: CreateDelegationTokenResponse) -> RawConnection:
    """Connect with a token."""
    connection = await connect("")
    password = base64.b64encode(token.hmac).decode()
    response = await scram(
        connection, "SCRAM-SHA-256", token.token_id, password, extensions=",tokenauth=true"
    )
    assert response.error_code == 0
    return connection


async def test_token_authenticates_as_its_owner() -> None:
    async with logged_in() as connect:
        alice = await connect("alice")
        token = await alice.call(CREATE)
        assert token.error_code == 0
        assert (token.principal_type, token.principal_name) == ("User", "alice")
        assert token.expiry_timestamp_ms - token.issue_timestamp_ms == DAY
        assert token.max_timestamp_ms - token.issue_timestamp_ms == 7 * DAY
        connection = await use(connect, token)
        assert (await connection.call(METADATA)).brokers
        # A token does not authenticate for requests about tokens.
        assert (
            await connection.call(CREATE)
        ).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


async def test_token_needs_its_hmac() -> None:
    async with logged_in() as connect:
        token = await (await connect("alice")).call(CREATE)
        for name, password, extensions in [
            (token.token_id, "wrong", ",tokenauth=true"),
            (token.token_id, base64.b64encode(token.hmac).decode(), ""),
            ("alice", "alice-secret", ",tokenauth=true"),
        ]:
            response = await scram(
                await connect(""), "SCRAM-SHA-512", name, password, extensions=extensions
            )
            assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_session_ends_with_the_token() -> None:
    async with logged_in() as connect:
        token = await (await connect("alice")).call(
            CreateDelegationTokenRequest(max_lifetime_ms=5_000)
        )
        connection = await use(connect, token)
        await asyncio.sleep(6)
        with pytest.raises(ConnectionResetError):
            await connection.call(METADATA)


async def test_renewers_extend_tokens_up_to_the_maximum() -> None:
    async with logged_in(
        delegation_token_expiry_time_ms=10_000, delegation_token_max_lifetime_ms=25_000
    ) as connect:
        alice, bob, carol = [await connect(name) for name in ("alice", "bob", "carol")]
        renewers = [CreatableRenewers(principal_type="User", principal_name="bob")]
        create = CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=-1)
        token = await alice.call(create)
        renew = RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=-1)
        mismatch = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert (await carol.call(renew)).error_code == mismatch
        expiries: list[int] = []
        for _ in range(3):
            await asyncio.sleep(8)
            expiries.append((await bob.call(renew)).expiry_timestamp_ms - token.issue_timestamp_ms)
        assert expiries == [
            pytest.approx(18_000, abs=1),
            pytest.approx(25_000, abs=1),
            pytest.approx(25_000, abs=1),
        ]
        unknown = RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=-1)
        assert (await bob.call(unknown)).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


async def test_expired_tokens_are_removed_at_the_next_check() -> None:
    async with logged_in(delegation_token_expiry_check_interval_ms=10_000) as connect:
        alice = await connect("alice")
        token = await alice.call(CreateDelegationTokenRequest(max_lifetime_ms=5_000))
        await asyncio.sleep(6)
        renew = RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=-1)
        assert (await alice.call(renew)).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
        expire = ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=1)
        assert (await alice.call(expire)).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
        await asyncio.sleep(10)
        assert (await alice.call(renew)).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


async def test_owner_ends_a_token_at_once() -> None:
    async with logged_in() as connect:
        alice, bob = await connect("alice"), await connect("bob")
        token = await alice.call(CREATE)
        later = ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=60_000)
        response = await alice.call(later)
        assert response.error_code == 0
        assert response.expiry_timestamp_ms < token.expiry_timestamp_ms
        now = ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1)
        assert (await bob.call(now)).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert (await alice.call(now)).error_code == 0
        assert (await alice.call(now)).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


async def described(connection: RawConnection, *owners: str) -> list[str]:
    names = [DescribeDelegationTokenOwner(principal_type="User", principal_name=n) for n in owners]
    response = await connection.call(DescribeDelegationTokenRequest(owners=names or None))
    assert response.error_code == 0
    return [token.principal_name for token in response.tokens]


async def test_describe_selects_owners() -> None:
    async with logged_in() as connect:
        alice, bob = await connect("alice"), await connect("bob")
        await alice.call(CREATE)
        await bob.call(CREATE)
        assert await described(alice) == ["alice", "bob"]
        assert await described(alice, "bob") == ["bob"]
        assert await described(alice, "carol") == []
        empty = await alice.call(DescribeDelegationTokenRequest(owners=[]))
        assert (empty.error_code, list(empty.tokens)) == (0, [])


async def test_acls_protect_tokens_of_others() -> None:
    async with logged_in(AclAuthorizer(super_users=["User:carol"])) as connect:
        alice, bob, carol = [await connect(name) for name in ("alice", "bob", "carol")]
        for_alice = CreateDelegationTokenRequest(
            owner_principal_type="User", owner_principal_name="alice", max_lifetime_ms=-1
        )
        denied = await bob.call(for_alice)
        assert denied.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        token = await carol.call(for_alice)
        assert (token.error_code, token.principal_name) == (0, "alice")
        assert token.token_requester_principal_name == "carol"
        assert await described(alice) == ["alice"]
        assert await described(bob) == []
        assert await described(carol) == ["alice"]


async def test_tokens_need_an_authenticated_client() -> None:
    async with logged_in() as connect:
        unsecured = await connect(None)
        created = await unsecured.call(CREATE)
        assert created.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert created.expiry_timestamp_ms == -1
        response = await unsecured.call(DescribeDelegationTokenRequest(owners=None))
        assert response.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


async def test_renewers_are_users() -> None:
    async with logged_in() as connect:
        renewers = [CreatableRenewers(principal_type="Group", principal_name="g")]
        response = await (await connect("alice")).call(
            CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=-1)
        )
        assert response.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


async def test_tokens_may_be_disabled() -> None:
    async with logged_in(delegation_token_auth_enabled=False) as connect:
        alice = await connect("alice")
        assert (await alice.call(CREATE)).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        requests: list[Request[Any]] = [
            RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=-1),
            ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1),
            DescribeDelegationTokenRequest(owners=None),
        ]
        for request in requests:
            response = await alice.call(request)
            assert response.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
