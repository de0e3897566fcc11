"""Unmodified clients of other projects, on the embedded cluster and on Apache Kafka."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import time
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import blocking
from kafka_async.admin import NewTopic
from kafka_async.records.compression import Codec
from kafka_async.testing.environment import in_ci
from tests.integration.raw_batches import batches_of

if TYPE_CHECKING:
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

VALUES = [f"value {index}".encode() for index in range(300)]
TIMEOUT = 60.0
PARTITIONS = 6


def load(name: str) -> Any:
    """Import a client without the warnings of the import."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


def created(cluster: ClusterHandle, prefix: str = "foreign", partitions: int = PARTITIONS) -> str:
    topic = cluster.topic(prefix)
    with blocking.Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, partitions)])
    return topic


def collect(count: int, poll: Callable[[], Iterable[bytes]]) -> list[bytes]:
    """Poll until there are `count` values; fail after a generous time."""
    found: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} values came"
        found += poll()
    return found


# -- confluent-kafka ------------------------------------------------------------------------------


def confluent_consumer(cluster: ClusterHandle, **more: Any) -> Any:
    options = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": cluster.group(),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    return load("confluent_kafka").Consumer({**options, **more})


def confluent_poll(consumer: Any) -> Callable[[], list[bytes]]:
    def poll() -> list[bytes]:
        messages = consumer.consume(100, timeout=1)
        assert [message.error() for message in messages] == [None] * len(messages)
        return [message.value() for message in messages]

    return poll


def test_confluent_kafka_lists_topics(kafka_cluster: ClusterHandle) -> None:
    topic = created(kafka_cluster)
    admin = load("confluent_kafka.admin").AdminClient(
        {"bootstrap.servers": kafka_cluster.bootstrap_servers}
    )
    listed = admin.list_topics(timeout=TIMEOUT)
    assert len(listed.brokers) == 3
    assert sorted(listed.topics[topic].partitions) == list(range(PARTITIONS))
    assert len(admin.list_topics(topic, timeout=TIMEOUT).topics) == 1


def test_confluent_kafka_administers(kafka_cluster: ClusterHandle) -> None:
    module, base = load("confluent_kafka.admin"), load("confluent_kafka")
    admin = module.AdminClient({"bootstrap.servers": kafka_cluster.bootstrap_servers})
    topic = kafka_cluster.topic("administered")

    def results(futures: Any) -> list[Any]:
        return [future.result(TIMEOUT) for future in futures.values()]

    def after_a_change(call: Callable[[], Any]) -> Any:
        """Repeat a call until the broker has applied the controller's records."""
        behind = {
            base.KafkaError.UNKNOWN_TOPIC_OR_PART,
            base.KafkaError.NOT_LEADER_FOR_PARTITION,
            base.KafkaError.LEADER_NOT_AVAILABLE,
        }
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                [result] = results(call())
            except base.KafkaException as error:
                if error.args[0].code() not in behind or time.monotonic() > deadline:
                    raise
            else:
                return result

    new = module.NewTopic(topic, 2, 3, config={"retention.ms": "100000"})
    results(admin.create_topics([new], operation_timeout=TIMEOUT))
    named = base.TopicCollection([topic])
    described = after_a_change(lambda: admin.describe_topics(named))
    assert [len(part.replicas) for part in described.partitions] == [3, 3]
    results(admin.create_partitions([module.NewPartitions(topic, 4)], operation_timeout=TIMEOUT))
    resource = module.ConfigResource(module.ConfigResource.Type.TOPIC, topic)
    configs = after_a_change(lambda: admin.describe_configs([resource]))
    assert len(configs) == 37
    assert configs["retention.ms"].value == "100000"
    operation = module.AlterConfigOpType.SET
    entry = module.ConfigEntry("cleanup.policy", "compact", incremental_operation=operation)
    altered = module.ConfigResource(
        module.ConfigResource.Type.TOPIC, topic, incremental_configs=[entry]
    )
    results(admin.incremental_alter_configs([altered]))
    cluster = admin.describe_cluster().result(TIMEOUT)
    assert len(cluster.nodes) == 3
    first = base.TopicPartition(topic, 0)
    latest = module.OffsetSpec.latest()
    offset = after_a_change(lambda: admin.list_offsets({first: latest}))
    assert offset.offset == 0
    results(admin.delete_topics([topic], operation_timeout=TIMEOUT))


