"""Clients of other projects, on the embedded cluster and on Apache Kafka.

They exchange records, transactions and group membership with this client and with themselves.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Generator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pytest

from kafka_async import blocking
from kafka_async.records.compression import Codec
from kafka_async.types import ProducerRecord
from tests.integration.helpers import codecs_of, create_topic_blocking, load

if TYPE_CHECKING:
    from kafka_async.config import Compression
    from kafka_async.testing.fixtures import ClusterHandle
    from tests.conftest import CannotRun

pytestmark = pytest.mark.timeout(180)

TIME = 1_790_000_000_000
TIMEOUT = 60.0
"""Seconds."""
PARTITIONS = 6
CODECS = [codec.name for codec in Codec]
CREATE_TIME, LOG_APPEND_TIME = 0, 1


class Row(NamedTuple):
    """Holds a record to write and read."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int
    timestamp_type: int = CREATE_TIME


NUMBERED = [Row(b"%d" % n, b"value %d" % n, [], TIME + n) for n in range(300)]
ROWS = [
    Row(b"key", b"value", [], TIME),
    Row(None, b"no key", [("h", b"x"), ("h", None), ("h", b"")], TIME - 5),
    Row(b"", b"", [("\u00fcml\u00e4ut \U0001f600", b"\x00\xff")], TIME + 7),
    Row(b"tombstone", None, [("why", b"gone")], TIME),
    Row(None, None, [], TIME + 1),
    Row(b"k" * 300, b"some text that compresses " * 4_000, [], TIME + 2),
    *NUMBERED[:200],
]
SENT = [row for row in ROWS if (row.key, row.value) != (None, None)]
"""Records of transactions; aiokafka refuses a record without key and value."""
TRANSACTIONS = [(SENT[:50], True), (SENT[50:100], False), (SENT[100:], True)]
"""Records, and whether their transaction commits."""
COMMITTED = [*SENT[:50], *SENT[100:]]


class Member(NamedTuple):
    """Calls the consumer of a client, which is a member of a group."""

    poll: Callable[[int], list[Row]]
    """Waits up to a second, and returns at most this number of records."""
    commit: Callable[[], object]
    assignment: Callable[[], Collection[Any]]

    def read(self, count: int) -> list[Row]:
        """Poll until there are `count` records; fail after a generous time."""
        found: list[Row] = []
        deadline = time.monotonic() + TIMEOUT
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
            found += self.poll(count - len(found))
        return found


class KafkaAsync:
    """Calls this client."""

    def __init__(self, cluster: ClusterHandle) -> None:
        self._servers = cluster.bootstrap_servers
        self._transactional_id = cluster.transactional_id()

    def produce(self, topic: str, rows: list[Row], codec: Compression) -> None:
        with blocking.Producer(self._servers, linger_ms=50, compression_type=codec) as producer:
            producer.send_records(
                ProducerRecord(topic, row.value, row.key, row.headers, timestamp=row.timestamp)
                for row in rows
            )
            producer.flush()

    def transact(self, topic: str) -> None:
        with blocking.Producer(
            self._servers, transactional_id=self._transactional_id, compression_type="gzip"
        ) as producer:
            for rows, commit in TRANSACTIONS:
                with suppress(ZeroDivisionError), producer.transaction() as transaction:
                    for row in rows:
                        transaction.enqueue(
                            topic,
                            row.value,
                            key=row.key,
                            headers=row.headers,
                            timestamp=row.timestamp,
                        )
                    producer.flush()
                    if not commit:
                        raise ZeroDivisionError

    @contextmanager
    def join(self, topic: str, group: str, *, committed: bool = False) -> Generator[Member]:
        with blocking.Consumer(
            self._servers,
            topics=[topic],
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed" if committed else "read_uncommitted",
        ) as consumer:

            def poll(count: int) -> list[Row]:
                return rows_of(consumer.poll(max_records=count, timeout=1))

            yield Member(poll, consumer.commit, consumer.assignment)


def rows_of(records: Any) -> list[Row]:
    """Convert records, whose attributes have the same names at all clients but confluent-kafka."""
    return [
        Row(one.key, one.value, list(one.headers), one.timestamp, one.timestamp_type)
        for one in records
    ]


