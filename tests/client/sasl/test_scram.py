"""Tests of the mechanism SCRAM: the exchanges of the RFCs, a second server, and properties."""

from __future__ import annotations

import inspect
import re
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_async.client.security.sasl import scram
from kafka_async.client.security.sasl.mechanism import Compute, SaslContext
from kafka_async.client.security.sasl.scram import MAX_CACHED_KEYS, Scram, escape
from kafka_async.errors import SaslAuthenticationError
from kafka_async.secrets import Secret, SecretBytes
from tests.client.sasl.test_plain import TEXT, config
from tests.client.secure_world import Rejected, ServerExchange, scram_server

if TYPE_CHECKING:
    from kafka_async.config import ClientConfig

HASHES = {"SHA-256": "sha256", "SHA-512": "sha512"}


def context(
    username: str = "user", password: str = "pencil", options: ClientConfig | None = None
) -> SaslContext:
    return SaslContext(options or config(), username, Secret(password), "b1", 9092)


class Exchange:
    """The client's side of an exchange, whose functions are computed.

    Attributes:
        sent: The client's messages.
        computed: Number of functions that were computed.
        done: True if the client has verified the broker.
    """

    def __init__(self, mechanism: Scram, found: SaslContext | None = None) -> None:
        self.sent: list[bytes] = []
        self.computed = 0
        self.done = False
        self._exchange = mechanism.authenticate(found or context())
        self._take(None)

    def receive(self, message: bytes) -> None:
        self._take(message)

    def _take(self, result: Any) -> None:
        try:
            step = self._exchange.send(result)
            while isinstance(step, Compute):
                self.computed += 1
                step = self._exchange.send(step.function(*step.arguments))
        except StopIteration:
            self.done = True
            return
        assert isinstance(step, SecretBytes)
        self.sent.append(step.reveal())


def run(client: Exchange, server: ServerExchange) -> str:
    """Let both sides talk; return the user name that the server has found."""
    next(server)
    while True:
        client.receive(server.send(client.sent[-1]))
        if client.done:
            try:
                next(server)
            except StopIteration as ended:
                return str(ended.value)


# -- vectors --------------------------------------------------------------------------------------

