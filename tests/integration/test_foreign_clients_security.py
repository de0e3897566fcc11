"""Clients of other projects with TLS and SASL, on the embedded cluster and on Apache Kafka."""

from __future__ import annotations

import asyncio
import ssl
import threading
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from tests.integration.helpers import create_topic_blocking, load
from tests.integration.secure_cluster import COMBINATIONS, PROTOCOLS, REAUTH_MS, USERS
from tests.integration.tokens import unsecured_token

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.integration.secure_cluster import SecureCluster

T = TypeVar("T")

pytestmark = pytest.mark.timeout(120)

TIMEOUT = 30.0
"""Seconds."""
VALUES = [b"value %d" % number for number in range(50)]
SESSIONS = 2
"""Sessions that have to end during a test of re-authentication."""

secured = pytest.mark.parametrize(
    ("listener", "mechanism"),
    # No ACL lets the anonymous clients of the listener SSL write.
    [combination for combination in COMBINATIONS if combination[0] != "SSL"],
    ids=lambda value: value or "TLS",
)


class ConfluentKafka:
    """Calls confluent-kafka, and so librdkafka."""

    def __init__(
        self, cluster: SecureCluster, listener: str, mechanism: str | None, password: str
    ) -> None:
        self._confluent = load("confluent_kafka")
        certificates, protocol = cluster.certificates, PROTOCOLS[listener]
        self._errors: list[Any] = []
        self._config: dict[str, Any] = {
            "bootstrap.servers": cluster.servers(listener),
            "security.protocol": protocol,
            "error_cb": self._errors.append,
        }
        if protocol in ("SSL", "SASL_SSL"):
            self._config["ssl.ca.location"] = str(certificates.cafile)
        if listener == "MTLS":
            self._config["ssl.certificate.pem"] = certificates.client.chain
            self._config["ssl.key.pem"] = certificates.client.key
        if mechanism == "OAUTHBEARER":
            self._config["sasl.mechanism"] = mechanism
            self._config["oauth_cb"] = _token
        elif mechanism is not None:
            self._config["sasl.mechanism"] = mechanism
            self._config["sasl.username"] = "admin"
            self._config["sasl.password"] = password

    def write(self, topic: str, values: list[bytes]) -> None:
        producer = self._confluent.Producer(self._config)
        failed: list[Any] = []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                failed.append(error)

        for value in values:
            producer.produce(topic, value, on_delivery=delivered)
        assert producer.flush(TIMEOUT) == 0, self._errors
        assert failed == []

    def read(self, topic: str, group: str, count: int) -> list[bytes]:
        consumer = self._confluent.Consumer(
            {**self._config, "group.id": group, "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([topic])
        found: list[bytes] = []
        while len(found) < count:
            messages = consumer.consume(count, TIMEOUT)
            assert messages, self._errors
            found += [message.value() for message in messages if message.error() is None]
        consumer.close()
        return found

    def rejection(self) -> str:
        """Return the error of a client that the broker does not authenticate."""
        producer = self._confluent.Producer(self._config)
        for _ in range(int(TIMEOUT)):
            producer.poll(1)
            for error in self._errors:
                if error.name() == "_AUTHENTICATION":
                    return error.str()
        pytest.fail(f"no error of authentication: {self._errors}")

    def write_during(self, topic: str, stop: threading.Event) -> list[bytes]:
        """Write until `stop` is set; return what was acknowledged."""
        producer = self._confluent.Producer({**self._config, "enable.idempotence": True})
        written: list[bytes] = []

        def delivered(error: Any, message: Any) -> None:
            assert error is None
            written.append(message.value())

        number = 0
        while not stop.is_set():
            producer.produce(topic, b"value %d" % number, on_delivery=delivered)
            number += 1
            producer.poll(0.01)
        assert producer.flush(TIMEOUT) == 0
        assert [error for error in self._errors if error.name() == "_AUTHENTICATION"] == []
        return written


def _token(config: str) -> tuple[str, float]:
    token = unsecured_token("admin")
    return token.value.reveal(), token.expires_at or 0.0


class _RecordingLoop(asyncio.SelectorEventLoop):
    """Knows the connections that it opened."""

    def __init__(self) -> None:
        super().__init__()
        self.transports: list[asyncio.Transport] = []

    async def create_connection(self, *args: Any, **options: Any) -> Any:
        transport, protocol = await super().create_connection(*args, **options)
        self.transports.append(transport)
        return transport, protocol


def _run(body: Coroutine[Any, Any, T]) -> T:
    """Run calls of aiokafka, and abort the connections that it still closes.

    It does not wait for the end of a TLS connection. One whose loop has ended before would be
    reported as a leak of whatever test runs at the next garbage collection.
    """
    with asyncio.Runner(loop_factory=_RecordingLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, _RecordingLoop)
        try:
            return runner.run(asyncio.wait_for(body, TIMEOUT))
        finally:
            for transport in loop.transports:
                transport.abort()


class AioKafka:
    """Calls aiokafka."""

    def __init__(
        self, cluster: SecureCluster, listener: str, mechanism: str | None, password: str
    ) -> None:
        self._aiokafka = load("aiokafka")
        abc = load("aiokafka.abc")
        certificates, protocol = cluster.certificates, PROTOCOLS[listener]
        self._options: dict[str, Any] = {
            "bootstrap_servers": cluster.servers(listener),
            "security_protocol": protocol,
        }
        if protocol in ("SSL", "SASL_SSL"):
            context = ssl.create_default_context(cafile=certificates.cafile)
            if listener == "MTLS":
                path = certificates.write("aiokafka-client.pem", certificates.client.pem)
                context.load_cert_chain(path)
            self._options["ssl_context"] = context
        if mechanism == "OAUTHBEARER":

            class Provider(abc.AbstractTokenProvider):
                async def token(self) -> str:
                    return unsecured_token("admin").value.reveal()

            self._options["sasl_mechanism"] = mechanism
            self._options["sasl_oauth_token_provider"] = Provider()
        elif mechanism is not None:
            self._options["sasl_mechanism"] = mechanism
            self._options["sasl_plain_username"] = "admin"
            self._options["sasl_plain_password"] = password

    def write(self, topic: str, values: list[bytes]) -> None:
        async def write() -> None:
            async with self._aiokafka.AIOKafkaProducer(**self._options) as producer:
                for value in values:
                    await producer.send_and_wait(topic, value)

        _run(write())

    def read(self, topic: str, group: str, count: int) -> list[bytes]:
        async def read() -> list[bytes]:
            async with self._aiokafka.AIOKafkaConsumer(
                topic, group_id=group, auto_offset_reset="earliest", **self._options
            ) as consumer:
                return [(await consumer.getone()).value for _ in range(count)]

        return _run(read())

    def rejection(self) -> str:
        """Return the error of a client that the broker does not authenticate."""

        async def connect() -> None:
            producer = self._aiokafka.AIOKafkaProducer(**self._options)
            try:
                await producer.start()
            finally:
                await producer.stop()

        with pytest.raises(load("aiokafka.errors").KafkaError) as caught:
            _run(connect())
        return str(caught.value)


Client = ConfluentKafka | AioKafka
foreign = pytest.mark.parametrize("client", [ConfluentKafka, AioKafka])


@foreign
@secured
def test_client_writes_and_reads(
    secure_cluster: SecureCluster,
    client: Callable[..., Client],
    listener: str,
    mechanism: str | None,
) -> None:
    topic = create_topic_blocking(secure_cluster.handle)
    opened = client(secure_cluster, listener, mechanism, USERS["admin"])
    opened.write(topic, VALUES)
    assert opened.read(topic, secure_cluster.handle.group(), len(VALUES)) == VALUES


@foreign
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_client_gets_the_error_of_a_wrong_password(
    secure_cluster: SecureCluster, client: Callable[..., Client], mechanism: str
) -> None:
    error = client(secure_cluster, "SASL_SSL", mechanism, "wrong").rejection()
    expected = "Authentication failed"
    assert expected in error or "Unable to bootstrap" in error


@pytest.mark.parametrize(
    "mechanism",
    [
        "PLAIN",
        pytest.param("SCRAM-SHA-512", marks=pytest.mark.slow),
        pytest.param("OAUTHBEARER", marks=pytest.mark.slow),
    ],
)
def test_librdkafka_writes_on_through_several_sessions(
    secure_cluster: SecureCluster, mechanism: str
) -> None:
    topic = create_topic_blocking(secure_cluster.handle)
    client = ConfluentKafka(secure_cluster, "REAUTH", mechanism, USERS["admin"])
    stop = threading.Event()
    timer = threading.Timer(SESSIONS * REAUTH_MS / 1000 + 1, stop.set)
    timer.start()
    written = client.write_during(topic, stop)
    timer.join()
    assert client.read(topic, secure_cluster.handle.group(), len(written)) == written
