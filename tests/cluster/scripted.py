"""A small scripted cluster, on connections in memory and virtual time.

It is for responses that the embedded cluster cannot send: malformed, contradictory, or at an exact
moment. `World` has brokers and topics and responds to ApiVersions and Metadata. A test changes its
behaviour with `handlers`, `held` and `greeting`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kafka_async.clock import MemoryNetwork
from kafka_async.cluster.client import Client
from kafka_async.protocol.api import APIS, lookup
from kafka_async.protocol.header import (
    RequestHeader,
    decode_request,
    encode_response,
)
from kafka_async.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from kafka_async.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests import request_checks

if TYPE_CHECKING:
    from kafka_async.protocol.message import Request, Response

API_VERSIONS, METADATA = 18, 3
UNKNOWN_TOPIC, UNKNOWN_ID = 3, 100

Handler = Callable[["Peer", RequestHeader, Any], "Response | None"]


def always(response: Response) -> Handler:
    """Return a handler that sends the same response to every request."""

    def handle(peer: Peer, header: RequestHeader, request: object) -> Response:
        return response

    return handle


class Peer(asyncio.Protocol):
    """The broker's end of one connection."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        self.seen: list[tuple[RequestHeader, Request[Any]]] = []
        self.transport: asyncio.Transport
        self.open = False
        self._data = b""
        self._blocked = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.open = transport, True
        self.broker.peers.append(self)
        if self.broker.greeting:
            transport.write(self.broker.greeting)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 4:
            size = int.from_bytes(self._data[:4], "big")
            if len(self._data) < 4 + size:
                break
            frame, self._data = self._data[4 : 4 + size], self._data[4 + size :]
            self._handle(*decode_request(frame))

    def _handle(self, header: RequestHeader, request: Request[Any]) -> None:
        self.seen.append((header, request))
        self.broker.seen.append((header, request))
        request_checks.receive(request, header.api_version)
        self._blocked = self._blocked or header.api_key in self.broker.held
        if self._blocked:  # a broker responds in order
            return
        response = self.broker.response(self, header, request)
        if response is not None:
            self.respond(header, response)

    def respond(self, header: RequestHeader, response: Response) -> None:
        """Send a response."""
        parts = encode_response(response, header.api_version, header.correlation_id)
        self.transport.write(b"".join(parts))


class ScriptedBroker:
    """One broker, with the requests that it received and its scripted behaviour."""

    def __init__(self, world: World, node_id: int, host: str, port: int) -> None:
        self.world = world
        self.node_id = node_id
        self.host, self.port = host, port
        self.peers: list[Peer] = []
        self.seen: list[tuple[RequestHeader, Request[Any]]] = []
        self.greeting = b""
        self.held: set[int] = set()
        self.handlers: dict[int, Handler] = {}
        world.network.listen(lambda: Peer(self), host, port)

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return sum(peer.open for peer in self.peers)

    def requests(self, api_key: int) -> list[Any]:
        """Return the requests of an API, in order of arrival."""
        return [request for header, request in self.seen if header.api_key == api_key]

    def response(self, peer: Peer, header: RequestHeader, request: Request[Any]) -> Response | None:
        """Return the response of the scripted handler, or the default one."""
        handler = self.handlers.get(header.api_key) or self.world.handlers.get(header.api_key)
        if handler is not None:
            return handler(peer, header, request)
        if header.api_key == API_VERSIONS:
            return self.world.api_versions()
        if header.api_key == METADATA:
            assert isinstance(request, MetadataRequest)
            return self.world.metadata(request)
        return lookup(header.api_key).response()


class World:
    """A cluster of scripted brokers; `topics` has the leaders of each topic's partitions."""

    def __init__(self, brokers: int = 1) -> None:
        self.network = MemoryNetwork()
        self.brokers = {n: ScriptedBroker(self, n, f"b{n}", 9092) for n in range(1, brokers + 1)}
        self.topics: dict[str, list[int]] = {}
        self.ids: dict[str, UUID] = {}
        self.handlers: dict[int, Handler] = {}

    @property
    def servers(self) -> str:
        """Bootstrap servers."""
        return ",".join(f"{broker.host}:{broker.port}" for broker in self.brokers.values())

    def client(self, servers: str | None = None, **options: Any) -> Client:
        """Return a client of this cluster."""
        return Client(servers or self.servers, dialer=self.network, **options)

    def add(self, topic: str, *leaders: int) -> None:
        """Add a topic whose partitions have these leaders."""
        self.topics[topic] = list(leaders)
        self.ids[topic] = UUID(int=len(self.ids) + 1)

    def api_versions(self) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(
                    api_key=api.key,
                    min_version=api.versions.min,
                    max_version=api.versions.max,
                )
                for api in APIS
                if not api.removed
            ],
            finalized_features=[
                FinalizedFeatureKey(name="transaction.version", max_version_level=2)
            ],
            finalized_features_epoch=1,
        )

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        names: Iterable[str | None] = self.topics
        if request.topics is not None:
            names = [topic.name or self._name(topic.topic_id) for topic in request.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=broker.node_id, host=broker.host, port=broker.port)
                for broker in self.brokers.values()
            ],
            cluster_id="world",
            controller_id=1,
            topics=[self._topic(name) for name in names],
        )

    def _name(self, topic_id: UUID) -> str | None:
        return next((name for name, known in self.ids.items() if known == topic_id), None)

    def _topic(self, name: str | None) -> MetadataResponseTopic:
        if name is None:
            return MetadataResponseTopic(name=None, error_code=UNKNOWN_ID)
        if name not in self.topics:
            return MetadataResponseTopic(name=name, error_code=UNKNOWN_TOPIC)
        return MetadataResponseTopic(
            name=name,
            topic_id=self.ids[name],
            partitions=[
                MetadataResponsePartition(
                    partition_index=index,
                    leader_id=leader,
                    leader_epoch=0,
                    replica_nodes=[leader],
                    isr_nodes=[leader],
                )
                for index, leader in enumerate(self.topics[name])
            ],
        )
