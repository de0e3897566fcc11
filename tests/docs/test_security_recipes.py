"""Every recipe of the security page connects to an embedded cluster with secure listeners.

A recipe creates `producer`, and the test sends a record with it. Files, environment variables and
the issuer of tokens are those that the page names; only addresses are replaced.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from kafka_async import Client, Token, blocking, errors
from kafka_async.embedded import BlockingCluster, Listener, run_in_thread
from tests.client.issuer import answer, issuer
from tests.docs.markdown_blocks import ROOT, Block, blocks_of
from tests.docs.test_examples import DEADLINE, OUTPUT, environment
from tests.integration.certificates import Authority, Certificate

PAGE = ROOT / "docs" / "security.md"
ADDRESS = re.compile(r'"[\w.-]+:\d{4,5}"')
TOKEN_ENDPOINT = "https://issuer.example/oauth2/token"
KEY_PASSWORD: Final = "key-password"
PASSWORD: Final = "alice-password"
USERS: Final = {"alice": PASSWORD, "key": PASSWORD, "$ConnectionString": PASSWORD}
NOT_CONNECTED: Final = ('"GSSAPI"', '"AWS_MSK_IAM"')
"""Mechanisms that the embedded cluster does not have; their recipes only create the client."""
SEND: Final = """

import kafka_async


async def send():
    async with producer:
        await producer.send("clicks", b"sent")


kafka_async.run(send())
"""


@dataclass(frozen=True)
class Secure:
    """Holds a running cluster, and the authority of its certificates."""

    cluster: BlockingCluster
    authority: Authority
    token_id: str
    token_hmac: str

    def address(self, recipe: str) -> str:
        """Return the address of the listener that a recipe is about."""
        mutual = "ssl_certfile" in recipe
        name = "SASL" if "SASL_SSL" in recipe else "MUTUAL" if mutual else "ENCRYPTED"
        return self.cluster.bootstrap_servers_of(name)


def server_context(folder: Path, authority: Authority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    file = folder / "broker.pem"
    file.write_text(authority.issue().pem)
    context.load_cert_chain(file)
    context.load_verify_locations(cadata=authority.pem)
    return context


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    folder, authority = tmp_path_factory.mktemp("brokers"), Authority()

    def context() -> ssl.SSLContext:
        return server_context(folder, authority)

    mechanisms = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    listeners = {
        "ENCRYPTED": Listener(security_protocol="SSL", ssl_context=context()),
        "MUTUAL": Listener(security_protocol="SSL", ssl_context=context(), client_auth="required"),
        "SASL": Listener(
            security_protocol="SASL_SSL", ssl_context=context(), sasl_mechanisms=mechanisms
        ),
        "ONLY_PLAIN": Listener(
            security_protocol="SASL_SSL", ssl_context=context(), sasl_mechanisms=["PLAIN"]
        ),
        "PLAINTEXT": Listener(security_protocol="PLAINTEXT"),
    }
    with run_in_thread(brokers=1, listeners=listeners, users=USERS) as cluster:
        with blocking.Admin(
            cluster.bootstrap_servers_of("SASL"),
            security_protocol="SASL_SSL",
            ssl_cafile=authority.pem,
            sasl_mechanism="SCRAM-SHA-256",
            sasl_username="alice",
            sasl_password=PASSWORD,
        ) as admin:
            (token,) = admin.create_delegation_tokens()
        yield Secure(cluster, authority, token.token_id, token.password.reveal())
        # A response shows that the brokers have noticed the end of earlier connections.
        with blocking.Admin(cluster.bootstrap_servers_of("PLAINTEXT")) as admin:
            admin.list_topics()
        assert not cluster.failures


def unsecured_token(subject: str = "alice") -> str:
    """Return a token without a signature, which the listener accepts."""
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": subject, "iat": now - 10, "exp": now + 600})
    encoded = [urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    return b".".join([*encoded, b""]).decode()


def write_files(folder: Path, authority: Authority) -> Certificate:
    """Write the files that recipes name; return the client's certificate."""
    client = authority.issue("client.test", name="worker")
    (folder / "ca.pem").write_text(authority.pem)
    (folder / "client.pem").write_text(client.chain)
    (folder / "client.key").write_text(client.encrypted_key(KEY_PASSWORD))
    (folder / "service.cert").write_text(client.chain)
    (folder / "service.key").write_text(client.key)
    (folder / "token").write_text(unsecured_token() + "\n")
    return client


