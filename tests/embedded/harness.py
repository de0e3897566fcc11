"""An embedded cluster in memory with raw connections to its brokers."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Unpack

from kafka_async.clock import MemoryNetwork
from kafka_async.embedded import EmbeddedCluster
from tests.embedded.raw_connection import RawConnection

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from kafka_async.embedded.settings import SettingOptions


class ClusterHarness:
    """Holds a started cluster and the raw connections to it."""

    def __init__(self, cluster: EmbeddedCluster, network: MemoryNetwork) -> None:
        self.cluster = cluster
        self.network = network
        self._connections: list[RawConnection] = []

    async def connect(self, broker_id: int | None = 1) -> RawConnection:
        assert broker_id is not None, "there is no leader or coordinator"
        connection = await RawConnection.open(self.cluster, self.network, broker_id)
        self._connections.append(connection)
        return connection

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()


@asynccontextmanager
async def running_harness(
    brokers: int = 1, *, topic: bool = True, **settings: Unpack[SettingOptions]
) -> AsyncGenerator[ClusterHarness]:
    """Run a cluster with topic `t` of two partitions; check that it had no internal error."""
    network = MemoryNetwork()
    async with EmbeddedCluster(brokers, network=network, **settings) as cluster:
        if topic:
            await cluster.create_topic("t", 2)
        harness = ClusterHarness(cluster, network)
        yield harness
        await harness.close()
        assert cluster.failures == []
