"""Spark queries continue after all brokers have moved to new ports behind one bootstrap address."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import blocking
from kafka_async.admin import NewTopic
from kafka_async.spark import clients
from kafka_async.spark.source_options import source_options
from tests.integration.bootstrap_port import BootstrapPort
from tests.integration.moving_cluster import (
    chosen_backends,
    first_address,
    kill_brokers,
    started,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from kafka_async.testing.backends.base import ClusterOptions
    from tests.conftest import CannotRun
    from tests.integration.moving_cluster import Moving

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.asyncio, pytest.mark.timeout(900)]

PATIENCE_SECONDS = 300
OPTIONS = {
    "startingOffsets": "earliest",
    "kafka.default.api.timeout.ms": str(PATIENCE_SECONDS * 1000),
    "kafka.socket.connection.setup.timeout.ms": "1000",
    "kafka.socket.connection.setup.timeout.max.ms": "2000",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on the last chosen backend that can move brokers: each run takes a minute."""
    metafunc.parametrize("moving_cluster", chosen_backends(metafunc)[-1:], indirect=True)


@pytest.fixture
def moving_cluster(
    request: pytest.FixtureRequest, kafka_cluster_options: ClusterOptions, cannot_run: CannotRun
) -> Iterator[Moving]:
    with started(request.param, kafka_cluster_options, cannot_run) as cluster:
        yield cluster


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[clients.ClientCache]:
    """Keep the clients of this process, however long the brokers take to start."""
    cache = clients.ClientCache(idle_seconds=3600.0)
    monkeypatch.setattr(clients, "_cache", cache)
    yield cache
    cache.close()


def idle_client(cache: clients.ClientCache) -> Any:
    ((_, idle),) = cache._idle.values()  # pyright: ignore[reportPrivateUsage]
    return idle.client


def send(cluster: Moving, topic: str, numbers: range) -> None:
    with blocking.Producer(cluster.bootstrap_servers) as producer:
        producer.send_many(topic, [b"%d" % number for number in numbers])
        producer.flush()


def plan(options: dict[str, str]) -> Callable[[], int]:
    """Plan a read as Spark's driver does; return a function that reads as one worker process."""
    from kafka_async.spark.reader import BatchReader

    reader = BatchReader(source_options(options))
    parts = reader.partitions()
    return lambda: sum(rows.num_rows for part in parts for rows in reader.read(part))


async def test_queries_and_clients_of_workers_continue_after_all_brokers_moved(
    moving_cluster: Moving, spark: SparkSession, cache: clients.ClientCache, tmp_path: Path
) -> None:
    """Checks a running streaming query, batch reads, and the same client of a worker process."""
    rows: list[int] = []
    first_batch = asyncio.Event()
    loop = asyncio.get_running_loop()

    def collect(frame: DataFrame, batch: int) -> None:
        rows.extend(int(row["value"]) for row in frame.collect())
        loop.call_soon_threadsafe(first_batch.set)

    async with BootstrapPort(first_address(moving_cluster)) as port:
        topic = "moved"
        options = {**OPTIONS, "kafka.bootstrap.servers": port.address, "subscribe": topic}

        def batch_count() -> int:
            return spark.read.format("kafka_async").options(**options).load().count()

        def start_query() -> Any:
            stream = spark.readStream.format("kafka_async").options(**options).load()
            writer = stream.writeStream.foreachBatch(collect)
            return writer.option("checkpointLocation", str(tmp_path)).start()

        with blocking.Admin(moving_cluster.bootstrap_servers) as admin:
            await asyncio.to_thread(admin.create_topics, [NewTopic(topic, 2)])
        await asyncio.to_thread(send, moving_cluster, topic, range(20))
        read = await asyncio.to_thread(plan, options)
        assert await asyncio.to_thread(read) == 20
        client = idle_client(cache)
        assert await asyncio.to_thread(batch_count) == 20
        query = await asyncio.to_thread(start_query)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await first_batch.wait()
            await kill_brokers(moving_cluster)
            before = port.connections
            waiting = asyncio.create_task(asyncio.to_thread(read))
            await asyncio.to_thread(moving_cluster.start_at_new_ports)
            port.target = first_address(moving_cluster)
            assert await waiting == 20
            assert port.connections > before  # by way of the bootstrap address
            await asyncio.to_thread(send, moving_cluster, topic, range(20, 30))
            await asyncio.to_thread(query.processAllAvailable)
            assert query.exception() is None
            assert sorted(rows) == list(range(30))
            assert await asyncio.to_thread(batch_count) == 30
        finally:
            await asyncio.to_thread(query.stop)
        read = await asyncio.to_thread(plan, options)
        assert await asyncio.to_thread(read) == 30
        assert idle_client(cache) is client
