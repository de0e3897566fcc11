"""10,000 partitions: from the bytes of a Metadata response to knowing every leader.

Each client does what it does with an answer: decode it, and make its routing table of it, once from
nothing and once more over what it knew. Each answer has the version that the client asks today's
brokers for. CPU time, all clients in one process in turn.
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
"""The newest version that aiokafka knows."""


@dataclass(frozen=True)
class Shape:
    """So many topics of so many partitions."""

    topics: int
    partitions: int

    def __str__(self) -> str:
        return f"{self.topics:,} topics x {self.partitions:,} partitions"

    @property
    def names(self) -> list[str]:
        """Of the topics."""
        return [f"service.events-{number}" for number in range(self.topics)]

    def leaders(self) -> dict[tuple[str, int], int]:
        """Who leads what: what a client has to know afterwards."""
        return {
            (name, index): (number + index) % BROKERS
            for number, name in enumerate(self.names)
            for index in range(self.partitions)
        }


SHAPES = (Shape(5_000, 2), Shape(1, 10_000))


@dataclass(frozen=True)
class Client:
    """How a client takes an answer in.

    Attributes:
        name: whose it is.
        version: of the answer that it asks for.
        take: the routing table after an answer's bytes, over what was known (None: nothing).
        leaders: who leads the asked-for partitions, by the client's own look-up.
    """

    name: str
    version: int
    take: Callable[[bytes, Any], Any]
    leaders: Callable[[Any, Sequence[tuple[str, int]]], list[int | None]]


def answer(shape: Shape, version: int) -> bytes:
    """A Metadata response about all topics of a shape."""
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
    """Ours first."""
    plain = compiler.plain_decoder(MetadataResponse, NEWEST)
    return [
        _ours("kafka_async", lambda data: MetadataResponse.decode(data, NEWEST)),
        _ours("kafka_async in plain Python", lambda data: plain(data, 0)[0]),
        _kafka_python(),
        _aiokafka(),
    ]


def _ours(name: str, decode: Callable[[bytes], MetadataResponse]) -> Client:
    def take(data: bytes, known: ClusterMetadata | None) -> ClusterMetadata:
        return (known or ClusterMetadata()).merged(decode(data))

    def leaders(table: ClusterMetadata, asked: Sequence[tuple[str, int]]) -> list[int | None]:
        rows = [table.leader(TopicPartition(*partition)) for partition in asked]
        return [None if row is None else row.leader_id for row in rows]

    return Client(name, NEWEST, take, leaders)


def _kafka_python() -> Client:
    from kafka.cluster import ClusterMetadata as Table  # pyright: ignore[reportMissingTypeStubs]
    from kafka.protocol.metadata import (  # pyright: ignore[reportMissingTypeStubs]
        MetadataResponse as Answer,
    )
    from kafka.structs import TopicPartition as Partition  # pyright: ignore[reportMissingTypeStubs]

    message: Any = Answer
    new_table: Any = Table
    partition: Any = Partition

    def take(data: bytes, known: Any) -> Any:
        table = new_table() if known is None else known
        table.update_metadata(message.decode(data, version=NEWEST))
        return table

    def leaders(table: Any, asked: Sequence[tuple[str, int]]) -> list[int | None]:
        return [table.leader_for_partition(partition(*each)) for each in asked]

    return Client("kafka-python", NEWEST, take, leaders)


def _aiokafka() -> Client:
    from aiokafka.cluster import ClusterMetadata as Table
    from aiokafka.protocol.metadata import MetadataResponse_v5
    from aiokafka.structs import TopicPartition as Partition

    new_table: Any = Table
    message: Any = MetadataResponse_v5

    def take(data: bytes, known: Any) -> Any:
        table = new_table() if known is None else known
        table.update_metadata(message.decode(data))
        return table

    def leaders(table: Any, asked: Sequence[tuple[str, int]]) -> list[int | None]:
        return [table.leader_for_partition(Partition(*each)) for each in asked]

    return Client("aiokafka", CLASSIC, take, leaders)


def cases(shape: Shape) -> list[Case]:
    """The first answer, and the next one over what the first has told."""
    expected = shape.leaders()
    asked, right = list(expected), list(expected.values())
    first: list[Contender] = []
    again: list[Contender] = []
    for client in clients():
        data = answer(shape, client.version)
        known = client.take(data, None)
        first.append(_contender(client, data, None, asked, right))
        again.append(_contender(client, data, known, asked, right))
    return [
        Case(f"{shape}, first answer", tuple(first)),
        Case(f"{shape}, next answer", tuple(again)),
    ]


def _contender(
    client: Client, data: bytes, known: Any, asked: Sequence[tuple[str, int]], right: list[int]
) -> Contender:
    return Contender(
        client.name,
        lambda: client.take(data, known),
        lambda table: client.leaders(table, asked) == right,
    )


def measure(bootstrap: str | None, rounds: int) -> dict[str, Any]:
    """CPU milliseconds an answer; needs no broker.

    Raises:
        WrongResultError: a client does not know a leader afterwards.
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
