"""TLS, SASL and the authorizer: every protocol, mechanism and kind of client, and every failure.

A client that cannot succeed raises an error that names the cause and what to do, after one
connection.
"""

from __future__ import annotations

import asyncio
import gc
import ssl
import warnings
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kafka_async import Admin, Client, Consumer, NewTopic, Producer, Token, blocking
from kafka_async.client.connection.diagnosis import MAX_HANG_UPS
from kafka_async.client.metadata.request_router import AnyBroker
from kafka_async.client.security.sasl.mechanism import Await
from kafka_async.config import ClientConfig
from kafka_async.errors import (
    AuthenticationError,
    BootstrapError,
    ClusterAuthorizationError,
    GroupAuthorizationError,
    KafkaError,
    SaslAuthenticationError,
    SslAuthenticationError,
    TopicAuthorizationError,
    TransactionalIdAuthorizationError,
    UnsupportedSaslMechanismError,
)
from kafka_async.protocol.messages.describe_cluster import DescribeClusterRequest
from kafka_async.secrets import Secret, SecretBytes
from tests.integration.helpers import create_topic, create_topic_blocking
from tests.integration.secure_cluster import (
    ADMIN,
    ALICE,
    COMBINATIONS,
    MECHANISMS,
    USERS,
    counting_proxy,
)
from tests.integration.tokens import unsecured_token

if TYPE_CHECKING:
    from kafka_async.client.security.sasl.mechanism import Exchange
    from tests.integration.secure_cluster import SecureCluster

Options = dict[str, Any]
TIMEOUT = 5.0
"""Maximum seconds until an error is raised; it takes less than two on an idle machine."""
VALUES = [b"%d" % number for number in range(20)]
every_combination = pytest.mark.parametrize(("listener", "mechanism"), COMBINATIONS)


def some_combinations(first: int) -> pytest.MarkDecorator:
    """Return every fourth combination, so that four kinds of clients have all of them.

    All kinds open connections by the same code. Each has SASL with and without TLS; the blocking
    clients have OAUTHBEARER, whose token comes from a function of the application.
    """
    return pytest.mark.parametrize(("listener", "mechanism"), COMBINATIONS[first::4])


# -- clients --------------------------------------------------------------------------------------


@some_combinations(0)
@pytest.mark.asyncio
async def test_producer_sends(
    secure_cluster: SecureCluster, listener: str, mechanism: str | None
) -> None:
    topic = await create_topic(secure_cluster.handle)
    async with Producer(**secure_cluster.options(listener, mechanism)) as producer:
        await producer.send_many(topic, VALUES)
    assert [record.value for record in await secure_cluster.handle.read(topic)] == VALUES


@some_combinations(3)
@pytest.mark.asyncio
async def test_consumer_reads_in_a_group(
    secure_cluster: SecureCluster, listener: str, mechanism: str | None
) -> None:
    topic = await create_topic(secure_cluster.handle)
    await secure_cluster.handle.produce(topic, VALUES)
    group, values = secure_cluster.handle.group(), list[bytes | None]()
    async with Consumer(
        **secure_cluster.options(listener, mechanism),
        topics=[topic],
        group_id=group,
        auto_offset_reset="earliest",
    ) as consumer:
        async with asyncio.timeout(30):
            while len(values) < len(VALUES):
                values += [record.value for record in await consumer.poll(timeout=1)]
        await consumer.commit()
    assert values == VALUES


@some_combinations(2)
@pytest.mark.asyncio
async def test_admin_creates_a_topic(
    secure_cluster: SecureCluster, listener: str, mechanism: str | None
) -> None:
    topic = secure_cluster.handle.topic()
    async with Admin(**secure_cluster.options(listener, mechanism)) as admin:
        await admin.create_topics([NewTopic(topic, 2)])
        described = await admin.describe_topics([topic])
    assert len(described[topic].partitions) == 2


@every_combination
@pytest.mark.asyncio
async def test_client_connects_to_the_advertised_address_of_its_listener(
    secure_cluster: SecureCluster, listener: str, mechanism: str | None
) -> None:
    async with Client(**secure_cluster.options(listener, mechanism)) as client:
        response = await client.request(DescribeClusterRequest(), to=AnyBroker())
    [broker] = response.brokers
    assert f"{broker.host}:{broker.port}" == secure_cluster.servers(listener)


