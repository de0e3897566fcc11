"""An embedded cluster in memory, its clients, and the requests that its brokers received.

The default double for client tests. In a test marked `virtual_clock`, `await settle()` runs all
callbacks and tasks that are ready.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kafka_async.admin import Admin
from kafka_async.client.client import Client
from kafka_async.consumer.consumer import Consumer
from kafka_async.consumer.runtime import ConsumerRuntime
from kafka_async.embedded import EmbeddedCluster
from kafka_async.foundation.memory_network import MemoryNetwork
from kafka_async.kernel import IMPLEMENTATION
from kafka_async.producer.producer import Producer
from kafka_async.records.batch import iter_batches
from kafka_async.types import Health, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from kafka_async.embedded.faults import Fault
    from kafka_async.embedded.state.log import PartitionLog
    from kafka_async.embedded.state.partition import Partition
    from kafka_async.kernel import Record
    from kafka_async.records.batch import BatchView

assert ConsumerRuntime  # loads it before a test measures its event loop
P = TypeVar("P", bound=asyncio.BaseProtocol)


class Received(NamedTuple):
    """Records a request that a broker has received; `time` is the event loop's, in seconds."""

    time: float
    broker: int
    version: int
    request: Any


class PartitionedNetwork(MemoryNetwork):
    """Counts connection attempts in a network in memory, and can refuse and delay them.

    Attributes:
        attempts: Connection attempts by port, refused ones too.
        refused: Ports that refuse connections of clients.
        delay: Seconds that a connection attempt takes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.attempts: Counter[int] = Counter()
        self.refused: set[int] = set()
        self.delay = 0.0

    async def dial(
        self, protocol_factory: Callable[[], P], host: str, port: int, **options: Any
    ) -> tuple[asyncio.Transport, P]:
        """Connect to a listener, unless its port refuses connections."""
        self.attempts[port] += 1
        if self.delay:
            await asyncio.sleep(self.delay)
        if port in self.refused:
            await asyncio.sleep(0)
            raise ConnectionRefusedError(f"{host}:{port} cannot be reached")
        return await super().dial(protocol_factory, host, port, **options)


class InMemory:
    """Runs `cluster` within an `async with` block.

    Args:
        brokers: The number of brokers; their ids are 1, 2, ...
        settings: Those of `EmbeddedCluster`.

    Attributes:
        cluster: The embedded cluster.
        network: The dialer of its clients.
        received: Requests in the order in which brokers began to handle them.
    """

    def __init__(self, brokers: int = 1, **settings: Any) -> None:
        self.network = PartitionedNetwork()
        self.cluster = EmbeddedCluster(brokers, network=self.network, **settings)
        self.received: list[Received] = []
        self.cluster.faults.add(when=self._note, count=None)

    async def __aenter__(self) -> Self:
        await self.cluster.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.cluster.stop()
        if error is None:
            assert self.cluster.failures == []

    def _note(self, context: Any, request: Any) -> bool:
        self.received.append(Received(now(), context.broker.id, context.version, request))
        return False  # the rule only records the request

    def client(self, *brokers: int, **options: Any) -> Client:
        """Return a client that was not started; the default bootstrap servers are all brokers."""
        chosen = [self.address(broker) for broker in brokers or self.cluster.brokers]
        return Client(chosen, dialer=self.network, **options)

    def producer(self, **options: Any) -> Producer:
        """Return a producer that was not started."""
        return Producer(self.cluster.bootstrap_servers, dialer=self.network, **options)

    def consumer(self, *topics: str, **options: Any) -> Consumer:
        """Return a consumer that was not started."""
        given: dict[str, Any] = {"topics": topics, **options} if topics else options
        return Consumer(self.cluster.bootstrap_servers, dialer=self.network, **given)

    def admin(self, **options: Any) -> Admin:
        """Return an admin client that was not started and owns its client."""
        admin = Admin(self.cluster.bootstrap_servers, **options)
        admin.client = self.client(**options)
        return admin

    def address(self, broker: int) -> str:
        """Return the address of a broker as `host:port`."""
        return self.cluster.bootstrap_servers.split(",")[broker - 1]

    def connections(self, broker: int | None = None) -> int:
        """Return how many connections a broker (None: all together) has."""
        return sum(
            len(each.connections)
            for each in self.cluster.brokers.values()
            if broker in (None, each.id)
        )

    async def cut_off(self, broker: int) -> None:
        """Make a broker unreachable for clients; it remains leader and coordinator."""
        self.network.refused.add(self.cluster.brokers[broker].port)
        await self.cluster.disconnect(broker)

    def hang(self, api: str | None = None, broker: int | None = None) -> Fault:
        """Hold requests until the fault is removed: all, or those of one API or to one broker."""
        return self.cluster.faults.add(api=api, broker=broker, hang=True, count=None)

    def reconnect(self, broker: int) -> None:
        """Undo `cut_off`."""
        self.network.refused.discard(self.cluster.brokers[broker].port)

    def attempts(self, broker: int) -> int:
        """Return how often clients tried to connect to a broker."""
        return self.network.attempts[self.cluster.brokers[broker].port]

    def coordinator(self, key: str) -> int:
        """Return the broker that coordinates a group or transactional id."""
        found = self.cluster.brokers.coordinator_for(key)
        assert found is not None
        return found

    def coordinated_by(self, broker: int) -> str:
        """Return a group or transactional id that a broker coordinates."""
        return next(key for key in map(str, itertools.count()) if self.coordinator(key) == broker)

    def receivers(self, kind: type[Any]) -> list[int]:
        """Return the brokers that received requests of a class, in order."""
        return [row.broker for row in self.received if isinstance(row.request, kind)]

    def requests(self, kind: type[Any], broker: int | None = None) -> list[Any]:
        """Return the requests of a class that a broker (None: any) received, in order."""
        return [
            row.request
            for row in self.received
            if isinstance(row.request, kind) and broker in (None, row.broker)
        ]

    def partition(self, topic: str, partition: int = 0) -> Partition:
        """Return a partition of the cluster."""
        found = self.cluster.topics.partition(TopicPartition(topic, partition))
        assert found is not None
        return found

    def batches(self, topic: str, partition: int = 0) -> list[BatchView]:
        """Return the batches of records in the log of a partition; no transaction markers."""
        return batches_of(self.partition(topic, partition).log)

    def records(self, topic: str, partition: int = 0) -> list[Record]:
        """Return the records in the log of a partition, those of aborted transactions too."""
        return [row for batch in self.batches(topic, partition) for row in batch.records()]

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """Return the values of `records`."""
        return [record.value for record in self.records(topic, partition)]


def batches_of(log: PartitionLog) -> list[BatchView]:
    """Return the batches of records in a log; no transaction markers."""
    found: list[BatchView] = []
    offset = log.start_offset
    while offset < log.end_offset:  # a read returns one segment at most
        found += iter_batches(log.read(offset, log.size).records)
        offset = found[-1].last_offset + 1
    return [batch for batch in found if not batch.is_control]


def now() -> float:
    """Return the event loop's time in seconds."""
    return asyncio.get_running_loop().time()