def variables(folder: Path, secure: Secure, client: Certificate) -> dict[str, str]:
    """Return the environment variables that recipes name."""
    return {
        **environment(),
        "SSL_CERT_FILE": str(folder / "ca.pem"),  # the authorities of the system
        "KAFKA_PASSWORD": PASSWORD,
        "KAFKA_NEW_PASSWORD": PASSWORD,
        "KAFKA_KEY_PASSWORD": KEY_PASSWORD,
        "KAFKA_CA": secure.authority.pem,
        "KAFKA_CERTIFICATE": client.chain,
        "KAFKA_KEY": client.key,
        "KAFKA_TOKEN_FILE": str(folder / "token"),
        "KAFKA_CLIENT_SECRET": "client-secret",
        "KAFKA_TOKEN_ID": secure.token_id,
        "KAFKA_TOKEN_HMAC": secure.token_hmac,
        "KAFKA_API_KEY": "key",
        "KAFKA_API_SECRET": PASSWORD,
        "KAFKA_USER": "alice",
        "EVENT_HUBS_CONNECTION_STRING": PASSWORD,
    }


def run_recipe(block: Block, secure: Secure, folder: Path, endpoint: str, **changed: str) -> str:
    """Run a recipe and send a record with its producer; return its output."""
    client = write_files(folder, secure.authority)
    source = ADDRESS.sub(f'"{secure.address(block.body)}"', block.body)
    source = source.replace(TOKEN_ENDPOINT, endpoint)
    if "\nproducer = " in block.body and not any(name in block.body for name in NOT_CONNECTED):
        source += SEND
    (folder / block.name).write_text(source, "utf-8")
    result = subprocess.run(
        [sys.executable, "-W", "error", block.name],
        cwd=folder,
        env=variables(folder, secure, client) | changed,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    output = f"{block.place}\n{result.stdout}\n{result.stderr}"
    assert result.returncode == 0, output
    assert not result.stderr, output
    return result.stdout


RECIPES: Final = [block for block in blocks_of(PAGE) if block.language == "python"]
OUTPUTS: Final = {
    before.line: after.body
    for before, after in zip(blocks_of(PAGE), list(blocks_of(PAGE))[1:], strict=False)
    if after.title == OUTPUT
}


def token_response() -> str:
    return json.dumps(
        {"access_token": unsecured_token(), "token_type": "Bearer", "expires_in": 600}
    )


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize("block", RECIPES, ids=lambda block: f"line{block.line}")
async def test_recipe_connects(block: Block, secure: Secure, tmp_path: Path) -> None:
    async with issuer(secure.authority, answer(200, token_response())) as tokens:
        output = await asyncio.to_thread(run_recipe, block, secure, tmp_path, tokens.url)
        assert bool(tokens.requests) == (TOKEN_ENDPOINT in block.body)
    assert output == OUTPUTS.get(block.line, "")


def recipe(words: str) -> Block:
    return next(block for block in RECIPES if words in block.body)


@pytest.mark.slow
def test_recipe_with_a_wrong_password_fails(secure: Secure, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="check sasl_username and sasl_password"):
        run_recipe(recipe('"SCRAM-SHA-512"'), secure, tmp_path, "", KAFKA_PASSWORD="wrong")


@pytest.mark.slow
def test_recipe_with_another_authority_fails(secure: Secure, tmp_path: Path) -> None:
    other = replace(secure, authority=Authority())
    with pytest.raises(AssertionError, match="its certificate is not accepted"):
        run_recipe(recipe('ssl_cafile="ca.pem"'), other, tmp_path, "")


# -- errors ---------------------------------------------------------------------------------------


async def bad_token() -> Token:
    return Token(unsecured_token().replace(".", "x.", 1))


SCRAM: Final = {
    "sasl_mechanism": "SCRAM-SHA-512",
    "sasl_username": "alice",
    "sasl_password": PASSWORD,
}
ENCRYPTED: Final = {"security_protocol": "SSL", "ssl_cafile": "OURS"}
SASL: Final = {"security_protocol": "SASL_SSL", "ssl_cafile": "OURS"}
FAULTS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "its certificate is not accepted (unable to get local issuer certificate)": (
        "ENCRYPTED",
        {**ENCRYPTED, "ssl_cafile": "OTHERS"},
    ),
    "it requires a client certificate": ("MUTUAL", ENCRYPTED),
    "it does not trust the issuer of the client's certificate": (
        "MUTUAL",
        {**ENCRYPTED, "ssl_certfile": "OTHERS", "ssl_keyfile": "OTHERS"},
    ),
    "if this is a plaintext port": ("PLAINTEXT", ENCRYPTED),
    "it answers in TLS, or: or a TLS port": ("ENCRYPTED", {}),
    "this listener requires SASL": ("SASL", ENCRYPTED),
    "the listener does not offer": ("ONLY_PLAIN", {**SASL, **SCRAM}),
    "check sasl_username and sasl_password": (
        "SASL",
        {**SASL, **SCRAM, "sasl_password": "wrong"},
    ),
    "begins or ends with a space or a line break": (
        "SASL",
        {**SASL, **SCRAM, "sasl_password": f"{PASSWORD}\n"},
    ),
    "is PEM text": (
        "MUTUAL",
        {**ENCRYPTED, "ssl_certfile": "OURS", "ssl_keyfile": "-----BEGIN PRIVATE KEY-----\nMIIE"},
    ),
    "rejected the token of": (
        "SASL",
        {**SASL, "sasl_mechanism": "OAUTHBEARER", "sasl_token_provider": bad_token},
    ),
    "the broker expects no authentication here": ("ENCRYPTED", {**SASL, **SCRAM}),
    "shows the credentials to readers of the network": (
        "SASL",
        {**SCRAM, "security_protocol": "SASL_PLAINTEXT"},
    ),
}
"""By text of the error table: a listener, and the options of a client that cannot connect to it."""


