"""Sends raw requests to the brokers of any cluster by their role, without a client."""

from __future__ import annotations

import asyncio
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kafka_async.embedded import ErrorCode
from kafka_async.protocol.messages.create_topics import CreateTopicsRequest
from kafka_async.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafka_async.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.raw_connection import RawConnection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from kafka_async.protocol.messages.create_topics import CreatableTopicResult

TIMEOUT = 20.0
"""Seconds."""
NOT_READY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


async def when_ready(send: Callable[[], Awaitable[Any]]) -> Any:
    """Return the first response without a transient error code."""
    async with asyncio.timeout(TIMEOUT):
        while (response := await send()).error_code in NOT_READY:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return response


class RawCluster:
    """Opens connections to the brokers of a cluster; `any` is one of them."""

    def __init__(self, any_broker: RawConnection, address: tuple[str, int]) -> None:
        self.any = any_broker
        self.address = address
        self._connections = {address: any_broker}

    @classmethod
    async def open(cls, bootstrap_servers: str) -> RawCluster:
        host, _, port = bootstrap_servers.split(",")[0].rpartition(":")
        address = host, int(port)
        return cls(await RawConnection.dial(*address), address)

    async def coordinator(self, kind: int, key: str) -> RawConnection:
        """Return a connection to the coordinator of a group (kind 0) or transactional id (1)."""
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])

        async def find() -> Any:
            return (await self.any.call(request, 4)).coordinators[0]

        found = await when_ready(find)
        return await self.connection(found.host, found.port)

    async def creation(
        self,
        name: str,
        configs: Mapping[str, str] = MappingProxyType({}),
        *,
        leader: int | None = None,
        validate_only: bool = False,
    ) -> CreatableTopicResult:
        """Return the response to the creation of a topic with one partition."""
        fields: dict[str, Any] = {"name": name, "num_partitions": 1, "replication_factor": 1}
        fields["configs"] = [{"name": key, "value": value} for key, value in configs.items()]
        if leader is not None:
            place = {"partition_index": 0, "broker_ids": [leader]}
            fields |= {"num_partitions": -1, "replication_factor": -1, "assignments": [place]}
        request = CreateTopicsRequest.from_dict(
            {"topics": [fields], "timeout_ms": 10_000, "validate_only": validate_only}
        )
        [result] = (await self.any.call(request, 7)).topics
        return result

    async def create_topic(
        self,
        name: str,
        configs: Mapping[str, str] = MappingProxyType({}),
        *,
        leader: int | None = None,
    ) -> RawConnection:
        """Create a topic with one partition; return a connection to its leader."""
        result = await self.creation(name, configs, leader=leader)
        assert result.error_code == ErrorCode.NONE
        return await self.leader(name)

    async def leader(self, name: str) -> RawConnection:
        """Wait until a topic has a leader of its first partition, and return a connection to it."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        brokers: dict[int, tuple[str, int]] = {}

        async def find() -> Any:
            response = await self.any.call(request, 9)
            brokers.update({row.node_id: (row.host, row.port) for row in response.brokers})
            return response.topics[0]

        topic = await when_ready(find)
        return await self.connection(*brokers[topic.partitions[0].leader_id])

    async def connection(self, host: str, port: int) -> RawConnection:
        """Return the connection to an address, a new one if the broker has closed it."""
        found = self._connections.get((host, port))
        if found is None or found.closed.is_set():
            found = self._connections[host, port] = await RawConnection.dial(host, port)
        return found

    async def close(self) -> None:
        for connection in self._connections.values():
            await connection.close()
