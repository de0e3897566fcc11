"""Interoperability with librdkafka (confluent-kafka): each client reads the other's records."""

from __future__ import annotations

import importlib
import time
import warnings
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kafka_async import blocking
from kafka_async.admin import NewTopic
from kafka_async.records.compression import Codec
from kafka_async.types import ProducerRecord, TopicPartition
from tests.integration.raw_batches import batches_of
from tests.integration.raw_cluster import TIMEOUT

if TYPE_CHECKING:
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = pytest.mark.any_broker

TIME = 1_790_000_000_000
CREATE_TIME, LOG_APPEND_TIME = 0, 1
CODECS = [codec.name for codec in Codec]

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    confluent: Any = importlib.import_module("confluent_kafka")


class Row(NamedTuple):
    """Holds a record to write and read."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int


ROWS = [
    Row(b"key", b"value", [], TIME),
    Row(None, b"no key", [("h", b"x"), ("h", None), ("h", b"")], TIME - 5),
    Row(b"", b"", [("\u00fcml\u00e4ut \U0001f600", b"\x00\xff")], TIME + 7),
    Row(b"tombstone", None, [("why", b"gone")], TIME),
    Row(None, None, [], TIME + 1),
    Row(b"k" * 300, b"some text that compresses " * 4_000, [], TIME + 2),
    *[Row(b"%d" % n, b"value %d" % n, [], TIME + n) for n in range(200)],
]


def create(cluster: ClusterHandle, **configs: str) -> str:
    topic = cluster.topic("confluent")
    named = {name.replace("_", "."): value for name, value in configs.items()}
    with blocking.Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, 1, configs=named)])
    return topic


# -- confluent-kafka -------------------------------------------------------------------------------


def their_producer(cluster: ClusterHandle, **options: Any) -> Any:
    named = {name.replace("_", "."): value for name, value in options.items()}
    return confluent.Producer({"bootstrap.servers": cluster.bootstrap_servers, **named})


def write_with_theirs(producer: Any, topic: str, rows: list[Row]) -> None:
    for key, value, headers, timestamp in rows:
        producer.produce(topic, value, key=key, headers=headers, timestamp=timestamp, partition=0)


def flush(producer: Any) -> None:
    assert producer.flush(TIMEOUT) == 0


@contextmanager
def their_consumer(cluster: ClusterHandle, topic: str, isolation: str) -> Generator[Any]:
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": cluster.group(),
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    consumer.assign([confluent.TopicPartition(topic, 0, 0)])
    try:
        yield consumer
    finally:
        consumer.close()


def read_with_theirs(
    cluster: ClusterHandle, topic: str, count: int, isolation: str = "read_uncommitted"
) -> list[tuple[int, Row]]:
    """Return the records, each with Kafka's number of its timestamp type."""
    found: list[tuple[int, Row]] = []
    deadline = time.monotonic() + TIMEOUT
    with their_consumer(cluster, topic, isolation) as consumer:
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.consume(count - len(found), timeout=1):
                assert message.error() is None
                kind, timestamp = message.timestamp()
                headers: list[tuple[str, bytes | None]] = message.headers() or []
                row = Row(message.key(), message.value(), headers, timestamp)
                found.append((kind - confluent.TIMESTAMP_CREATE_TIME, row))
    return found


# -- kafka_async -----------------------------------------------------------------------------------


def write_with_ours(cluster: ClusterHandle, topic: str, rows: list[Row], **options: Any) -> None:
    with blocking.Producer(cluster.bootstrap_servers, linger_ms=50, **options) as producer:
        producer.send_records(
            ProducerRecord(topic, value, key, headers, partition=0, timestamp=timestamp)
            for key, value, headers, timestamp in rows
        )
        producer.flush()


def read_with_ours(
    cluster: ClusterHandle, topic: str, count: int, isolation: str = "read_uncommitted"
) -> list[tuple[int, Row]]:
    found: list[tuple[int, Row]] = []
    deadline = time.monotonic() + TIMEOUT
    with blocking.Consumer(
        cluster.bootstrap_servers,
        partitions=[TopicPartition(topic, 0)],
        auto_offset_reset="earliest",
        isolation_level=isolation,
    ) as consumer:
        while len(found) < count and time.monotonic() < deadline:
            for record in consumer.poll(timeout=1):
                row = Row(record.key, record.value, list(record.headers), record.timestamp)
                found.append((record.timestamp_type, row))
    return found


