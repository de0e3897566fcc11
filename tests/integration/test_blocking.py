"""The blocking API: the behaviour of the asyncio clients, in any thread or forked process."""

from __future__ import annotations

import inspect
import os
import threading
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import blocking
from kafka_async.admin import NewTopic
from kafka_async.errors import (
    DeliveryError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)
from kafka_async.types import ProducerRecord, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.testing.fixtures import ClusterHandle


def create(cluster: ClusterHandle, partitions: int = 1) -> str:
    topic = cluster.topic("blocking")
    with blocking.Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, partitions)])
        assert topic in admin.list_topics()
    return topic


def read(cluster: ClusterHandle, topic: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
    found: list[tuple[bytes | None, bytes | None]] = []
    partition = TopicPartition(topic, 0)
    with blocking.Consumer(
        cluster.bootstrap_servers,
        partitions=[partition],
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        while len(found) < count:
            found += [(record.key, record.value) for record in consumer.poll(timeout=10)]
        assert consumer.position(partition) >= count
    return found


def test_produces_and_consumes(kafka_cluster: ClusterHandle) -> None:
    topic = create(kafka_cluster)
    with blocking.Producer(kafka_cluster.bootstrap_servers) as producer:
        metadata = producer.send(topic, b"one", key=b"k")
        assert (metadata.topic, metadata.partition, metadata.offset) == (topic, 0, 0)
        producer.send_many(topic, [b"two", b"three"], keys=[b"a", b"b"])
        producer.send_records([ProducerRecord(topic, b"four")])
        producer.flush()
    assert read(kafka_cluster, topic, 4) == [
        (b"k", b"one"),
        (b"a", b"two"),
        (b"b", b"three"),
        (None, b"four"),
    ]


def test_every_call_ends_at_its_timeout(kafka_cluster: ClusterHandle) -> None:
    """Calls a cluster that accepts requests and does not respond.

    Calls without a `timeout` are bounded by an option; iteration over a consumer is not bounded.
    """
    faults = kafka_cluster.faults  # Skips the test on a backend without faults.
    topic = create(kafka_cluster)
    servers, partition = kafka_cluster.bootstrap_servers, TopicPartition(topic, 0)
    brief: dict[str, Any] = {"close_timeout_ms": 200, "request_timeout_ms": 300}
    records = [ProducerRecord(topic, b"v" * 900)]
    with suppress(DeliveryError), ExitStack() as stack:
        producer = stack.enter_context(
            blocking.Producer(
                servers, max_block_ms=200, delivery_timeout_ms=400, buffer_memory=2_000, **brief
            )
        )
        consumer = stack.enter_context(
            blocking.Consumer(servers, partitions=[partition], group_id="g", **brief)
        )
        admin = stack.enter_context(blocking.Admin(servers, **brief))
        send_until_acknowledged(producer, topic)
        faults.add(hang=True, count=None)
        calls: dict[str, Callable[[], object]] = {
            "flush": lambda: [producer.enqueue(topic, b"v"), producer.flush(timeout=0.1)],
            "send": lambda: producer.send(topic, b"v"),
            "enqueue": lambda: [producer.enqueue(topic, b"v" * 900) for _ in range(9)],
            "send_many": lambda: producer.send_many(topic, [b"v" * 900] * 9),
            "send_records": lambda: producer.send_records(records * 9),
            "commit": lambda: consumer.commit({partition: 1}, timeout=0.1),
            "position": lambda: consumer.position(partition, timeout=0.1),
            "topics": lambda: consumer.topics(timeout=0.1),
            "partitions_for": lambda: consumer.partitions_for("another", timeout=0.1),
            "beginning_offsets": lambda: consumer.beginning_offsets([partition], timeout=0.1),
            "end_offsets": lambda: consumer.end_offsets([partition], timeout=0.1),
            "create_topics": lambda: admin.create_topics([NewTopic("t", 1)], timeout=0.1),
            "delete_topics": lambda: admin.delete_topics([topic], timeout=0.1),
            "list_topics": lambda: admin.list_topics(timeout=0.1),
        }
        for name, call in calls.items():
            with pytest.raises(KafkaError) as raised:
                call()
            assert isinstance(raised.value, TimeoutError), (name, raised.value)
        assert consumer.poll(timeout=0.1) == consumer.poll_batches(timeout=0.1) == []
        immediate = {"assign", "seek", "high_watermark", "last_stable_offset", "health"}
        tested = {*calls, *immediate, "poll", "poll_batches", "start", "stop", "transaction"}
        clients = (blocking.Producer, blocking.Consumer, blocking.Admin)
        assert tested == {
            name
            for client in clients
            for name, _ in inspect.getmembers(client, inspect.isfunction)
            if not name.startswith("_")
        }
        consumer.stop(0.1)
        admin.stop(0.1)
        producer.stop(0.1)


def send_until_acknowledged(producer: blocking.Producer, topic: str) -> None:
    """Send a record, with retries since the producer's time-outs are short for a busy machine."""
    while True:
        with suppress(KafkaTimeoutError):
            producer.send(topic, b"first")
            return


def test_unknown_arguments_raise_with_the_existing_ones(
    kafka_cluster: ClusterHandle,
) -> None:
    topic = create(kafka_cluster)
    with blocking.Producer(kafka_cluster.bootstrap_servers) as producer:
        wrong: dict[str, Any] = {"values": b"v", "timeout_ms": 5}
        with pytest.raises(TypeError, match="did you mean value"):
            producer.send(topic, **wrong)
        with pytest.raises(TypeError, match="use timeout, in seconds"):
            producer.flush(timeout_ms=wrong["timeout_ms"])


def test_health_watermarks_and_arguments_match_the_asyncio_clients(
    kafka_cluster: ClusterHandle,
) -> None:
    topic = create(kafka_cluster)
    partition = TopicPartition(topic, 0)
    with blocking.Producer(kafka_cluster.bootstrap_servers) as producer:
        producer.send(topic, b"one")
        assert producer.health().state == "running"
    with blocking.Consumer(
        kafka_cluster.bootstrap_servers, partitions=[partition], auto_offset_reset="earliest"
    ) as consumer:
        assert consumer.high_watermark(partition) is None
        assert len(consumer.poll(timeout=30, max_records=5)) == 1
        assert consumer.high_watermark(partition) == consumer.last_stable_offset(partition) == 1
        assert consumer.health().assignment == (partition,)
        for positional in (consumer.poll, consumer.poll_batches):
            with pytest.raises(TypeError, match="by name"):
                positional(1.0)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="offset must be 0 to"):
            consumer.seek(partition, -1)
    with blocking.Admin(kafka_cluster.bootstrap_servers) as admin:
        assert admin.health().state == "running"


def test_transaction_block_commits_or_aborts(kafka_cluster: ClusterHandle) -> None:
    topic = create(kafka_cluster)
    name = kafka_cluster.transactional_id()
    with blocking.Producer(kafka_cluster.bootstrap_servers, transactional_id=name) as producer:
        with suppress(ZeroDivisionError), producer.transaction() as transaction:
            transaction.enqueue(topic, b"aborted")
            raise ZeroDivisionError
        with producer.transaction() as transaction:
            transaction.enqueue(topic, b"committed")
    assert read(kafka_cluster, topic, 1) == [(None, b"committed")]


def test_iteration_commits_the_returned_records(
    kafka_cluster: ClusterHandle,
) -> None:
    topic = create(kafka_cluster)
    group = kafka_cluster.group()
    with blocking.Producer(kafka_cluster.bootstrap_servers) as producer:
        producer.send_many(topic, [b"0", b"1", b"2"])
        producer.flush()

    def take(count: int) -> list[bytes | None]:
        with blocking.Consumer(
            kafka_cluster.bootstrap_servers,
            topics=[topic],
            group_id=group,
            auto_offset_reset="earliest",
        ) as consumer:
            return [record.value for _, record in zip(range(count), consumer, strict=False)]

    # Leaving the block without an exception commits the last returned record too.
    assert take(2) == [b"0", b"1"]
    assert take(1) == [b"2"]


def test_raises_errors_in_the_calling_thread(kafka_cluster: ClusterHandle) -> None:
    with blocking.Consumer(kafka_cluster.bootstrap_servers, partitions=()) as consumer:
        with pytest.raises(UnknownTopicOrPartitionError, match="no-such-topic"):
            consumer.partitions_for("no-such-topic", timeout=1)
        assert consumer.topics() == sorted(consumer.topics())


def test_one_event_loop_serves_all_threads(kafka_cluster: ClusterHandle) -> None:
    topic = create(kafka_cluster)
    with blocking.Producer(kafka_cluster.bootstrap_servers) as producer:
        threads = [
            threading.Thread(target=producer.send, args=(topic, str(n).encode())) for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(value or b"" for _, value in read(kafka_cluster, topic, 8)) == [
        str(n).encode() for n in range(8)
    ]


def test_forked_child_gets_a_new_event_loop(kafka_cluster: ClusterHandle) -> None:
    topic = create(kafka_cluster)
    with blocking.Producer(kafka_cluster.bootstrap_servers) as producer:
        producer.send(topic, b"parent")
        child = os.fork()
        if child == 0:
            os._exit(_run_child(kafka_cluster.bootstrap_servers, topic, producer))
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        producer.send(topic, b"parent again")
    values = {value for _, value in read(kafka_cluster, topic, 3)}
    assert values == {b"parent", b"child", b"parent again"}


def _run_child(bootstrap: str, topic: str, inherited: blocking.Producer) -> int:
    """Return 0 if the parent's producer raises and a new one works."""
    try:
        inherited.send(topic, b"never")
    except IllegalStateError:
        with blocking.Producer(bootstrap) as producer:
            producer.send(topic, b"child")
        return 0
    return 1