NONCE = "rOprNGfwEbeRWgbNEkqO"
JOINT_NONCE = f"{NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0".encode()
SERVER_FIRST = b"r=%b,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096" % JOINT_NONCE
CLIENT_FINAL = b"c=biws,r=%b,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=" % JOINT_NONCE
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_exchange_of_rfc_7677() -> None:
    client = Exchange(Scram("SHA-256", lambda: NONCE))
    assert client.sent == [b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"]
    client.receive(SERVER_FIRST)
    assert client.sent[1:] == [CLIENT_FINAL]
    client.receive(SERVER_FINAL)
    assert client.done


def test_salted_password_of_rfc_5802(monkeypatch: pytest.MonkeyPatch) -> None:
    """The RFC's example uses SHA-1, which Kafka does not offer; the formulas are the same."""
    monkeypatch.setitem(scram._HASHES, "SHA-1", "sha1")  # type: ignore[index]  # pyright: ignore[reportPrivateUsage, reportArgumentType]
    client = Exchange(Scram("SHA-1", lambda: "fyko+d2lbbFgONRv9qkxdawL"))
    client.receive(b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096")
    assert client.sent[1].endswith(b",p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=")
    client.receive(b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=")
    assert client.done


# -- against a second implementation --------------------------------------------------------------


@pytest.mark.parametrize("hash_name", HASHES)
@settings(max_examples=15)
@given(username=TEXT, password=TEXT, salt=st.binary(min_size=1, max_size=64))
def test_any_user_is_accepted_with_the_right_password_only(
    hash_name: str, username: str, password: str, salt: bytes
) -> None:
    users = {username: password}
    server = scram_server(users, HASHES[hash_name], 4096, salt)
    assert run(Exchange(Scram(hash_name), context(username, password)), server) == username
    server = scram_server(users, HASHES[hash_name], 4096, salt)
    with pytest.raises(Rejected):
        run(Exchange(Scram(hash_name), context(username, password + "x")), server)


@given(TEXT)
def test_escaped_names_have_no_separators_and_can_be_read_back(name: str) -> None:
    escaped = escape(name)
    assert "," not in escaped
    assert re.sub("=2C|=3D", "", escaped).count("=") == 0
    assert escaped.replace("=2C", ",").replace("=3D", "=") == name


def test_delegation_token_is_announced_by_an_extension() -> None:
    options = config(sasl_mechanism="SCRAM-SHA-256", sasl_delegation_token=True)
    client = Exchange(
        Scram("SHA-256", lambda: "nonce"), context("token-id", "hmac", options=options)
    )
    assert client.sent == [b"n,,n=token-id,r=nonce,tokenauth=true"]
    assert run(client, scram_server({"token-id": "hmac"}, "sha256")) == "token-id"


def test_nonces_differ_and_are_long() -> None:
    mechanism = Scram("SHA-256")
    nonces = {Exchange(mechanism).sent[0].partition(b"r=")[2] for _ in range(100)}
    assert len(nonces) == 100
    assert min(map(len, nonces)) >= 24


# -- the cache ------------------------------------------------------------------------------------


def authenticate(mechanism: Scram, password: str = "pencil", salt: bytes = b"salt") -> int:
    """Authenticate once; return the number of functions that were computed."""
    client = Exchange(mechanism, context("user", password))
    run(client, scram_server({"user": password}, "sha256", salt=salt))
    return client.computed


def test_salted_password_is_computed_once_for_a_salt() -> None:
    mechanism = Scram("SHA-256")
    assert [authenticate(mechanism) for _ in range(3)] == [1, 0, 0]
    assert authenticate(mechanism, salt=b"other") == 1
    assert authenticate(mechanism) == 0


def test_changed_password_is_computed_again_and_the_old_one_forgotten() -> None:
    mechanism = Scram("SHA-256")
    assert authenticate(mechanism, "old") == 1
    assert authenticate(mechanism, "new") == 1
    assert authenticate(mechanism, "new") == 0
    assert authenticate(mechanism, "old") == 1


def test_cache_is_bounded() -> None:
    mechanism = Scram("SHA-256")
    for number in range(MAX_CACHED_KEYS + 3):
        authenticate(mechanism, salt=b"salt %d" % number)
    assert len(mechanism._salted_passwords) == MAX_CACHED_KEYS  # pyright: ignore[reportPrivateUsage]


def test_nothing_that_is_kept_shows_a_secret() -> None:
    mechanism = Scram("SHA-256", lambda: "nonce")
    authenticate(mechanism)
    exchange = mechanism.authenticate(context("user", "pencil"))
    next(exchange)
    salt = b64encode(b"another salt")
    step = exchange.send(b"r=nonceX,s=%b,i=4096" % salt)
    assert isinstance(step, Compute)
    salted = step.function(*step.arguments)
    proof = exchange.send(salted)
    local_variables = inspect.getgeneratorlocals(exchange)
    shown = repr((vars(mechanism), step, salted, proof, local_variables))
    assert isinstance(salted, SecretBytes)
    assert isinstance(proof, SecretBytes)
    assert "pencil" not in shown
    assert repr(salted.reveal())[2:-1] not in shown
    assert proof.reveal().rpartition(b"p=")[2].decode() not in shown


# -- wrong brokers --------------------------------------------------------------------------------

SALT = b64encode(b"0123456789abcdef").decode()


def receive_first(message: str) -> None:
    Exchange(Scram("SHA-256", lambda: "nonce")).receive(message.encode())


@pytest.mark.parametrize("iterations", [4096, 1_000_000])
def test_accepts_the_bounds_of_iterations(iterations: int) -> None:
    exchange = Scram("SHA-256", lambda: "nonce").authenticate(context())
    next(exchange)
    step = exchange.send(f"r=nonce2,s={SALT},i={iterations}".encode())
    assert isinstance(step, Compute)


@pytest.mark.parametrize("iterations", [1, 4095, 1_000_001, 9_999_999_999])
def test_refuses_other_iterations_before_it_computes(iterations: int) -> None:
    with pytest.raises(SaslAuthenticationError, match="4096 to 1000000 are accepted"):
        receive_first(f"r=nonce2,s={SALT},i={iterations}")


@pytest.mark.parametrize("nonce", ["nonce", "other", "Nonce2", "nonc", ""])
def test_refuses_a_nonce_that_does_not_continue_the_clients(nonce: str) -> None:
    with pytest.raises(SaslAuthenticationError, match="nonce"):
        receive_first(f"r={nonce},s={SALT},i=4096")


@pytest.mark.parametrize(
    "message", [f"m=x,r=nonce2,s={SALT},i=4096", f"r=nonce2,s={SALT},i=4096,m=x"]
)
def test_refuses_mandatory_extensions(message: str) -> None:
    with pytest.raises(SaslAuthenticationError, match="requires an extension"):
        receive_first(message)


def test_ignores_optional_extensions() -> None:
    client = Exchange(Scram("SHA-256", lambda: NONCE))
    client.receive(SERVER_FIRST + b",x=1")
    assert len(client.sent) == 2


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("invalid-proof", "check sasl_username and sasl_password"),
        ("unknown-user", "has credentials for SCRAM-SHA-256"),
        ("no-resources", "try again later"),
        ("something-else", "see the broker's log"),
    ],
)
def test_error_of_the_broker_says_what_to_check(error: str, advice: str) -> None:
    with pytest.raises(SaslAuthenticationError, match=advice):
        receive_first(f"e={error}")
    client = Exchange(Scram("SHA-256", lambda: "nonce"))
    client.receive(f"r=nonce2,s={SALT},i=4096".encode())
    with pytest.raises(SaslAuthenticationError, match=advice):
        client.receive(f"e={error}".encode())


def test_refuses_a_wrong_server_signature() -> None:
    client = Exchange(Scram("SHA-256", lambda: "nonce"))
    client.receive(f"r=nonce2,s={SALT},i=4096".encode())
    with pytest.raises(SaslAuthenticationError, match="signature is wrong"):
        client.receive(b"v=" + b64encode(bytes(32)))
    assert not client.done


def test_refuses_the_signature_of_a_server_with_another_password() -> None:
    server = scram_server({"user": "pen"}, "sha256")
    client = Exchange(Scram("SHA-256"), context("user", "pencil"))
    next(server)
    client.receive(server.send(client.sent[-1]))
    with pytest.raises(Rejected):
        server.send(client.sent[-1])


@settings(max_examples=200)
@given(st.lists(st.binary(max_size=80), min_size=2, max_size=2))
def test_any_other_message_is_an_authentication_error(replies: list[bytes]) -> None:
    client = Exchange(Scram("SHA-256", lambda: "nonce"))
    refused = 0
    for reply in replies:
        try:
            client.receive(reply)
        except SaslAuthenticationError:
            refused += 1
            break
    assert refused
    assert not client.done
