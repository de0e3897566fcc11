"""Planted secrets are searched in what running clients show: errors, logs, events and health."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pytest

from kafka_async import Producer
from kafka_async.admin import UserScramCredentialUpsertion
from kafka_async.embedded import Listener
from kafka_async.errors import KafkaError
from kafka_async.hooks import ClientEvent, Hooks
from kafka_async.secrets import Secret, SecretBytes
from kafka_async.types import Token
from tests.embedded_client import InMemory
from tests.planted_secrets import NEW_PASSWORD, PASSWORD, TOKEN, secrets_in, text_of

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
FAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "SaslHandshake is refused": {"api": "SaslHandshake", "error": "UNSUPPORTED_SASL_MECHANISM"},
    "SaslHandshake hangs": {"api": "SaslHandshake", "hang": True},
    "SaslAuthenticate hangs": {"api": "SaslAuthenticate", "hang": True},
    "SaslAuthenticate disconnects": {"api": "SaslAuthenticate", "disconnect": "before"},
    "SaslAuthenticate disconnects later": {"api": "SaslAuthenticate", "disconnect": "after"},
    "SaslAuthenticate fails": {"api": "SaslAuthenticate", "error": "SASL_AUTHENTICATION_FAILED"},
    "SaslAuthenticate is illegal": {"api": "SaslAuthenticate", "error": "ILLEGAL_SASL_STATE"},
    "SaslAuthenticate fails otherwise": {
        "api": "SaslAuthenticate",
        "error": "UNKNOWN_SERVER_ERROR",
    },
    "Metadata fails": {"api": "Metadata", "error": "UNKNOWN_SERVER_ERROR"},
}


def validate(token: str) -> tuple[str, float | None]:
    assert token == TOKEN
    return "alice", None


async def planted_token() -> Token:
    return Token(TOKEN)


def cluster() -> InMemory:
    listener = Listener(
        security_protocol="SASL_PLAINTEXT", sasl_mechanisms=MECHANISMS, oauthbearer=validate
    )
    return InMemory(listeners={"CLIENTS": listener}, users={"alice": PASSWORD})


def options_for(mechanism: str, **others: Any) -> dict[str, Any]:
    """Return the options of a client that authenticates, whose calls end after some seconds."""
    credentials: dict[str, Any] = {"sasl_username": "alice", "sasl_password": PASSWORD}
    if mechanism == "OAUTHBEARER":
        credentials = {"sasl_token_provider": planted_token}
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_allow_plaintext": True,
        "sasl_mechanism": mechanism,
        "default_api_timeout_ms": 5000,
        "request_timeout_ms": 2000,
        "socket_connection_setup_timeout_ms": 2000,
        "socket_connection_setup_timeout_max_ms": 2000,
        **credentials,
        **others,
    }


class Shown:
    """Collects what the package shows during a test."""

    def __init__(self, logs: pytest.LogCaptureFixture) -> None:
        self.hooks = Hooks()
        self.events: list[ClientEvent] = []
        self.texts: list[str] = []
        self._logs = logs
        self.hooks.listen(ClientEvent, self.events.append)

    def add(self, value: object) -> None:
        """Add an exception with its causes and variables, or the text of an object."""
        is_error = isinstance(value, BaseException)
        self.texts.append(text_of(value) if is_error else f"{value!r} {value}")

    def secrets(self) -> set[str]:
        """Return the names of the secrets that were shown."""
        return secrets_in(self.text())

    def text(self) -> str:
        """Return all that was shown, with events and logs."""
        for event in self.events:
            self.add(event)
            for name in getattr(event, "__dataclass_fields__", ()):
                self.add(getattr(event, name))
        for record in self._logs.records:
            self.texts += [record.getMessage(), repr(record.args), repr(record.__dict__)]
            if record.exc_info and record.exc_info[1]:
                self.add(record.exc_info[1])
        return "\n".join(self.texts)


@pytest.fixture
def shown(caplog: pytest.LogCaptureFixture) -> Iterator[Shown]:
    with caplog.at_level(logging.DEBUG):
        yield Shown(caplog)


def objects_of(owner: object) -> Iterator[object]:
    """Yield all objects of the package that an object refers to, directly or not."""
    pending, seen = [owner], {id(owner)}
    while pending:
        each = pending.pop()
        if type(each).__module__.startswith("kafka_async"):
            yield each
        for other in gc.get_referents(each):
            if id(other) not in seen and not isinstance(other, type) and _in_client(other):
                seen.add(id(other))
                pending.append(other)


def _in_client(value: object) -> bool:
    module = type(value).__module__
    return type(value) in (dict, list, tuple, set, frozenset) or (
        module.startswith("kafka_async") and not module.startswith("kafka_async.embedded")
    )


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_working_clients_show_no_secret(shown: Shown, mechanism: str) -> None:
    async with cluster() as world:
        options = options_for(mechanism)
        await world.cluster.create_topic("t")
        async with world.client(hooks=shown.hooks, **options) as client:
            producer, admin = Producer(client), world.admin(**options)
            async with producer, world.consumer("t", **options) as consumer, admin:
                await producer.send("t", b"v")
                await consumer.poll(timeout=1)
                change = UserScramCredentialUpsertion("bob", "SCRAM-SHA-256", NEW_PASSWORD)
                await admin.alter_user_scram_credentials([change])
                for each in (client, producer, consumer, admin):
                    shown.add(each.health())
                    parts = list(objects_of(each))
                    held = any(isinstance(part, Secret | SecretBytes) for part in parts)
                    assert held or mechanism == "OAUTHBEARER"
                    for part in parts:
                        shown.add(part)
                shown.add(producer.statistics())
                shown.add(consumer.statistics())
                shown.add(await admin.describe_user_scram_credentials())
    assert len(shown.events) > 10
    assert len(shown.texts) > 100
    assert shown.secrets() == set()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_failed_connections_show_no_secret(shown: Shown, mechanism: str, fault: str) -> None:
    async with cluster() as world:
        world.cluster.faults.add(count=None, **FAULTS[fault])
        client = world.client(hooks=shown.hooks, **options_for(mechanism))
        with pytest.raises(KafkaError) as caught:
            await client.start()
        shown.add(caught.value)
        shown.add(client.health())
        await client.stop()
    assert shown.secrets() == set()


WRONG: Final[Mapping[str, Mapping[str, Any]]] = {
    "wrong password": {"sasl_password": NEW_PASSWORD},
    "wrong user": {"sasl_username": "mallory"},
    "broker without SASL": {},
    "TLS against plaintext": {"security_protocol": "SASL_SSL"},
    "no SASL": {"security_protocol": "PLAINTEXT"},
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
async def test_refused_credentials_show_no_secret(shown: Shown, mechanism: str, wrong: str) -> None:
    world = InMemory() if wrong == "broker without SASL" else cluster()
    async with world:
        options = options_for(mechanism, **WRONG[wrong])
        if wrong == "no SASL":
            options = {k: v for k, v in options.items() if not k.startswith("sasl_")}
        client = world.client(hooks=shown.hooks, **options)
        with pytest.raises(KafkaError) as caught:
            await client.start()
        shown.add(caught.value)
        await client.stop()
    assert shown.secrets() == set()


async def fails() -> Token:
    raise OSError("the issuer cannot be reached")


@pytest.mark.parametrize("provider", [fails, lambda: None, lambda: TOKEN])
async def test_failed_token_providers_show_no_secret(
    shown: Shown, provider: Callable[[], Any]
) -> None:
    async with cluster() as world:
        options = options_for("OAUTHBEARER", sasl_token_provider=provider)
        client = world.client(hooks=shown.hooks, **options)
        with pytest.raises(KafkaError) as caught:
            await client.start()
        shown.add(caught.value)
        await client.stop()
    assert shown.secrets() == set()


async def test_unreachable_brokers_show_no_secret(shown: Shown) -> None:
    async with cluster() as world:
        await world.cut_off(1)
        client = world.client(hooks=shown.hooks, **options_for("PLAIN"))
        with pytest.raises(KafkaError) as caught:
            await client.start()
        shown.add(caught.value)
        await client.stop()
    assert shown.secrets() == set()


@pytest.mark.parametrize("effect", [{"hang": True}, {"disconnect": "before"}])
async def test_failed_admin_calls_show_no_secret(shown: Shown, effect: dict[str, Any]) -> None:
    async with cluster() as world, world.admin(**options_for("PLAIN")) as admin:
        world.cluster.faults.add(api="AlterUserScramCredentials", count=None, **effect)
        change = UserScramCredentialUpsertion("bob", "SCRAM-SHA-512", NEW_PASSWORD)
        with pytest.raises((KafkaError, TimeoutError)) as caught:
            await admin.alter_user_scram_credentials([change])
        shown.add(caught.value)
        shown.add(change)
    assert shown.secrets() == set()


async def test_wrong_arguments_of_scram_credentials_show_no_secret(shown: Shown) -> None:
    make: Any = UserScramCredentialUpsertion
    for arguments in (
        ("bob", "MD5", NEW_PASSWORD),
        ("bob", "SCRAM-SHA-256", NEW_PASSWORD.encode()),
        ("bob", "SCRAM-SHA-256", [NEW_PASSWORD]),
        ("bob", "SCRAM-SHA-256", NEW_PASSWORD, 4096, 7),
    ):
        with pytest.raises((TypeError, ValueError)) as caught:
            make(*arguments)
        shown.add(caught.value)
    async with cluster() as world, world.admin(**options_for("PLAIN")) as admin:
        for user, iterations in (("", 4096), ("bob", 1)):
            with pytest.raises((KafkaError, TypeError, ValueError)) as caught:
                await admin.alter_user_scram_credentials(
                    [make(user, "SCRAM-SHA-256", NEW_PASSWORD, iterations)]
                )
            shown.add(caught.value)
    assert shown.secrets() == set()
