"""SASL at the brokers: mechanisms, states of a connection, sessions, invalid messages."""

from __future__ import annotations

import asyncio
import hashlib
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Unpack

import pytest

from kafka_async.embedded import EmbeddedCluster, ErrorCode, Listener, UnsecuredTokens
from kafka_async.errors import InvalidConfigurationError
from kafka_async.foundation.memory_network import MemoryNetwork
from kafka_async.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kafka_async.protocol.messages.api_versions import ApiVersionsRequest
from kafka_async.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from kafka_async.protocol.messages.metadata import MetadataRequest
from kafka_async.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kafka_async.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.embedded.sasl_client import (
    authenticate,
    bearer_message,
    log_in,
    plain_message,
    scram,
    send,
    unsecured_token,
)
from tests.raw_connection import RawConnection

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from kafka_async.embedded.security.listeners import Listeners
    from kafka_async.embedded.settings import SettingOptions

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]

USERS = {"alice": "alice-secret", "bob": "bob-secret"}
ALL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SASL = Listener(security_protocol="SASL_PLAINTEXT", sasl_mechanisms=ALL)
WHO = DescribeUserScramCredentialsRequest(users=[])
METADATA = MetadataRequest(topics=[])


class Secured:
    """Holds a cluster with a SASL listener, in memory."""

    def __init__(self, cluster: EmbeddedCluster, network: MemoryNetwork) -> None:
        self.cluster = cluster
        self._network = network
        self.connections: list[RawConnection] = []

    async def connect(self, listener: str = "SASL", broker: int = 1) -> RawConnection:
        port = self.cluster.brokers[broker].ports[listener]
        connection = await RawConnection.dial("127.0.0.1", port, self._network)
        self.connections.append(connection)
        return connection

    async def connect_bare(self) -> BareConnection:
        port = self.cluster.brokers[1].ports["SASL"]
        return (await self._network.dial(BareConnection, "127.0.0.1", port))[1]


@asynccontextmanager
async def secured(
    listeners: Listeners | None = None, **settings: Unpack[SettingOptions]
) -> AsyncGenerator[Secured]:
    network = MemoryNetwork()
    async with EmbeddedCluster(
        2, network=network, listeners=listeners or {"SASL": SASL}, users=USERS, **settings
    ) as cluster:
        world = Secured(cluster, network)
        yield world
        for connection in world.connections:
            await connection.close()
        assert cluster.failures == []


async def is_closed_without_response(connection: RawConnection, request: Any, version: int) -> bool:
    with pytest.raises(ConnectionResetError):
        await connection.call(request, version)
    return connection.closed.is_set()


# -- mechanisms -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_plain_accepts_the_right_password(version: int) -> None:
    async with secured() as world:
        connection = await world.connect()
        message = plain_message("alice", "alice-secret")
        response = await authenticate(connection, "PLAIN", message, version)
        assert (response.error_code, response.auth_bytes) == (0, b"")
        assert (await connection.call(METADATA)).brokers


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (plain_message("alice", "wrong"), "Invalid username or password"),
        (plain_message("carol", "alice-secret"), "Invalid username or password"),
        (plain_message("alice", ""), "password not specified"),
        (plain_message("", "alice-secret"), "username not specified"),
        (plain_message("alice", "alice-secret", "bob"), "different from username"),
        (b"alice\0alice-secret", "expected 3 tokens, got 2"),
        (b"\0\0\0\0\0", "expected 3 tokens, got 4"),
        (b"", "expected 3 tokens, got 1"),
        (b"\0\xff\xfe\0alice-secret", "Invalid username or password"),
    ],
)
async def test_plain_rejects_other_messages_after_the_delay(message: bytes, error: str) -> None:
    async with secured() as world:
        connection = await world.connect()
        began = asyncio.get_running_loop().time()
        response = await authenticate(connection, "PLAIN", message)
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert error in (response.error_message or "")
        await connection.closed.wait()
        assert asyncio.get_running_loop().time() - began == pytest.approx(0.1)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_scram_accepts_the_right_password(mechanism: str) -> None:
    async with secured() as world:
        connection = await world.connect()
        assert (await scram(connection, mechanism, "alice", "alice-secret")).error_code == 0
        assert (await connection.call(METADATA)).brokers


