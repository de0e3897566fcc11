"""An embedded cluster in memory with raw connections to its brokers."""

from __future__ import annotations

import itertools
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from kafka_async.embedded import EmbeddedCluster
from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.foundation.memory_network import MemoryNetwork
from kafka_async.types import TopicPartition
from tests.contract.model import Name, Scenario, SendRequest
from tests.contract.runner import DISCONNECTED, Cluster, Run, error_codes
from tests.raw_connection import CLIENT_ID, RawConnection

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from kafka_async.embedded.settings import SettingOptions
    from kafka_async.embedded.state.partition import Partition
    from tests.contract.runner import ConnectionKey


class ClusterHarness:
    """Holds a started cluster and the raw connections to it."""

    def __init__(self, cluster: EmbeddedCluster, network: MemoryNetwork) -> None:
        self.cluster = cluster
        self.network = network
        self._connections: list[RawConnection] = []

    async def connect(self, broker_id: int | None = 1, client_id: str = CLIENT_ID) -> RawConnection:
        assert broker_id is not None, "there is no leader or coordinator"
        broker = self.cluster.brokers[broker_id]
        connection = await RawConnection.dial(broker.host, broker.port, self.network, client_id)
        self._connections.append(connection)
        return connection

    def partition(self, index: int = 0) -> Partition:
        """Return a partition of topic `t`."""
        found = self.cluster.topics.partition(TopicPartition("t", index))
        assert found is not None
        return found

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


class _HarnessCluster(Cluster):
    """Connects to the brokers of a harness; names are the keys of their placeholders."""

    def __init__(self, harness: ClusterHarness) -> None:
        super().__init__("")
        self._harness = harness

    async def connect(self, broker: int, client_id: str = CLIENT_ID) -> RawConnection:
        return await self._harness.connect(broker, client_id)

    def name(self, scenario: str, name: Name) -> str:
        return name.key


class Session(Run):
    """Sends requests of the contract to an embedded cluster, in states that Kafka cannot be in.

    Attributes:
        broker: The broker that gets the requests.
    """

    def __init__(self, harness: ClusterHarness) -> None:
        super().__init__(_HarnessCluster(harness), Scenario("", [], {}))
        self.embedded = harness.cluster
        self.partition = harness.partition
        self.broker = 1
        self._ids = itertools.count(1)
        if (topic := harness.cluster.topics.get("t")) is not None:
            self._topic_ids["t"] = topic.id

    async def _connection(self, key: ConnectionKey) -> RawConnection:
        """Connect again to a broker that was stopped and started."""
        found = self._connections.get(key)
        if found is not None and found.closed.is_set():
            del self._connections[key]
        return await super()._connection(key)

    async def ask(self, step: SendRequest) -> Any:
        """Send a request and return its response.

        Raises:
            ConnectionResetError: The broker has closed the connection.
        """
        step = replace(step, broker=self.broker, label=step.label or f"request {next(self._ids)}")
        if await self._ask("", step) == DISCONNECTED:
            raise ConnectionResetError(f"broker {self.broker}")
        return self._responses[step.label]

    async def code(self, step: SendRequest) -> ErrorCode:
        """Send a request; return the only error code in its response."""
        [code] = error_codes(await self._ask("", replace(step, broker=self.broker))) or {0}
        return ErrorCode(code)

    def coordinator(self, key: str) -> int:
        """Return the id of a coordinator."""
        found = self.embedded.brokers.coordinator_for(key)
        assert found is not None
        return found


@asynccontextmanager
async def running_session(
    brokers: int = 1, **settings: Unpack[SettingOptions]
) -> AsyncGenerator[Session]:
    """Run a cluster with topic `t` of two partitions, and a session with it."""
    async with running_harness(brokers, **settings) as harness:
        yield Session(harness)
