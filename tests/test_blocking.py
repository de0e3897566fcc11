"""The blocking clients: the methods of the asyncio ones, in any thread or forked process."""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib
import inspect
import itertools
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import pytest

import kafka_async
from kafka_async import blocking
from kafka_async.admin import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclResourceType,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    QuotaEntity,
    ResourceType,
    UserScramCredentialDeletion,
)
from kafka_async.client.metadata.request_router import AnyBroker, Leader
from kafka_async.embedded import run_in_thread
from kafka_async.errors import (
    ClientClosedError,
    DeliveryError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
)
from kafka_async.kernel._pykernel import RecordAppender
from kafka_async.protocol.messages.metadata import MetadataRequest
from kafka_async.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kafka_async.records.batch import RecordBatch
from kafka_async.secrets import SecretBytes
from kafka_async.types import PreparedTransaction, ProducerRecord, TopicPartition
from tests.raw_connection import batch

if TYPE_CHECKING:
    from kafka_async.embedded import BlockingCluster

CLIENTS = ["Client", "Producer", "Transaction", "Consumer", "ShareConsumer", "Admin"]
DIFFERENCES = {
    "Transaction.commit_offsets": ("HasOffsetSource", "Consumer[Any, Any]"),
    "Transaction.__init__": None,
    "Consumer.partition_streams": None,
    "Consumer.process": None,
}
"""By method: an annotation of asyncio's client and its replacement; None: it is not compared."""


def signatures(owner: Any, name: str) -> dict[str, tuple[object, ...]]:
    """Return the parameters of the public methods of a class, with the type of the result."""
    found: dict[str, tuple[object, ...]] = {}
    for method in dir(owner):
        member = inspect.getattr_static(owner, method)
        call = vars(RecordAppender).get(method) or getattr(member, "__func__", member)
        row = DIFFERENCES.get(f"{name}.{method}", ("", ""))
        if not inspect.isfunction(call) or row is None:
            continue
        if method != "__init__" and method.startswith("_"):
            continue
        signature = inspect.signature(call)
        result = re.sub(r"^Awaitable\[(.*)\]$", r"\1", str(signature.return_annotation))
        text = [str(parameter) for parameter in signature.parameters.values()]
        kinds = [parameter.kind for parameter in signature.parameters.values()]
        found[method] = (*(part.replace(*row) for part in text), *kinds, result)
    return found


@pytest.mark.parametrize("name", CLIENTS)
def test_blocking_client_has_the_methods_and_parameters_of_the_asyncio_client(name: str) -> None:
    ours = signatures(getattr(blocking, name), name)
    assert ours == signatures(getattr(kafka_async, name), name)


@pytest.fixture(scope="module", autouse=True)
def event_loop_thread() -> None:
    """Start the thread of the blocking clients, which remains until the end of the process."""
    blocking.run(asyncio.sleep, 0)


@pytest.fixture
def cluster() -> Iterator[BlockingCluster]:
    with run_in_thread(1, auto_create_topics=False) as cluster:
        yield cluster


@pytest.fixture
def servers(cluster: BlockingCluster) -> str:
    return cluster.bootstrap_servers


T = "orders"
TP = TopicPartition(T, 0)
Calls = dict[str, Callable[[Any], object]]
LIFECYCLE = {"start", "stop"}
SECURITY: dict[str, tuple[Any, ...]] = {
    "create_acls": (
        "SecurityDisabledError",
        [AclBinding(AclResourceType.TOPIC, T, "User:a", AclOperation.READ)],
    ),
    "describe_acls": ("SecurityDisabledError",),
    "delete_acls": ("SecurityDisabledError", [AclFilter()]),
    "alter_user_scram_credentials": (
        "ResourceNotFoundError",
        [UserScramCredentialDeletion("alice", "SCRAM-SHA-256")],
    ),
    "create_delegation_tokens": ("UnsupportedByAuthenticationError",),
    "renew_delegation_tokens": ("UnsupportedByAuthenticationError", [SecretBytes(b"hmac")]),
    "expire_delegation_tokens": ("UnsupportedByAuthenticationError", [SecretBytes(b"hmac")]),
    "describe_delegation_tokens": ("UnsupportedByAuthenticationError",),
}
"""Calls that fail on a cluster without security: the error and the arguments."""