async def settle() -> None:
    """Run all ready callbacks and tasks; virtual time advances by a millisecond."""
    await asyncio.sleep(0.001)


async def until(condition: Callable[[], bool]) -> None:
    """Run the event loop until a condition holds; fail after a day of virtual time."""
    while not condition():  # noqa: ASYNC110  # virtual time costs nothing
        await asyncio.sleep(0.001)


class IterationCounter:
    """Counts event loop iterations within an `async with` block."""

    def __init__(self) -> None:
        self.count = 0

    async def __aenter__(self) -> IterationCounter:
        self._counting = asyncio.ensure_future(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._counting.cancel()
        await asyncio.wait({self._counting})

    async def _run(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)


async def check_states(client: Client | Producer | Consumer, metadata_request: Fault) -> None:
    """Check that `health` reports each state from new to closed; the fault delays the start."""
    assert client.health() == Health(state="new", kernel=IMPLEMENTATION)
    starting = asyncio.create_task(client.start())
    await metadata_request.wait()
    assert client.health().state == "starting"
    metadata_request.remove()
    await starting
    assert client.health().state == "running"
    stopping = asyncio.create_task(client.stop())
    await asyncio.sleep(0)
    assert client.health().state == "stopping"
    await stopping
    health = client.health()
    assert (health.state, health.brokers_connected, health.in_flight) == ("closed", (), 0)
