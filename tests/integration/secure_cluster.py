"""Clusters with secure listeners: the same listeners, users and authorizer on every backend.

All passwords, keys and certificates exist for one test session only.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafka_async.testing.backends import (
    ClusterSecurity,
    SecureListener,
    SecureListeners,
    TokenIssuer,
)
from kafka_async.testing.fixtures import Clusters
from tests.integration.tokens import Issuer, unsecured_token

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from kafka_async.testing.fixtures import ClusterHandle
    from kafka_async.types import Token
    from tests.integration.certificates import Certificates

ADMIN, ALICE = "admin", "alice"
"""Users: a super user, and one that may do nothing until an ACL allows it.

The certificate of clients belongs to a super user too.
"""
USERS: Final = {ADMIN: 'admin "secret" \\ \u00fc', ALICE: "alice-secret"}
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
COMBINATIONS: Final = [
    ("SSL", None),
    ("MTLS", None),
    *[(listener, name) for listener in ("SASL_SSL", "SASL_PLAINTEXT") for name in MECHANISMS],
]
"""Every listener with every mechanism it offers."""
REAUTH_MS: Final = 3_000
"""Lifetime of a session of the listener REAUTH."""
MAPPING_RULES: Final = r"RULE:^CN=other\.test$/other/, RULE:^CN=([^,]+),OU=.*$/$1@mapped/U"
"""Rules of the listener MAPPED: principals of certificates, none without a common name."""
PROTOCOLS: Final = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "MTLS": "SSL",
    "MAPPED": "SSL",
    "EXPIRED": "SSL",
    "SASL_SSL": "SASL_SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "REAUTH": "SASL_SSL",
    "OIDC": "SASL_SSL",
}
"""Security protocol of each listener."""


def cluster_security(certificates: Certificates, issuer: Issuer) -> ClusterSecurity:
    """Describe the listeners, the users and the authorizer of a secure cluster."""
    broker, keys = certificates.broker.pem, certificates.write("jwks.json", json.dumps(issuer.keys))
    listeners = {
        "SSL": SecureListener(security_protocol="SSL", certificate=broker),
        "MTLS": SecureListener(
            security_protocol="SSL",
            certificate=broker,
            client_ca=certificates.authority.pem,
            client_auth="required",
        ),
        "MAPPED": SecureListener(
            security_protocol="SSL",
            certificate=broker,
            client_ca=certificates.authority.pem,
            client_auth="requested",
            ssl_principal_mapping_rules=MAPPING_RULES,
        ),
        "EXPIRED": SecureListener(
            security_protocol="SSL", certificate=certificates.expired_broker.pem
        ),
        "SASL_SSL": SecureListener(
            security_protocol="SASL_SSL", certificate=broker, sasl_mechanisms=MECHANISMS
        ),
        "SASL_PLAINTEXT": SecureListener(
            security_protocol="SASL_PLAINTEXT", sasl_mechanisms=MECHANISMS
        ),
        "REAUTH": SecureListener(
            security_protocol="SASL_SSL",
            certificate=broker,
            sasl_mechanisms=MECHANISMS,
            max_reauth_ms=REAUTH_MS,
        ),
        "OIDC": SecureListener(
            security_protocol="SASL_SSL",
            certificate=broker,
            sasl_mechanisms=("OAUTHBEARER",),
            token_issuer=TokenIssuer(
                issuer=issuer.name,
                audience=issuer.audience,
                jwks_url=f"file://{keys}",
                validate=issuer.verify,
            ),
        ),
    }
    return ClusterSecurity(
        listeners=listeners,
        users=USERS,
        super_users=[f"User:{ADMIN}", f"User:{certificates.client.subject}"],
        delegation_token_key="key-of-delegation-tokens",
    )


@dataclass(frozen=True)
class SecureCluster:
    """Gives a test a cluster with secure listeners.

    Attributes:
        handle: Names for this test, and the cluster's plaintext listener, where every client is a
            super user.
        certificates: The certificates of brokers and clients.
        issuer: The issuer of tokens for the listener OIDC.
    """

    handle: ClusterHandle
    certificates: Certificates
    issuer: Issuer

    @property
    def backend(self) -> str:
        """Kind of the cluster: "embedded" or "apache"."""
        return self.handle.backend

    def servers(self, listener: str) -> str:
        """Return `host:port` of a listener."""
        if listener == "PLAINTEXT":
            return self.handle.bootstrap_servers
        assert isinstance(self.handle.cluster, SecureListeners)
        return self.handle.cluster.bootstrap_servers_of(listener)

    def options(
        self,
        listener: str,
        mechanism: str | None = None,
        *,
        user: str = ADMIN,
        **changed: Any,
    ) -> dict[str, Any]:
        """Return the options of a client; `changed` replaces some of them."""
        protocol = PROTOCOLS[listener]
        options: dict[str, Any] = {
            "bootstrap_servers": self.servers(listener),
            "security_protocol": protocol,
        }
        if protocol in ("SSL", "SASL_SSL"):
            options["ssl_cafile"] = self.certificates.cafile
        if listener == "MTLS":
            options["ssl_certfile"] = self.certificates.client.chain
            options["ssl_keyfile"] = self.certificates.client.key
        if mechanism is not None:
            options["sasl_mechanism"] = mechanism
            options |= self._credentials(mechanism, user)
        if protocol == "SASL_PLAINTEXT":
            options["sasl_allow_plaintext"] = True
        return options | changed

    def _credentials(self, mechanism: str, user: str) -> dict[str, Any]:
        if mechanism != "OAUTHBEARER":
            return {"sasl_username": user, "sasl_password": USERS.get(user)}

        async def provide() -> Token:
            return unsecured_token(user)

        return {"sasl_token_provider": provide}


class SecureClusters(Clusters):
    """Starts the secure clusters of a session, one per backend, each when first requested."""

    def __init__(self, certificates: Certificates, record: Callable[[str, object], None]) -> None:
        self._certificates = certificates
        self._issuer = Issuer("https://issuer.test", "kafka")
        security = cluster_security(certificates, self._issuer)
        super().__init__({"brokers": 1, "security": security}, record)

    def secure(self, handle: ClusterHandle) -> SecureCluster:
        """Return a test's handle with the certificates of the session."""
        return SecureCluster(handle, self._certificates, self._issuer)


class CountingProxy:
    """Forwards connections to an address, and counts them."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._tasks: set[asyncio.Task[None]] = set()
        self.accepted = 0
        """Connections accepted."""
        self.port = ""

    async def listen(self) -> asyncio.Server:
        """Open a free port of 127.0.0.1."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = str(server.sockets[0].getsockname()[1])
        return server

    async def close(self) -> None:
        """End all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with closing(writer):
            to_reader, to_writer = await asyncio.open_connection(self._host, self._port)
            with closing(to_writer):
                await asyncio.gather(_forward(reader, to_writer), _forward(to_reader, writer))


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError), closing(writer):
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def counting_proxy(target: str) -> AsyncGenerator[CountingProxy]:
    """Forward connections from a port of 127.0.0.1 to `target` until the block ends."""
    proxy = CountingProxy(target)
    server = await proxy.listen()
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