@some_combinations(1)
def test_blocking_clients_send_and_read(
    secure_cluster: SecureCluster, listener: str, mechanism: str | None
) -> None:
    topic = create_topic_blocking(secure_cluster.handle)
    options = secure_cluster.options(listener, mechanism)
    with blocking.Producer(**options) as producer:
        producer.send_many(topic, VALUES)
    values: list[bytes | None] = []
    with blocking.Consumer(**options, topics=[topic], auto_offset_reset="earliest") as consumer:
        while len(values) < len(VALUES):
            values += [record.value for record in consumer.poll(timeout=30)]
    assert values == VALUES


async def provide_with_extensions() -> Token:
    token = unsecured_token(ADMIN)
    return Token(token.value, token.expires_at, {"logicalCluster": "lkc-1", "trace": "a b"})


class OwnPlain:
    """A mechanism of an application: PLAIN with a password that is looked up."""

    name = "PLAIN"
    needs_tls = True

    def check(self, config: object) -> None:
        """Accept any options."""

    def authenticate(self, context: object) -> Exchange:
        async def look_up() -> Secret:
            return Secret(USERS[ADMIN])

        password = yield Await(look_up, "look_up")
        yield SecretBytes(b"\0".join((b"", ADMIN.encode(), password.reveal().encode())))


def with_encrypted_key(cluster: SecureCluster) -> Options:
    key = cluster.certificates.client.encrypted_key("password of the key")
    return cluster.options("MTLS", ssl_keyfile=key, ssl_password=lambda: "password of the key")


def without_host_name_check(cluster: SecureCluster) -> Options:
    port = cluster.servers("SSL").rpartition(":")[2]
    servers = f"localhost:{port}"  # The certificate is for 127.0.0.1.
    return cluster.options("SSL", bootstrap_servers=servers, ssl_check_hostname=False)


def in_java_names(cluster: SecureCluster) -> Options:
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    password = USERS[ADMIN].replace("\\", "\\\\").replace('"', '\\"')
    properties = {
        "bootstrap.servers": cluster.servers("SASL_SSL"),
        "security.protocol": "sasl_ssl",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": cluster.certificates.authority.pem,
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{login} username="{ADMIN}" password="{password}";',
    }
    return {"config": ClientConfig.from_properties(properties)}


