"""The session of a client's connection: its listener, and who has authenticated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_async.embedded.security.principals import ANONYMOUS

if TYPE_CHECKING:
    from kafka_async.embedded.security.listeners import SecurityProtocol
    from kafka_async.embedded.security.sasl_server_authenticator import SaslServerAuthenticator
    from kafka_async.embedded.state.brokers import Broker


@dataclass(slots=True, kw_only=True)
class ClientSession:
    """Describes a client's connection.

    Attributes:
        broker: The broker that it is connected to.
        listener: Name of the listener.
        security_protocol: The listener's security protocol.
        client_host: The client's address.
        tls_principal: Principal of the client's certificate, ANONYMOUS without one.
        authenticator: Authenticates the client; None on a listener without SASL.
    """

    broker: Broker
    listener: str
    security_protocol: SecurityProtocol = "PLAINTEXT"
    client_host: str = ""
    tls_principal: str = ANONYMOUS
    authenticator: SaslServerAuthenticator | None = None

    @property
    def principal(self) -> str:
        """The client's principal."""
        return self.tls_principal if self.authenticator is None else self.authenticator.principal

    @property
    def by_token(self) -> bool:
        """True if a delegation token authenticated the client."""
        return self.authenticator is not None and self.authenticator.by_token

    @property
    def authenticating(self) -> bool:
        """True while the client has yet to authenticate, or authenticates again."""
        return self.authenticator is not None and not self.authenticator.complete
