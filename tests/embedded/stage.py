"""A cluster in memory, and raw connections to its brokers."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Unpack

from kafka_async.clock import MemoryNetwork
from kafka_async.embedded import EmbeddedCluster
from tests.embedded.wire import Peer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from kafka_async.embedded.settings import SettingOptions


class Stage:
    """A started cluster and connections to it."""

    def __init__(self, cluster: EmbeddedCluster, network: MemoryNetwork) -> None:
        self.cluster = cluster
        self.network = network
        self._peers: list[Peer] = []

    async def peer(self, broker_id: int | None = 1) -> Peer:
        assert broker_id is not None, "nobody leads or coordinates it"
        peer = await Peer.connect(self.cluster, self.network, broker_id)
        self._peers.append(peer)
        return peer

    async def close(self) -> None:
        for peer in self._peers:
            await peer.close()


@asynccontextmanager
async def staged(
    brokers: int = 1, *, topic: bool = True, **settings: Unpack[SettingOptions]
) -> AsyncGenerator[Stage]:
    """A stage with the topic `t` of two partitions; in itself it must not have failed."""
    network = MemoryNetwork()
    async with EmbeddedCluster(brokers, network=network, **settings) as cluster:
        if topic:
            await cluster.create_topic("t", 2)
        stage = Stage(cluster, network)
        yield stage
        await stage.close()
        assert cluster.failures == []
