"""A broker with a TLS listener on a real socket, and certificates made by the test.

The broker is the scripted one of `scripted.py`: it responds to ApiVersions and Metadata.
"""

from __future__ import annotations

import asyncio
import datetime
import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import trustme

from tests.client.scripted import Peer, World

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from kafka_async.client.client import Client

PAST = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


class Authority:
    """A certificate authority and the certificates that it has issued, as files of a directory."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self.ca = trustme.CA()
        self.directory = directory
        self.cafile = str(directory / f"{name}.pem")
        self.ca.cert_pem.write_to_path(self.cafile)

    @property
    def text(self) -> str:
        """The authority's certificate as PEM text."""
        return self.ca.cert_pem.bytes().decode()

    def issue(self, *names: str, expired: bool = False) -> trustme.LeafCert:
        """Return a new certificate for these host names."""
        return self.ca.issue_cert(*names, not_after=PAST if expired else None)

    def client_options(self, certificate: trustme.LeafCert, name: str = "client") -> dict[str, Any]:
        """Return the options of a client with this certificate, in files."""
        certfile, keyfile = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        write_certificate(certificate, certfile, keyfile)
        return {"ssl_certfile": str(certfile), "ssl_keyfile": str(keyfile)}


def write_certificate(certificate: trustme.LeafCert, certfile: Path, keyfile: Path) -> None:
    """Write the chain and the key to files, in place of what they have."""
    certfile.write_text(chain_text(certificate))
    keyfile.write_bytes(certificate.private_key_pem.bytes())


def chain_text(certificate: trustme.LeafCert) -> str:
    """Return the certificate's chain as PEM text."""
    return b"".join(blob.bytes() for blob in certificate.cert_chain_pems).decode()


def server_context(
    certificate: trustme.LeafCert,
    *,
    clients: Authority | None = None,
    version: ssl.TLSVersion | None = None,
) -> ssl.SSLContext:
    """Return the context of a listener; `clients` must have issued the clients' certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    use_certificate(context, certificate)
    if clients is not None:
        clients.ca.configure_trust(context)  # pyright: ignore[reportUnknownMemberType]
        context.verify_mode = ssl.CERT_REQUIRED
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


def use_certificate(context: ssl.SSLContext, certificate: trustme.LeafCert) -> None:
    """Make new connections of a listener present this certificate."""
    certificate.configure_cert(context)  # pyright: ignore[reportUnknownMemberType]


class TlsBroker:
    """One broker on a socket of this host.

    Attributes:
        names: The host names that clients have sent (SNI), by connection.
        subjects: Subjects of the clients' certificates, by connection.
    """

    def __init__(self) -> None:
        self.world = World()
        self.broker = self.world.brokers[1]
        self.names: list[str | None] = []
        self.subjects: list[str] = []
        self.attempts = 0
        self.port = 0
        self._server: asyncio.Server | None = None

    async def start(
        self,
        context: ssl.SSLContext | None,
        *,
        host: str = "localhost",
        protocol: Callable[[TlsBroker], asyncio.BaseProtocol] | None = None,
    ) -> str:
        """Listen; return the address for clients. `protocol` replaces the scripted broker."""
        if context is not None:
            context.sni_callback = self._record_name
        make = protocol or _Recorded

        def connected() -> asyncio.BaseProtocol:
            self.attempts += 1
            return make(self)

        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(connected, "127.0.0.1", 0, ssl=context)
        self.port = self._server.sockets[0].getsockname()[1]
        self.broker.host, self.broker.port = host, self.port
        return f"{host}:{self.port}"

    def _record_name(self, _: object, name: str | None, __: object) -> None:
        self.names.append(name)

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        for peer in self.broker.peers:
            peer.transport.abort()
        if self._server is not None:
            self._server.close()
        await asyncio.sleep(0)


class _Recorded(Peer):
    def __init__(self, owner: TlsBroker) -> None:
        super().__init__(owner.broker)
        self._owner = owner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        certificate = transport.get_extra_info("peercert")
        if certificate:
            subject = dict(pair[0] for pair in certificate["subject"])
            self._owner.subjects.append(subject["commonName"])


@contextmanager
def alerting_server(context: ssl.SSLContext) -> Generator[str, None, None]:
    """Yield the address of a server that does TLS handshakes in a thread.

    It sends the alert of a failed handshake, as Kafka does, and asyncio's servers do not.
    """
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            with (
                accepted,
                suppress(OSError),
                context.wrap_socket(accepted, server_side=True) as tls,
            ):
                tls.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"localhost:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


async def reconnect(client: Client) -> None:
    """Close the client's connections; the next request opens another."""
    from kafka_async.client.client import services_of
    from kafka_async.errors import KafkaConnectionError

    services_of(client).brokers.disconnect(KafkaConnectionError("closed by the test"))
