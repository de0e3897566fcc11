"""Measures the time from a Metadata response with 10,000 partitions to all leaders.

Each client decodes a response and makes its routing table, first from nothing, and then as an
update of the table. The response has the version that the client requests from current brokers.
The result is CPU time, with all clients in one process in turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from benchmarks.special.results import Result, milliseconds, ratio_goal
from benchmarks.wire_cases import Case, Contender
from benchmarks.wire_cases import measure as measure_case
from kafka_async.cluster.metadata import ClusterMetadata
from kafka_async.protocol import compiler
from kafka_async.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafka_async.types import TopicPartition

NEEDS_BROKERS = 0
BROKERS = 3
NEWEST = 13
CLASSIC = 5
"""Newest version that aiokafka supports."""


@dataclass(frozen=True)
class Shape:
    """Number of topics, and of partitions per topic."""

    topics: int
    partitions: int

    def __str__(self) -> str:
        return f"{self.topics:,} topics x {self.partitions:,} partitions"

    @property
    def names(self) -> list[str]:
        """Names of the topics."""
        return [f"service.events-{number}" for number in range(self.topics)]

    def leaders(self) -> dict[tuple[str, int], int]:
        """Return the leader of each partition."""
        return {
            (name, index): (number + index) % BROKERS
            for number, name in enumerate(self.names)
            for index in range(self.partitions)
        }


SHAPES = (Shape(5_000, 2), Shape(1, 10_000))


@dataclass(frozen=True)
class Client:
    """Metadata functions of a client.

    Attributes:
        name: the name of the client.
        version: the version of the response that it requests.
        update: returns the routing table after a response, given the previous one or None.
        leaders: returns the leaders of partitions from a routing table.
    """

    name: str
    version: int
    update: Callable[[bytes, Any], Any]
    leaders: Callable[[Any, Sequence[tuple[str, int]]], list[int | None]]


def encode_response(shape: Shape, version: int) -> bytes:
    """Return an encoded Metadata response with all topics of a shape."""
    brokers = [
        MetadataResponseBroker(node_id=n, host=f"broker-{n}.internal", port=9092, rack=f"z{n}")
        for n in range(BROKERS)
    ]
    topics: list[MetadataResponseTopic] = []
    for number, name in enumerate(shape.names):
        partitions = [
            MetadataResponsePartition(
                partition_index=index,
                leader_id=(number + index) % BROKERS,
                leader_epoch=7 if version >= 7 else -1,
                replica_nodes=(0, 1, 2),
                isr_nodes=(0, 1, 2),
            )
            for index in range(shape.partitions)
        ]
        topics.append(MetadataResponseTopic(name=name, partitions=partitions))
        if version >= 10:
            topics[-1].topic_id = UUID(int=number + 1)
    response = MetadataResponse(
        brokers=brokers, cluster_id="4L6g3nShT-eMCtK--X86sw", controller_id=1, topics=topics
    )
    return response.encode(version)


def clients() -> list[Client]:
    """Return the metadata functions of all clients, ours first."""
    plain = compiler.plain_decoder(MetadataResponse, NEWEST)
    return [
        _ours("kafka_async", lambda data: MetadataResponse.decode(data, NEWEST)),
        _ours("kafka_async in plain Python", lambda data: plain(data, 0)[0]),
        _kafka_python(),
        _aiokafka(),
    ]


def _ours(name: str, decode: Callable[[bytes], MetadataResponse]) -> Client:
    def update(data: bytes, known: ClusterMetadata | None) -> ClusterMetadata:
        return (known or ClusterMetadata()).merged(decode(data))

    def leaders(table: ClusterMetadata, partitions: Sequence[tuple[str, int]]) -> list[int | None]:
        rows = [table.leader(TopicPartition(*partition)) for partition in partitions]
        return [None if row is None else row.leader_id for row in rows]

    return Client(name, NEWEST, update, leaders)


def _kafka_python() -> Client:
    from kafka.cluster import ClusterMetadata as Table  # pyright: ignore[reportMissingTypeStubs]
    from kafka.protocol.metadata import (  # pyright: ignore[reportMissingTypeStubs]
        MetadataResponse as Response,
    )
    from kafka.structs import TopicPartition as Partition  # pyright: ignore[reportMissingTypeStubs]

    message: Any = Response
    new_table: Any = Table
    partition: Any = Partition

    def update(data: bytes, known: Any) -> Any:
        table = new_table() if known is None else known
        table.update_metadata(message.decode(data, version=NEWEST))
        return table

    def leaders(table: Any, partitions: Sequence[tuple[str, int]]) -> list[int | None]:
        return [table.leader_for_partition(partition(*each)) for each in partitions]

    return Client("kafka-python", NEWEST, update, leaders)


def _aiokafka() -> Client:
    from aiokafka.cluster import ClusterMetadata as Table
    from aiokafka.protocol.metadata import MetadataResponse_v5
    from aiokafka.structs import TopicPartition as Partition

    new_table: Any = Table
    message: Any = MetadataResponse_v5

    def update(data: bytes, known: Any) -> Any:
        table = new_table() if known is None else known
        table.update_metadata(message.decode(data))
        return table

    def leaders(table: Any, partitions: Sequence[tuple[str, int]]) -> list[int | None]:
        return [table.leader_for_partition(Partition(*each)) for each in partitions]

    return Client("aiokafka", CLASSIC, update, leaders)


def cases(shape: Shape) -> list[Case]:
    """Return the cases of a first response, and of another one after it."""
    expected = shape.leaders()
    partitions, expected_leaders = list(expected), list(expected.values())
    first: list[Contender] = []
    again: list[Contender] = []
    for client in clients():
        data = encode_response(shape, client.version)
        known = client.update(data, None)
        first.append(_contender(client, data, None, partitions, expected_leaders))
        again.append(_contender(client, data, known, partitions, expected_leaders))
    return [
        Case(f"{shape}, first answer", tuple(first)),
        Case(f"{shape}, next answer", tuple(again)),
    ]


def _contender(
    client: Client,
    data: bytes,
    known: Any,
    partitions: Sequence[tuple[str, int]],
    expected_leaders: list[int],
) -> Contender:
    return Contender(
        client.name,
        lambda: client.update(data, known),
        lambda table: client.leaders(table, partitions) == expected_leaders,
    )


def measure(bootstrap: str | None, rounds: int) -> dict[str, Any]:
    """Measure the CPU milliseconds of a response; needs no broker.

    Raises:
        WrongResultError: a leader is missing or wrong.
    """
    rows = [
        row
        for shape in SHAPES
        for case in cases(shape)
        for row in measure_case(case, rounds, time.process_time)
    ]
    return Result(
        "metadata",
        "10,000 partitions: Metadata response to routing table, CPU time",
        "the client's time in ours, of the same round; median of the rounds",
        milliseconds(rows),
        (ratio_goal(rows, 2),),
    ).plain()
