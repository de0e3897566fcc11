"""Tests of brokers that do not keep to SASL, or that want to learn the password."""

from __future__ import annotations

import asyncio
import hmac
import threading
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.client.client import services_of
from kafka_async.client.connection.connection import MAX_HANDSHAKE_FRAME_SIZE
from kafka_async.client.security.sasl import scram
from kafka_async.client.security.sasl.scram import salted_password
from kafka_async.errors import KafkaError, SaslAuthenticationError, UnsupportedSaslMechanismError
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest
from kafka_async.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from kafka_async.protocol.messages.sasl_handshake import SaslHandshakeResponse
from kafka_async.secrets import Secret
from tests.client.scripted import Handler, Peer, always
from tests.client.secure_world import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    UNSUPPORTED_MECHANISM,
    SecureWorld,
)
from tests.embedded_client import now

if TYPE_CHECKING:
    from kafka_async.protocol.header import RequestHeader

pytestmark = pytest.mark.asyncio
virtual_clock = pytest.mark.virtual_clock

SALT = b64encode(b"0123456789abcdef")
GOOD = b"r=%s!server,s=" + SALT + b",i=4096"

CASES: dict[str, tuple[bytes, ...]] = {
    "empty first message": (b"",),
    "first message that is not text": (b"\xff\xfe\0\0",),
    "first message without attributes": (b"hello",),
    "attributes out of order": (b"s=" + SALT + b",r=%s!,i=4096",),
    "no iterations": (b"r=%s!,s=" + SALT,),
    "4,095 iterations": (b"r=%s!,s=" + SALT + b",i=4095",),
    "1,000,001 iterations": (b"r=%s!,s=" + SALT + b",i=1000001",),
    "10^5000 iterations": (b"r=%s!,s=" + SALT + b",i=1" + b"0" * 5000,),
    "iterations that are negative": (b"r=%s!,s=" + SALT + b",i=-4096",),
    "iterations with digits of another script": (
        b"r=%s!,s=" + SALT + ",i=\u0664\u0660\u0669\u0666".encode(),
    ),
    "nonce of another client": (b"r=AAAAAAAA,s=" + SALT + b",i=4096",),
    "nonce that is not longer": (b"r=%s,s=" + SALT + b",i=4096",),
    "nonce that is not printable": (b"r=%s\x01,s=" + SALT + b",i=4096",),
    "empty salt": (b"r=%s!,s=,i=4096",),
    "salt that is not base64": (b"r=%s!,s=###,i=4096",),
    "mandatory extension": (b"m=ext,r=%s!,s=" + SALT + b",i=4096",),
    "message of 512 KiB": (b"r=%s!,s=" + b"A" * 512 * 1024 + b",i=4096",),
    "error in the first message": (b"e=unknown-user",),
    "error with a long text": (b"e=" + b"x" * 5000,),
    "wrong signature": (GOOD, b"v=" + b64encode(bytes(32))),
    "signature cut off": (GOOD, b"v=" + b64encode(bytes(31))),
    "empty signature": (GOOD, b"v="),
    "empty last message": (GOOD, b""),
    "last message without a signature": (GOOD, b"x=1"),
    "first message twice": (GOOD, GOOD),
    "error in the last message": (GOOD, b"e=invalid-proof"),
}
"""Messages of a broker with SCRAM; %s is the client's nonce."""

LIFETIMES: dict[str, int] = {
    "session of -1 ms": -1,
    "session of 1 ms": 1,
    "session of 2^63-1 ms": 2**63 - 1,
}


def scripted(messages: tuple[bytes, ...]) -> Handler:
    """Return a handler that sends these messages, for every connection in turn."""
    sent: dict[Peer, int] = {}

    def respond(peer: Peer, header: RequestHeader, request: Any) -> SaslAuthenticateResponse:
        assert isinstance(request, SaslAuthenticateRequest)
        number = sent[peer] = sent.get(peer, -1) + 1
        if number == 0:
            nonces[peer] = bytes(request.auth_bytes).partition(b"r=")[2]
        return SaslAuthenticateResponse(
            auth_bytes=messages[number].replace(b"%s", nonces[peer]), error_message=None
        )

    nonces: dict[Peer, bytes] = {}
    return respond


@virtual_clock
@pytest.mark.parametrize("case", CASES)
async def test_broker_that_breaks_scram_is_refused_at_once(case: str) -> None:
    world = SecureWorld()
    world.broker.handlers[SASL_AUTHENTICATE] = scripted(CASES[case])
    client = world.client(sasl_mechanism="SCRAM-SHA-256")
    began = now()
    with pytest.raises(SaslAuthenticationError) as raised:
        await client.start()
    assert now() - began < 2
    assert len(str(raised.value)) < 400
    assert "wonderland" not in str(raised.value)
    assert len(world.broker.peers) == 1


