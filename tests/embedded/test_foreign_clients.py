"""Clients of other makers produce to the embedded cluster and consume from it, with a group."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from kafka_async.embedded import BlockingCluster, run_in_thread

VALUES = [f"value {index}".encode() for index in range(300)]


def load(name: str) -> Any:
    """Another maker's client; what it warns of while it loads is not ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


@pytest.fixture
def cluster() -> Iterator[BlockingCluster]:
    """Three brokers, and the topic `t` with six partitions."""
    with run_in_thread(3) as started:
        started.create_topic("t", 6, 3)
        yield started
        assert started.failures == []


@pytest.mark.may_block
@pytest.mark.asyncio
async def test_aiokafka(cluster: BlockingCluster) -> None:
    aiokafka = load("aiokafka")
    servers = cluster.bootstrap_servers
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=servers, enable_idempotence=True, compression_type="gzip"
    )
    async with producer:
        waiting = [await producer.send("t", value, key=value) for value in VALUES]
        offsets = [(await future).offset for future in waiting]
    assert max(offsets) < len(VALUES)

    async def consume(count: int) -> list[bytes]:
        consumer = aiokafka.AIOKafkaConsumer(
            "t",
            bootstrap_servers=servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        async with consumer:
            found: list[bytes] = []
            while len(found) < count:
                batches = await consumer.getmany(timeout_ms=1_000, max_records=count - len(found))
                found += [record.value for records in batches.values() for record in records]
            await consumer.commit()
            return found

    first = await consume(100)
    assert sorted(first + await consume(200)) == sorted(VALUES)  # it goes on where it committed


def test_kafka_python(cluster: BlockingCluster) -> None:
    kafka = load("kafka")
    servers = cluster.bootstrap_servers.split(",")
    producer = kafka.KafkaProducer(bootstrap_servers=servers, compression_type="gzip")
    futures = [producer.send("t", value, key=value) for value in VALUES]
    assert max(future.get(timeout=20).offset for future in futures) < len(VALUES)
    producer.close()
    consumer = kafka.KafkaConsumer(
        "t",
        bootstrap_servers=servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    found: list[bytes] = []
    while len(found) < len(VALUES):
        for records in consumer.poll(timeout_ms=1_000).values():
            found += [record.value for record in records]
    consumer.commit()
    committed = [consumer.committed(partition) for partition in consumer.assignment()]
    consumer.close()
    assert sorted(found) == sorted(VALUES)
    assert sum(committed) == len(VALUES)


def test_confluent_kafka(cluster: BlockingCluster) -> None:
    confluent = load("confluent_kafka")
    servers = cluster.bootstrap_servers
    producer = confluent.Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "compression.type": "lz4"}
    )
    failed: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(error)

    for value in VALUES:
        producer.produce("t", value, key=value, on_delivery=delivered)
    assert producer.flush(20) == 0
    assert failed == []
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["t"])
    found: list[bytes] = []
    while len(found) < len(VALUES):
        for message in consumer.consume(100, timeout=1):
            assert message.error() is None
            found.append(message.value())
    committed = consumer.commit(asynchronous=False)
    consumer.close()
    assert sorted(found) == sorted(VALUES)
    assert sum(entry.offset for entry in committed) == len(VALUES)


def test_confluent_kafka_in_transactions(cluster: BlockingCluster) -> None:
    confluent = load("confluent_kafka")
    servers = cluster.bootstrap_servers
    producer = confluent.Producer({"bootstrap.servers": servers, "transactional.id": "me"})
    producer.init_transactions(20)
    for word, end in [(b"kept", "commit"), (b"dropped", "abort"), (b"kept too", "commit")]:
        producer.begin_transaction()
        producer.produce("t", word, partition=0)
        producer.flush(20)
        (producer.commit_transaction if end == "commit" else producer.abort_transaction)(20)
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe(["t"])
    found: list[bytes] = []
    while b"kept too" not in found:
        found += [message.value() for message in consumer.consume(10, timeout=1)]
    consumer.close()
    assert found == [b"kept", b"kept too"]
