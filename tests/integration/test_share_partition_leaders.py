"""The leader of a partition changes while a share group has acquired its records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from kafka_async.client.client import Client
from kafka_async.client.metadata.request_router import Controller
from kafka_async.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from kafka_async.protocol.messages.elect_leaders import ElectLeadersRequest
from kafka_async.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafka_async.testing.backends.embedded import EmbeddedBackend
from kafka_async.types import TopicPartition
from tests.contract.cases.log import produce
from tests.contract.cases.share_groups import (
    ACCEPT,
    OFFSETS,
    RELEASE,
    acknowledge,
    empty_fetch,
    fetch,
    started,
)
from tests.contract.model import Batch, Scenario, SendRequest, T
from tests.contract.runner import Cluster, Run

if TYPE_CHECKING:
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = pytest.mark.asyncio

TIMEOUT = 30.0
"""Seconds for an election, which takes one."""
UNKNOWN_PARTITION, NOT_LEADER = 3, 6
REPLICAS = (1, 2, 3)


class Requests(Run):
    """Sends requests of the contract for one topic, `t`."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, Scenario("leaders", [], {}))
        self.topic = self._name(T)

    async def create_topic(self) -> None:
        settings = {"replicas": list(REPLICAS)}
        self._topic_ids["t"] = await self.cluster.create_topic(self.topic, settings)
        self._names.bind_id(self._topic_ids["t"], "id of t")
        await self.cluster.wait_for_group_coordinator(self.topic)

    async def ask(self, step: SendRequest, broker: int = 1) -> Any:
        """Send a request and return its response."""
        return await self._ask("", replace(step, broker=broker))

    async def partition(self, step: SendRequest, broker: int = 1) -> Any:
        """Send a request and return the only partition of its response."""
        return (await self.ask(step, broker))["responses"][0]["partitions"][0]

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections.values():
            connection.drop()


async def elect_preferred_leaders(handle: ClusterHandle) -> None:
    """Let broker 1 coordinate groups again: earlier tests may have restarted it."""
    if isinstance(handle.cluster, EmbeddedBackend):
        return
    async with Client(handle.bootstrap_servers) as client:
        await client.request(ElectLeadersRequest(topic_partitions=None), to=Controller())


@pytest_asyncio.fixture
async def requests(kafka_cluster: ClusterHandle) -> AsyncIterator[Requests]:
    await elect_preferred_leaders(kafka_cluster)
    cluster = Cluster(kafka_cluster.topic("leaders"), names=40)
    await cluster.open(kafka_cluster.bootstrap_servers)
    found = Requests(cluster)
    try:
        await found.create_topic()
        yield found
    finally:
        found.close()
        await cluster.close()


async def move_leader(handle: ClusterHandle, cluster: Cluster, topic: str, leader: int) -> None:
    """Make a broker the leader, and wait until both it and broker 1 know."""
    if isinstance(handle.cluster, EmbeddedBackend):
        handle.cluster.cluster.move_leader(TopicPartition(topic, 0), leader)
        return
    replicas = [leader, *(it for it in REPLICAS if it != leader)]
    row = {"name": topic, "partitions": [{"partition_index": 0, "replicas": replicas}]}
    moves = AlterPartitionReassignmentsRequest.from_dict({"timeout_ms": 20_000, "topics": [row]})
    assert (await cluster.call(1, moves, 0)).error_code == 0
    elects = ElectLeadersRequest.from_dict(
        {"timeout_ms": 20_000, "topic_partitions": [{"topic": topic, "partitions": [0]}]}
    )
    describes = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    async with asyncio.timeout(TIMEOUT):
        for broker in (1, leader):
            while True:
                await cluster.call(1, elects, 2)
                [found] = (await cluster.call(broker, describes, 9)).topics
                if found.partitions[0].leader_id == leader:
                    break
                await asyncio.sleep(0.1)


def acquired(row: Any) -> list[tuple[int, int, int]]:
    return [
        (it.get("first_offset", 0), it.get("last_offset", 0), it["delivery_count"])
        for it in row["acquired_records"]
    ]


async def test_new_leader_delivers_again_what_was_not_acknowledged(
    kafka_cluster: ClusterHandle, requests: Requests
) -> None:
    await requests.ask(produce(9, Batch((b"a", b"b", b"c"))))
    for step in started():
        assert isinstance(step, SendRequest)
        await requests.ask(step)
    assert acquired(await requests.partition(fetch(1))) == [(0, 2, 1)]
    await requests.ask(acknowledge(1, 1, (0, 0, [ACCEPT]), (2, 2, [RELEASE])))
    await move_leader(kafka_cluster, requests.cluster, requests.topic, 2)
    # The lock of record 1 was not stored, so the new leader has not delivered the record.
    again = fetch(1, awaiting="acquired_records")
    assert acquired(await requests.partition(again, 2)) == [(1, 1, 1), (2, 2, 2)]
    row = await requests.partition(acknowledge(1, 2, (1, 1, [ACCEPT])))
    assert row["error_code"] == UNKNOWN_PARTITION
    row = await requests.partition(empty_fetch(1, 3))
    leader = {"leader_id": 2, "leader_epoch": 1}
    assert (row["error_code"], row["current_leader"]) == (NOT_LEADER, leader)
    assert await requests.partition(acknowledge(1, 1, (1, 1, [ACCEPT])), 2) == {}
    [described] = (await requests.ask(OFFSETS))["groups"][0]["topics"][0]["partitions"]
    assert (described["start_offset"], described["lag"]) == (1, 1)