@virtual_clock
@pytest.mark.parametrize("case", LIFETIMES)
async def test_odd_session_lifetimes_neither_stop_a_client_nor_keep_it_busy(case: str) -> None:
    world = SecureWorld()

    def respond(peer: Peer, header: RequestHeader, request: object) -> SaslAuthenticateResponse:
        world.attempts += 1
        world.broker.states[peer].user = "alice"
        world.broker.states[peer].exchange = None
        return SaslAuthenticateResponse(error_message=None, session_lifetime_ms=LIFETIMES[case])

    world.broker.handlers[SASL_AUTHENTICATE] = respond
    async with world.client() as client:
        connection = services_of(client).brokers.general(1)
        for _ in range(5):
            await connection.send(HeartbeatRequest(group_id="g"), timeout=2)
            await asyncio.sleep(1)
    assert world.attempts < 15


@virtual_clock
async def test_mechanisms_that_a_broker_lists_are_cut_off_in_the_error() -> None:
    world = SecureWorld()
    names = [f"MECHANISM-{number}" for number in range(10_000)]
    world.broker.handlers[SASL_HANDSHAKE] = always(
        SaslHandshakeResponse(error_code=UNSUPPORTED_MECHANISM, mechanisms=names)
    )
    with pytest.raises(UnsupportedSaslMechanismError) as raised:
        await world.client().start()
    assert len(str(raised.value)) < 700


@virtual_clock
async def test_challenges_to_plain_are_not_answered() -> None:
    world = SecureWorld()
    world.broker.handlers[SASL_AUTHENTICATE] = always(
        SaslAuthenticateResponse(auth_bytes=b"more", error_message=None)
    )
    with pytest.raises(KafkaError):
        await world.client(default_api_timeout_ms=3_000).start()
    for peer in world.broker.peers:
        apis = [header.api_key for header, _ in peer.seen]
        assert apis.count(SASL_AUTHENTICATE) <= 1


@virtual_clock
@pytest.mark.parametrize("over", [0, 1])
async def test_frames_are_limited_to_1_mib_until_the_authentication_is_complete(over: int) -> None:
    world = SecureWorld()

    def claim(peer: Peer, header: RequestHeader, request: object) -> None:
        peer.transport.write((MAX_HANDSHAKE_FRAME_SIZE + over).to_bytes(4))

    world.broker.handlers[SASL_AUTHENTICATE] = claim
    began = now()
    with pytest.raises(KafkaError) as raised:
        await world.client(default_api_timeout_ms=5_000).start()
    assert (now() - began < 1) is bool(over), raised.value


@virtual_clock
async def test_password_is_not_sent_by_plain_to_a_broker_that_offers_only_that() -> None:
    """The broker chooses nothing: a client does not fall back to another mechanism."""
    world = SecureWorld()
    world.mechanisms = ["PLAIN"]
    with pytest.raises(UnsupportedSaslMechanismError):
        await world.client(sasl_mechanism="SCRAM-SHA-256").start()
    sent = [request for _, request in world.broker.seen]
    assert not any(isinstance(each, SaslAuthenticateRequest) for each in sent)


# -- what the CVEs of other clients are about ------------------------------------------------------


@virtual_clock
@pytest.mark.parametrize("iterations", [1, 4095, 1_000_001, 2**31 - 1])
async def test_scram_iterations_are_bounded(
    iterations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[object] = []
    monkeypatch.setattr(scram, "salted_password", computed.append)
    world = SecureWorld()
    world.iterations = iterations
    with pytest.raises(SaslAuthenticationError, match="4096 to 1000000 are accepted"):
        await world.client(sasl_mechanism="SCRAM-SHA-512").start()
    assert computed == []


async def test_scram_iterations_are_computed_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def compute(*given: Any) -> object:
        threads.append(threading.current_thread().name)
        return salted_password(*given)

    monkeypatch.setattr(scram, "salted_password", compute)
    async with SecureWorld().client(sasl_mechanism="SCRAM-SHA-256") as client:
        assert client.health().state == "running"
    assert len(threads) >= 1
    assert threading.current_thread().name not in threads


@virtual_clock
async def test_scram_nonce_must_continue_the_clients() -> None:
    world = SecureWorld()
    world.broker.handlers[SASL_AUTHENTICATE] = scripted((b"r=of-another,s=" + SALT + b",i=4096",))
    with pytest.raises(SaslAuthenticationError, match="nonce does not continue the client's"):
        await world.client(sasl_mechanism="SCRAM-SHA-256").start()


@virtual_clock
async def test_scram_signature_is_compared_in_constant_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[tuple[Any, Any]] = []

    def compare(one: Any, other: Any) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one, other)

    monkeypatch.setattr(scram, "compare_digest", compare)
    world = SecureWorld()
    wrong = bytes(32)
    world.broker.handlers[SASL_AUTHENTICATE] = scripted((GOOD, b"v=" + b64encode(wrong)))
    with pytest.raises(SaslAuthenticationError, match="signature is wrong"):
        await world.client(sasl_mechanism="SCRAM-SHA-256").start()
    assert [other for _, other in compared] == [wrong]


async def test_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[Any, Any]] = []
    real = hmac.compare_digest

    def compare(one: Any, other: Any) -> bool:
        compared.append((one, other))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert Secret("wonderland") != Secret("wonderwall")
    assert Secret("wonderland") == Secret("wonderland")
    assert len(compared) == 2