QUOTED = QuotaEntity(client_id="quoted")
QUOTAS = {QUOTED: {"producer_byte_rate": 1e6}}
ADMIN: Calls = {
    "create_topics": lambda admin: admin.create_topics([NewTopic(T)])[T].partitions == 1,
    "create_partitions": lambda admin: admin.create_partitions({T: 2}) is None,
    "list_topics": lambda admin: T in admin.list_topics(),
    "describe_topics": lambda admin: len(admin.describe_topics([T])[T].partitions) == 2,
    "describe_cluster": lambda admin: len(admin.describe_cluster().brokers) == 1,
    "describe_configs": lambda admin: (
        "cleanup.policy" in admin.describe_configs([TOPIC_CONFIG])[TOPIC_CONFIG]
    ),
    "alter_configs": lambda admin: (
        admin.alter_configs({SHARE_GROUP: {"share.auto.offset.reset": "earliest"}}) is None
    ),
    "alter_client_quotas": lambda admin: admin.alter_client_quotas(QUOTAS) is None,
    "describe_client_quotas": lambda admin: admin.describe_client_quotas(QUOTED) == QUOTAS,
    "resolve_client_quotas": lambda admin: (
        admin.resolve_client_quotas(QUOTED)["producer_byte_rate"].value == 1e6
    ),
    "set_quota_enforcement": lambda admin: (
        admin.set_quota_enforcement(QUOTED, on=False) == QUOTAS[QUOTED]
    ),
    "list_groups": lambda admin: admin.list_groups() == {},
    "describe_share_groups": lambda admin: raises(
        "GroupIdNotFoundError", admin.describe_share_groups, ["moved"]
    ),
    "alter_share_group_offsets": lambda admin: (
        admin.alter_share_group_offsets("moved", {TP: 0}) is None
    ),
    "list_share_group_offsets": lambda admin: (
        admin.list_share_group_offsets("moved")[TP].offset == 0
    ),
    "delete_share_group_offsets": lambda admin: (
        admin.delete_share_group_offsets("moved", [T]) is None
    ),
    "describe_groups": lambda admin: raises("GroupIdNotFoundError", admin.describe_groups, ["g"]),
    "delete_groups": lambda admin: raises("GroupIdNotFoundError", admin.delete_groups, ["g"]),
    "list_offsets": lambda admin: admin.list_offsets({TP: OffsetSpec.LATEST})[TP].offset == 0,
    "list_group_offsets": lambda admin: admin.list_group_offsets("g") == {},
    "alter_group_offsets": lambda admin: admin.alter_group_offsets("altered", {TP: 1}) is None,
    "list_transactions": lambda admin: admin.list_transactions(pattern="no-.*") == {},
    "describe_transactions": lambda admin: raises(
        "TransactionalIdNotFoundError", admin.describe_transactions, ["none"]
    ),
    "fence_producers": lambda admin: admin.fence_producers(["none"]) is None,
    "end_transaction": lambda admin: raises(
        "ProducerFencedError",
        lambda: admin.end_transaction(prepared_transaction(admin, "none", 9), commit=True),
    ),
    "describe_user_scram_credentials": lambda admin: admin.describe_user_scram_credentials() == {},
    **{
        name: lambda admin, name=name, row=row: raises(row[0], getattr(admin, name), *row[1:])
        for name, row in SECURITY.items()
    },
    "health": lambda admin: admin.health().state == "running",
}


def prepared_transaction(admin: Any, name: str, epoch: int) -> PreparedTransaction:
    """Return a transaction of a transactional id that is in use, with another epoch."""
    producer_id = admin.describe_transactions([name])[name].producer_id
    return PreparedTransaction(name, producer_id, epoch)


