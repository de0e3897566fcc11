"""Spark queries whose bootstrap address leads to new addresses of their brokers, or to others.

The clients are in the processes of Spark, so the bootstrap address is a port that forwards
connections. One client is in this process, where a test can look at it.
"""

from __future__ import annotations

import asyncio
import socket
import uuid
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.admin import Admin, NewTopic
from kafka_async.errors import DataLossError
from kafka_async.protocol.messages.api_versions import ApiVersionsRequest
from kafka_async.protocol.messages.metadata import MetadataRequest
from kafka_async.spark import clients
from kafka_async.spark.source.source_options import source_options
from tests.integration.broker_proxy import HOST, BootstrapPort, Proxies, silent_listeners
from tests.integration.helpers import as_bytes
from tests.integration.moving_cluster import chosen_backends, first_address, kill_brokers
from tests.integration.test_other_cluster import THEIRS, Follower, cluster_id, warnings_of
from tests.rebootstrap_roles import AFTER, BEFORE, PATIENCE_MS, Place, Role, SocketDialer, opened

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.integration.moving_cluster import Moving

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.asyncio, pytest.mark.timeout(900)]

OPTIONS = {
    "kafka.default.api.timeout.ms": str(PATIENCE_MS),
    "kafka.socket.connection.setup.timeout.ms": "1000",
    "kafka.socket.connection.setup.timeout.max.ms": "2000",
}
WRITE_OPTIONS = {
    "kafka.delivery.timeout.ms": str(PATIENCE_MS),
    "kafka.max.block.ms": str(PATIENCE_MS),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once on each chosen backend that can move brokers.

    Those that restart brokers run on one each, since Apache Kafka takes a while to restart.
    """
    names = chosen_backends(metafunc)
    if metafunc.function is test_spark_continues_after_all_brokers_moved:
        names = names[:1]
    elif metafunc.function is test_spark_continues_while_former_addresses_do_not_respond:
        names = names[-1:]
    if "moving_cluster" in metafunc.fixturenames:
        metafunc.parametrize("moving_cluster", names, indirect=True, scope="module")
    else:
        metafunc.parametrize("two_clusters", names, indirect=True)


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[clients.ClientCache]:
    """Keep the clients of this process, however long the brokers take to start."""
    cache = clients.ClientCache(idle_seconds=3600.0)
    monkeypatch.setattr(clients, "_cache", cache)
    yield cache
    cache.close()


@contextmanager
def address_that_refuses() -> Generator[str]:
    """Reserve a port at which nothing listens."""
    with socket.socket() as reserved:
        reserved.bind((HOST, 0))
        yield f"{HOST}:{reserved.getsockname()[1]}"


@dataclass
class Queries:
    """Runs queries in Spark, in threads, because they block.

    Attributes:
        spark: The session.
        folder: Place of checkpoints.
        cache: Clients of tasks that run in this process.
        servers: Bootstrap servers of the next queries.
    """

    spark: SparkSession
    folder: Path
    cache: clients.ClientCache
    servers: str = ""

    @property
    def options(self) -> dict[str, str]:
        """Options of reads and writes."""
        return {**OPTIONS, "kafka.bootstrap.servers": self.servers}

    async def write(self, topic: str, values: Sequence[bytes]) -> None:
        def save() -> None:
            rows = self._frame(values)
            writer = rows.write.format("kafka_async").mode("append")
            writer.options(**self.options, **WRITE_OPTIONS, topic=topic).save()

        await asyncio.to_thread(save)

    def _frame(self, values: Sequence[bytes] = ()) -> DataFrame:
        """Make rows, and the session the active one of this thread: Spark writes only with one."""
        return self.spark.createDataFrame([(bytearray(value),) for value in values], "value binary")

    async def read(self, topic: str) -> list[bytes]:
        """Return the values of a topic, sorted: Spark writes in several tasks."""
        reader = self.spark.read.format("kafka_async").options(**self.options, subscribe=topic)
        rows = await asyncio.to_thread(lambda: reader.load().select("value").collect())
        return sorted(as_bytes(row["value"]) or b"" for row in rows)

    async def copy(self, topic: str, to: str, **options: str) -> Any:
        """Start a streaming query from one topic to another."""
        stream = self.spark.readStream.format("kafka_async").options(**self.options, **options)
        stream = stream.options(subscribe=topic, startingOffsets="earliest")
        written = {**self.options, **WRITE_OPTIONS, "topic": to}
        checkpoint = str(self.folder / uuid.uuid4().hex)

        def start() -> Any:
            self._frame()
            writer = stream.load().select("value").writeStream.format("kafka_async")
            return writer.options(**written, checkpointLocation=checkpoint).start()

        return await asyncio.to_thread(start)

    async def plan(self, topic: str) -> Callable[[], int]:
        """Plan a read as Spark's driver does; return a function that reads as one task."""
        from kafka_async.spark.source.reader import BatchReader

        reader = BatchReader(source_options({**self.options, "subscribe": topic}))
        parts = await asyncio.to_thread(reader.partitions)
        return lambda: sum(rows.num_rows for part in parts for rows in reader.read(part))

    def idle_client(self) -> Any:
        """Return the only client of tasks in this process."""
        ((_, idle),) = self.cache._idle.values()  # pyright: ignore[reportPrivateUsage]
        return idle.client


class SparkQueries(Role):
    """A streaming query continues, as do the clients of tasks, and batch reads and writes."""

    name = "spark"

    def __init__(self, queries: Queries, place: Place, stack: AsyncExitStack) -> None:
        super().__init__(place, stack)
        self.queries = queries
        self.copy = place.name("copy")

    async def before(self) -> None:
        self.queries.servers = self.place.servers
        async with Admin(self.place.servers, dialer=self.place.dialer) as admin:
            await admin.create_topics([NewTopic(self.copy, 1)])
        await self.queries.write(self.topic, BEFORE)
        self.query = await self.queries.copy(self.topic, self.copy)
        self.stack.push_async_callback(asyncio.to_thread, self.query.stop)
        await asyncio.to_thread(self.query.processAllAvailable)
        assert await self.queries.read(self.copy) == BEFORE
        self.task = await self.queries.plan(self.copy)
        assert await asyncio.to_thread(self.task) == len(BEFORE)
        self.client = self.queries.idle_client()

    async def during(self) -> None:
        assert await asyncio.to_thread(self.task) == len(BEFORE)

    async def after(self) -> None:
        await self.queries.write(self.topic, AFTER)
        await asyncio.to_thread(self.query.processAllAvailable)
        assert self.query.exception() is None
        assert await self.queries.read(self.copy) == BEFORE + AFTER
        assert self.queries.idle_client() is self.client


class SparkFollower(Follower):
    """Queries read and write the other cluster, without positions of the former one."""

    name = "spark"

    def __init__(self, queries: Queries, place: Place, other: Place, stack: AsyncExitStack) -> None:
        super().__init__(place, other, stack)
        self.queries = queries
        self.copy = place.name("copy")

    def topics(self) -> list[str]:
        return [self.topic, self.copy]

    async def started(self, *, fail_on_data_loss: bool) -> Any:
        """Return a query that has copied what is there."""
        option = str(fail_on_data_loss).lower()
        query = await self.queries.copy(self.topic, self.copy, failOnDataLoss=option)
        self.stack.push_async_callback(asyncio.to_thread, query.stop)
        await asyncio.to_thread(query.processAllAvailable)
        return query

    async def before(self) -> None:
        self.queries.servers = self.place.servers
        await self.place.produce(self.topic, BEFORE)
        await self.other.produce(self.topic, THEIRS)
        self.strict = await self.started(fail_on_data_loss=True)
        self.lenient = await self.started(fail_on_data_loss=False)
        assert await self.queries.read(self.copy) == sorted(BEFORE * 2)
        self.task = await self.queries.plan(self.topic)
        assert await asyncio.to_thread(self.task) == len(BEFORE)

    async def after(self) -> None:
        from pyspark.errors import StreamingQueryException

        with pytest.raises(StreamingQueryException, match="created again"):
            await asyncio.to_thread(self.strict.processAllAvailable)
        await asyncio.to_thread(self.lenient.processAllAvailable)
        assert self.lenient.exception() is None
        assert await self.queries.read(self.copy) == THEIRS
        await self.queries.write(self.topic, AFTER)
        assert await self.queries.read(self.topic) == AFTER + THEIRS
        for _ in range(2):  # With the client that has followed, and with a new one.
            with pytest.raises(DataLossError, match="the topic has another id"):
                await asyncio.to_thread(self.task)


def place(servers: str) -> Place:
    return Place(SocketDialer(), uuid.uuid4().hex[:8], servers=servers)


@pytest.fixture
def queries(spark: SparkSession, tmp_path: Path, cache: clients.ClientCache) -> Queries:
    return Queries(spark, tmp_path, cache)


async def move_brokers(cluster: Moving, port: BootstrapPort, role: Role) -> None:
    """Start the stopped brokers at new ports, while a task is running."""
    before = port.connections
    async with asyncio.TaskGroup() as group:
        group.create_task(role.during())
        await asyncio.to_thread(cluster.start_at_new_ports)
        port.target = first_address(cluster)
    await role.after()
    assert port.connections > before


async def test_spark_continues_after_all_brokers_moved(
    moving_cluster: Moving, queries: Queries
) -> None:
    async with (
        BootstrapPort(first_address(moving_cluster)) as port,
        opened(place(port.address), [partial(SparkQueries, queries)]) as (role,),
    ):
        await kill_brokers(moving_cluster)
        await move_brokers(moving_cluster, port, role)


async def test_spark_continues_while_former_addresses_do_not_respond(
    moving_cluster: Moving, queries: Queries
) -> None:
    """Checks a restart at new ports; the first of two bootstrap servers is down."""
    with address_that_refuses() as down:
        async with (
            BootstrapPort(first_address(moving_cluster)) as port,
            opened(place(f"{down},{port.address}"), [partial(SparkQueries, queries)]) as (role,),
            silent_listeners(await kill_brokers(moving_cluster)),
        ):
            await move_brokers(moving_cluster, port, role)


@pytest.mark.parametrize(
    "api",
    [
        pytest.param(MetadataRequest, marks=pytest.mark.one_backend("apache")),
        pytest.param(ApiVersionsRequest, marks=pytest.mark.one_backend("embedded")),
    ],
)
async def test_spark_continues_after_brokers_require_rebootstrap(
    moving_cluster: Moving,
    queries: Queries,
    api: type[MetadataRequest | ApiVersionsRequest],
) -> None:
    """Checks proxies that require it from now on; the bootstrap port leads to the brokers."""
    brokers = first_address(moving_cluster)
    async with (
        Proxies() as proxies,
        BootstrapPort(await proxies.servers(brokers)) as port,
        opened(place(port.address), [partial(SparkQueries, queries)]) as (role,),
    ):
        port.target = brokers
        await proxies.refuse(api.API_KEY)
        await role.during()
        await role.after()
        assert proxies.refusals > 0


@pytest.mark.one_backend("embedded")
async def test_spark_follows_another_cluster(
    two_clusters: tuple[Moving, Moving], queries: Queries, caplog: pytest.LogCaptureFixture
) -> None:
    former, other = map(first_address, two_clusters)
    async with BootstrapPort(former) as port, AsyncExitStack() as stack:
        here, there = place(port.address), place(other)
        follower = SparkFollower(queries, here, there, stack)
        await follower.create_topics()
        await follower.before()
        ids = await cluster_id(there), await cluster_id(here)
        await kill_brokers(two_clusters[0])
        port.target = other
        await follower.after()
    assert warnings_of(caplog, *ids) == 1  # of the client in this process
