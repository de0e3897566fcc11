"""A scripted cluster whose broker demands SASL, and checks what Kafka's brokers check.

It refuses an ordinary request before the authentication and after the end of a session, a second
authentication within a second, and one with another user name. The server side of SCRAM is a second
implementation, so that both sides cannot share a mistake.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from kafka_async.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from kafka_async.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.client.scripted import API_VERSIONS, Peer, ScriptedBroker, World
from tests.embedded_client import now

if TYPE_CHECKING:
    from kafka_async.client.client import Client
    from kafka_async.protocol.header import RequestHeader
    from kafka_async.protocol.message import Request, Response

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
UNSUPPORTED_MECHANISM, ILLEGAL_STATE, FAILED = 33, 34, 58

ServerExchange: TypeAlias = Generator[bytes, bytes, str]
"""Yields the broker's messages, is sent the client's, and returns the user name."""


class Rejected(Exception):
    """The credentials are wrong; its text is the broker's message."""


def plain_server(users: dict[str, str]) -> ServerExchange:
    """Check the message of PLAIN."""
    _, name, password = (yield b"").split(b"\0")
    if users.get(name.decode()) != password.decode():
        raise Rejected("Authentication failed: Invalid username or password")
    yield b""
    return name.decode()


def scram_server(
    users: dict[str, str], hash_name: str, iterations: int = 4096, salt: bytes = b"0123456789abcdef"
) -> ServerExchange:
    """Check the messages of SCRAM (RFC 5802)."""
    first = (yield b"").decode()
    assert first.startswith("n,,n=")
    bare = first[3:]
    name, _, nonce = bare[2:].partition(",r=")
    name = name.replace("=2C", ",").replace("=3D", "=")
    nonce = nonce.partition(",")[0] + "server"
    reply = f"r={nonce},s={b64encode(salt).decode()},i={iterations}"
    last = (yield reply.encode()).decode()
    without_proof, _, proof = last.rpartition(",p=")
    assert without_proof == f"c=biws,r={nonce}"
    if name not in users:
        raise Rejected("Authentication failed during authentication due to invalid credentials")
    salted = hashlib.pbkdf2_hmac(hash_name, users[name].encode(), salt, iterations)
    signed = ",".join((bare, reply, without_proof)).encode()
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    signature = hmac.digest(stored_key, signed, hash_name)
    shown = bytes(a ^ b for a, b in zip(b64decode(proof), signature, strict=True))
    if hashlib.new(hash_name, shown).digest() != stored_key:
        raise Rejected("Authentication failed during authentication due to invalid credentials")
    server_key = hmac.digest(salted, b"Server Key", hash_name)
    yield b"v=" + b64encode(hmac.digest(server_key, signed, hash_name))
    return name


@dataclass
class PeerState:
    """The authentication of one connection, as the broker sees it."""

    user: str | None = None
    expires_at: float = float("inf")
    exchange: ServerExchange | None = None
    began_again_at: float | None = None
    """Time of the last re-authentication; None before the first."""
    authenticated: list[float] = field(default_factory=list[float])