class ConfluentKafka:
    """Calls confluent-kafka, and so librdkafka."""

    group_protocol = "classic"

    def __init__(self, cluster: ClusterHandle) -> None:
        self.servers = {"bootstrap.servers": cluster.bootstrap_servers}
        self._transactional_id = cluster.transactional_id()
        self._confluent = load("confluent_kafka")

    def produce(self, topic: str, rows: list[Row], codec: Compression) -> None:
        options = {"enable.idempotence": True, "compression.type": codec, "linger.ms": 50}
        self._write(self._confluent.Producer({**self.servers, **options}), topic, rows)

    def transactional_producer(self) -> Any:
        options = {"transactional.id": self._transactional_id, "compression.type": "snappy"}
        producer = self._confluent.Producer({**self.servers, **options})
        producer.init_transactions(TIMEOUT)
        return producer

    def transact(self, topic: str) -> None:
        producer = self.transactional_producer()
        for rows, commit in TRANSACTIONS:
            producer.begin_transaction()
            self._write(producer, topic, rows)
            (producer.commit_transaction if commit else producer.abort_transaction)(TIMEOUT)

    def _write(self, producer: Any, topic: str, rows: list[Row]) -> None:
        failed: list[Any] = []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                failed.append(error)

        for key, value, headers, timestamp, _ in rows:
            producer.produce(
                topic, value, key=key, headers=headers, timestamp=timestamp, on_delivery=delivered
            )
        assert producer.flush(TIMEOUT) == 0
        assert failed == []

    def consumer(self, topic: str, group: str, *, committed: bool = False) -> Any:
        options = {
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "check.crcs": True,
            "group.protocol": self.group_protocol,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
        consumer = self._confluent.Consumer({**self.servers, **options})
        consumer.subscribe([topic])
        return consumer

    @contextmanager
    def join(self, topic: str, group: str, *, committed: bool = False) -> Generator[Member]:
        consumer = self.consumer(topic, group, committed=committed)

        def poll(count: int) -> list[Row]:
            messages = consumer.consume(count, timeout=1)
            assert [message.error() for message in messages] == [None] * len(messages)
            return list(map(self._row, messages))

        try:
            yield Member(poll, lambda: consumer.commit(asynchronous=False), consumer.assignment)
        finally:
            consumer.close()

    def _row(self, message: Any) -> Row:
        kind, timestamp = message.timestamp()
        kind -= self._confluent.TIMESTAMP_CREATE_TIME
        return Row(message.key(), message.value(), message.headers() or [], timestamp, kind)


class AIOKafka:
    """Calls aiokafka, in an event loop that runs during the calls."""

    def __init__(self, cluster: ClusterHandle) -> None:
        self._servers = cluster.bootstrap_servers
        self._transactional_id = cluster.transactional_id()
        self._aiokafka = load("aiokafka")
        self._range = load("aiokafka.coordinator.assignors.range").RangePartitionAssignor

    def produce(self, topic: str, rows: list[Row], codec: Compression) -> None:
        async def write() -> None:
            async with self._aiokafka.AIOKafkaProducer(
                bootstrap_servers=self._servers, enable_idempotence=True, compression_type=codec
            ) as producer:
                waiting = [await producer.send(topic, row.value, key=row.key) for row in rows]
                await asyncio.gather(*waiting)

        asyncio.run(write())

    def transact(self, topic: str) -> None:
        async def write() -> None:
            async with self._aiokafka.AIOKafkaProducer(
                bootstrap_servers=self._servers, transactional_id=self._transactional_id
            ) as producer:
                for rows, commit in TRANSACTIONS:
                    await producer.begin_transaction()
                    for row in rows:
                        await producer.send(
                            topic,
                            row.value,
                            key=row.key,
                            headers=row.headers,
                            timestamp_ms=row.timestamp,
                        )
                    await producer.flush()
                    await (
                        producer.commit_transaction() if commit else producer.abort_transaction()
                    )

        asyncio.run(write())

    @contextmanager
    def join(self, topic: str, group: str, *, committed: bool = False) -> Generator[Member]:
        async def start() -> Any:
            consumer = self._aiokafka.AIOKafkaConsumer(
                topic,
                bootstrap_servers=self._servers,
                group_id=group,
                heartbeat_interval_ms=200,
                partition_assignment_strategy=[self._range],
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed" if committed else "read_uncommitted",
            )
            await consumer.start()
            return consumer

        with asyncio.Runner() as runner:
            consumer = runner.run(start())

            def poll(count: int) -> list[Row]:
                batches = runner.run(consumer.getmany(timeout_ms=1_000, max_records=count))
                return [row for records in batches.values() for row in rows_of(records)]

            try:
                yield Member(poll, lambda: runner.run(consumer.commit()), consumer.assignment)
            finally:
                runner.run(consumer.stop())


class KafkaPython:
    """Calls kafka-python."""

    def __init__(self, cluster: ClusterHandle) -> None:
        self._servers = cluster.bootstrap_servers.split(",")

    def produce(self, topic: str, rows: list[Row], codec: Compression) -> None:
        producer = load("kafka").KafkaProducer(
            bootstrap_servers=self._servers, compression_type=codec
        )
        futures = [producer.send(topic, row.value, key=row.key) for row in rows]
        for future in futures:
            future.get(timeout=TIMEOUT)
        producer.close()

    @contextmanager
    def join(self, topic: str, group: str, *, committed: bool = False) -> Generator[Member]:
        consumer = load("kafka").KafkaConsumer(
            topic,
            bootstrap_servers=self._servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )

        def poll(count: int) -> list[Row]:
            batches = consumer.poll(timeout_ms=1_000, max_records=count)
            return [row for records in batches.values() for row in rows_of(records)]

        try:
            yield Member(poll, consumer.commit, consumer.assignment)
        finally:
            consumer.close()


Foreign: TypeAlias = type[ConfluentKafka | AIOKafka]
Client: TypeAlias = Foreign | type[KafkaAsync]


def pairs(*clients: Foreign) -> list[Any]:
    """Return the parameters (writer, reader) with this client on one side."""
    both = [pair for one in clients for pair in ((one, KafkaAsync), (KafkaAsync, one))]
    return [pytest.param(*pair, id="-".join(one.__name__ for one in pair)) for pair in both]


# -- records and transactions ---------------------------------------------------------------------


@pytest.mark.any_broker
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("writer", "reader"), pairs(ConfluentKafka))
def test_client_reads_records_of_another(
    kafka_cluster: ClusterHandle,
    writer: Client,
    reader: Client,
    codec: Compression,
) -> None:
    topic = create_topic_blocking(kafka_cluster)
    writer(kafka_cluster).produce(topic, ROWS, codec)
    with reader(kafka_cluster).join(topic, kafka_cluster.group()) as member:
        assert member.read(len(ROWS)) == ROWS
    written = codecs_of(kafka_cluster, topic)
    assert Codec[codec] in written
    assert writer is not KafkaAsync or len(written) == 1