async def test_scram_fails_alike_for_unknown_users_and_wrong_passwords() -> None:
    async with secured() as world:
        errors = {
            (response.error_code, response.error_message)
            for name, password in [("alice", "wrong"), ("carol", "alice-secret")]
            for response in [await scram(await world.connect(), "SCRAM-SHA-256", name, password)]
        }
        assert errors == {
            (
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                "Authentication failed during authentication due to invalid credentials with SASL "
                "mechanism SCRAM-SHA-256",
            )
        }


async def test_scram_rejects_another_authorization_id() -> None:
    async with secured() as world:
        response = await scram(
            await world.connect(), "SCRAM-SHA-256", "alice", "alice-secret", header="n,a=bob,"
        )
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff\xfe",
        b"y,,n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,n=alice",
        b"n,,n=,r=abc",
        b"n,,n=a=b,r=abc",
        "n,,n=ünïcode,r=abc".encode(),
        b"n,,n=alice,r=a b",
        b"n,,n=alice,r=abc,tokenauth",
        b"n,,n=alice,r=abc,tokenauth=true",
        b"n,,n=" + b"x" * 100_000 + b",r=abc",
    ],
)
async def test_scram_rejects_invalid_first_messages(message: bytes) -> None:
    async with secured() as world:
        response = await authenticate(await world.connect(), "SCRAM-SHA-256", message)
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize(
    "final",
    [
        "",
        "c=biws,r={nonce}",
        "c=biws,r={nonce},p=",
        "c=biws,r={nonce},p=AAAA",
        "c=biws,r={nonce}x,p=AAAA",
        "c=biws,r=attacker{nonce},p=AAAA",
        "c=biws,r=,p=AAAA",
        "c=b,r={nonce},p=AAAA",
        "c=biws,r={nonce},p=!!!!",
    ],
)
async def test_scram_rejects_invalid_final_messages(final: str) -> None:
    async with secured() as world:
        connection = await world.connect()
        challenge = await authenticate(connection, "SCRAM-SHA-256", b"n,,n=alice,r=abc")
        nonce = challenge.auth_bytes.decode().split(",")[0][2:]
        response = await send(connection, final.format(nonce=nonce).encode())
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        await connection.closed.wait()


async def test_oauthbearer_accepts_unsecured_tokens_until_they_expire() -> None:
    async with secured() as world:
        now = world.cluster.scheduler.now_ms() / 1000
        connection = await world.connect()
        token = unsecured_token(sub="alice", iat=now - 5, exp=now + 30, scope=["a", "b"])
        message = bearer_message(token, "alice", "traceId=42\x01")
        response = await authenticate(connection, "OAUTHBEARER", message)
        assert response.error_code == 0
        assert response.session_lifetime_ms == pytest.approx(30_000, abs=1)
        await connection.call(METADATA)
        await asyncio.sleep(31)
        assert await is_closed_without_response(connection, METADATA, 12)


NOW = 1e12
"""A time that never comes, in seconds."""


@pytest.mark.parametrize(
    "token",
    {
        "no claims": unsecured_token(),
        "no subject": unsecured_token(exp=NOW),
        "blank subject": unsecured_token(sub=" ", exp=NOW),
        "number as subject": unsecured_token(sub=5, exp=NOW),
        "no expiry": unsecured_token(sub="alice"),
        "text as expiry": unsecured_token(sub="alice", exp="later"),
        "boolean as expiry": unsecured_token(sub="alice", exp=True),
        "infinite expiry": unsecured_token(sub="alice", exp=float("inf")),
        "no number as expiry": unsecured_token(sub="alice", exp=float("nan")),
        "huge expiry": unsecured_token(sub="alice", exp=10**400),
        "expired": unsecured_token(sub="alice", exp=1),
        "issued in the future": unsecured_token(sub="alice", iat=NOW, exp=NOW + 1),
        "null as time of issue": unsecured_token(sub="alice", iat=None, exp=NOW),
        "issued after expiry": unsecured_token(sub="alice", iat=3, exp=2),
        "number as scope": unsecured_token(sub="alice", exp=NOW, scope=5),
        "missing scope": unsecured_token(sub="alice", exp=NOW, scope="other"),
        "signed": unsecured_token({"alg": "HS256"}, sub="alice", exp=NOW, scope="kafka") + "c2ln",
        "another algorithm": unsecured_token({"alg": "HS256"}, sub="alice", exp=NOW, scope="kafka"),
        "no algorithm": unsecured_token({}, sub="alice", exp=NOW, scope="kafka"),
        "header is no object": unsecured_token([], sub="alice", exp=NOW, scope="kafka"),
        "two parts": unsecured_token(sub="alice", exp=NOW)[:-1],
        "no base64": "a.b.",
        "deep": "W1tb" * 30_000 + "." + "W1tb" * 30_000 + ".",
    }.items(),
    ids=lambda item: item[0],
)
async def test_oauthbearer_rejects_other_tokens(token: tuple[str, str]) -> None:
    listener = Listener(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanisms=["OAUTHBEARER"],
        oauthbearer=UnsecuredTokens(required_scope=["kafka"]),
    )
    async with secured({"SASL": listener}) as world:
        connection = await world.connect()
        challenge = await authenticate(connection, "OAUTHBEARER", bearer_message(token[1]))
        assert challenge.error_code == 0
        status = "insufficient_scope" if token[0] == "missing scope" else "invalid_token"
        assert f'"status":"{status}"'.encode() in challenge.auth_bytes
        response = await send(connection, b"\x01")
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert (response.error_message or "").encode() == challenge.auth_bytes
        await connection.closed.wait()


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,\x01auth=Bearer abc\x01t=\xc3\xa4\x01\x01",
    ],
)
async def test_oauthbearer_rejects_invalid_messages(message: bytes) -> None:
    async with secured() as world:
        response = await authenticate(await world.connect(), "OAUTHBEARER", message)
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_oauthbearer_rejects_another_authorization_id() -> None:
    async with secured() as world:
        message = bearer_message(unsecured_token(sub="alice", exp=NOW), "bob")
        response = await authenticate(await world.connect(), "OAUTHBEARER", message)
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "authorization id (bob)" in (response.error_message or "")


