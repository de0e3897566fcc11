"""The interfaces between request handlers, coordinators and the cluster.

A handler processes one request of one API:

    async def handle(context: RequestContext, request: MetadataRequest) -> MetadataResponse: ...

Handlers run in the cluster's event loop, one at a time per connection: as on a broker, the next
request of a connection is read after the response was written. A handler may wait, as JoinGroup and
Fetch do. It runs to its end even if the client disconnects, and is cancelled only when its broker
stops. Invalid requests get a response with an error code. An exception is a bug of the embedded
cluster: it is added to `EmbeddedCluster.failures`, and the response has UNKNOWN_SERVER_ERROR if the
API has a field for an error code.

`routes.py` lists the handlers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from kafka_async.protocol import api

if TYPE_CHECKING:
    from kafka_async.embedded.broker import Broker
    from kafka_async.embedded.cluster import EmbeddedCluster


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Describes the origin of a request. `received` is the event loop's time in seconds."""

    cluster: EmbeddedCluster
    broker: Broker
    api_key: int
    version: int
    client_id: str | None
    client_host: str
    received: float

    def describe(self) -> str:
        """Return the request's API, version and broker for a log message."""
        return f"{api.lookup(self.api_key).name} v{self.version} at broker {self.broker.id}"


Handler = Callable[[RequestContext, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Route:
    """Maps an API and its supported versions to a handler.

    A handler that returns None sends no response (Produce with acks=0). `advertised` is the lowest
    version in ApiVersions if it is not `lowest`.
    """

    api_key: int
    lowest: int
    highest: int
    handle: Handler
    advertised: int | None = None

    @property
    def lowest_advertised(self) -> int:
        """The lowest version in ApiVersions."""
        return self.lowest if self.advertised is None else self.advertised

    def narrowed(self, low: int, high: int) -> Route | None:
        """Return the route limited to versions `low` to `high`; None without a version."""
        lowest, highest = max(low, self.lowest), min(high, self.highest)
        if lowest > highest:
            return None
        advertised = max(low, self.lowest_advertised)
        return replace(self, lowest=lowest, highest=highest, advertised=advertised)


class Coordinator(Protocol):
    """Defines the calls from the cluster to a coordinator.

    All brokers share one `GroupCoordinator` and one `TransactionCoordinator`. The cluster's
    constructor creates them; its event loop, clock and timers are available after `start`.
    """

    def on_brokers_changed(self) -> None:
        """Handle a broker's start or stop, which may have changed `cluster.coordinator_for`.

        Handlers of a stopped broker were cancelled before. Pending requests at a broker that is no
        longer the coordinator fail with NOT_COORDINATOR.
        """
        ...

    def close(self) -> None:
        """Handle the cluster's stop, before it cancels handlers and `call_later` timers."""
        ...
