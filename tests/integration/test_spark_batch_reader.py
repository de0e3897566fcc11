"""The batch reader as Spark's driver calls it, on a cluster, without Spark's Java side."""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import blocking
from kafka_async.config import ProducerConfig
from kafka_async.errors import InvalidConfigurationError, OffsetOutOfRangeError
from kafka_async.hooks import Connected, Hooks
from kafka_async.spark.source.source_options import source_options
from kafka_async.types import ProducerRecord
from tests.integration.helpers import create_topic_blocking, read_values
from tests.spark.conditions import Not, condition
from tests.spark.test_clients import FakeTimers, connections, in_child

if TYPE_CHECKING:
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = pytest.mark.spark


def ranges(cluster: ClusterHandle, *filters: object, **options: str) -> list[tuple[int, int, int]]:
    """Return the partition, start and end of each task of a read with filters."""
    from kafka_async.spark.source.reader import BatchReader, FilteringReader

    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, **options}
    reader: Any = (FilteringReader if filters else BatchReader)(source_options(given))
    if filters:
        reader.pushFilters(list(filters))
    return [
        (part.range.partition, part.range.start, part.range.end) for part in reader.partitions()
    ]


def topic_with_records(cluster: ClusterHandle, *counts: int) -> str:
    """Create a topic with records whose timestamps are 1,000 ms, 1,001 ms and so on."""
    topic = create_topic_blocking(cluster, partitions=len(counts))
    with blocking.Producer(cluster.bootstrap_servers) as producer:
        for partition, count in enumerate(counts):
            producer.send_records(
                ProducerRecord(topic, b"v", partition=partition, timestamp=1_000 + n)
                for n in range(count)
            )
        producer.flush()
    return topic


def at(milliseconds: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)


def test_reads_between_timestamps(kafka_cluster: ClusterHandle) -> None:
    topic = topic_with_records(kafka_cluster, 10, 4)
    times = {"startingTimestamp": "1002", "endingTimestamp": "1006"}
    assert ranges(kafka_cluster, subscribe=topic, **times) == [(0, 2, 6), (1, 2, 4)]
    by_partition = {
        "startingOffsetsByTimestamp": json.dumps({topic: {"0": 1_003, "1": 1_001}}),
        "endingOffsetsByTimestamp": json.dumps({topic: {"0": 1_005, "1": 9_999}}),
    }
    assert ranges(kafka_cluster, subscribe=topic, **by_partition) == [(0, 3, 5), (1, 1, 4)]
    with pytest.raises(InvalidConfigurationError, match=f"no timestamp for {topic}-1"):
        ranges(
            kafka_cluster,
            subscribe=topic,
            startingOffsetsByTimestamp=json.dumps({topic: {"0": 1_003}}),
        )


def test_offsets_outside_the_log_raise_or_are_clipped(kafka_cluster: ClusterHandle) -> None:
    topic = topic_with_records(kafka_cluster, 5)
    end = {"endingOffsets": json.dumps({topic: {"0": 9}})}
    with pytest.raises(OffsetOutOfRangeError, match="offsets 0 to 9 are requested"):
        ranges(kafka_cluster, subscribe=topic, **end)
    clipped = ranges(kafka_cluster, subscribe=topic, failOnDataLoss="false", **end)
    assert clipped == [(0, 0, 5)]
    start = {"startingOffsets": json.dumps({topic: {"0": 7}})}
    with pytest.raises(InvalidConfigurationError, match=f"{topic}-0 is 7, after the end"):
        ranges(kafka_cluster, subscribe=topic, **start)
    with pytest.raises(InvalidConfigurationError, match=f"{topic}-0 is 7, after the end"):
        ranges(kafka_cluster, subscribe=topic, failOnDataLoss="false", **start)


