"""The session of a client's connection: listener and authenticated principal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_async.embedded.security.principals import ANONYMOUS, certificate_principal

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.embedded.security.listeners import SecurityProtocol
    from kafka_async.embedded.security.principal_mapping import PrincipalMapping
    from kafka_async.embedded.security.sasl_server_authenticator import SaslServerAuthenticator
    from kafka_async.embedded.state.brokers import Broker


@dataclass(slots=True, kw_only=True)
class ClientSession:
    """Describes a client's connection.

    Attributes:
        broker: The broker to which the client is connected.
        listener: Name of the listener.
        security_protocol: The listener's security protocol.
        client_host: The client's address.
        principal_mapping: Maps a certificate's subject to the principal's name.
        tls_principal: Principal of the client's certificate, ANONYMOUS without one.
        authenticator: Authenticates the client; None on a listener without SASL.
        on_closed: Called when the connection has been closed.
    """

    broker: Broker
    listener: str
    security_protocol: SecurityProtocol = "PLAINTEXT"
    client_host: str = ""
    principal_mapping: PrincipalMapping | None = None
    tls_principal: str = ANONYMOUS
    authenticator: SaslServerAuthenticator | None = None
    on_closed: Callable[[], None] | None = None

    def set_certificate(self, certificate: bytes | None) -> bool:
        """Set the principal of a client certificate in DER; return False if no rule maps it.

        With SASL the principal comes from the SASL authentication, and no rule is needed.
        """
        if self.authenticator is not None:
            return True
        mapping = self.principal_mapping
        principal = certificate_principal(certificate, mapping and mapping.name_of)
        if principal is not None:
            self.tls_principal = principal
        return principal is not None

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
        """True before the first authentication, and during a re-authentication."""
        return self.authenticator is not None and not self.authenticator.complete
