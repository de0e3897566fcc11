"""Keys and their passwords are searched in what clients with TLS show, also when they fail."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from kafka_async import Client
from kafka_async.errors import InvalidConfigurationError
from kafka_async.secrets import Secret
from tests.client.test_tls import encrypted, request
from tests.client.tls_broker import Authority, TlsBroker, chain_text, reconnect, server_context
from tests.planted_secrets import KEY_PASSWORD, PASSWORD, secrets_in
from tests.test_secrets_at_run_time import Shown, objects_of

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.may_block,  # the test makes certificates and reads files in the loop
]


class Key:
    """The options of a client with a certificate, and what must not be shown of its key."""

    def __init__(self, form: str, directory: Path) -> None:
        self.authority = Authority(directory)
        self.keyfile = directory / "client.key"
        certificate = self.authority.ca.issue_cert("client.example", common_name="alice")
        text = certificate.private_key_pem.bytes().decode()
        if "encrypted" in form:
            text = encrypted(text.encode(), KEY_PASSWORD)
        self.keyfile.write_text(text)
        self.lines = [line for line in text.splitlines() if not line.startswith("-----")]
        self.options: dict[str, Any] = {
            "security_protocol": "SSL",
            "ssl_cafile": self.authority.cafile,
            "ssl_certfile": chain_text(certificate),
            "ssl_keyfile": str(self.keyfile) if "file" in form else text,
        }
        if "encrypted" in form:
            self.options["ssl_password"] = KEY_PASSWORD

    def parts_in(self, text: str) -> set[str]:
        """Return the secrets of the key that a text contains."""
        return secrets_in(text) | {line for line in self.lines if line in text}

    async def listen(self) -> TlsBroker:
        """Start a broker that requires a certificate of the authority."""
        broker = TlsBroker()
        certificate = self.authority.issue("localhost")
        await broker.start(server_context(certificate, clients=self.authority))
        return broker


FORMS = ["file", "text", "encrypted file", "encrypted text"]


@pytest.fixture(params=FORMS)
def key(request: pytest.FixtureRequest, tmp_path: Path) -> Key:
    return Key(request.param, tmp_path)


@pytest.fixture
def shown(caplog: pytest.LogCaptureFixture) -> Shown:
    caplog.set_level(logging.DEBUG)
    return Shown(caplog)


async def test_search_finds_the_key(key: Key) -> None:
    assert key.parts_in(key.keyfile.read_text()) == set(key.lines)
    assert len(key.lines) > 2


async def test_connected_client_shows_no_key(key: Key, shown: Shown) -> None:
    broker = await key.listen()
    try:
        server = f"localhost:{broker.port}"
        async with Client(server, hooks=shown.hooks, **key.options) as client:
            await request(client)
            parts = list(objects_of(client))
            assert any(isinstance(part, Secret) for part in parts)
            for part in (client, client.health(), *parts):
                shown.add(part)
    finally:
        await broker.stop()
    text = shown.text()
    assert "Connected(" in text
    assert key.parts_in(text) == set()


async def test_key_that_became_unusable_is_not_shown(tmp_path: Path, shown: Shown) -> None:
    key = Key("encrypted file", tmp_path)
    broker = await key.listen()
    good = key.keyfile.read_text()
    try:
        server = f"localhost:{broker.port}"
        async with Client(server, hooks=shown.hooks, **key.options) as client:
            for text in (good.replace("\n", "", 2), key.lines[1], PASSWORD):
                key.keyfile.write_text(text)
                assert not await client.reload_certificates()
                await reconnect(client)
                await request(client)
            shown.add(client.health())
    finally:
        await broker.stop()
    text = shown.text()
    assert text.count("the certificates before stay in use") >= 3
    assert key.parts_in(text) == set()


@pytest.mark.parametrize(
    "wrong",
    [
        {"ssl_password": PASSWORD},
        {"ssl_password": lambda: PASSWORD},
        {"ssl_certfile": "missing.pem"},
        {"ssl_cafile": "missing.pem"},
    ],
    ids=["password", "function", "certificate", "authority"],
)
async def test_refused_options_show_no_key(
    tmp_path: Path, shown: Shown, wrong: dict[str, Any]
) -> None:
    key = Key("encrypted text", tmp_path)
    client = Client("localhost:1", hooks=shown.hooks, **(key.options | wrong))
    async with asyncio.timeout(20):
        with pytest.raises(InvalidConfigurationError, match="ssl_") as caught:
            await client.start()
    shown.add(caught.value)
    assert key.parts_in(shown.text()) == set()