async def test_oauthbearer_calls_a_function_for_the_principal() -> None:
    def validate(token: str) -> tuple[str, float | None]:
        return {"token-of-alice": "alice"}[token], None

    listener = Listener(
        security_protocol="SASL_PLAINTEXT", sasl_mechanisms=["OAUTHBEARER"], oauthbearer=validate
    )
    async with secured({"SASL": listener}) as world:
        found = {
            token: (response.auth_bytes, response.session_lifetime_ms)
            for token in ("token-of-alice", "other")
            for response in [
                await authenticate(await world.connect(), "OAUTHBEARER", bearer_message(token))
            ]
        }
        assert found == {
            "token-of-alice": (b"", 0),
            "other": (b'{"status":"invalid_token"}', 0),
        }


# -- the states of a connection -------------------------------------------------------------------


async def test_versions_come_before_the_handshake() -> None:
    async with secured() as world:
        connection = await world.connect()
        assert (await connection.call(ApiVersionsRequest(), 0)).error_code == 0
        assert (await log_in(connection)).error_code == 0
        assert (await connection.call(ApiVersionsRequest(), 0)).error_code == 0
        assert (await connection.call(METADATA)).brokers


async def test_unsupported_versions_request_may_be_repeated() -> None:
    async with secured() as world:
        connection = await world.connect()
        body = struct.pack(">hhih", 18, 99, connection.next_id(), -1) + b"\0"
        frame = await connection.submit(body)
        assert frame[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2)
        invalid = ApiVersionsRequest(client_software_name="?", client_software_version="1")
        assert (await connection.call(invalid, 3)).error_code == ErrorCode.INVALID_REQUEST
        assert (await connection.call(ApiVersionsRequest(), 0)).error_code == 0
        assert (await log_in(connection)).error_code == 0


@pytest.mark.parametrize("versions_first", [False, True])
@pytest.mark.parametrize(
    ("request_", "version"), [(METADATA, 12), (SaslAuthenticateRequest(auth_bytes=b""), 2)]
)
async def test_requests_before_the_handshake_close_the_connection(
    request_: Any, version: int, *, versions_first: bool
) -> None:
    async with secured() as world:
        connection = await world.connect()
        if versions_first:
            await connection.call(ApiVersionsRequest(), 0)
        began = asyncio.get_running_loop().time()
        assert await is_closed_without_response(connection, request_, version)
        assert asyncio.get_running_loop().time() - began == pytest.approx(0.1)


async def test_second_versions_request_closes_the_connection() -> None:
    async with secured() as world:
        connection = await world.connect()
        await connection.call(ApiVersionsRequest(), 0)
        assert await is_closed_without_response(connection, ApiVersionsRequest(), 0)


@pytest.mark.parametrize(
    ("request_", "version"),
    [(SaslHandshakeRequest(mechanism="PLAIN"), 1), (ApiVersionsRequest(), 0), (WHO, 0)],
)
async def test_requests_between_the_messages_get_an_error(request_: Any, version: int) -> None:
    async with secured() as world:
        connection = await world.connect()
        await connection.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        response = await connection.call(request_, version)
        assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
        await connection.closed.wait()


