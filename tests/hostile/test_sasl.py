"""Hostile brokers during authentication, with the CVE numbers of other clients."""

from __future__ import annotations

import hmac
from base64 import b64encode

import pytest

from kafka_async.cluster.sasl.mechanism import Compute, Exchange, SaslContext
from kafka_async.cluster.sasl.scram import Scram, salted_password
from kafka_async.config import ClientConfig
from kafka_async.errors import SaslAuthenticationError
from kafka_async.secrets import Secret, SecretBytes

PASSWORD = Secret("planted-password")
NONCE = "client"
SALT = b64encode(b"salt").decode()


def begin() -> Exchange:
    """Start an exchange of SCRAM-SHA-256; the next step is the broker's first message."""
    config = ClientConfig("localhost:9092")
    context = SaslContext(config, "alice", PASSWORD, "broker1", 9093, None)
    exchange = Scram("SHA-256", lambda: NONCE).authenticate(context)
    assert isinstance(next(exchange), SecretBytes)
    return exchange


def first_message(nonce: str = f"{NONCE}broker", iterations: object = 4096) -> bytes:
    return f"r={nonce},s={SALT},i={iterations}".encode()


# -- CVE-2026-10143: a broker's number of iterations occupies the event loop ----------------------


@pytest.mark.parametrize(
    "iterations", [-1, 0, 1, 4095, 1_000_001, 10**9, 2**31 - 1, 10**30, "abc", "", "1e5", "+4096"]
)
def test_scram_iterations_are_bounded(iterations: object) -> None:
    with pytest.raises(SaslAuthenticationError, match="iterations"):
        begin().send(first_message(iterations=iterations))


@pytest.mark.parametrize("iterations", [4096, 1_000_000])
def test_scram_iterations_are_computed_in_a_thread(iterations: int) -> None:
    step = begin().send(first_message(iterations=iterations))
    assert isinstance(step, Compute)
    assert step.function is salted_password
    assert step.arguments == ("sha256", PASSWORD, b"salt", iterations)


# -- CVE-2024-56128: the nonce of the other side is not compared ----------------------------------


@pytest.mark.parametrize("nonce", ["", "broker", NONCE, NONCE.upper() + "broker", f"x{NONCE}y"])
def test_scram_nonce_must_continue_the_clients(nonce: str) -> None:
    with pytest.raises(SaslAuthenticationError, match="does not continue the client's"):
        begin().send(first_message(nonce))


# -- CVE-2021-38153: secrets are compared byte by byte --------------------------------------------


def test_scram_signature_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    compare = hmac.compare_digest

    def spy(one: bytes, other: bytes) -> bool:
        compared.append(len(one))
        return compare(one, other)

    exchange = begin()
    step = exchange.send(first_message())
    assert isinstance(step, Compute)
    assert isinstance(exchange.send(step.function(*step.arguments)), SecretBytes)
    monkeypatch.setattr(hmac, "compare_digest", spy)
    with pytest.raises(SaslAuthenticationError, match="signature is wrong"):
        exchange.send(b"v=" + b64encode(bytes(32)))
    assert compared == [32]


def test_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def spy(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return False

    monkeypatch.setattr(hmac, "compare_digest", spy)
    assert Secret("one") != Secret("other")
    assert compared == [(b"one", b"other")]