def sends_a_row(writer: Any) -> bool:
    pyarrow: Any = importlib.import_module("pyarrow")
    row = {"value": pyarrow.array([b"6"]), "partition": pyarrow.array([0], pyarrow.int32())}
    return writer.send_arrow(pyarrow.RecordBatch.from_pydict(row), T) == 1


TOPIC_CONFIG = ConfigResource(ResourceType.TOPIC, T)
SHARE_GROUP = ConfigResource(ResourceType.GROUP, "sharers")
PRODUCER: Calls = {
    "send": lambda producer: producer.send(T, b"0", partition=0).offset == 0,
    "enqueue": lambda producer: producer.enqueue(T, b"1", partition=0) is not None,
    "enqueue_nowait": lambda producer: producer.enqueue_nowait(T, b"2", partition=0) is not None,
    "send_many": lambda producer: len(producer.send_many(T, [b"3"], partition=0)) == 1,
    "send_records": lambda producer: (
        len(producer.send_records([ProducerRecord(T, b"4", partition=0)])) == 1
    ),
    "send_arrow": lambda producer: sends_a_row(producer),
    "send_batch": lambda producer: (
        producer.send_batch(TP, RecordBatch.build([ProducerRecord(T, b"5")])) is not None
    ),
    "flush": lambda producer: producer.flush() is None,
    "purge": lambda producer: producer.purge(in_flight=True) == 0,
    "statistics": lambda producer: producer.statistics().record_send_total == 7,
    "health": lambda producer: producer.health().state == "running",
}
TRANSACTION: Calls = {
    **{name: call for name, call in PRODUCER.items() if name.startswith(("send", "enqueue"))},
    "send": lambda txn: txn.send(T, b"6", partition=0).partition == 0,
    "commit_offsets": lambda txn: txn.commit_offsets({TP: 1}, "another") is None,
    "prepare": lambda txn: TopicPartition(T, 0) in txn.prepare().offsets,
}
CONSUMER: Calls = {
    "subscription": lambda consumer: consumer.subscription() == frozenset(),
    "assign": lambda consumer: consumer.assign([TP]) is None,
    "assignment": lambda consumer: consumer.assignment() == {TP},
    "on_assigned": lambda consumer: consumer.on_assigned(print) is print,
    "on_revoked": lambda consumer: consumer.on_revoked(print) is print,
    "on_lost": lambda consumer: consumer.on_lost(print) is print,
    "position": lambda consumer: consumer.position(TP) == 0,
    "poll": lambda consumer: consumer.poll(timeout=30, max_records=1)[0].value == b"0",
    "high_watermark": lambda consumer: consumer.high_watermark(TP) > 0,
    "last_stable_offset": lambda consumer: consumer.last_stable_offset(TP) > 0,
    "commit": lambda consumer: consumer.commit({TP: 1}) is None,
    "committed": lambda consumer: consumer.committed()[TP].offset == 1,
    "group_metadata": lambda consumer: consumer.group_metadata().group_id == "g",
    "seek": lambda consumer: consumer.seek(TP, 3) is None and consumer.position(TP) == 3,
    "seek_to_beginning": lambda consumer: consumer.seek_to_beginning() is None,
    "poll_batches": lambda consumer: consumer.poll_batches(timeout=30)[0].partition == 0,
    "seek_to_committed": lambda consumer: (
        consumer.seek_to_committed() or consumer.position(TP) == 1
    ),
    "seek_to_time": lambda consumer: consumer.seek_to_time(0) or consumer.position(TP) == 0,
    "seek_to_end": lambda consumer: consumer.seek_to_end() or consumer.position(TP) > 5,
    "rewind": lambda consumer: consumer.rewind({}) == {},  # it subscribes to nothing
    "pause": lambda consumer: consumer.pause() is None,
    "paused": lambda consumer: consumer.paused() == {TP},
    "resume": lambda consumer: consumer.resume() or consumer.paused() == frozenset(),
    "beginning_offsets": lambda consumer: consumer.beginning_offsets([TP]) == {TP: 0},
    "end_offsets": lambda consumer: consumer.end_offsets([TP])[TP] > 5,
    "offsets_for_times": lambda consumer: consumer.offsets_for_times({TP: 0})[TP].offset == 0,
    "topics": lambda consumer: consumer.topics() == {T},
    "partitions_for": lambda consumer: consumer.partitions_for(T) == [0, 1],
    "explain": lambda consumer: consumer.explain().generation == -1,
    "statistics": lambda consumer: consumer.statistics().records_consumed_total > 0,
    "health": lambda consumer: consumer.health().assignment == (TP,),
    "subscribe": lambda consumer: consumer.subscribe([T]) or consumer.subscription() == {T},
    "unsubscribe": lambda consumer: consumer.unsubscribe() or consumer.subscription() == set(),
}
SHARE_CONSUMER: Calls = {
    "subscription": lambda consumer: consumer.subscription() == {T},
    "on_acknowledged": lambda consumer: consumer.on_acknowledged(print) is print,
    "poll": lambda consumer: consumer.poll(timeout=0.0) == [],
    "acknowledge": lambda consumer: acknowledges_a_record(consumer),
    "commit": lambda consumer: list(consumer.commit().values()) == [None],
    "assignment": lambda consumer: TP in consumer.assignment(),
    "acquisition_lock_timeout_ms": lambda consumer: consumer.acquisition_lock_timeout_ms == 30_000,
    "statistics": lambda consumer: consumer.statistics().acknowledgements_error_total == 0,
    "health": lambda consumer: consumer.health().state == "running",
}
CLIENT: Calls = {
    "request": lambda client: (
        client.request(MetadataRequest(topics=None), to=AnyBroker()).topics[0].name == T
    ),
    "submit": lambda client: answers_handles(client),
    "health": lambda client: client.health().state == "running",
    "quota_usage": lambda client: set(client.quota_usage().values()) == {0.0},
    "reload_certificates": lambda client: uses_no_certificates(client),
    "set_sasl_credentials": lambda client: uses_no_password(client),
}


