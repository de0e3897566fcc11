"""Tests of GSSAPI's exchange with a fake of python-gssapi; test_kerberos.py has the real one."""

from __future__ import annotations

import sys
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_async.client.security.sasl.gssapi import MAX_STEPS, Gssapi
from kafka_async.client.security.sasl.mechanism import Await, Compute, SaslContext, SaslMechanism
from kafka_async.config import ClientConfig
from kafka_async.errors import (
    InvalidConfigurationError,
    KafkaConnectionError,
    SaslAuthenticationError,
)
from kafka_async.secrets import SecretBytes

KERBEROS_ERRORS = 2**32 - 1765328384


class Flag(IntEnum):
    mutual_authentication = 2
    out_of_sequence_detection = 8
    integrity = 32


class GSSError(Exception):
    """The fake's error, with the codes and the text of two lines of the real one."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(f"Major (851968): Unspecified GSS failure.\n Minor: {text}")
        self.min_code = KERBEROS_ERRORS + number


class FakeContext:
    """Establishes a context after `steps` messages of the broker, and wraps by a prefix."""

    def __init__(self, fake: FakeGssapi, **arguments: Any) -> None:
        fake.created = arguments
        self._fake = fake
        self._left = fake.steps
        self.complete = False
        self.actual_flags = fake.flags

    def step(self, received: bytes | None) -> bytes | None:
        self._fake.received.append(received)
        if self._fake.error is not None:
            raise self._fake.error
        if self._left == 0:
            self.complete = True
            return None
        self._left -= 1
        return b"token"

    def unwrap(self, message: bytes) -> SimpleNamespace:
        if not message.startswith(b"wrapped:"):
            raise GSSError(0, "Message is malformed")
        return SimpleNamespace(message=message.removeprefix(b"wrapped:"))

    def wrap(self, message: bytes, encrypt: bool) -> SimpleNamespace:
        assert not encrypt
        return SimpleNamespace(message=b"wrapped:" + message)


class FakeGssapi(SimpleNamespace):
    """Takes the place of the module gssapi."""

    steps: int
    flags: tuple[Flag, ...]
    error: Exception | None
    received: list[bytes | None]
    created: dict[str, Any]


def kind(name: str) -> Any:
    def make(*arguments: object, **named: object) -> tuple[object, ...]:
        return (name, *arguments, named)

    return make


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeGssapi:
    module = FakeGssapi(
        steps=1,
        flags=(Flag.mutual_authentication, Flag.integrity),
        error=None,
        received=[],
        created={},
        RequirementFlag=Flag,
        NameType=SimpleNamespace(hostbased_service="service", kerberos_principal="principal"),
        MechType=SimpleNamespace(kerberos="krb5"),
        Name=kind("Name"),
        Credentials=kind("Credentials"),
        exceptions=SimpleNamespace(GSSError=GSSError),
    )

    def create_context(**arguments: Any) -> FakeContext:
        return FakeContext(module, **arguments)

    module.SecurityContext = create_context
    monkeypatch.setitem(sys.modules, "gssapi", module)
    return module


def exchange(*responses: bytes, mechanism: Gssapi | None = None, **options: Any) -> list[bytes]:
    """Run an exchange in which the broker sends `responses`; return the client's messages."""
    given: dict[str, Any] = {"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI", **options}
    config = ClientConfig("localhost:9092", **given)
    context = SaslContext(config, None, None, "broker1.example.com", 9093)
    running = (mechanism or Gssapi()).authenticate(context)
    sent: list[bytes] = []
    waiting = iter(responses)
    step: SecretBytes | Compute | Await = next(running)
    try:
        while True:
            if isinstance(step, Compute):
                try:
                    result = step.function(*step.arguments)
                except Exception as error:  # noqa: BLE001  # as the connection does
                    step = running.throw(error)
                else:
                    step = running.send(result)
            else:
                assert isinstance(step, SecretBytes)
                sent.append(step.reveal())
                step = running.send(next(waiting))
    except StopIteration:
        return sent


OFFER = b"wrapped:\x01\x00\x00\x00"


def test_satisfies_the_interface() -> None:
    assert isinstance(Gssapi(), SaslMechanism)
    assert not Gssapi().needs_tls


def test_establishes_a_context_and_chooses_no_layer(fake: FakeGssapi) -> None:
    sent = exchange(b"reply", OFFER, b"")
    assert sent == [b"token", b"", b"wrapped:\x01\x00\x00\x00"]
    assert fake.received == [None, b"reply"]
    assert fake.created["name"] == ("Name", "kafka@broker1.example.com", "service", {})
    assert fake.created["creds"] is None
    assert fake.created["mech"] == "krb5"
    assert Flag.mutual_authentication in fake.created["flags"]