@pytest.mark.any_broker
def test_all_read_the_brokers_timestamp(kafka_cluster: ClusterHandle) -> None:
    configs = {"message.timestamp.type": "LogAppendTime"}
    topic = create_topic_blocking(kafka_cluster, configs=configs)
    before = int(time.time() * 1000)
    KafkaAsync(kafka_cluster).produce(topic, ROWS, "lz4")
    ConfluentKafka(kafka_cluster).produce(topic, ROWS, "zstd")
    after = int(time.time() * 1000)
    found: list[list[Row]] = []
    for client in (KafkaAsync, ConfluentKafka):
        with client(kafka_cluster).join(topic, kafka_cluster.group(client.__name__)) as member:
            found.append(member.read(2 * len(ROWS)))
    ours, theirs = found
    assert ours == theirs
    assert {row.timestamp_type for row in ours} == {LOG_APPEND_TIME}
    assert all(before <= row.timestamp <= after for row in ours)
    assert [row[:3] for row in ours] == [row[:3] for row in ROWS] * 2


@pytest.mark.any_broker
@pytest.mark.parametrize(
    ("writer", "reader"),
    [*pairs(ConfluentKafka, AIOKafka), (ConfluentKafka, ConfluentKafka), (AIOKafka, AIOKafka)],
)
def test_client_reads_transactions_of_another(
    kafka_cluster: ClusterHandle, writer: Client, reader: Client
) -> None:
    topic = create_topic_blocking(kafka_cluster)
    writer(kafka_cluster).transact(topic)
    client = reader(kafka_cluster)
    with client.join(topic, kafka_cluster.group("committed"), committed=True) as member:
        assert member.read(len(COMMITTED)) == COMMITTED
    with client.join(topic, kafka_cluster.group("all")) as member:
        assert member.read(len(SENT)) == SENT