# -- both ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_reads_records_of_confluent_kafka(kafka_cluster: ClusterHandle, codec: str) -> None:
    topic = create(kafka_cluster)
    producer = their_producer(kafka_cluster, compression_type=codec, linger_ms=50)
    write_with_theirs(producer, topic, ROWS)
    flush(producer)
    assert read_with_ours(kafka_cluster, topic, len(ROWS)) == [(CREATE_TIME, row) for row in ROWS]
    written = {view.header.codec for view in batches_of(kafka_cluster, topic)}
    assert Codec[codec] in written


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_kafka_reads_records_of_this_client(
    kafka_cluster: ClusterHandle, codec: str
) -> None:
    topic = create(kafka_cluster)
    write_with_ours(kafka_cluster, topic, ROWS, compression_type=codec)
    assert read_with_theirs(kafka_cluster, topic, len(ROWS)) == [(CREATE_TIME, row) for row in ROWS]
    assert {view.header.codec for view in batches_of(kafka_cluster, topic)} == {Codec[codec]}


def test_both_read_the_brokers_timestamp(kafka_cluster: ClusterHandle) -> None:
    topic = create(kafka_cluster, message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    write_with_ours(kafka_cluster, topic, ROWS, compression_type="lz4")
    producer = their_producer(kafka_cluster, compression_type="zstd", linger_ms=50)
    write_with_theirs(producer, topic, ROWS)
    flush(producer)
    after = int(time.time() * 1000)
    ours = read_with_ours(kafka_cluster, topic, 2 * len(ROWS))
    theirs = read_with_theirs(kafka_cluster, topic, 2 * len(ROWS))
    assert ours == theirs
    assert {kind for kind, _ in ours} == {LOG_APPEND_TIME}
    assert all(before <= row.timestamp <= after for _, row in ours)
    assert [row[:3] for _, row in ours] == [row[:3] for row in ROWS] * 2


def test_reads_transactions_of_confluent_kafka(kafka_cluster: ClusterHandle) -> None:
    topic = create(kafka_cluster)
    name = kafka_cluster.transactional_id("theirs")
    producer = their_producer(kafka_cluster, transactional_id=name, compression_type="snappy")
    producer.init_transactions(TIMEOUT)
    for part, commit in [(ROWS[:50], True), (ROWS[50:100], False), (ROWS[100:], True)]:
        producer.begin_transaction()
        write_with_theirs(producer, topic, part)
        flush(producer)
        (producer.commit_transaction if commit else producer.abort_transaction)(TIMEOUT)
    kept = [*ROWS[:50], *ROWS[100:]]
    found = read_with_ours(kafka_cluster, topic, len(kept), "read_committed")
    assert [row for _, row in found] == kept
    assert len(read_with_ours(kafka_cluster, topic, len(ROWS))) == len(ROWS)


def test_confluent_kafka_reads_transactions_of_this_client(kafka_cluster: ClusterHandle) -> None:
    topic = create(kafka_cluster)
    name = kafka_cluster.transactional_id("ours")
    servers = kafka_cluster.bootstrap_servers
    with blocking.Producer(servers, transactional_id=name, compression_type="gzip") as producer:
        for part, commit in [(ROWS[:50], True), (ROWS[50:100], False), (ROWS[100:], True)]:
            with suppress(ZeroDivisionError), producer.transaction() as transaction:
                for key, value, headers, timestamp in part:
                    transaction.enqueue(
                        topic, value, key=key, headers=headers, timestamp=timestamp, partition=0
                    )
                if not commit:
                    raise ZeroDivisionError
    kept = [*ROWS[:50], *ROWS[100:]]
    found = read_with_theirs(kafka_cluster, topic, len(kept), "read_committed")
    assert [row for _, row in found] == kept