class SecureBroker(ScriptedBroker):
    """A broker that responds to ordinary requests of authenticated connections only."""

    world: SecureWorld

    def __init__(self, world: SecureWorld, node_id: int, host: str, port: int) -> None:
        super().__init__(world, node_id, host, port)
        self.states: dict[Peer, PeerState] = {}
        self.violations: list[str] = []
        """Requests that a broker would have refused."""
        self.pause_at: int | None = None
        """API key of a request that the broker holds back until `resume`.

        It does not read later requests of the connection meanwhile.
        """
        self._unread: dict[Peer, list[tuple[RequestHeader, Request[Any]]]] = {}
        self._held_since: dict[Peer, float] = {}

    def resume(self) -> None:
        """Handle the requests that were held back, and read the others, in order."""
        self.pause_at = None
        unread, self._unread = self._unread, {}
        for peer, requests in unread.items():
            time = self._held_since.pop(peer)
            for header, request in requests:
                response = self._handle(peer, header, request, time)
                time = now()
                if response is not None:
                    peer.respond(header, response)

    def response(self, peer: Peer, header: RequestHeader, request: Request[Any]) -> Response | None:
        if peer in self._unread or header.api_key == self.pause_at:
            self._unread.setdefault(peer, []).append((header, request))
            self._held_since.setdefault(peer, now())
            return None
        return self._handle(peer, header, request, now())

    def _handle(
        self, peer: Peer, header: RequestHeader, request: Request[Any], read_at: float
    ) -> Response | None:
        state = self.states.setdefault(peer, PeerState())
        if header.api_key in self.handlers:
            return super().response(peer, header, request)
        if isinstance(request, SaslHandshakeRequest):
            return self._handshake(state, request, header.api_version)
        if isinstance(request, SaslAuthenticateRequest):
            return self._authenticate(peer, state, request)
        if header.api_key == API_VERSIONS and state.user is None:
            return super().response(peer, header, request)
        if state.exchange is not None or state.user is None:
            return self._refuse(peer, f"API {header.api_key} before the authentication")
        if read_at > state.expires_at:
            return self._refuse(peer, f"API {header.api_key} after the end of the session")
        return super().response(peer, header, request)

    def _refuse(self, peer: Peer, reason: str) -> None:
        self.violations.append(reason)
        peer.transport.close()

    def _handshake(
        self, state: PeerState, request: SaslHandshakeRequest, version: int
    ) -> SaslHandshakeResponse:
        assert version == 1
        world = self.world
        if state.user is not None:
            last, state.began_again_at = state.began_again_at, now()
            if last is not None and now() - last < 1.0:
                self.violations.append("authenticated again within a second")
                return SaslHandshakeResponse(error_code=ILLEGAL_STATE)
        if request.mechanism not in world.mechanisms:
            return SaslHandshakeResponse(
                error_code=UNSUPPORTED_MECHANISM, mechanisms=world.mechanisms
            )
        if request.mechanism == "PLAIN":
            state.exchange = plain_server(world.users)
        else:
            hash_name = request.mechanism.removeprefix("SCRAM-").replace("-", "").lower()
            state.exchange = scram_server(world.users, hash_name, world.iterations)
        next(state.exchange)
        return SaslHandshakeResponse(mechanisms=world.mechanisms)

    def _authenticate(
        self, peer: Peer, state: PeerState, request: SaslAuthenticateRequest
    ) -> SaslAuthenticateResponse:
        exchange, world = state.exchange, self.world
        if exchange is None:
            return SaslAuthenticateResponse(error_code=ILLEGAL_STATE)
        world.attempts += state.exchange is not None
        try:
            reply = exchange.send(bytes(request.auth_bytes))
            complete = reply == b"" or reply.startswith(b"v=")
            if complete:
                user = _result(exchange)
                if state.user not in (None, user):
                    raise Rejected("Cannot change principals during re-authentication")
                state.user, state.exchange = user, None
                state.expires_at = now() + (world.lifetime or float("inf"))
                state.authenticated.append(now())
        except Rejected as error:
            state.exchange = None
            asyncio.get_running_loop().call_soon(peer.transport.close)
            return SaslAuthenticateResponse(error_code=FAILED, error_message=str(error))
        lifetime_ms = int(world.lifetime * 1000) if complete else 0
        return SaslAuthenticateResponse(
            auth_bytes=reply, error_message=None, session_lifetime_ms=lifetime_ms
        )


def _result(exchange: ServerExchange) -> str:
    try:
        next(exchange)
    except StopIteration as ended:
        return str(ended.value)
    raise AssertionError("the exchange has not ended")


class SecureWorld(World):
    """A cluster of one broker that demands SASL.

    Attributes:
        users: Passwords by user name.
        mechanisms: Names of the mechanisms that the broker offers.
        lifetime: Seconds of a session; 0 without a limit.
        iterations: Iterations of SCRAM.
        attempts: Number of SaslAuthenticate requests.
    """

    def __init__(self) -> None:
        super().__init__()
        self.users = {"alice": "wonderland"}
        self.mechanisms = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        self.lifetime = 0.0
        self.iterations = 4096
        self.attempts = 0
        self.network.close("b1", 9092)
        self.broker = SecureBroker(self, 1, "b1", 9092)
        self.brokers = {1: self.broker}

    def client(self, **options: Any) -> Client:
        """Return a client that authenticates as alice by PLAIN, unless options say otherwise."""
        return super().client(**(secure_options() | options))

    @property
    def apis(self) -> list[int]:
        """The API keys of all requests, in order of arrival."""
        return [header.api_key for header, _ in self.broker.seen]


def secure_options(**options: Any) -> dict[str, Any]:
    """Return the options of a client that authenticates as alice."""
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_allow_plaintext": True,
        "sasl_mechanism": "PLAIN",
        "sasl_username": "alice",
        "sasl_password": "wonderland",
    } | options
