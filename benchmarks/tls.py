"""The broker of the cases over TLS: its certificate, its options and its addresses."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafka_async.testing.backends import BackendUnavailableError, create_backend
from kafka_async.testing.backends.security import (
    ClusterSecurity,
    SecureListener,
    SecureListeners,
)

if TYPE_CHECKING:
    from collections.abc import Generator

LISTENER: Final = "TLS"
JVM_OPTIONS: Final = ("-XX:TieredStopAtLevel=4",)
"""Both compilers of the JVM, as in Kafka's scripts: only the second one uses the processor's AES.

With the first one alone, as brokers of tests are started, a broker encrypts 17 MB per second, and
with both 700: all clients would be measured at the speed of the broker.
"""


FETCH_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a partition per fetch over TLS, except for Java's tool.

With 1 MiB, kafka_async and confluent-kafka read records of 1 KiB a fifth to a quarter more slowly.
"""


class TlsListener(NamedTuple):
    """Address of a broker's listener with TLS, and the file of its certificate authority."""

    bootstrap: str
    cafile: str


class SecureCluster(NamedTuple):
    """Addresses of a running cluster: without TLS for the topics, with TLS for the clients."""

    bootstrap: str
    tls: TlsListener


@contextmanager
def secure_cluster(backend: str) -> Generator[SecureCluster]:
    """Run a cluster with one broker, which listens with and without TLS."""
    authority, certificate = make_certificate()
    listener = SecureListener(security_protocol="SSL", certificate=certificate)
    security = ClusterSecurity(listeners={LISTENER: listener})
    cluster = create_backend(
        backend, {"brokers": 1, "security": security, "jvm_options": JVM_OPTIONS}
    )
    if not isinstance(cluster, SecureListeners):
        raise BackendUnavailableError(f"the backend {backend} has no listener with TLS")
    with TemporaryDirectory() as directory, cluster:
        cafile = Path(directory, "ca.pem")
        cafile.write_text(authority, "ascii")
        address = cluster.bootstrap_servers_of(LISTENER)
        yield SecureCluster(cluster.bootstrap_servers, TlsListener(address, str(cafile)))


def make_certificate() -> tuple[str, str]:
    """Return a new authority, and a broker's private key (PKCS #8) and certificate, as PEM text."""
    # Clients, which run without these packages on other Pythons, import this module too.
    import trustme
    from cryptography.hazmat.primitives import serialization

    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    chain = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
    return authority.cert_pem.bytes().decode(), (key + chain).decode()


def client_options(cafile: str) -> dict[str, Any]:
    """Return the options with which a client of this project connects; empty without TLS."""
    return {"security_protocol": "SSL", "ssl_cafile": cafile} if cafile else {}
