"""The context of a request, for its handler, fault rules and error responses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_async.embedded.quotas.quota_manager import QuotaClient
from kafka_async.embedded.security.listeners import DEFAULT_LISTENER
from kafka_async.embedded.security.principals import ANONYMOUS, split_principal
from kafka_async.protocol import api

if TYPE_CHECKING:
    from kafka_async.embedded.requests.session import ClientSession
    from kafka_async.embedded.security.listeners import SecurityProtocol
    from kafka_async.embedded.security.sasl_server_authenticator import SaslServerAuthenticator
    from kafka_async.embedded.state.brokers import Broker


class Disconnect(Exception):
    """Raised by a request handler to reset the connection instead of responding."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Describes the origin of a request.

    `received` is the event loop's time in seconds, `principal` the authenticated client as
    `type:name`, `listener` the name of the connection's listener, and `session` the connection's
    session. `by_token` is True if a delegation token authenticated the client. `authenticator` is
    None unless the request is part of a SASL authentication.
    """

    broker: Broker
    api_key: int
    version: int
    client_id: str | None
    client_host: str
    received: float
    principal: str = ANONYMOUS
    listener: str = DEFAULT_LISTENER
    security_protocol: SecurityProtocol = "PLAINTEXT"
    by_token: bool = False
    authenticator: SaslServerAuthenticator | None = None
    session: ClientSession | None = None

    @property
    def quota_client(self) -> QuotaClient:
        """The client's identity for quotas."""
        return QuotaClient(split_principal(self.principal)[1], self.client_id or "")

    def describe(self) -> str:
        """Return the request's API, version and broker for a log message."""
        return f"{api.lookup(self.api_key).name} v{self.version} at broker {self.broker.id}"