def raises(kind: str, function: Callable[..., object], *args: object) -> bool:
    with pytest.raises(Exception, match=r".") as raised:
        function(*args)
    return type(raised.value).__name__ == kind


def acknowledges_a_record(consumer: Any) -> bool:
    (record,) = consumer.poll(timeout=30, max_records=1)
    return record.delivery_count == 1 and consumer.acknowledge(record) is None


def answers_handles(client: Any) -> bool:
    handle = client.submit(MetadataRequest(topics=None), to=AnyBroker())
    assert handle.response(timeout=30).topics[0].name == T
    assert (handle.done, handle.cancelled, handle.cancel()) == (True, False, False)
    data = PartitionProduceData(index=0, records=batch(b"unacknowledged"))
    produce = ProduceRequest(
        acks=0, timeout_ms=1000, topic_data=[TopicProduceData(name=T, partition_data=[data])]
    )
    to = Leader(TP)
    assert client.request(produce, to=to, max_version=9) == ProduceResponse()
    assert client.submit(produce, to=to, max_version=9).response(30) == ProduceResponse()
    assert client.request(MetadataRequest(topics=None), to=to).topics[0].name == T
    return True


def uses_no_certificates(client: Any) -> bool:
    return raises("InvalidConfigurationError", client.reload_certificates)


def uses_no_password(client: Any) -> bool:
    return raises("InvalidConfigurationError", client.set_sasl_credentials, "alice", "secret")


def check(client: Any, calls: Calls) -> None:
    failed = [name for name, call in calls.items() if not call(client)]
    assert failed == []


