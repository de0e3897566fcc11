"""The context of a request, given to its handler, to fault rules and to error responses."""

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

    `received` is the event loop's time in seconds. `principal` is the authenticated client as
    `type:name`, and `listener` the name of the listener that the client has connected to.
    `by_token` is True if a delegation token authenticated it. `authenticator` is None unless the
    request is a part of an authentication with SASL. `session` is that of the connection.
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
        """The client, as quotas identify it."""
        return QuotaClient(split_principal(self.principal)[1], self.client_id or "")

    def describe(self) -> str:
        """Return the request's API, version and broker for a log message."""
        return f"{api.lookup(self.api_key).name} v{self.version} at broker {self.broker.id}"