def test_confluent_kafka_produces_and_consumes_in_a_group(kafka_cluster: ClusterHandle) -> None:
    confluent, topic = load("confluent_kafka"), created(kafka_cluster)
    servers = kafka_cluster.bootstrap_servers
    producer = confluent.Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "compression.type": "lz4"}
    )
    failed: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(error)

    for value in VALUES:
        producer.produce(topic, value, key=value, on_delivery=delivered)
    assert producer.flush(TIMEOUT) == 0
    assert failed == []
    consumer = confluent_consumer(kafka_cluster)
    consumer.subscribe([topic])
    found = collect(len(VALUES), confluent_poll(consumer))
    committed = consumer.commit(asynchronous=False)
    assert sorted(found) == sorted(VALUES)
    assert sum(entry.offset for entry in committed) == len(VALUES)
    admin = load("confluent_kafka.admin").AdminClient({"bootstrap.servers": servers})
    group = kafka_cluster.group()
    [described] = [it.result(TIMEOUT) for it in admin.describe_consumer_groups([group]).values()]
    assert [len(member.assignment.topic_partitions) for member in described.members] == [PARTITIONS]
    listed = admin.list_consumer_groups().result(TIMEOUT)
    assert group in [row.group_id for row in listed.valid]
    consumer.close()


def test_confluent_kafka_consumes_and_produces_in_transactions(
    kafka_cluster: ClusterHandle,
) -> None:
    confluent = load("confluent_kafka")
    source, target = created(kafka_cluster, "source", 1), created(kafka_cluster, "target", 1)
    producer = confluent.Producer(
        {
            "bootstrap.servers": kafka_cluster.bootstrap_servers,
            "transactional.id": kafka_cluster.transactional_id(),
        }
    )
    producer.init_transactions(TIMEOUT)
    for word, end in [(b"kept", "commit"), (b"dropped", "abort"), (b"kept too", "commit")]:
        producer.begin_transaction()
        producer.produce(source, word)
        producer.flush(TIMEOUT)
        (producer.commit_transaction if end == "commit" else producer.abort_transaction)(TIMEOUT)
    consumer = confluent_consumer(kafka_cluster, **{"isolation.level": "read_committed"})
    consumer.subscribe([source])
    found = collect(2, confluent_poll(consumer))
    assert found == [b"kept", b"kept too"]
    producer.begin_transaction()
    for value in found:
        producer.produce(target, value)
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT)
    producer.commit_transaction(TIMEOUT)
    [committed] = consumer.committed(consumer.assignment(), TIMEOUT)
    assert committed.offset == positions[0].offset
    consumer.close()


# -- aiokafka -------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_aiokafka_produces_and_consumes_in_a_group(kafka_cluster: ClusterHandle) -> None:
    aiokafka, topic = load("aiokafka"), created(kafka_cluster)
    servers = kafka_cluster.bootstrap_servers
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=servers, enable_idempotence=True, compression_type="gzip"
    )
    async with producer:
        waiting = [await producer.send(topic, value, key=value) for value in VALUES]
        offsets = [(await future).offset for future in waiting]
    assert max(offsets) < len(VALUES)

    async def consume(count: int) -> list[bytes]:
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=kafka_cluster.group(),
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
    assert sorted(first + await consume(200)) == sorted(
        VALUES
    )  # It starts at the committed offset.


@pytest.mark.asyncio
async def test_aiokafka_produces_in_transactions(kafka_cluster: ClusterHandle) -> None:
    aiokafka, topic = load("aiokafka"), created(kafka_cluster, partitions=1)
    servers = kafka_cluster.bootstrap_servers
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=servers, transactional_id=kafka_cluster.transactional_id()
    )
    async with producer:
        async with producer.transaction():
            await producer.send_and_wait(topic, b"kept")
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"dropped")
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_and_wait(topic, b"kept too")
    consumer = aiokafka.AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    async with consumer:
        found = [(await consumer.getone()).value for _ in range(2)]
    assert found == [b"kept", b"kept too"]


# -- kafka-python ---------------------------------------------------------------------------------


