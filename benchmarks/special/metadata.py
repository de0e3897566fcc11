"""Measures the time from a Metadata response with 10,000 partitions to all leaders.

Each client decodes a response and makes its routing table, first from nothing, and then as an
update of the table. The response has the version that the client requests from current brokers.
The result is CPU time, with all clients in one process in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from benchmarks.special.results import Result, timed_result
from benchmarks.wire import codecs, messages
from benchmarks.wire.timing import Case, Contender, measure_all
from kafka_async.client.metadata.metadata import ClusterMetadata
from kafka_async.types import TopicPartition

SUBJECT = messages.SUBJECTS["metadata"]


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
            (name, index): (number + index) % messages.BROKERS
            for number, name in enumerate(self.names)
            for index in range(self.partitions)
        }


SHAPES = (Shape(5_000, 2), Shape(1, 10_000))


@dataclass(frozen=True)
class Client:
    """Metadata functions of a client; `update` gets the previous routing table or None."""

    name: str
    version: int
    update: Callable[[bytes, Any], Any]
    leader: Callable[[Any, tuple[str, int]], int | None]

    def response(self, shape: Shape) -> bytes:
        """Return an encoded response with all topics of a shape."""
        return messages.metadata(shape.topics, shape.partitions).encode(self.version)

    def table(self, shape: Shape) -> Any:
        """Return a routing table with all topics of a shape."""
        return self.update(self.response(shape), None)


def clients() -> list[Client]:
    """Return the metadata functions of all clients, ours first."""
    return [_ours(codecs.OURS), _ours(codecs.PLAIN), kafka_python(), aiokafka()]


def kafka_python() -> Client:
    """Return the metadata functions of kafka-python."""
    return _peer("kafka-python", "kafka", SUBJECT.newest)


def aiokafka() -> Client:
    """Return the metadata functions of aiokafka."""
    return _peer("aiokafka", "aiokafka", SUBJECT.classic)


def _decoder(client: str, version: int) -> Callable[[bytes], Any]:
    return codecs.codec(client, "metadata", "MetadataResponse", version).decode


def _ours(name: str) -> Client:
    decode = _decoder(name, SUBJECT.newest)

    def update(data: bytes, known: ClusterMetadata | None) -> ClusterMetadata:
        return (known or ClusterMetadata()).merged(decode(data))

    def leader(table: ClusterMetadata, partition: tuple[str, int]) -> int | None:
        row = table.leader(TopicPartition(*partition))
        return None if row is None else row.leader_id

    return Client(name, SUBJECT.newest, update, leader)


def _peer(name: str, package: str, version: int) -> Client:
    """Return the functions of a client whose routing table is updated in place."""
    decode = _decoder(name, version)
    new_table: Any = import_module(f"{package}.cluster").ClusterMetadata
    partition: Any = import_module(f"{package}.structs").TopicPartition

    def update(data: bytes, known: Any) -> Any:
        table = new_table() if known is None else known
        table.update_metadata(decode(data))
        return table

    def leader(table: Any, each: tuple[str, int]) -> int | None:
        return table.leader_for_partition(partition(*each))

    return Client(name, version, update, leader)


def cases(shape: Shape) -> list[Case]:
    """Return the cases of a first response, and of another one after it."""
    return [
        Case(
            f"{shape}, {which} answer",
            tuple(_contender(client, shape, repeated=repeated) for client in clients()),
        )
        for which, repeated in (("first", False), ("next", True))
    ]


def _contender(client: Client, shape: Shape, *, repeated: bool) -> Contender:
    data = client.response(shape)
    known = client.table(shape) if repeated else None
    expected = shape.leaders().items()
    return Contender(
        client.name,
        lambda: client.update(data, known),
        lambda table: all(client.leader(table, each) == leader for each, leader in expected),
    )


def measure(bootstrap: str, rounds: int) -> Result:
    """Measure the CPU milliseconds of a response; needs no broker."""
    return timed_result(
        "metadata",
        "10,000 partitions: Metadata response to routing table, CPU time",
        ", of the same round; median of the rounds",
        measure_all([case for shape in SHAPES for case in cases(shape)], rounds),
        limit=2,
    )