async def test_unknown_mechanism_gets_the_list_of_mechanisms() -> None:
    async with secured({"SASL": Listener(security_protocol="SASL_PLAINTEXT")}) as world:
        connection = await world.connect()
        response = await connection.call(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert list(response.mechanisms) == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        await connection.closed.wait()


class BareConnection(asyncio.Protocol):
    """Collects frames without interpreting them."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[bytes] = asyncio.Queue()
        self.closed = asyncio.Event()
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4 + int.from_bytes(self._buffer[:4]):
            size = 4 + int.from_bytes(self._buffer[:4])
            self.frames.put_nowait(self._buffer[4:size])
            self._buffer = self._buffer[size:]

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()

    async def call(self, body: bytes) -> bytes:
        self.write(body)
        return await self.frames.get()

    def write(self, body: bytes) -> None:
        assert self._transport is not None
        self._transport.write(len(body).to_bytes(4) + body)

    def drop(self) -> None:
        assert self._transport is not None
        self._transport.abort()


HANDSHAKE_V0 = struct.pack(">hhihh", 17, 0, 1, -1, 5) + b"PLAIN"


async def test_handshake_version_0_is_followed_by_bare_messages() -> None:
    async with secured() as world:
        connection = await world.connect_bare()
        assert (await connection.call(HANDSHAKE_V0))[:6] == struct.pack(">ih", 1, 0)
        assert await connection.call(plain_message("alice", "alice-secret")) == b""
        versions = await connection.call(struct.pack(">hhih", 18, 0, 7, -1))
        assert versions[:6] == struct.pack(">ih", 7, 0)
        connection.drop()
        await connection.closed.wait()


async def test_rejected_bare_message_closes_the_connection_without_response() -> None:
    async with secured() as world:
        connection = await world.connect_bare()
        await connection.call(HANDSHAKE_V0)
        connection.write(plain_message("alice", "wrong"))
        await connection.closed.wait()
        assert connection.frames.empty()


async def test_sasl_requests_after_authentication_get_an_error() -> None:
    async with secured({"SASL": SASL, "OPEN": "PLAINTEXT"}) as world:
        connection, unsecured = await world.connect(), await world.connect("OPEN")
        await log_in(connection)
        for each in (connection, unsecured):
            handshake = await each.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            assert handshake.error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert (await send(each, b"")).error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert (await each.call(METADATA)).brokers


@pytest.mark.parametrize("size", [524_289, 2**31 - 1])
async def test_large_frames_need_authentication(size: int) -> None:
    async with secured() as world:
        connection = await world.connect()
        connection.write(struct.pack(">i", size))
        await connection.closed.wait()
        connection = await world.connect()
        await log_in(connection)
        large = MetadataRequest.from_dict({"topics": [{"name": "x" * 200}] * 5_000})
        assert (await connection.call(large, 12)).topics


@pytest.mark.parametrize(
    "body",
    [b"", b"\0", struct.pack(">hhih", 999, 0, 1, -1), b"\x60\x82" + bytes(40)],
    ids=["empty", "short", "no such API", "GSSAPI"],
)
async def test_invalid_requests_close_the_connection(body: bytes) -> None:
    async with secured() as world:
        for versions_first in (False, True):
            connection = await world.connect()
            if versions_first:
                await connection.call(ApiVersionsRequest(), 0)
            connection.write(struct.pack(">i", len(body)) + body)
            await connection.closed.wait()
        assert (await log_in(await world.connect())).error_code == 0


async def test_client_that_leaves_during_the_delay_ends_its_connection() -> None:
    async with secured(connection_failed_authentication_delay_ms=60_000) as world:
        connection = await world.connect()
        await connection.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        response = connection.send(SaslAuthenticateRequest(auth_bytes=b"x"), 2)
        await asyncio.sleep(30)
        assert not response.done()
        await connection.close()
        await asyncio.sleep(1)
        assert world.cluster.brokers[1].connections == set()


async def test_faults_apply_to_authentication() -> None:
    async with secured() as world:
        world.cluster.faults.add(api="SaslAuthenticate", delay=5)
        world.cluster.faults.add(api="SaslHandshake", disconnect="before", skip=1)
        began = asyncio.get_running_loop().time()
        assert (await log_in(await world.connect())).error_code == 0
        assert asyncio.get_running_loop().time() - began == pytest.approx(5)
        with pytest.raises(ConnectionResetError):
            await log_in(await world.connect())


# -- sessions -------------------------------------------------------------------------------------


async def test_session_ends_unless_the_client_authenticates_again() -> None:
    async with secured(connections_max_reauth_ms=10_000) as world:
        connection = await world.connect()
        assert (await log_in(connection)).session_lifetime_ms == 10_000
        await asyncio.sleep(9)
        assert (await log_in(connection)).session_lifetime_ms == 10_000
        await asyncio.sleep(9)
        assert (await connection.call(METADATA)).brokers
        await asyncio.sleep(2)
        assert await is_closed_without_response(connection, METADATA, 12)


async def test_client_may_authenticate_again_after_the_end() -> None:
    async with secured(connections_max_reauth_ms=10_000) as world:
        connection = await world.connect()
        await log_in(connection)
        await asyncio.sleep(20)
        await log_in(connection)
        assert (await connection.call(METADATA)).brokers


async def test_clients_authenticate_again_at_most_once_per_second() -> None:
    async with secured(connections_max_reauth_ms=10_000) as world:
        connection = await world.connect()
        await log_in(connection)
        await log_in(connection)
        handshake = await connection.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert handshake.error_code == ErrorCode.ILLEGAL_SASL_STATE
        await asyncio.sleep(1)
        assert (await log_in(connection)).error_code == 0


async def test_principal_cannot_change() -> None:
    async with secured(connections_max_reauth_ms=10_000) as world:
        connection = await world.connect()
        await log_in(connection)
        response = await log_in(connection, "bob", "bob-secret")
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert response.error_message == (
            "Cannot change principals during re-authentication from User.alice: User.bob"
        )
        await connection.closed.wait()


async def test_mechanism_cannot_change() -> None:
    async with secured(connections_max_reauth_ms=10_000) as world:
        connection = await world.connect()
        await log_in(connection)
        handshake = await connection.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
        assert handshake.error_code == 0
        message = SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=abc")
        assert await is_closed_without_response(connection, message, 2)


async def test_requests_during_re_authentication_get_an_error() -> None:
    async with secured(connections_max_reauth_ms=10_000) as world:
        connection = await world.connect()
        await log_in(connection)
        await connection.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        response = await connection.call(WHO, 0)
        assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
        await connection.closed.wait()


async def test_re_authentication_waits_for_requests_in_flight() -> None:
    async with secured(connections_max_reauth_ms=10_000) as world:
        connection = await world.connect()
        await log_in(connection)
        fault = world.cluster.faults.add(api="Metadata", hang=True)
        first = connection.send(METADATA, 12)
        handshake = connection.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        await fault.wait()
        assert not handshake.done()
        fault.release()
        assert (await first).brokers
        assert (await handshake).error_code == 0
        assert (await send(connection, plain_message("alice", "alice-secret"))).error_code == 0


async def test_listener_overrides_the_lifetime_of_sessions() -> None:
    listener = Listener(security_protocol="SASL_PLAINTEXT", connections_max_reauth_ms=0)
    async with secured({"SASL": listener}, connections_max_reauth_ms=10_000) as world:
        connection = await world.connect()
        assert (await log_in(connection)).session_lifetime_ms == 0
        await asyncio.sleep(20)
        assert (await connection.call(METADATA)).brokers


# -- users ----------------------------------------------------------------------------------------


async def test_password_is_replaced_at_run_time() -> None:
    async with secured() as world:
        connection = await world.connect()
        await log_in(connection)
        await world.cluster.set_password("alice", "new-secret")
        assert (await connection.call(METADATA)).brokers
        assert (await log_in(await world.connect())).error_code
        assert (await log_in(await world.connect(), "alice", "new-secret")).error_code == 0
        response = await scram(await world.connect(), "SCRAM-SHA-512", "alice", "new-secret")
        assert response.error_code == 0
        await world.cluster.set_password("alice", None)
        assert (await log_in(await world.connect(), "alice", "new-secret")).error_code


def upsertion(name: str, password: str, iterations: int = 4_096) -> ScramCredentialUpsertion:
    salted = hashlib.pbkdf2_hmac("sha512", password.encode(), b"salt", iterations)
    return ScramCredentialUpsertion(
        name=name, mechanism=2, iterations=iterations, salt=b"salt", salted_password=salted
    )


async def test_altered_scram_credentials_authenticate() -> None:
    async with secured() as world:
        admin = await world.connect()
        await log_in(admin)
        request = AlterUserScramCredentialsRequest(upsertions=[upsertion("carol", "c", 5_000)])
        [result] = (await admin.call(request)).results
        assert (result.user, result.error_code, result.error_message) == ("carol", 0, None)
        connection = await world.connect()
        assert (await scram(connection, "SCRAM-SHA-512", "carol", "c")).error_code == 0
        assert (await scram(await world.connect(), "SCRAM-SHA-256", "carol", "c")).error_code
        assert (await log_in(await world.connect(), "carol", "c")).error_code
        [found] = (
            await admin.call(DescribeUserScramCredentialsRequest(users=[UserName(name="carol")]))
        ).results
        assert [(one.mechanism, one.iterations) for one in found.credential_infos] == [(2, 5_000)]
        deletion = ScramCredentialDeletion(name="carol", mechanism=2)
        await admin.call(AlterUserScramCredentialsRequest(deletions=[deletion]))
        assert (await scram(await world.connect(), "SCRAM-SHA-512", "carol", "c")).error_code


async def test_invalid_alterations_change_nothing() -> None:
    async with secured() as world:
        admin = await world.connect()
        await log_in(admin)
        before = await admin.call(WHO)
        request = AlterUserScramCredentialsRequest(
            deletions=[
                ScramCredentialDeletion(name="carol", mechanism=1),
                ScramCredentialDeletion(name="alice", mechanism=1),
                ScramCredentialDeletion(name="bob", mechanism=3),
            ],
            upsertions=[
                upsertion("alice", "x"),
                upsertion("few", "x", 4_095),
                upsertion("many", "x", 16_385),
                upsertion("", "x"),
            ],
        )
        response = await admin.call(request)
        assert {one.user: one.error_code for one in response.results} == {
            "carol": ErrorCode.RESOURCE_NOT_FOUND,
            "alice": ErrorCode.DUPLICATE_RESOURCE,
            "bob": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "few": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "many": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        }
        assert (await admin.call(WHO)).results == before.results


async def test_describe_names_every_user_once() -> None:
    async with secured() as world:
        admin = await world.connect()
        await log_in(admin)
        assert [one.user for one in (await admin.call(WHO)).results] == ["alice", "bob"]
        users = [UserName(name=name) for name in ("alice", "alice", "carol")]
        response = await admin.call(DescribeUserScramCredentialsRequest(users=users))
        assert {one.user: one.error_code for one in response.results} == {
            "alice": ErrorCode.DUPLICATE_RESOURCE,
            "carol": ErrorCode.RESOURCE_NOT_FOUND,
        }


# -- listeners ------------------------------------------------------------------------------------


async def test_responses_have_the_addresses_of_the_listener() -> None:
    async with secured({"SASL": SASL, "OPEN": "PLAINTEXT"}) as world:
        secure, unsecured = await world.connect(), await world.connect("OPEN")
        await log_in(secure)
        for name, connection in {"SASL": secure, "OPEN": unsecured}.items():
            brokers = (await connection.call(METADATA)).brokers
            servers = ",".join(f"{one.host}:{one.port}" for one in brokers)
            assert servers == world.cluster.bootstrap_servers_of(name)
        assert world.cluster.bootstrap_servers == world.cluster.bootstrap_servers_of("SASL")
        ports = dict(world.cluster.brokers[1].ports)
        await world.cluster.stop_broker(1)
        await world.cluster.start_broker(1)
        assert world.cluster.brokers[1].ports == ports
        with pytest.raises(InvalidConfigurationError, match="there are SASL, OPEN"):
            world.cluster.bootstrap_servers_of("OTHER")


@pytest.mark.parametrize(
    ("listeners", "error"),
    [
        ({}, "listeners is empty"),
        ("SSL", "needs an ssl_context"),
        ("TLS", "'TLS' is not a security protocol"),
    ],
)
async def test_invalid_listeners_are_rejected(listeners: Any, error: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=error):
        EmbeddedCluster(listeners=listeners)


async def test_unknown_mechanisms_are_rejected() -> None:
    with pytest.raises(InvalidConfigurationError, match="no mechanism 'GSSAPI'"):
        Listener(security_protocol="SASL_PLAINTEXT", sasl_mechanisms=["GSSAPI"])
    with pytest.raises(InvalidConfigurationError, match="needs sasl_mechanisms"):
        Listener(security_protocol="SASL_PLAINTEXT", sasl_mechanisms=[])
