"""TLS at the brokers: handshakes, alerts, principals of certificates."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from kafka_async.embedded import EmbeddedCluster, ErrorCode, Listener
from kafka_async.embedded.security.principals import ANONYMOUS, certificate_principal
from kafka_async.embedded.tls import INTERNAL_ERROR
from kafka_async.errors import InvalidConfigurationError
from kafka_async.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from kafka_async.protocol.messages.metadata import MetadataRequest
from tests.embedded.sasl_client import log_in
from tests.integration.certificates import Certificates
from tests.raw_connection import RawConnection

if TYPE_CHECKING:
    from kafka_async.embedded.security.listeners import ClientAuth
    from tests.integration.certificates import Certificate

pytestmark = [pytest.mark.asyncio, pytest.mark.may_block]

METADATA = MetadataRequest(topics=[])


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def load(context: ssl.SSLContext, certificates: Certificates, certificate: Certificate) -> None:
    path = certificates.directory / f"{hash(certificate.key)}.pem"
    path.write_text(certificate.pem)
    context.load_cert_chain(path)


def server_context(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=certificates.authority.pem)
    load(context, certificates, certificates.broker)
    return context


def client_context(
    certificates: Certificates, certificate: Certificate | None = None
) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=certificates.authority.pem)
    if certificate is not None:
        load(context, certificates, certificate)
    return context


def tls_cluster(certificates: Certificates, client_auth: ClientAuth = "none") -> EmbeddedCluster:
    listener = Listener(
        security_protocol="SSL",
        ssl_context=server_context(certificates),
        client_auth=client_auth,
    )
    return EmbeddedCluster(listeners={"SSL": listener})


async def connect(cluster: EmbeddedCluster, context: ssl.SSLContext | None) -> RawConnection:
    return await RawConnection.dial("127.0.0.1", cluster.brokers[1].port, ssl=context)


async def principal_of(cluster: EmbeddedCluster, connection: RawConnection) -> str:
    """Return the principal by which the broker knows a client."""
    response = await connection.call(CreateDelegationTokenRequest(max_lifetime_ms=-1))
    return f"{response.principal_type}:{response.principal_name}"


async def test_requests_of_any_size_over_tls(certificates: Certificates) -> None:
    async with tls_cluster(certificates) as cluster:
        connection = await connect(cluster, client_context(certificates))
        large = MetadataRequest.from_dict({"topics": [{"name": "x" * 200}] * 5_000})
        for _ in range(3):
            response = await connection.call(large, 12)
            assert [topic.name for topic in response.topics] == ["x" * 200]
        assert await principal_of(cluster, connection) == ANONYMOUS
        await connection.close()
        assert cluster.failures == []


async def test_pipelined_requests_over_tls(certificates: Certificates) -> None:
    async with tls_cluster(certificates) as cluster:
        connection = await connect(cluster, client_context(certificates))
        responses = await asyncio.gather(*[connection.send(METADATA, 12) for _ in range(200)])
        assert all(response.brokers for response in responses)
        await connection.close()


async def test_certificate_gives_the_principal(certificates: Certificates) -> None:
    async with tls_cluster(certificates, "required") as cluster:
        connection = await connect(cluster, client_context(certificates, certificates.client))
        principal = await principal_of(cluster, connection)
        assert principal.startswith("User:CN=tls-client,")
        response = await connection.call(CreateDelegationTokenRequest(max_lifetime_ms=-1))
        assert response.error_code == 0
        await connection.close()


async def test_certificate_is_optional_if_requested(certificates: Certificates) -> None:
    async with tls_cluster(certificates, "requested") as cluster:
        found = {
            await principal_of(
                cluster, await connect(cluster, client_context(certificates, certificate))
            )
            for certificate in (None, certificates.client)
        }
        assert ANONYMOUS in found
        assert len(found) == 2


async def test_certificate_is_ignored_if_not_requested(certificates: Certificates) -> None:
    async with tls_cluster(certificates, "none") as cluster:
        connection = await connect(cluster, client_context(certificates, certificates.client))
        assert await principal_of(cluster, connection) == ANONYMOUS
        response = await connection.call(CreateDelegationTokenRequest(max_lifetime_ms=-1))
        assert response.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


async def alert_of(cluster: EmbeddedCluster, context: ssl.SSLContext) -> str:
    """Return the alert with which the broker ends a connection."""
    try:
        connection = await connect(cluster, context)
        with pytest.raises(ConnectionResetError):
            await connection.call(METADATA, 12)
        error = connection.error
    except ssl.SSLError as handshake_error:  # in TLS 1.2, already the handshake fails
        error = handshake_error
    assert isinstance(error, ssl.SSLError)
    return error.reason or ""


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_alert_tells_the_client_that_it_needs_a_certificate(
    certificates: Certificates, version: ssl.TLSVersion
) -> None:
    async with tls_cluster(certificates, "required") as cluster:
        context = client_context(certificates)
        context.maximum_version = version
        assert await alert_of(cluster, context) in {
            "TLSV13_ALERT_CERTIFICATE_REQUIRED",
            "SSLV3_ALERT_HANDSHAKE_FAILURE",
            "SSL/TLS_ALERT_HANDSHAKE_FAILURE",
        }
        assert cluster.failures == []


async def test_alert_tells_the_client_that_its_certificate_is_bad(
    certificates: Certificates,
) -> None:
    async with tls_cluster(certificates, "required") as cluster:
        alerts = [
            await alert_of(cluster, client_context(certificates, certificate))
            for certificate in (certificates.wrong_ca_client, certificates.expired_client)
        ]
        assert alerts[0].endswith("ALERT_UNKNOWN_CA")
        assert alerts[1].endswith("ALERT_CERTIFICATE_EXPIRED")


async def test_plaintext_is_answered_with_the_alert_of_kafka(certificates: Certificates) -> None:
    async with tls_cluster(certificates) as cluster:
        reader, writer = await asyncio.open_connection("127.0.0.1", cluster.brokers[1].port)
        writer.write(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff")
        assert await reader.read() == INTERNAL_ERROR
        writer.close()


@pytest.mark.parametrize(
    "data",
    {
        "plaintext": b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff",
        "http": b"GET / HTTP/1.1\r\n\r\n",
        "hello with garbage": b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
        "huge record": b"\x16\x03\x01\xff\xff" + bytes(65_535),
    }.items(),
    ids=lambda item: item[0],
)
async def test_invalid_bytes_close_only_their_connection(
    certificates: Certificates, data: tuple[str, bytes]
) -> None:
    async with tls_cluster(certificates) as cluster:
        connection = await connect(cluster, None)
        connection.write(data[1])
        await asyncio.wait_for(connection.closed.wait(), 20)
        other = await connect(cluster, client_context(certificates))
        assert (await other.call(METADATA)).brokers
        await other.close()
        assert cluster.failures == []


async def test_broker_stops_during_handshakes(certificates: Certificates) -> None:
    async with tls_cluster(certificates) as cluster:
        connection = await connect(cluster, None)
        connection.write(b"\x16\x03\x01")
        while not cluster.brokers[1].connections:  # noqa: ASYNC110  # accepting sets no event
            await asyncio.sleep(0)
        await cluster.stop_broker(1)
        await connection.closed.wait()
        assert cluster.brokers[1].connections == set()


async def test_sasl_over_tls_has_the_principal_of_sasl(certificates: Certificates) -> None:
    listener = Listener(
        security_protocol="SASL_SSL",
        ssl_context=server_context(certificates),
        client_auth="required",
    )
    async with EmbeddedCluster(
        listeners={"SECURE": listener}, users={"alice": "alice-secret"}
    ) as cluster:
        connection = await connect(cluster, client_context(certificates, certificates.client))
        assert (await log_in(connection)).error_code == 0
        assert await principal_of(cluster, connection) == "User:alice"
        await connection.close()


async def test_listeners_with_one_context_require_certificates_separately(
    certificates: Certificates,
) -> None:
    context = server_context(certificates)
    listeners = {
        "MUTUAL": Listener(security_protocol="SSL", ssl_context=context, client_auth="required"),
        "SSL": Listener(security_protocol="SSL", ssl_context=context),
    }
    assert context.verify_mode is ssl.CERT_NONE
    async with EmbeddedCluster(listeners=listeners) as cluster:
        principals: list[str] = []
        for name, certificate in (("MUTUAL", certificates.client), ("SSL", None)):
            port = int(cluster.bootstrap_servers_of(name).rpartition(":")[2])
            own = client_context(certificates, certificate)
            connection = await RawConnection.dial("127.0.0.1", port, ssl=own)
            principals.append(await principal_of(cluster, connection))
            await connection.close()
        assert principals[0].startswith("User:CN=tls-client,")
        assert principals[1] == "User:ANONYMOUS"
        assert context.verify_mode is ssl.CERT_NONE


async def test_invalid_tls_listeners_are_rejected(certificates: Certificates) -> None:
    context = server_context(certificates)
    with pytest.raises(InvalidConfigurationError, match="has no TLS"):
        Listener(security_protocol="PLAINTEXT", ssl_context=context)
    with pytest.raises(InvalidConfigurationError, match="use one of none, requested, required"):
        Listener(security_protocol="SSL", ssl_context=context, client_auth="maybe")  # type: ignore[arg-type]


# -- names of certificates ------------------------------------------------------------------------


def certificate_of(name: x509.Name) -> bytes:
    """Return a self-signed certificate in DER."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")]))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.DER)
    )


