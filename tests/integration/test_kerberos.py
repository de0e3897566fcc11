"""GSSAPI with a key distribution center of MIT Kerberos and a broker of Apache Kafka."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kafka_async import Client, Consumer, Producer
from kafka_async.errors import (
    BootstrapError,
    SaslAuthenticationError,
    UnsupportedSaslMechanismError,
)
from kafka_async.testing.backends.apache import ApacheBackend
from kafka_async.testing.backends.security import ClusterSecurity, SecureListener
from tests.integration.realm import NAME, Realm, missing_commands

if TYPE_CHECKING:
    from tests.conftest import CannotRun

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.asyncio]

BROKER = f"kafka/127.0.0.1@{NAME}"
SECONDS_FOR_PERMANENT_ERRORS = 20.0
"""More than the 2 s promised, for a machine that is busy; less than any time-out."""


class Kerberos(NamedTuple):
    """Holds a realm, a broker in it, and the key of the principal alice."""

    realm: Realm
    servers: str
    keytab: Path

    def options(self, **options: Any) -> dict[str, Any]:
        """Return the options of a client that authenticates as alice by her keytab."""
        return {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "GSSAPI",
            "sasl_kerberos_principal": f"alice@{NAME}",
            "sasl_kerberos_keytab": str(self.keytab),
            **options,
        }


@pytest.fixture(scope="module")
def kerberos(tmp_path_factory: pytest.TempPathFactory, cannot_run: CannotRun) -> Iterator[Kerberos]:
    missing = missing_commands()
    if importlib.util.find_spec("gssapi") is None:
        missing.append("gssapi")
    if missing:
        cannot_run("Kerberos", f"run make kdc as root; missing: {', '.join(missing)}")
    directory = tmp_path_factory.mktemp("realm")
    realm = Realm(directory)
    with pytest.MonkeyPatch.context() as environment, realm:
        for name, value in realm.variables.items():
            environment.setenv(name, value)
        alice, broker = realm.keytab("alice"), realm.keytab("kafka/127.0.0.1")
        realm.keytab("other/127.0.0.1")
        login = (
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
            f'keyTab="{broker}" principal="{BROKER}";'
        )
        backend = ApacheBackend(
            security=ClusterSecurity(
                listeners={"KERBEROS": SecureListener(security_protocol="SASL_PLAINTEXT")},
                super_users=["User:alice"],
            ),
            properties={
                "listener.name.kerberos.sasl.enabled.mechanisms": "GSSAPI",
                "listener.name.kerberos.gssapi.sasl.jaas.config": login,
                "sasl.kerberos.service.name": "kafka",
            },
            jvm_options=[f"-Djava.security.krb5.conf={realm.config}"],
        )
        with backend:
            yield Kerberos(realm, backend.bootstrap_servers_of("KERBEROS"), alice)


async def test_produces_and_consumes_with_a_keytab(kerberos: Kerberos) -> None:
    async with Producer(kerberos.servers, **kerberos.options()) as producer:
        for number in range(10):
            await producer.send("keytab", b"%d" % number)
    async with Consumer(
        kerberos.servers, topics=["keytab"], **kerberos.options(auto_offset_reset="earliest")
    ) as consumer:
        values = [(await anext(consumer)).value for _ in range(10)]
    assert values == [b"%d" % number for number in range(10)]


async def test_authenticates_with_the_credential_cache(kerberos: Kerberos) -> None:
    options = kerberos.options(sasl_kerberos_principal=None, sasl_kerberos_keytab=None)
    kerberos.realm.login("alice", kerberos.keytab)
    try:
        async with Producer(kerberos.servers, **options) as producer:
            await producer.send("cache", b"value")
    finally:
        kerberos.realm.logout()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"sasl_kerberos_service_name": "unknown"}, "not found in Kerberos database"),
        ({"sasl_kerberos_service_name": "other"}, r"check the Kerberos ticket .* the service name"),
        ({"sasl_kerberos_keytab": "/nonexistent.keytab"}, r"check the ticket \(klist\)"),
        (
            {"sasl_kerberos_keytab": None, "sasl_kerberos_principal": None},
            r"check the ticket \(klist\)",
        ),
        ({"sasl_kerberos_principal": f"bob@{NAME}"}, r"check the ticket \(klist\)"),
    ],
)
async def test_wrong_credentials_raise_at_once(
    kerberos: Kerberos, options: dict[str, Any], match: str
) -> None:
    client = Client(
        kerberos.servers,
        **kerberos.options(default_api_timeout_ms=1000 * SECONDS_FOR_PERMANENT_ERRORS, **options),
    )
    with pytest.raises(SaslAuthenticationError, match=match):
        await client.start()


async def test_another_mechanism_is_refused_with_those_that_are_offered(
    kerberos: Kerberos,
) -> None:
    client = Client(
        kerberos.servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="alice",
        sasl_password="secret",
        sasl_allow_plaintext=True,
    )
    with pytest.raises(UnsupportedSaslMechanismError, match="GSSAPI"):
        await client.start()


async def test_retries_while_no_key_distribution_center_can_be_reached(
    kerberos: Kerberos,
) -> None:
    kerberos.realm.stop()
    try:
        client = Client(kerberos.servers, **kerberos.options(default_api_timeout_ms=3000))
        with pytest.raises(BootstrapError, match="no key distribution center"):
            await client.start()
    finally:
        kerberos.realm.start()
    async with Client(kerberos.servers, **kerberos.options()):
        pass