def test_chooses_no_layer_if_the_broker_offers_others_too(fake: FakeGssapi) -> None:
    assert exchange(b"reply", b"wrapped:\x07\x01\x00\x00", b"")[-1] == b"wrapped:\x01\x00\x00\x00"


def test_options_select_service_principal_and_keytab(fake: FakeGssapi) -> None:
    exchange(
        *(b"reply", OFFER, b""),
        sasl_kerberos_service_name="bus",
        sasl_kerberos_principal="alice@EXAMPLE.COM",
        sasl_kerberos_keytab="/etc/alice.keytab",
    )
    assert fake.created["name"][1] == "bus@broker1.example.com"
    _, named = fake.created["creds"]
    assert named["name"] == ("Name", "alice@EXAMPLE.COM", "principal", {})
    assert named["store"]["client_keytab"] == "/etc/alice.keytab"
    assert named["store"]["ccache"].startswith("MEMORY:")


def test_a_principal_without_keytab_comes_from_the_credential_cache(fake: FakeGssapi) -> None:
    exchange(b"reply", OFFER, b"", sasl_kerberos_principal="alice@EXAMPLE.COM")
    _, named = fake.created["creds"]
    assert named["store"] is None


def test_clients_with_keytabs_share_no_cache(fake: FakeGssapi) -> None:
    caches = set[str]()
    for _ in range(2):
        exchange(b"reply", OFFER, b"", sasl_kerberos_keytab="/k")
        caches.add(fake.created["creds"][1]["store"]["ccache"])
    one = Gssapi()
    for _ in range(2):
        exchange(b"reply", OFFER, b"", sasl_kerberos_keytab="/k", mechanism=one)
        caches.add(fake.created["creds"][1]["store"]["ccache"])
    assert len(caches) == 3


@pytest.mark.parametrize(
    ("offer", "match"),
    [
        (b"wrapped:\x06\x00\x10\x00", "demands a security layer"),
        (b"wrapped:\x00\x00\x00\x00", "demands a security layer"),
        (b"wrapped:", "are 0 bytes"),
        (b"wrapped:\x01\x00\x00\x00user", "are 8 bytes"),
        (b"\x01\x00\x00\x00", "malformed"),
        (b"", "malformed"),
    ],
)
def test_refuses_a_wrong_offer_of_layers(fake: FakeGssapi, offer: bytes, match: str) -> None:
    with pytest.raises(SaslAuthenticationError, match=match):
        exchange(b"reply", offer, b"")


def test_refuses_a_broker_that_did_not_prove_its_identity(fake: FakeGssapi) -> None:
    fake.flags = (Flag.integrity,)
    with pytest.raises(SaslAuthenticationError, match="did not prove its identity"):
        exchange(b"reply", OFFER, b"")


def test_refuses_an_exchange_without_end(fake: FakeGssapi) -> None:
    fake.steps = 1_000
    with pytest.raises(SaslAuthenticationError, match=f"more than {MAX_STEPS} messages"):
        exchange(*[b"reply"] * 1_000)


def test_refuses_a_message_after_the_end(fake: FakeGssapi) -> None:
    with pytest.raises(SaslAuthenticationError, match="after the end"):
        exchange(b"reply", OFFER, b"more")


@pytest.mark.parametrize("number", [7, 6, 18, 24, 37])
def test_errors_of_kerberos_are_permanent_and_name_what_to_check(
    fake: FakeGssapi, number: int
) -> None:
    fake.error = GSSError(number, "Server not found in Kerberos database")
    with pytest.raises(SaslAuthenticationError) as raised:
        exchange()
    text = str(raised.value)
    assert "broker1.example.com:9093: Major (851968)" in text
    assert "failure. Minor: Server not found in Kerberos database: check the ticket" in text
    assert "\n" not in text


@pytest.mark.parametrize("number", [21, 33, 34, 156])
def test_errors_of_kerberos_that_may_pass_are_retriable(fake: FakeGssapi, number: int) -> None:
    fake.error = GSSError(number, "why")
    with pytest.raises(KafkaConnectionError, match=r"Minor: why"):
        exchange()


def test_names_the_packages_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(SaslAuthenticationError, match="the extra gssapi: pip install"):
        exchange()


@pytest.mark.parametrize("name", ["", "a@b", "a/b", "a b", "a\n"])
def test_check_refuses_a_service_name_that_is_none(name: str) -> None:
    config = ClientConfig(
        "localhost:9092",
        security_protocol="SASL_SSL",
        sasl_mechanism="GSSAPI",
        sasl_kerberos_service_name=name,
    )
    with pytest.raises(InvalidConfigurationError, match="first part"):
        Gssapi().check(config)
    Gssapi().check(ClientConfig("localhost:9092"))