def test_every_method_of_the_blocking_clients_works(servers: str) -> None:
    """Calls them in order: the admin client creates the topic, and the producer its records."""
    with blocking.Client(servers) as client:
        with blocking.Admin(client) as admin:
            check(admin, ADMIN)
        with blocking.Producer[Any, Any](client) as producer:
            check(producer, PRODUCER)
        with blocking.Producer[Any, Any](servers, transactional_id="t") as producer:
            producer.init_transactions()
            with producer.transaction() as transaction:
                check(transaction, TRANSACTION)
            transaction.commit()
            producer.begin().abort()
            transaction = producer.begin()
            transaction.enqueue(T, b"7", partition=0)
            transaction.commit()
        with blocking.Consumer[Any, Any](
            client, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer:
            consumer.assign([TP])
            check(consumer, CONSUMER)
        with blocking.ShareConsumer[Any, Any](
            client,
            topics=[T],
            group_id=SHARE_GROUP.name,
            share_acknowledgement_mode="explicit",
        ) as sharer:
            check(sharer, SHARE_CONSUMER)
            assert next(iter(sharer)).delivery_count == 1
        check(client, CLIENT)
        with blocking.Admin(client) as admin:
            admin.delete_topics([T])


TESTED = {
    "Client": CLIENT.keys(),
    "Producer": PRODUCER.keys() | {"transaction", "begin", "init_transactions"},
    "Transaction": TRANSACTION.keys() | {"commit", "abort"},
    "Consumer": CONSUMER.keys(),
    "ShareConsumer": SHARE_CONSUMER.keys(),
    "Admin": ADMIN.keys() | {"delete_topics"},
}


@pytest.mark.parametrize("name", CLIENTS)
def test_tests_call_every_method(name: str) -> None:
    owner: type = getattr(blocking, name)
    public = {method for method in vars(owner) if not method.startswith("_")}
    assert public - LIFECYCLE - {"asynchronous"} == TESTED[name]


def test_transaction_commits_the_offsets_of_a_blocking_consumer(servers: str) -> None:
    with blocking.Admin(servers) as admin:
        admin.create_topics([NewTopic("input")])
    producer = blocking.Producer(servers, transactional_id="offsets")
    consumer = blocking.Consumer(
        servers, topics=["input"], group_id="h", auto_offset_reset="earliest",
        enable_auto_commit=False,
    )  # fmt: skip
    with producer, consumer:
        with producer.transaction() as transaction:
            transaction.send("input", b"v")
        assert consumer.poll(timeout=30)
        with producer.transaction() as transaction:
            transaction.commit_offsets(consumer)
        committed = consumer.committed()[TopicPartition("input", 0)]
        assert committed is not None
        assert committed.offset >= 1


def test_callback_that_calls_its_blocking_client_raises(servers: str) -> None:
    consumer = blocking.Consumer(servers, topics=["input"], group_id="i")
    with consumer:
        consumer.on_assigned(lambda _: consumer.commit())
        with pytest.raises(IllegalStateError, match="with `async def`, and await the asyncio cli"):
            consumer.poll(timeout=30)


def test_errors_of_unstarted_clients_name_the_statement_of_blocking_ones(servers: str) -> None:
    producer = blocking.Producer(servers)
    consumer = blocking.Consumer(servers, topics=[T], group_id="i")
    calls: list[Callable[[], object]] = [
        lambda: producer.send(T, b"v"),
        lambda: consumer.poll(timeout=1),
        lambda: blocking.Admin(servers).list_topics(),
        lambda: blocking.Client(servers).quota_usage(),
    ]
    words = r"was not started: use `async with` \(kafka_async.blocking: `with`\), or call start\(\)"
    for call in calls:
        with pytest.raises(ClientClosedError, match=words):
            call()


def test_warning_of_an_unstopped_client_names_the_statement_of_blocking_ones(servers: str) -> None:
    client = blocking.Client(servers)
    client.start()
    with pytest.warns(ResourceWarning, match=r"use `async with` \(kafka_async.blocking: `with`\)"):
        client.asynchronous.__del__()
    client.stop()


def test_handle_of_a_request_can_be_cancelled_and_waited_for(cluster: BlockingCluster) -> None:
    with blocking.Client(cluster.bootstrap_servers) as client:
        held = cluster.faults.add(api="Metadata", hang=True, count=None)
        handle = client.submit(MetadataRequest(topics=None), to=AnyBroker())
        with pytest.raises(KafkaTimeoutError, match=r"no response after 0\.01 s"):
            handle.response(timeout=0.01)
        assert not handle.done
        assert handle.cancel()
        with pytest.raises(concurrent.futures.CancelledError):
            handle.response(timeout=30)
        assert handle.done
        assert handle.cancelled
        held.remove()


def test_handle_has_the_methods_of_the_asyncio_handle() -> None:
    assert signatures(blocking.RequestHandle, "") == {
        **signatures(kafka_async.RequestHandle, ""),
        "__init__": signatures(blocking.RequestHandle, "")["__init__"],
    }


# -- limits of time -------------------------------------------------------------------------------

ARGUMENTS: dict[str, object] = {
    "request": MetadataRequest(topics=None),
    "to": AnyBroker(),
    "partition": TP,
    "partitions": {TP: OffsetSpec.LATEST},
    "offsets": {TP: 1},
    "what": {TP: 1},
    "times": {TP: 0},
    "when": 0,
    "topic": "another",
    "names": [T],
    "new_topics": [NewTopic("another")],
    "counts": {T: 2},
    "resources": [TOPIC_CONFIG],
    "changes": {TOPIC_CONFIG: {"retention.ms": "1"}},
    "topics": [T],
    "group": "g",
    "group_id": "g",
    "group_ids": ["g"],
    "bindings": SECURITY["create_acls"][1],
    "filters": [AclFilter()],
    "transactional_ids": ["t"],
    "prepared": PreparedTransaction("t", 1, 0),
    "commit": True,
    "alterations": SECURITY["alter_user_scram_credentials"][1],
    "tokens": [SecretBytes(b"hmac")],
    "entries": QUOTAS,
    "entity": QUOTED,
    "on": True,
}
"""Arguments of the methods with a timeout, by their name."""
DAY = 24 * 3_600_000
ONLY_WAIT = {"stop", "poll", "poll_batches", "submit"}


def raise_at_timeout(client: Any, *without: str) -> None:
    """Call all methods of a client that have a timeout, which must end them."""
    called: list[str] = []
    for name, method in inspect.getmembers(client, inspect.ismethod):
        parameters = inspect.signature(method).parameters
        if "timeout" not in parameters or name in ONLY_WAIT or name in without:
            continue
        arguments = {key: value for key, value in ARGUMENTS.items() if key in parameters}
        with pytest.raises(KafkaError) as raised:
            method(**arguments, timeout=0.1)
        # A transactional call wraps it in a class of its category (KIP-1050).
        causes = raised.value, raised.value.__cause__
        assert any(isinstance(cause, TimeoutError) for cause in causes), (name, causes)
        called.append(name)
    assert called


@pytest.mark.timeout(120)
def test_every_call_ends_at_its_timeout(cluster: BlockingCluster) -> None:
    """Calls a broker that does not respond; all options would let a call wait for a day."""
    cluster.create_topic(T)
    limits: dict[str, Any] = {"default_api_timeout_ms": DAY, "close_timeout_ms": DAY}
    with ExitStack() as stack:

        def start(kind: Callable[..., Any], **options: Any) -> Any:
            return stack.enter_context(kind(cluster.bootstrap_servers, **limits, **options))

        def start_producer(**options: Any) -> Any:
            return start(blocking.Producer, max_block_ms=DAY, delivery_timeout_ms=DAY, **options)

        def begin(transactional_id: str) -> Any:
            producer = start_producer(transactional_id=transactional_id)
            producer.init_transactions()
            transaction = producer.begin()
            transaction.send(T, b"v")
            return transaction

        pending = start_producer()
        uninitialized = start_producer(transactional_id="t")
        transactions = {
            name: begin(name) for name in ("commit", "abort", "commit_offsets", "prepare")
        }
        consumer = start(blocking.Consumer, partitions=(), group_id="g")
        clients = [start(blocking.Client), consumer, start(blocking.Admin)]
        pending.send(T, b"v")
        cluster.faults.add(hang=True, count=None)
        stack.callback(cluster.faults.clear)
        pending.enqueue(T, b"v")
        transactions["prepare"].enqueue(T, b"v")
        consumer.assign([TP])
        raise_at_timeout(pending, "init_transactions")
        raise_at_timeout(uninitialized, "flush")
        for name, transaction in transactions.items():
            raise_at_timeout(transaction, *(transactions.keys() - {name}))
        for client in clients:
            raise_at_timeout(client, "rewind")  # it needs a subscription
        assert consumer.poll(timeout=0.1) == consumer.poll_batches(timeout=0.1) == []
        for client in clients:
            client.stop(0.1)
        with pytest.raises(DeliveryError):
            pending.stop(0.1)


def test_calls_without_timeout_are_limited_by_an_option(cluster: BlockingCluster) -> None:
    cluster.create_topic(T)
    records = [ProducerRecord(T, b"v" * 900)] * 9
    with suppress(DeliveryError), ExitStack() as stack:
        producer = stack.enter_context(
            blocking.Producer(
                cluster.bootstrap_servers,
                max_block_ms=500,
                delivery_timeout_ms=1_000,
                request_timeout_ms=900,
                buffer_memory=2_000,
            )
        )
        send_until_acknowledged(producer)
        cluster.faults.add(hang=True, count=None)
        stack.callback(cluster.faults.clear)
        calls: tuple[Callable[[], object], ...] = (
            lambda: producer.send(T, b"v"),
            lambda: [producer.enqueue(T, b"v" * 900) for _ in records],
            lambda: producer.send_many(T, [b"v" * 900] * 9),
            lambda: producer.send_records(records),
        )
        for call in calls:
            with pytest.raises(KafkaError) as raised:
                call()
            assert isinstance(raised.value, TimeoutError)


def send_until_acknowledged(producer: blocking.Producer) -> None:
    """Send a record, with retries since the producer's time-outs are short for a busy machine."""
    while True:
        with suppress(KafkaTimeoutError):
            producer.send(T, b"first")
            return


# -- iteration, threads and processes -------------------------------------------------------------


def test_iteration_commits_the_returned_records(cluster: BlockingCluster) -> None:
    cluster.create_topic(T)
    with blocking.Producer(cluster.bootstrap_servers) as producer:
        producer.send_many(T, [b"0", b"1", b"2"])
        producer.flush()

    def take(count: int) -> list[bytes | None]:
        with blocking.Consumer(
            cluster.bootstrap_servers,
            topics=[T],
            group_id="g",
            auto_offset_reset="earliest",
        ) as consumer:
            return [record.value for _, record in zip(range(count), consumer, strict=False)]

    # Leaving the block without an exception commits the last returned record too.
    assert take(2) == [b"0", b"1"]
    assert take(1) == [b"2"]


def values(cluster: BlockingCluster) -> list[bytes]:
    """Return the values in the topic, sorted."""
    with blocking.Consumer(
        cluster.bootstrap_servers, partitions=[TP], auto_offset_reset="earliest"
    ) as consumer:
        count = consumer.end_offsets(TP)[TP]
        return sorted(record.value or b"" for record in itertools.islice(consumer, count))


def test_one_event_loop_serves_all_threads(cluster: BlockingCluster) -> None:
    cluster.create_topic(T)
    sent = [str(number).encode() for number in range(8)]
    with blocking.Producer(cluster.bootstrap_servers) as producer:
        threads = [threading.Thread(target=producer.send, args=(T, value)) for value in sent]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert values(cluster) == sent


def test_forked_child_gets_a_new_event_loop(cluster: BlockingCluster) -> None:
    cluster.create_topic(T)
    with blocking.Producer(cluster.bootstrap_servers) as producer:
        producer.send(T, b"parent")
        child = os.fork()
        if child == 0:
            os._exit(run_child(cluster.bootstrap_servers, producer))
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        producer.send(T, b"parent again")
    assert values(cluster) == [b"child", b"parent", b"parent again"]


def run_child(bootstrap: str, inherited: blocking.Producer) -> int:
    """Return 0 if the parent's producer raises and a new one works."""
    try:
        inherited.send(T, b"never")
    except IllegalStateError:
        with blocking.Producer(bootstrap) as producer:
            producer.send(T, b"child")
        return 0
    return 1
