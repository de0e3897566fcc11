"""An embedded cluster in memory, and clients of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka_async.clock import MemoryNetwork
from kafka_async.cluster.client import Client
from kafka_async.embedded import EmbeddedCluster

if TYPE_CHECKING:
    from types import TracebackType


class InMemory:
    """`async with InMemory() as memory` runs `memory.cluster`."""

    def __init__(self, brokers: int = 1, **settings: Any) -> None:
        self._network = MemoryNetwork()
        self.cluster = EmbeddedCluster(brokers, network=self._network, **settings)

    async def __aenter__(self) -> InMemory:
        await self.cluster.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.cluster.stop()

    def client(self, **options: Any) -> Client:
        """Return a client that was not started."""
        return Client(self.cluster.bootstrap_servers, dialer=self._network, **options)