WAYS: dict[str, Callable[[SecureCluster], Options]] = {
    "TLS 1.2": lambda cluster: cluster.options("MTLS", ssl_enabled_protocols="TLSv1.2"),
    "TLS 1.3": lambda cluster: cluster.options("MTLS", ssl_enabled_protocols="TLSv1.3"),
    "an encrypted key and a function for its password": with_encrypted_key,
    "no check of the host name": without_host_name_check,
    "an SSLContext": lambda cluster: cluster.options(
        "SSL",
        ssl_cafile=None,
        ssl_context=ssl.create_default_context(cafile=cluster.certificates.cafile),
    ),
    "SASL extensions": lambda cluster: cluster.options(
        "SASL_SSL", "OAUTHBEARER", sasl_token_provider=provide_with_extensions
    ),
    "a mechanism of the application": lambda cluster: cluster.options(
        "SASL_SSL", sasl_mechanism=OwnPlain()
    ),
    "Java's properties": in_java_names,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.asyncio
async def test_client_connects_with(
    secure_cluster: SecureCluster, way: Callable[[SecureCluster], Options]
) -> None:
    async with Client(**way(secure_cluster)) as client:
        response = await client.request(DescribeClusterRequest(), to=AnyBroker())
    assert len(response.brokers) == 1


def test_a_client_that_stops_at_once_leaves_no_socket(secure_cluster: SecureCluster) -> None:
    """Checks that the end of TLS, which the broker has to answer, does not outlive the client."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(5):
            client = Client(**secure_cluster.options("SASL_SSL", "PLAIN"))
            asyncio.run(start_and_stop(client))
        gc.collect()
    assert [str(one.message) for one in caught if one.category is ResourceWarning] == []


# -- failures -------------------------------------------------------------------------------------


class Failure(NamedTuple):
    """A mistake in the options of a client.

    Attributes:
        at: The listener that the client connects to.
        options_of: The listener that the options are right for.
        error: The error.
        advice: Words of its message.
        mechanism: The SASL mechanism.
        changed: Options that are wrong.
        certificate: Name of the client's certificate.
        cafile: Name of the file of authorities.
        host: Host name of the broker.
        closed: True if the broker closes the connection without a reason, which may be a restart
            until it has done so several times.
    """

    at: str
    options_of: str
    error: type[KafkaError]
    advice: str
    mechanism: str | None = None
    changed: Options = {}  # noqa: RUF012  # never changed
    certificate: str = ""
    cafile: str = ""
    host: str = "127.0.0.1"
    closed: bool = False

    def options(self, cluster: SecureCluster, port: str) -> Options:
        """Return the options for a client that connects to the broker by `port`."""
        options = cluster.options(self.options_of, self.mechanism, **self.changed)
        options["bootstrap_servers"] = f"{self.host}:{port}"
        if self.certificate:
            certificate = getattr(cluster.certificates, self.certificate)
            options |= {"ssl_certfile": certificate.chain, "ssl_keyfile": certificate.key}
        if self.cafile:
            options["ssl_cafile"] = getattr(cluster.certificates, self.cafile)
        return options


async def provide_nonsense() -> Token:
    return Token("no-token")


WRONG = "wrong-secret"
PASSWORDS = MECHANISMS[:3]
FAILURES = {
    **{
        f"wrong password of {name}": Failure(
            "SASL_SSL",
            "SASL_SSL",
            SaslAuthenticationError,
            "sasl_password",
            name,
            {"sasl_password": WRONG},
        )
        for name in PASSWORDS
    },
    **{
        f"unknown user of {name}": Failure(
            "SASL_SSL",
            "SASL_SSL",
            SaslAuthenticationError,
            "sasl_username",
            name,
            {"sasl_username": "unknown", "sasl_password": WRONG},
        )
        for name in PASSWORDS
    },
    "token that is not valid": Failure(
        "SASL_SSL",
        "SASL_SSL",
        SaslAuthenticationError,
        "token",
        "OAUTHBEARER",
        {"sasl_token_provider": provide_nonsense},
    ),
    "authority that is not trusted": Failure(
        "SSL", "SSL", SslAuthenticationError, "ssl_cafile", cafile="other_cafile"
    ),
    "host name that the certificate does not have": Failure(
        "SSL", "SSL", SslAuthenticationError, "localhost", host="localhost"
    ),
    "expired certificate of a broker": Failure(
        "EXPIRED", "EXPIRED", SslAuthenticationError, "expired"
    ),
    "mTLS without a certificate": Failure("MTLS", "SSL", SslAuthenticationError, "ssl_certfile"),
    "mTLS by TLS 1.2 without a certificate": Failure(
        "MTLS",
        "SSL",
        SslAuthenticationError,
        "ssl_certfile",
        changed={"ssl_enabled_protocols": "TLSv1.2"},
    ),
    "certificate of a client by another authority, TLS 1.2": Failure(
        "MTLS",
        "MTLS",
        SslAuthenticationError,
        "ssl_certfile",
        changed={"ssl_enabled_protocols": "TLSv1.2"},
        certificate="wrong_ca_client",
    ),
    "expired certificate of a client": Failure(
        "MTLS", "MTLS", SslAuthenticationError, "ssl_certfile", certificate="expired_client"
    ),
    "certificate of a client by another authority": Failure(
        "MTLS", "MTLS", SslAuthenticationError, "ssl_certfile", certificate="wrong_ca_client"
    ),
    "TLS at a plaintext listener": Failure(
        "PLAINTEXT", "SSL", BootstrapError, "leave security_protocol out", closed=True
    ),
    "TLS at a SASL listener without TLS": Failure(
        "SASL_PLAINTEXT",
        "SASL_SSL",
        BootstrapError,
        'security_protocol="SASL_PLAINTEXT"',
        "PLAIN",
        closed=True,
    ),
    "plaintext at a TLS listener": Failure(
        "SSL", "PLAINTEXT", KafkaError, 'security_protocol="SSL"'
    ),
    "SASL without TLS at a TLS listener": Failure(
        "SASL_SSL", "SASL_PLAINTEXT", KafkaError, 'security_protocol="SASL_SSL"', "PLAIN"
    ),
    "no SASL at a SASL listener": Failure(
        "SASL_SSL", "SSL", AuthenticationError, 'security_protocol="SASL_SSL"', closed=True
    ),
    "no SASL at a SASL listener without TLS": Failure(
        "SASL_PLAINTEXT",
        "PLAINTEXT",
        AuthenticationError,
        'security_protocol="SASL_PLAINTEXT"',
        closed=True,
    ),
    "SASL at a listener without SASL": Failure(
        "SSL", "SASL_SSL", AuthenticationError, "security_protocol", "PLAIN"
    ),
    "mechanism that the broker does not offer": Failure(
        "OIDC", "SASL_SSL", UnsupportedSaslMechanismError, "OAUTHBEARER", "PLAIN"
    ),
}
every_failure = pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)


async def start_and_stop(client: Client | Producer | Consumer | Admin) -> None:
    async with client:
        pass


@every_failure
@pytest.mark.asyncio
async def test_start_raises_what_to_do_without_retries(
    secure_cluster: SecureCluster, failure: Failure
) -> None:
    async with counting_proxy(secure_cluster.servers(failure.at)) as proxy:
        client = Client(**failure.options(secure_cluster, proxy.port))
        with pytest.raises(failure.error) as raised:
            async with asyncio.timeout(TIMEOUT):
                await start_and_stop(client)
        assert proxy.accepted == (MAX_HANG_UPS if failure.closed else 1)
    assert failure.advice in str(raised.value)
    assert WRONG not in repr(raised.value)


@pytest.mark.parametrize("kind", [Producer, Consumer, Admin])
@pytest.mark.asyncio
async def test_every_client_raises_the_error_of_a_wrong_password(
    secure_cluster: SecureCluster, kind: type[Producer | Consumer | Admin]
) -> None:
    failure = FAILURES["wrong password of SCRAM-SHA-256"]
    async with counting_proxy(secure_cluster.servers(failure.at)) as proxy:
        client = kind(**failure.options(secure_cluster, proxy.port))
        with pytest.raises(SaslAuthenticationError, match="sasl_password"):
            async with asyncio.timeout(TIMEOUT):
                await start_and_stop(client)
        assert proxy.accepted == 1


def test_blocking_clients_raise_the_error_of_a_wrong_password(
    secure_cluster: SecureCluster,
) -> None:
    options = secure_cluster.options("SASL_SSL", "PLAIN", sasl_password=WRONG)
    with pytest.raises(SaslAuthenticationError, match="sasl_password"):
        blocking.Producer(**options).start()


@pytest.mark.asyncio
async def test_a_client_with_the_right_password_starts_after_one_with_a_wrong_password(
    secure_cluster: SecureCluster,
) -> None:
    wrong = secure_cluster.options("SASL_SSL", "SCRAM-SHA-512", sasl_password=WRONG)
    with pytest.raises(SaslAuthenticationError):
        await start_and_stop(Client(**wrong))
    await start_and_stop(Client(**secure_cluster.options("SASL_SSL", "SCRAM-SHA-512")))


@pytest.mark.asyncio
async def test_reports_a_broker_that_does_not_listen_as_such(
    secure_cluster: SecureCluster,
) -> None:
    options = secure_cluster.options("SASL_SSL", "PLAIN", bootstrap_servers="127.0.0.1:1")
    with pytest.raises(BootstrapError, match="connection refused"):
        await start_and_stop(Client(**options, bootstrap_refused_timeout_ms=0))


# -- authorization --------------------------------------------------------------------------------


Call = Callable[["SecureCluster", Options, str], Awaitable[None]]


async def send(cluster: SecureCluster, options: Options, topic: str) -> None:
    async with Producer(**options) as producer:
        await producer.send(topic, b"value")


async def read_in_a_group(cluster: SecureCluster, options: Options, topic: str) -> None:
    async with Consumer(**options, topics=[topic], group_id=cluster.handle.group()) as consumer:
        await consumer.poll(timeout=TIMEOUT)


async def read(cluster: SecureCluster, options: Options, topic: str) -> None:
    async with Consumer(**options, topics=[topic], auto_offset_reset="earliest") as consumer:
        await consumer.poll(timeout=TIMEOUT)


async def begin_a_transaction(cluster: SecureCluster, options: Options, topic: str) -> None:
    name = cluster.handle.transactional_id()
    # Without a record, because the error of its topic may be the first one.
    async with Producer(**options, transactional_id=name) as producer, producer.transaction():
        pass


async def create(cluster: SecureCluster, options: Options, topic: str) -> None:
    async with Admin(**options) as admin:
        await admin.create_topics([NewTopic(cluster.handle.topic("new"), 1)])


async def describe(cluster: SecureCluster, options: Options, topic: str) -> None:
    async with Admin(**options) as admin:
        await admin.describe_topics([topic])


@pytest.mark.parametrize(
    ("call", "errors"),
    [
        (send, TopicAuthorizationError),
        (read, TopicAuthorizationError),
        (read_in_a_group, (GroupAuthorizationError, TopicAuthorizationError)),
        (begin_a_transaction, TransactionalIdAuthorizationError),
        (create, (ClusterAuthorizationError, TopicAuthorizationError)),
        (describe, TopicAuthorizationError),
    ],
)
@pytest.mark.asyncio
async def test_raises_the_missing_permission(
    secure_cluster: SecureCluster, call: Call, errors: type[KafkaError]
) -> None:
    topic = await create_topic(secure_cluster.handle)
    options = secure_cluster.options("SASL_SSL", "SCRAM-SHA-256", user=ALICE)
    with pytest.raises(errors):
        async with asyncio.timeout(TIMEOUT):
            await call(secure_cluster, options, topic)
