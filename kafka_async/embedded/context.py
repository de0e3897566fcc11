"""What a handler is given, how it is registered, and what the coordinators owe the cluster.

A handler answers one request of one API:

    async def handle(context: RequestContext, request: MetadataRequest) -> MetadataResponse: ...

It runs in the cluster's loop, one at a time a connection, and reads no more of that connection
until it has answered, as a broker does. It may wait (a join, a fetch without data); it runs to
its end even if its client has gone, and is cancelled only when its broker stops. Bad input is
answered with an error code; an exception is a bug of ours, is kept in `cluster.failures`, and is
answered with UNKNOWN_SERVER_ERROR where the API has room for it.

A room lists its handlers as `ROUTES: tuple[Route, ...]`; `routes.py` puts the rooms together.
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
    """Where a request came in. `received` is the loop's time, in seconds."""

    cluster: EmbeddedCluster
    broker: Broker
    api_key: int
    version: int
    client_id: str | None
    client_host: str
    received: float

    def describe(self) -> str:
        """The request's API, version and broker, for a log line."""
        return f"{api.lookup(self.api_key).name} v{self.version} at broker {self.broker.id}"


Handler = Callable[[RequestContext, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Route:
    """One row of the table of APIs: a key, the versions that are answered, and who answers.

    A handler that returns None sends no response (Produce with acks=0). `advertised` is the lowest
    version in ApiVersions where that is not `lowest`.
    """

    api_key: int
    lowest: int
    highest: int
    handle: Handler
    advertised: int | None = None

    @property
    def lowest_advertised(self) -> int:
        """The lowest version that ApiVersions names."""
        return self.lowest if self.advertised is None else self.advertised

    def narrowed(self, low: int, high: int) -> Route | None:
        """Return the route with the versions from `low` to `high` only; None if none is left."""
        lowest, highest = max(low, self.lowest), min(high, self.highest)
        if lowest > highest:
            return None
        advertised = max(low, self.lowest_advertised)
        return replace(self, lowest=lowest, highest=highest, advertised=advertised)


class Coordinator(Protocol):
    """What the cluster tells a coordinator room; the room's state is shared by all brokers.

    `groups.GroupCoordinator(cluster)` and `transactions.TransactionCoordinator(cluster)` are made
    in the cluster's constructor, before there is a loop: `cluster.loop`, `cluster.clock` and
    timers exist from the start on.
    """

    def placement_changed(self) -> None:
        """Brokers came or went: `cluster.coordinator_for` may have moved keys.

        Handlers that a stopped broker ran were cancelled already; what is parked at a broker that
        lost its key is to be answered NOT_COORDINATOR.
        """
        ...

    def close(self) -> None:
        """The cluster stops: handlers and `cluster.call_later` timers are about to be cancelled."""
        ...
