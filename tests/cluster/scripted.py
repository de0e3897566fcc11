"""A small cluster that responds by script, on connections in memory and virtual time.

It is for responses that the embedded cluster cannot give: malformed, contradictory, or at an exact
moment. `World` knows brokers and topics, and responds to ApiVersions and Metadata from that. A
test makes it misbehave with `answers`, `held` and `greeting`.
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

Answer = Callable[["Peer", RequestHeader, Any], "Response | None"]


def always(response: Response) -> Answer:
    """The same answer to every request."""

    def answer(peer: Peer, header: RequestHeader, request: object) -> Response:
        return response

    return answer


class Peer(asyncio.Protocol):
    """The broker's end of one connection."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        self.seen: list[tuple[RequestHeader, Request[Any]]] = []
        self.transport: asyncio.Transport
        self.open = False
        self._data = b""
        self._stuck = False

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
            self._asked(*decode_request(frame))

    def _asked(self, header: RequestHeader, request: Request[Any]) -> None:
        self.seen.append((header, request))
        self.broker.seen.append((header, request))
        request_checks.receive(request, header.api_version)
        self._stuck = self._stuck or header.api_key in self.broker.held
        if self._stuck:  # a broker answers in order
            return
        response = self.broker.answer(self, header, request)
        if response is not None:
            self.say(header, response)

    def say(self, header: RequestHeader, response: Response) -> None:
        """Answer a request."""
        parts = encode_response(response, header.api_version, header.correlation_id)
        self.transport.write(b"".join(parts))


class ScriptedBroker:
    """One broker: what it was asked, and how it misbehaves."""

    def __init__(self, world: World, node_id: int, host: str, port: int) -> None:
        self.world = world
        self.node_id = node_id
        self.host, self.port = host, port
        self.peers: list[Peer] = []
        self.seen: list[tuple[RequestHeader, Request[Any]]] = []
        self.greeting = b""
        self.held: set[int] = set()
        self.answers: dict[int, Answer] = {}
        world.network.listen(lambda: Peer(self), host, port)

    @property
    def connections(self) -> int:
        """Connections that are open."""
        return sum(peer.open for peer in self.peers)

    def asked(self, api_key: int) -> list[Any]:
        """The requests of an API, in the order of arrival."""
        return [request for header, request in self.seen if header.api_key == api_key]

    def answer(self, peer: Peer, header: RequestHeader, request: Request[Any]) -> Response | None:
        """By script if there is one, else as the world is."""
        script = self.answers.get(header.api_key) or self.world.answers.get(header.api_key)
        if script is not None:
            return script(peer, header, request)
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
        self.answers: dict[int, Answer] = {}

    @property
    def servers(self) -> str:
        """Where to bootstrap."""
        return ",".join(f"{broker.host}:{broker.port}" for broker in self.brokers.values())

    def client(self, servers: str | None = None, **options: Any) -> Client:
        """A client in this world."""
        return Client(servers or self.servers, dialer=self.network, **options)

    def add(self, topic: str, *leaders: int) -> None:
        """A topic whose partitions have these leaders."""
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