def test_kafka_python_produces_and_consumes_in_a_group(kafka_cluster: ClusterHandle) -> None:
    kafka, topic = load("kafka"), created(kafka_cluster)
    servers = kafka_cluster.bootstrap_servers.split(",")
    producer = kafka.KafkaProducer(bootstrap_servers=servers, compression_type="gzip")
    futures = [producer.send(topic, value, key=value) for value in VALUES]
    assert max(future.get(timeout=TIMEOUT).offset for future in futures) < len(VALUES)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=kafka_cluster.group(),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )

    def poll() -> list[bytes]:
        batches = consumer.poll(timeout_ms=1_000).values()
        return [record.value for records in batches for record in records]

    found = collect(len(VALUES), poll)
    consumer.commit()
    committed = [consumer.committed(partition) for partition in consumer.assignment()]
    consumer.close()
    assert sorted(found) == sorted(VALUES)
    assert sum(offset or 0 for offset in committed) == len(VALUES)


def test_kafka_python_administers(kafka_cluster: ClusterHandle) -> None:
    module, topic = load("kafka.admin"), kafka_cluster.topic("administered")
    admin = module.KafkaAdminClient(bootstrap_servers=kafka_cluster.bootstrap_servers.split(","))
    try:
        admin.create_topics([module.NewTopic(topic, 3, 3)])
        deadline = time.monotonic() + TIMEOUT
        while topic not in admin.list_topics():
            assert time.monotonic() < deadline
        [described] = admin.describe_topics([topic])
        assert len(described["partitions"]) == 3
        admin.delete_topics([topic])
    finally:
        admin.close()


# -- kcat -----------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def kcat(record_testsuite_property: Callable[[str, object], None]) -> str:
    """Return the path of kcat; without it, skip the test, or fail it if CI=true."""
    path = shutil.which("kcat")
    if path is None:
        record_testsuite_property("not_run", "kcat (make kcat)")
        report = pytest.fail if in_ci() else pytest.skip
        report("no kcat: run make kcat as root, or install Debian's package kcat")
    return path


def run_kcat(kcat: str, cluster: ClusterHandle, *words: str, text: str | None = None) -> str:
    command = [kcat, "-b", cluster.bootstrap_servers, *words]
    done = subprocess.run(
        command,
        input=text,
        stdin=subprocess.DEVNULL if text is None else None,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kcat_lists_topics_and_offsets(kcat: str, kafka_cluster: ClusterHandle) -> None:
    topic = created(kafka_cluster, partitions=2)
    listed = json.loads(run_kcat(kcat, kafka_cluster, "-L", "-J", "-t", topic))
    [row] = listed["topics"]
    assert (row["topic"], len(row["partitions"]), len(listed["brokers"])) == (topic, 2, 3)
    assert run_kcat(kcat, kafka_cluster, "-Q", "-t", f"{topic}:0:-1").split() == [
        topic,
        "[0]",
        "offset",
        "0",
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kcat_produces_and_consumes(kcat: str, kafka_cluster: ClusterHandle, codec: str) -> None:
    topic = created(kafka_cluster, partitions=1)
    lines = [f"key {index}:{'value' * 20} {index}" for index in range(50)]
    run_kcat(
        kcat, kafka_cluster, "-P", "-t", topic, "-K:", "-z", codec, text="\n".join(lines) + "\n"
    )
    found = run_kcat(kcat, kafka_cluster, "-C", "-t", topic, "-K:", "-e", "-q", "-o", "beginning")
    assert found.splitlines() == lines
    # Its librdkafka 2.0 does not compress unless Produce is advertised from version 0.
    assert {view.header.codec for view in batches_of(kafka_cluster, topic)} == {Codec[codec]}
    with blocking.Consumer(
        kafka_cluster.bootstrap_servers, topics=[topic], auto_offset_reset="earliest"
    ) as consumer:
        assert len(collect(50, lambda: [it.value or b"" for it in consumer.poll(timeout=1)])) == 50


def test_kcat_consumes_in_a_group(kcat: str, kafka_cluster: ClusterHandle) -> None:
    topic = created(kafka_cluster)
    run_kcat(kcat, kafka_cluster, "-P", "-t", topic, text="a\nb\nc\n")
    words = ["-q", "-e", "-X", "auto.offset.reset=earliest", "-G", kafka_cluster.group(), topic]
    assert sorted(run_kcat(kcat, kafka_cluster, *words).split()) == ["a", "b", "c"]