def table() -> dict[str, str]:
    """Return the names of the error classes by the texts of the page's table."""
    text = PAGE.read_text("utf-8").partition("\n## Errors\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| (.+?) \| `(\w+)` \|", text, re.MULTILINE))


@pytest.mark.asyncio
@pytest.mark.parametrize("said", FAULTS)
async def test_error_of_the_table_is_raised_at_the_start(said: str, secure: Secure) -> None:
    listener, given = FAULTS[said]
    others = Authority()
    leaf = others.issue("client.test")
    values = {
        ("ssl_cafile", "OURS"): secure.authority.pem,
        ("ssl_cafile", "OTHERS"): others.pem,
        ("ssl_certfile", "OURS"): secure.authority.pem,
        ("ssl_certfile", "OTHERS"): leaf.chain,
        ("ssl_keyfile", "OTHERS"): leaf.key,
    }
    options: dict[str, Any] = {
        name: values.get((name, value), value) if isinstance(value, str) else value
        for name, value in given.items()
    }
    expected = getattr(errors, table()[said])
    with pytest.raises(expected) as raised:
        await Client(secure.cluster.bootstrap_servers_of(listener), **options).start()
    assert type(raised.value) is expected
    forms = said.partition(" (")[0].split(", or: ")
    assert any(form in str(raised.value) for form in forms)