@pytest.mark.slow
def test_confluent_kafka_commits_offsets_in_a_transaction(kafka_cluster: ClusterHandle) -> None:
    source = create_topic_blocking(kafka_cluster, "source")
    target = create_topic_blocking(kafka_cluster, "target")
    client = ConfluentKafka(kafka_cluster)
    client.produce(source, NUMBERED, "none")
    consumer = client.consumer(source, kafka_cluster.group(), committed=True)
    producer = client.transactional_producer()
    producer.begin_transaction()
    for message in consumer.consume(2, timeout=TIMEOUT):
        producer.produce(target, message.value())
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT)
    producer.commit_transaction(TIMEOUT)
    [committed] = consumer.committed(consumer.assignment(), TIMEOUT)
    assert committed.offset == positions[0].offset == 2
    consumer.close()


# -- groups ---------------------------------------------------------------------------------------


class ConfluentKafkaConsumerProtocol(ConfluentKafka):
    """Calls confluent-kafka in groups of the consumer protocol (KIP-848)."""

    group_protocol = "consumer"


def test_confluent_kafka_shares_partitions_by_the_consumer_protocol(
    kafka_cluster: ClusterHandle,
) -> None:
    topic = create_topic_blocking(kafka_cluster, partitions=PARTITIONS)
    ConfluentKafka(kafka_cluster).produce(topic, NUMBERED, "none")
    group = kafka_cluster.group()
    with ConfluentKafkaConsumerProtocol(kafka_cluster).join(topic, group) as first:
        found = first.read(100)
        first.commit()
        with ConfluentKafkaConsumerProtocol(kafka_cluster).join(topic, group) as second:
            members = [first, second]
            deadline = time.monotonic() + TIMEOUT
            while {len(one.assignment()) for one in members} != {PARTITIONS // 2}:
                assert time.monotonic() < deadline, [one.assignment() for one in members]
                found += [row for member in members for row in member.poll(1)]
            owned = [tp.partition for one in members for tp in one.assignment()]
            assert sorted(owned) == list(range(PARTITIONS))
            second.commit()
    assert found


@pytest.mark.slow
@pytest.mark.parametrize("client", [ConfluentKafka, AIOKafka, KafkaPython])
def test_produces_and_consumes_in_a_group(
    kafka_cluster: ClusterHandle, client: Foreign | type[KafkaPython]
) -> None:
    """Checks that the second member starts at the offsets that the first has committed."""
    topic = create_topic_blocking(kafka_cluster, partitions=PARTITIONS)
    client(kafka_cluster).produce(topic, NUMBERED, "gzip")
    found: list[Row] = []
    for count in (100, 200):
        with client(kafka_cluster).join(topic, kafka_cluster.group()) as member:
            found += member.read(count)
            assert len(member.assignment()) == PARTITIONS
            member.commit()
    assert sorted(row.key or b"" for row in found) == sorted(row.key or b"" for row in NUMBERED)


@pytest.mark.parametrize("ours_first", [True, False], ids=["ours-leads", "theirs-leads"])
@pytest.mark.parametrize("client", [ConfluentKafka, AIOKafka])
def test_shares_partitions_with_members_of_another_client(
    kafka_cluster: ClusterHandle, client: Foreign, ours_first: bool
) -> None:
    topic = create_topic_blocking(kafka_cluster, partitions=PARTITIONS)
    clients: list[Client] = [KafkaAsync, client] if ours_first else [client, KafkaAsync]
    members: list[Member] = []
    deadline = time.monotonic() + TIMEOUT
    with ExitStack() as stack:
        for kind in clients:
            joined = kind(kafka_cluster).join(topic, kafka_cluster.group())
            members.append(stack.enter_context(joined))
            while {len(one.assignment()) for one in members} != {PARTITIONS // len(members)}:
                assert time.monotonic() < deadline, [one.assignment() for one in members]
                for member in members:
                    member.poll(1)
        owned = [tp.partition for one in members for tp in one.assignment()]
        assert sorted(owned) == list(range(PARTITIONS))


@pytest.mark.slow
def test_confluent_kafka_describes_groups(kafka_cluster: ClusterHandle) -> None:
    topic = create_topic_blocking(kafka_cluster, partitions=PARTITIONS)
    client, group = ConfluentKafka(kafka_cluster), kafka_cluster.group()
    client.produce(topic, NUMBERED, "none")
    admin = load("confluent_kafka.admin").AdminClient(client.servers)
    with client.join(topic, group) as member:
        member.read(1)
        [described] = [
            future.result(TIMEOUT) for future in admin.describe_consumer_groups([group]).values()
        ]
        listed = admin.list_consumer_groups().result(TIMEOUT)
    assert [len(one.assignment.topic_partitions) for one in described.members] == [PARTITIONS]
    assert group in [row.group_id for row in listed.valid]


# -- administration -------------------------------------------------------------------------------


@pytest.mark.slow
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
    after_creation = admin.list_topics(timeout=TIMEOUT)
    assert len(after_creation.brokers) == 3
    assert len(admin.list_topics(topic, timeout=TIMEOUT).topics) == 1
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


@pytest.mark.slow
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
def kcat(cannot_run: CannotRun) -> str:
    """Return the path of kcat; without it, skip the test, or fail it if CI=true."""
    path = shutil.which("kcat")
    if path is None:
        cannot_run("kcat", "run make kcat as root, or install Debian's package kcat")
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


@pytest.mark.slow
def test_kcat_lists_topics_and_offsets(kcat: str, kafka_cluster: ClusterHandle) -> None:
    topic = create_topic_blocking(kafka_cluster, partitions=2)
    listed = json.loads(run_kcat(kcat, kafka_cluster, "-L", "-J", "-t", topic))
    [row] = listed["topics"]
    assert (row["topic"], len(row["partitions"]), len(listed["brokers"])) == (topic, 2, 3)
    assert run_kcat(kcat, kafka_cluster, "-Q", "-t", f"{topic}:0:-1").split() == [
        topic,
        "[0]",
        "offset",
        "0",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
def test_kcat_produces_and_consumes(kcat: str, kafka_cluster: ClusterHandle, codec: str) -> None:
    topic = create_topic_blocking(kafka_cluster)
    lines = [f"key {index}:{'value' * 20} {index}" for index in range(50)]
    run_kcat(
        kcat, kafka_cluster, "-P", "-t", topic, "-K:", "-z", codec, text="\n".join(lines) + "\n"
    )
    found = run_kcat(kcat, kafka_cluster, "-C", "-t", topic, "-K:", "-e", "-q", "-o", "beginning")
    assert found.splitlines() == lines
    # Its librdkafka 2.0 does not compress unless Produce is advertised from version 0.
    assert codecs_of(kafka_cluster, topic) == {Codec[codec]}
    with KafkaAsync(kafka_cluster).join(topic, kafka_cluster.group()) as member:
        assert len(member.read(len(lines))) == len(lines)


@pytest.mark.slow
def test_kcat_consumes_in_a_group(kcat: str, kafka_cluster: ClusterHandle) -> None:
    topic = create_topic_blocking(kafka_cluster, partitions=PARTITIONS)
    run_kcat(kcat, kafka_cluster, "-P", "-t", topic, text="a\nb\nc\n")
    words = ["-q", "-e", "-X", "auto.offset.reset=earliest", "-G", kafka_cluster.group(), topic]
    assert sorted(run_kcat(kcat, kafka_cluster, *words).split()) == ["a", "b", "c"]
