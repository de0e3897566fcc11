"""A small scripted cluster, on connections in memory and virtual time.

It is for responses that the embedded cluster cannot send: malformed, contradictory, or at an exact
moment. `World` has brokers and topics, checks requests as a broker does, and responds to
ApiVersions and Metadata. A test changes its behaviour with `handlers`, `held` and `greeting`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from kafka_async.client.client import Client
from kafka_async.embedded.network import RequestFrameReader
from kafka_async.errors import DecodeError
from kafka_async.foundation.memory_network import MemoryNetwork
from kafka_async.protocol.api import APIS, lookup
from kafka_async.protocol.header import RequestHeader, encode_response
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
    from kafka_async.protocol.wire import BytesLike

MAX_REQUEST_BYTES = 100 * 2**20
"""Kafka's default of socket.request.max.bytes."""
API_VERSIONS, METADATA = 18, 3
UNKNOWN_TOPIC, UNKNOWN_ID = 3, 100

Handler = Callable[["Peer", RequestHeader, Any], "Response | None"]


def always(response: Response) -> Handler:
    """Return a handler that sends the same response to every request."""

    def handle(peer: Peer, header: RequestHeader, request: object) -> Response:
        return response

    return handle


class Peer(asyncio.BufferedProtocol):
    """The broker's end of one connection.

    A request that every broker refuses fails the test; one that a broker cannot read closes the
    connection.
    """

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        self.seen: list[tuple[RequestHeader, Request[Any]]] = []
        self.transport: asyncio.Transport
        self.open = False
        self._reader = RequestFrameReader(MAX_REQUEST_BYTES)
        self._blocked = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self.open = cast("asyncio.Transport", transport), True  # uvloop's is none
        self.broker.peers.append(self)
        if self.broker.greeting:
            self.transport.write(self.broker.greeting)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            frames = self._reader.received(nbytes)
        except DecodeError as error:
            request_checks.REFUSED.append(str(error))
            self.transport.abort()
            return
        for frame in frames:
            self._handle(frame)

    def _handle(self, frame: BytesLike) -> None:
        received = request_checks.receive(frame)
        if received is None:
            self.transport.abort()
            return
        header, request = received
        if self.seen and header.correlation_id <= self.seen[-1][0].correlation_id:
            request_checks.REFUSED.append(f"correlation id {header.correlation_id} again")
        self.seen.append((header, request))
        self.broker.seen.append((header, request))
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
    """A cluster of one scripted broker; `topics` has the leaders of each topic's partitions."""

    servers = "b1:9092"

    def __init__(self) -> None:
        self.network = MemoryNetwork()
        self.brokers = {1: ScriptedBroker(self, 1, "b1", 9092)}
        self.topics: dict[str, list[int]] = {}
        self.ids: dict[str, UUID] = {}
        self.handlers: dict[int, Handler] = {}

    def client(self, **options: Any) -> Client:
        """Return a client of this cluster."""
        return Client(self.servers, dialer=self.network, **options)

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
