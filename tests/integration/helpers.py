"""Topics and their contents, waiting for consumers, and imports of other clients."""

from __future__ import annotations

import asyncio
import importlib
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from kafka_async import Admin, Client, NewTopic, TopicPartition
from kafka_async.admin import OffsetSpec
from kafka_async.client.client import services_of
from kafka_async.client.metadata.request_router import Broker, Controller
from kafka_async.errors import GroupIdNotFoundError
from kafka_async.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from kafka_async.protocol.messages.elect_leaders import ElectLeadersRequest
from kafka_async.protocol.messages.fetch import FetchRequest
from kafka_async.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafka_async.records.batch import iter_batches
from kafka_async.testing.backends.embedded import EmbeddedBackend
from tests.integration.raw_cluster import RawCluster

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from kafka_async import Consumer
    from kafka_async.protocol.message import Request
    from kafka_async.testing.fixtures import ClusterHandle

    V = TypeVar("V")


SPARKS_SIDE = "Spark calls readers and writers, which have tests of their own on both backends"
"""Reason for tests with Spark's Java side to be `mainly_on` one backend."""


def load(module: str) -> Any:
    """Import a module of another client without the warnings of the import."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(module)


def as_bytes(value: bytes | None) -> bytes | None:
    """Return a binary value of a row of Spark, which is a bytearray on Spark 4.0."""
    return None if value is None else bytes(value)


async def create_topic(
    cluster: ClusterHandle, prefix: str = "topic", partitions: int = 1, **options: Any
) -> str:
    """Create a topic of the running test; the options are those of `NewTopic`."""
    topic = cluster.topic(prefix)
    partitions = -1 if "assignments" in options else partitions
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(topic, partitions, **options)])
    return topic


def create_topic_blocking(
    cluster: ClusterHandle, prefix: str = "topic", partitions: int = 1, **options: Any
) -> str:
    """Create a topic as `create_topic` does, without an event loop."""
    return asyncio.run(create_topic(cluster, prefix, partitions, **options))


async def wait_until_known(cluster: ClusterHandle, topic: str, partitions: int = 1) -> None:
    """Wait until each broker has all partitions of a topic in its metadata.

    Brokers learn of a change one after the other, and a client asks any of them.
    """
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )

    async def count(client: Client, broker: int) -> int:
        [found] = (await client.request(request, to=Broker(broker))).topics
        return [row.error_code for row in found.partitions].count(0)

    async with Client(cluster.bootstrap_servers) as client, asyncio.timeout(30):
        for broker in services_of(client).metadata.snapshot.brokers:
            while await count(client, broker) < partitions:  # noqa: ASYNC110  # There is no event.
                await asyncio.sleep(0.05)


async def read_values(
    cluster: ClusterHandle, topic: str, partitions: int = 1
) -> list[bytes | None]:
    """Return the values of the committed records, ordered by partition and offset.

    The coordinator responds to a commit before it writes the markers, which this waits for.
    """
    latest = {TopicPartition(topic, number): OffsetSpec.LATEST for number in range(partitions)}
    async with Admin(cluster.bootstrap_servers) as admin, asyncio.timeout(30):
        while await admin.list_offsets(latest) != await admin.list_offsets(  # noqa: ASYNC110
            latest, isolation_level="read_committed"
        ):
            await asyncio.sleep(0.05)
    return [record.value for record in await cluster.read(topic)]


def codecs_of(cluster: ClusterHandle, topic: str) -> set[int]:
    """Return the codecs of the batches in a topic's first partition."""
    partition = {"partition": 0, "partition_max_bytes": 2**24}
    topics = [{"topic": topic, "partitions": [partition]}]
    request = FetchRequest.from_dict({"max_bytes": 2**24, "session_epoch": -1, "topics": topics})

    async def fetch() -> bytes:
        raw = await RawCluster.open(cluster.bootstrap_servers)
        response = await (await raw.leader(topic)).call(request, 12)
        await raw.close()
        return bytes(response.responses[0].partitions[0].records or b"")

    return {batch.header.codec for batch in iter_batches(asyncio.run(fetch()), topic=topic)}


async def find_group(find: Callable[[], Awaitable[Mapping[str, V]]], group_id: str) -> V:
    """Return the row of a group that exists, from the groups that an admin call finds.

    A coordinator reads what its replicas have acknowledged. After its partition of
    `__consumer_offsets` has got another leader, such as when a busy machine delays the heartbeats
    of a broker, the latest changes are missing for up to a second, until the followers fetch from
    that leader, or until the next write if they do so while it loads the groups: a group that is
    not much older is not found, or in its former state. So `find` selects the expected state.
    """
    async with asyncio.timeout(30):
        while True:
            with suppress(GroupIdNotFoundError):
                if (found := (await find()).get(group_id)) is not None:
                    return found
            await asyncio.sleep(0.05)


async def poll_until(condition: Callable[[], object], *consumers: Consumer) -> None:
    """Poll consumers, one after the other, until a condition is true; fail after 40 seconds."""
    async with asyncio.timeout(40):
        while not condition():
            for consumer in consumers:
                await consumer.poll(timeout=0.1)


async def elect_leader(cluster: ClusterHandle, topic: str, number: int) -> bool:
    """Make the other of the first two brokers, which have the replicas, a partition's leader.

    Return False if the controller has not elected it within 20 s, since it is not in sync: a broker
    may need long to replace the log of a deleted topic.
    """
    partition, end = TopicPartition(topic, number), asyncio.get_running_loop().time() + 20
    async with Client(cluster.bootstrap_servers) as client:
        metadata = services_of(client).metadata
        leader = (await metadata.refresh(topics=[topic])).replicas(partition)[0]
        wanted = 3 - leader
        if isinstance(cluster.cluster, EmbeddedBackend):
            cluster.cluster.cluster.move_leader(partition)
            return True
        row = {"partition_index": number, "replicas": [wanted, leader]}
        moves = [{"name": topic, "partitions": [row]}]
        elected = [{"topic": topic, "partitions": [number]}]
        requests: list[Request[Any]] = [
            AlterPartitionReassignmentsRequest.from_dict({"timeout_ms": 20_000, "topics": moves}),
            ElectLeadersRequest.from_dict({"timeout_ms": 20_000, "topic_partitions": elected}),
        ]
        while asyncio.get_running_loop().time() < end:
            for request in requests:
                await client.request(request, to=Controller())
            found = (await metadata.refresh(topics=[topic])).leader(partition)
            if found is not None and found.leader_id == wanted:
                return True
            await asyncio.sleep(0.1)
    return False
