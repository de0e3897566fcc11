"""The context of a request, given to its handler, to fault rules and to error responses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_async.protocol import api

if TYPE_CHECKING:
    from kafka_async.embedded.state.brokers import Broker


class Disconnect(Exception):
    """Raised by a request handler to reset the connection instead of responding."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Describes the origin of a request. `received` is the event loop's time in seconds."""

    broker: Broker
    api_key: int
    version: int
    client_id: str | None
    client_host: str
    received: float

    def describe(self) -> str:
        """Return the request's API, version and broker for a log message."""
        return f"{api.lookup(self.api_key).name} v{self.version} at broker {self.broker.id}"