def part(*attributes: tuple[x509.ObjectIdentifier, str]) -> x509.RelativeDistinguishedName:
    return x509.RelativeDistinguishedName([x509.NameAttribute(*each) for each in attributes])


# Java's X500Principal.getName has returned these names for such certificates.
@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ([], ""),
        (
            [
                part((NameOID.COUNTRY_NAME, "DE")),
                part((NameOID.STATE_OR_PROVINCE_NAME, "Berlin")),
                part((NameOID.ORGANIZATION_NAME, "Acme, Inc.")),
                part((NameOID.ORGANIZATIONAL_UNIT_NAME, "R+D")),
                part((NameOID.COMMON_NAME, "alice")),
            ],
            r"CN=alice,OU=R\+D,O=Acme\, Inc.,ST=Berlin,C=DE",
        ),
        (
            [
                part((NameOID.DOMAIN_COMPONENT, "org")),
                part((NameOID.USER_ID, "u1")),
                part((NameOID.EMAIL_ADDRESS, "a@b.c")),
                part((NameOID.STREET_ADDRESS, "s 1")),
            ],
            "STREET=s 1,1.2.840.113549.1.9.1=#16056140622e63,UID=u1,DC=org",
        ),
        (
            [part((NameOID.COMMON_NAME, ' lead#=<>;"\\ trail '))],
            r"CN=\ lead\#\=\<\>\;\"\\ trail\ ",
        ),
        ([part((NameOID.COMMON_NAME, "  "))], r"CN=\ \ "),
        ([part((NameOID.COMMON_NAME, "a\0b\nc\x7f"))], "CN=a\\00b\nc\x7f"),
        ([part((NameOID.COMMON_NAME, "Ünïcode 日本"))], "CN=Ünïcode 日本"),
        (
            [
                part((NameOID.COMMON_NAME, "m"), (NameOID.ORGANIZATION_NAME, "o")),
                part((NameOID.SERIAL_NUMBER, "77")),
            ],
            "2.5.4.5=#13023737,CN=m+O=o",
        ),
    ],
)
async def test_names_of_certificates_are_those_of_java(
    parts: list[x509.RelativeDistinguishedName], name: str
) -> None:
    assert certificate_principal(certificate_of(x509.Name(parts))) == f"User:{name}"


async def test_client_without_certificate_is_anonymous() -> None:
    assert certificate_principal(None) == ANONYMOUS