def test_pattern_matches_parts_of_names_or_nothing(
    kafka_cluster: ClusterHandle, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topic_with_records(kafka_cluster, 2)
    assert ranges(kafka_cluster, subscribePattern=topic[1:]) == [(0, 0, 2)]
    assert ranges(kafka_cluster, subscribePattern=f"^{topic[1:]}") == []
    assert "nothing to read" in caplog.text


def test_read_committed_ends_before_open_transactions(kafka_cluster: ClusterHandle) -> None:
    topic = topic_with_records(kafka_cluster, 2)
    with blocking.Producer(
        kafka_cluster.bootstrap_servers, transactional_id=kafka_cluster.transactional_id()
    ) as producer:
        transaction = producer.begin()
        transaction.send(topic, b"open")
        committed = {"kafka.isolation.level": "read_committed"}
        assert ranges(kafka_cluster, subscribe=topic, **committed) == [(0, 0, 2)]
        assert ranges(kafka_cluster, subscribe=topic) == [(0, 0, 3)]
        transaction.commit()
    ((partition, start, end),) = ranges(kafka_cluster, subscribe=topic, **committed)
    assert (partition, start) == (0, 0)
    assert end >= 4  # with the marker of the commit


def test_reader_has_no_filters_where_spark_does_not_push_them(
    kafka_cluster: ClusterHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    from pyspark.sql.datasource import DataSourceReader

    from kafka_async.spark.source import KafkaDataSource
    from kafka_async.spark.source.data_source import FILTERING_WORKER

    topic = topic_with_records(kafka_cluster, 3, 2)
    given = {"kafka.bootstrap.servers": kafka_cluster.bootstrap_servers, "subscribe": topic}
    monkeypatch.delitem(sys.modules, FILTERING_WORKER, raising=False)
    source: Any = KafkaDataSource(given)
    reader = source.reader(source.schema())
    # Spark raises for a reader that overrides this method while it does not push filters.
    own = [base for base in type(reader).__mro__ if base is not DataSourceReader]
    assert not any("pushFilters" in vars(base) for base in own)
    assert sum(rows.num_rows for part in reader.partitions() for rows in reader.read(part)) == 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_tasks_share_a_client_which_a_forked_worker_does_not_use(
    kafka_cluster: ClusterHandle,
) -> None:
    from kafka_async.spark import clients
    from kafka_async.spark.source.reader import BatchReader

    topic = topic_with_records(kafka_cluster, 3, 2)
    given = {"kafka.bootstrap.servers": kafka_cluster.bootstrap_servers, "subscribe": topic}
    reader = BatchReader(source_options(given))
    parts = reader.partitions()

    def count() -> int:
        return sum(rows.num_rows for part in parts for rows in reader.read(part))

    clients.close_clients()
    cache = clients._cache  # pyright: ignore[reportPrivateUsage]
    assert count() == 5
    assert cache.idle_count == 1
    assert in_child(lambda: cache.idle_count == 0 and count() == 5 and cache.idle_count == 1)
    assert count() == 5  # on the connections that it had
    assert cache.idle_count == 1
    clients.close_clients()
    assert cache.idle_count == 0


def broker_connections(cluster: ClusterHandle) -> set[str]:
    """Return the connections of this process to the brokers by their inodes."""
    ports = {int(server.rpartition(":")[2]) for server in cluster.bootstrap_servers.split(",")}
    own = connections()
    rows = [row.split() for row in Path("/proc/self/net/tcp").read_text("ascii").splitlines()[1:]]
    return {
        f"socket:[{row[9]}]"
        for row in rows
        if int(row[2].rpartition(":")[2], 16) in ports and f"socket:[{row[9]}]" in own
    }


@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="connections are not listed")
def test_idle_clients_are_closed_with_their_connections(
    kafka_cluster: ClusterHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka_async.spark import clients
    from kafka_async.spark.source.reader import BatchReader

    topic = topic_with_records(kafka_cluster, 3)
    given = {"kafka.bootstrap.servers": kafka_cluster.bootstrap_servers, "subscribe": topic}
    reader = BatchReader(source_options(given))
    (part,) = reader.partitions()
    timers = FakeTimers()
    cache = clients.ClientCache(clients.IDLE_SECONDS, now=lambda: timers.now, timer=timers)
    monkeypatch.setattr(clients, "_cache", cache)
    before = broker_connections(kafka_cluster)
    try:
        assert sum(rows.num_rows for rows in reader.read(part)) == 3
        with clients.lend_producer(ProducerConfig(kafka_cluster.bootstrap_servers)) as producer:
            assert producer.send(topic, b"v").offset == 3
        opened = broker_connections(kafka_cluster) - before
        assert len(opened) >= 2
        timers.advance(timers.now + clients.IDLE_SECONDS - 1)
        assert cache.idle_count == 2
        assert opened & broker_connections(kafka_cluster)
        timers.advance(timers.now + 1)
        assert cache.idle_count == 0
        deadline = time.monotonic() + 60  # The event loop closes a socket after its transport.
        while opened & broker_connections(kafka_cluster):
            assert time.monotonic() < deadline
            threading.Event().wait(0.01)
    finally:
        cache.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_worker_writes_with_another_producer(
    kafka_cluster: ClusterHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka_async.spark import clients

    topic = create_topic_blocking(kafka_cluster)
    kinds: list[str] = []
    hooks = Hooks()
    hooks.listen(Connected, lambda event: kinds.append(event.kind))
    monkeypatch.setattr(blocking, "Producer", partial(blocking.Producer, hooks=hooks))
    config = ProducerConfig(kafka_cluster.bootstrap_servers)

    def write(value: bytes) -> blocking.Producer:
        with clients.lend_producer(config) as producer:
            producer.send(topic, value)
            return producer

    clients.close_clients()
    of_parent = write(b"parent")
    assert kinds.count("produce") == 1
    assert in_child(lambda: write(b"child") is not of_parent and kinds.count("produce") == 2)
    assert write(b"parent again") is of_parent
    assert kinds.count("produce") == 1, "the child has ended connections of its parent"
    clients.close_clients()
    values = asyncio.run(read_values(kafka_cluster, topic))
    assert values == [b"parent", b"child", b"parent again"]


def test_filters_narrow_the_ranges(kafka_cluster: ClusterHandle) -> None:
    topic = topic_with_records(kafka_cluster, 10, 4, 2)
    late = condition("GreaterThanOrEqual", "timestamp", at(1_003))
    between = condition("GreaterThan", "offset", 2), condition("LessThan", "offset", 8)
    for filters, expected in (
        ([condition("EqualTo", "partition", 1)], [(1, 0, 4)]),
        ([condition("In", "partition", (0, 2))], [(0, 0, 10), (2, 0, 2)]),
        ([Not(condition("EqualTo", "topic", topic))], []),
        (between, [(0, 3, 8), (1, 3, 4)]),
        ([late], [(0, 3, 10), (1, 3, 4)]),
        ([late, condition("GreaterThan", "offset", 5)], [(0, 6, 10)]),
    ):
        assert ranges(kafka_cluster, *filters, subscribe=topic) == expected, filters


def test_tasks_do_not_get_the_filters(kafka_cluster: ClusterHandle) -> None:
    import pickle

    from kafka_async.spark.source.reader import BatchReader, FilteringReader

    topic = topic_with_records(kafka_cluster, 3, 5)
    given = {"kafka.bootstrap.servers": kafka_cluster.bootstrap_servers, "subscribe": topic}
    reader = FilteringReader(source_options(given))
    filters: Any = [condition("EqualTo", "partition", 1)]
    assert list(reader.pushFilters(filters)) == []
    (part,) = reader.partitions()
    copy: BatchReader = pickle.loads(pickle.dumps(reader))
    assert [rows.num_rows for rows in copy.read(part)] == [5]
