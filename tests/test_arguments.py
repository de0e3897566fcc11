"""Bad arguments of public calls raise TypeError or ValueError that names the argument."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from kafka_async.admin import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclResourceType,
    Admin,
    NewTopic,
    UserScramCredentialUpsertion,
)
from kafka_async.admin.values import ConfigResource, ResourceType
from kafka_async.client.metadata.request_router import AnyBroker, Broker, Leader
from kafka_async.consumer.consumer import Consumer
from kafka_async.consumer.share.share_consumer import ShareConsumer
from kafka_async.embedded import EmbeddedCluster
from kafka_async.errors import InvalidConfigurationError
from kafka_async.hooks import Fetched, Hooks
from kafka_async.kernel import Record
from kafka_async.producer.producer import Producer
from kafka_async.protocol.messages.metadata import MetadataRequest
from kafka_async.records.batch import RecordBatch
from kafka_async.types import OffsetAndMetadata, ProducerRecord, TopicPartition
from tests.embedded_client import InMemory

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

T = "orders"
BAD: Any = b"2"
OTHER: Any = 99
TP = TopicPartition(T, 0)
RETURNED = Record(T, 0, 7, 0, 0, b"k", b"v")
BEFORE_1970 = datetime(1969, 12, 31, tzinfo=UTC)


class Clients(NamedTuple):
    """Holds started clients of an in-memory cluster, whose topic has one fetched record."""

    producer: Any
    transaction: Any
    consumer: Any
    admin: Any
    client: Any


@pytest_asyncio.fixture
async def clients() -> AsyncIterator[Clients]:
    async with InMemory() as memory:
        await memory.cluster.create_topic(T, 1)
        async with (
            memory.producer() as producer,
            memory.producer(transactional_id="t") as transactional,
            memory.consumer(T, group_id="g", auto_offset_reset="earliest") as consumer,
            memory.client() as client,
            Admin(client) as admin,
        ):
            await producer.send(T, b"value")
            assert await consumer.poll(timeout=30)
            async with transactional.transaction() as transaction:
                yield Clients(producer, transaction, consumer, admin, client)


Call = Callable[[Clients], Awaitable[object] | object]
Row = tuple[Call, type[Exception], str]

RECORD: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    ((5, b"v"), {}, TypeError, "topic's name must be str"),
    (([T], b"v"), {}, TypeError, "topic's name must be str"),
    ((b"t", b"v"), {}, TypeError, "topic's name must be str"),
    (("", b"v"), {}, ValueError, "topic's name must not be empty"),
    ((T, "v"), {}, TypeError, "value must be bytes or None"),
    ((T, b"v", "k"), {}, TypeError, "key must be bytes"),
    ((T, b"v"), {"partition": "1"}, TypeError, "partition must be int, not str: '1'"),
    ((T, b"v"), {"partition": 1.0}, TypeError, "partition must be int, not float"),
    ((T, b"v"), {"partition": -1}, ValueError, "partition must be 0 to 2147483647, not -1"),
    ((T, b"v"), {"partition": 1 << 40}, ValueError, "partition must be 0 to"),
    ((T, b"v"), {"timestamp": 1.5}, TypeError, r"as int\(time.time\(\) \* 1000\), not float: 1.5"),
    ((T, b"v"), {"timestamp": BEFORE_1970}, TypeError, "whole milliseconds"),
    ((T, b"v"), {"timestamp": -5}, ValueError, "timestamp is -1 to"),
    ((T, b"v"), {"headers": {"a": b"b"}}, TypeError, "headers must be a list .*, not dict"),
    ((T, b"v"), {"headers": [("a", "b")]}, TypeError, "each header must be a .* pair, not"),
    ((T, b"v"), {"headers": [b"ab"]}, TypeError, "each header must be a .* pair, not"),
    ((T, b"v"), {"headers": 5}, TypeError, "headers must be a list .*, not int"),
]


def record_calls(name: str) -> list[Row]:
    def call(args: tuple[Any, ...], options: dict[str, Any]) -> Call:
        return lambda clients: getattr(clients.producer, name)(*args, **options)

    return [(call(args, options), kind, words) for args, options, kind, words in RECORD]


EMPTY_TOPIC = RecordBatch.build([ProducerRecord("", b"v")])
PRODUCER: list[Row] = [
    (lambda c: c.producer.send_many(T, b"abc"), TypeError, "values must be a list .* not bytes"),
    (lambda c: c.producer.send_many("", [b"v"]), ValueError, "topic's name must not be empty"),
    (lambda c: c.producer.send_many(T, iter([b"a"])), TypeError, "values must be a list"),
    (lambda c: c.producer.send_many(T, deque([b"a"])), TypeError, "values must be a list"),
    (lambda c: c.producer.send_many(T, [b"a"], b"k"), TypeError, "keys must be a list"),
    (lambda c: c.producer.send_many(T, [b"a", b"b"], [b"k"]), ValueError, "1 keys for 2 values"),
    (lambda c: c.producer.send_many(T, [b"a", b"b", 3]), TypeError, r"values\[2\]: value must be"),
    (lambda c: c.producer.send_many(T, [b"a"], ["k"]), TypeError, r"values\[0\]: key must be"),
    (lambda c: c.producer.send_many(T, [b"a"], partition="0"), TypeError, "partition must be int"),
    (lambda c: c.producer.send_records(5), TypeError, "records must be a list or another iterable"),
    (
        lambda c: c.producer.send_records([ProducerRecord(T, b"v"), (T, b"v")]),
        TypeError,
        r"records\[1\]: it must be ProducerRecord, not tuple",
    ),
    (lambda c: c.producer.send_records([ProducerRecord("", b"v")]), ValueError, "not be empty"),
    (lambda c: c.producer.send_batch(("", 0), EMPTY_TOPIC), ValueError, "not be empty"),
    (
        lambda c: c.producer.send_records([ProducerRecord(T, b"v", partition=BAD)]),
        TypeError,
        r"records\[0\]: partition must be int",
    ),
    (lambda c: c.producer.send_batch(T, b"batch"), TypeError, "partition must be a TopicPartition"),
    (lambda c: c.producer.send_batch(TP, b"batch"), TypeError, "batch must be RecordBatch"),
    (lambda c: c.producer.flush("1"), TypeError, "timeout is seconds as int or float, not str"),
    (lambda c: c.producer.flush(-1), ValueError, "timeout is 0 seconds or more"),
    (lambda c: c.producer.flush(float("nan")), ValueError, "timeout is 0 seconds or more"),
    (lambda c: c.producer.stop("1"), TypeError, "timeout is seconds"),
]

TRANSACTION: list[Row] = [
    (lambda c: c.transaction.commit_offsets({TP: 1}), TypeError, "need group="),
    (lambda c: c.transaction.commit_offsets({TP: 1}, 5), TypeError, "group must be str"),
    (lambda c: c.transaction.commit_offsets([TP], "g"), TypeError, "offsets must be a dict"),
    (lambda c: c.transaction.commit_offsets({T: 1}, "g"), TypeError, "must be a TopicPartition"),
    (
        lambda c: c.transaction.commit_offsets({TP: -1}, "g"),
        ValueError,
        r"offsets\[orders-0\] must",
    ),
    (lambda c: c.transaction.commit_offsets({TP: "1"}, "g"), TypeError, "int or OffsetAndMetadata"),
    (lambda c: c.transaction.commit(timeout="1"), TypeError, "timeout is seconds"),
    (lambda c: c.transaction.abort(timeout=-1), ValueError, "timeout is 0 seconds or more"),
]

CONSUMER: list[Row] = [
    (lambda c: c.consumer.poll(timeout="1"), TypeError, "timeout is seconds"),
    (lambda c: c.consumer.poll(timeout=True), TypeError, "timeout is seconds"),
    (lambda c: c.consumer.poll(timeout=-1), ValueError, "or None for no limit, not -1"),
    (lambda c: c.consumer.poll(max_records=0), ValueError, "max_records must be 1 to"),
    (lambda c: c.consumer.poll(max_records="5"), TypeError, "max_records must be int"),
    (lambda c: c.consumer.poll(max_records=1.5), TypeError, "max_records must be int"),
    (lambda c: c.consumer.poll_batches(timeout="1"), TypeError, "timeout is seconds"),
    (lambda c: c.consumer.subscribe(T), TypeError, r"topics must be a list of names: .*'orders'\]"),
    (lambda c: c.consumer.subscribe(), TypeError, "topics or pattern="),
    (lambda c: c.consumer.subscribe([T], pattern="x"), TypeError, "topics or pattern="),
    (lambda c: c.consumer.subscribe([5]), TypeError, "each of topics must be str"),
    (lambda c: c.consumer.subscribe([""]), ValueError, "each of topics must not be empty"),
    (lambda c: c.consumer.subscribe(5), TypeError, "topics must be a list"),
    (lambda c: c.consumer.subscribe(re.compile("x")), TypeError, r"subscribe\(pattern=...\)"),
    (lambda c: c.consumer.subscribe(pattern="("), ValueError, "is no regular expression"),
    (lambda c: c.consumer.subscribe(pattern=b"x"), TypeError, "pattern must be str"),
    (lambda c: c.consumer.subscribe(pattern=re.compile(b"x")), TypeError, "pattern must be str"),
    (lambda c: c.consumer.subscribe([T], listener=5), TypeError, "listener has no method"),
    (lambda c: c.consumer.assign(T), TypeError, "partitions are TopicPartitions, not 'orders'"),
    (lambda c: c.consumer.assign([T]), TypeError, "each of partitions must be a TopicPartition"),
    (lambda c: c.consumer.assign([(T, "0")]), TypeError, "partition of orders must be int"),
    (lambda c: c.consumer.assign([(5, 0)]), TypeError, "topic's name must be str"),
    (lambda c: c.consumer.assign([TopicPartition(T, -1)]), ValueError, "partition of orders must"),
    (lambda c: c.consumer.assign([TopicPartition("", 0)]), ValueError, "must not be empty"),
    (lambda c: c.consumer.assign(5), TypeError, "partitions must be a list"),
    (lambda c: c.consumer.pause(T), TypeError, "partitions are TopicPartitions"),
    (lambda c: c.consumer.resume([T]), TypeError, "must be a TopicPartition"),
    (lambda c: c.consumer.seek(TP, -1), ValueError, "offset must be 0 to"),
    (lambda c: c.consumer.seek(TP, "5"), TypeError, "offset must be int or OffsetAndMetadata"),
    (lambda c: c.consumer.seek(TP, 1.0), TypeError, "offset must be int or OffsetAndMetadata"),
    (lambda c: c.consumer.seek(TP, OffsetAndMetadata(-3)), ValueError, "offset of offset must"),
    (lambda c: c.consumer.seek(T, 0), TypeError, "partition must be a TopicPartition"),
    (lambda c: c.consumer.seek_to_beginning(T), TypeError, "partitions are TopicPartitions"),
    (lambda c: c.consumer.seek_to_end([(T,)]), TypeError, "must be a TopicPartition"),
    (lambda c: c.consumer.seek_to_time("now"), TypeError, "when is seconds since the epoch"),
    (lambda c: c.consumer.seek_to_time(1.7e12), ValueError, "looks like milliseconds"),
    (lambda c: c.consumer.seek_to_time(-0.001), ValueError, "0 or more"),
    (lambda c: c.consumer.seek_to_time(BEFORE_1970), ValueError, "time since 1970"),
    (lambda c: c.consumer.seek_to_time({T: 1.0}), TypeError, "each key of when must be"),
    (lambda c: c.consumer.offsets_for_times([TP]), TypeError, "times must be a dict"),
    (lambda c: c.consumer.offsets_for_times({TP: 1.7e12}), ValueError, r"times\[orders-0\] is sec"),
    (lambda c: c.consumer.position(T), TypeError, "partition must be a TopicPartition"),
    (lambda c: c.consumer.position(TP, timeout="1"), TypeError, "timeout is seconds"),
    (lambda c: c.consumer.beginning_offsets(TopicPartition("", 0)), ValueError, "not be empty"),
    (lambda c: c.consumer.beginning_offsets(T), TypeError, "partitions are TopicPartitions"),
    (lambda c: c.consumer.end_offsets([T]), TypeError, "must be a TopicPartition"),
    (lambda c: c.consumer.commit({TP: -1}), ValueError, r"what\[orders-0\] must be"),
    (lambda c: c.consumer.commit({TP: None}), TypeError, "int or OffsetAndMetadata"),
    (lambda c: c.consumer.commit({TP: OffsetAndMetadata(1, None, BAD)}), TypeError, "metadata of"),
    (lambda c: c.consumer.commit({TP: OffsetAndMetadata(1, BAD)}), TypeError, "leader epoch of"),
    (lambda c: c.consumer.commit([TP]), TypeError, "what must be a topic, a partition, or a dict"),
    (lambda c: c.consumer.commit(RETURNED), TypeError, r"not Record: .*record\.offset \+ 1"),
    (lambda c: c.consumer.commit(5), TypeError, "what must be a topic, a partition, or a dict"),
    (lambda c: c.consumer.commit((T, "0")), TypeError, "the partition of orders must be int"),
    (lambda c: c.consumer.commit(timeout="1"), TypeError, "timeout is seconds"),
    (lambda c: c.consumer.committed(T), TypeError, "partitions are TopicPartitions"),
    (lambda c: c.consumer.seek_to_committed(T), TypeError, "partitions are TopicPartitions"),
    (lambda c: c.consumer.partitions_for(5), TypeError, "topic must be str"),
    (lambda c: c.consumer.on_assigned(5), TypeError, "callback must be callable, not int: 5"),
    (lambda c: c.consumer.on_revoked(5), TypeError, "callback must be callable"),
    (lambda c: c.consumer.on_lost(5), TypeError, "callback must be callable"),
    (lambda c: c.consumer.stop("1"), TypeError, "timeout is seconds"),
]

ADMIN: list[Row] = [
    (lambda c: c.admin.create_topics("t"), TypeError, "each of new_topics must be NewTopic"),
    (lambda c: c.admin.create_topics(NewTopic("t")), TypeError, "new_topics must be a list"),
    (lambda c: c.admin.create_topics(["t"]), TypeError, "each of new_topics must be NewTopic"),
    (lambda c: c.admin.create_topics([NewTopic("")]), ValueError, "name of a NewTopic"),
    (lambda c: c.admin.create_topics([_new(partitions="3")]), TypeError, "partitions of t must"),
    (lambda c: c.admin.create_topics([_new(replication_factor=1 << 15)]), ValueError, "of t must"),
    (lambda c: c.admin.create_topics([_new(configs={"a": 1})]), TypeError, r"configs\['a'\] of t"),
    (lambda c: c.admin.create_topics([_new(configs=["a"])]), TypeError, "configs of t must be a d"),
    (lambda c: c.admin.create_topics([_new(assignments={0: 1})]), TypeError, r"assignments\[0\]"),
    (lambda c: c.admin.create_topics([_new(assignments={0: ["1"]})]), TypeError, "broker of t-0"),
    (lambda c: c.admin.delete_topics(T), TypeError, r"names must be a list of names: .*'orders'\]"),
    (lambda c: c.admin.delete_topics([5]), TypeError, "each of names must be str"),
    (lambda c: c.admin.describe_topics(T), TypeError, "names must be a list of names"),
    (lambda c: c.admin.create_partitions([T]), TypeError, "counts must be a dict"),
    (lambda c: c.admin.create_partitions({T: "3"}), TypeError, r"counts\['orders'\] must be int"),
    (lambda c: c.admin.create_partitions({T: 0}), ValueError, r"counts\['orders'\] must be 1 to"),
    (
        lambda c: c.admin.describe_configs([T]),
        TypeError,
        "each of resources must be ConfigResource",
    ),
    (
        lambda c: c.admin.describe_configs([ConfigResource(ResourceType.BROKER, "b-1")]),
        ValueError,
        "named by its id",
    ),
    (lambda c: c.admin.describe_configs([ConfigResource(OTHER, T)]), ValueError, "ResourceType"),
    (lambda c: c.admin.list_groups(states="Stable"), TypeError, "states must be a list of names"),
    (lambda c: c.admin.describe_groups("g"), TypeError, "group_ids must be a list of names"),
    (lambda c: c.admin.delete_groups("g"), TypeError, "group_ids must be a list of names"),
    (lambda c: c.admin.list_offsets([TP]), TypeError, "partitions must be a dict"),
    (lambda c: c.admin.list_offsets({T: -1}), TypeError, "each key of partitions must be"),
    (
        lambda c: c.admin.list_offsets({TP: T}),
        TypeError,
        r"partitions\[orders-0\] is seconds since",
    ),
    (lambda c: c.admin.list_offsets({TP: -1}), ValueError, "write OffsetSpec.LATEST"),
    (
        lambda c: c.admin.list_offsets({TP: -9}),
        ValueError,
        r"partitions\[orders-0\] is seconds .*-9",
    ),
    (
        lambda c: c.admin.list_offsets({TP: 1_700_000_000_000}),
        ValueError,
        "1700000000000 looks like milliseconds: divide it by 1000",
    ),
    (lambda c: c.admin.list_group_offsets(5), TypeError, "group_id must be str"),
    (lambda c: c.admin.list_group_offsets("g", T), TypeError, "partitions are TopicPartitions"),
    (lambda c: c.admin.create_acls(ACL), TypeError, "each of bindings must be AclBinding"),
    (lambda c: c.admin.create_acls([T]), TypeError, "each of bindings must be AclBinding"),
    (lambda c: c.admin.create_acls([_acl(operation=3)]), TypeError, "operation of an AclBinding"),
    (
        lambda c: c.admin.create_acls([_acl(operation=AclOperation.ANY)]),
        ValueError,
        "an AclBinding cannot have the operation ANY",
    ),
    (
        lambda c: c.admin.create_acls([_acl(pattern_type=AclPatternType.MATCH)]),
        ValueError,
        "an AclBinding cannot have the pattern_type MATCH",
    ),
    (lambda c: c.admin.create_acls([_acl(principal="alice")]), ValueError, 'such as "User:alice"'),
    (lambda c: c.admin.create_acls([_acl(resource_name="")]), ValueError, "resource_name of an"),
    (lambda c: c.admin.create_acls([_acl(host=None)]), TypeError, "host of an AclBinding must be"),
    (lambda c: c.admin.describe_acls(T), TypeError, "acl_filter must be AclFilter"),
    (
        lambda c: c.admin.delete_acls([AclFilter(AclResourceType.UNKNOWN)]),
        ValueError,
        "an AclFilter cannot have the resource_type UNKNOWN",
    ),
    (lambda c: c.admin.delete_acls([AclFilter(host="")]), ValueError, "host of an AclFilter must"),
    (lambda c: c.admin.delete_acls(AclFilter()), TypeError, "each of filters must be AclFilter"),
    (lambda c: c.admin.describe_user_scram_credentials(T), TypeError, "users must be a list of"),
    (lambda c: c.admin.alter_user_scram_credentials([T]), TypeError, "each of alterations must be"),
    (lambda c: _upsert(c, ""), ValueError, "the user of a UserScramCredentialUpsertion must not"),
    (lambda c: _upsert(c, mechanism="UNKNOWN"), ValueError, "mechanism of user alice must be"),
    (lambda c: _upsert(c, mechanism="SCRAM-SHA-1"), ValueError, "SCRAM-SHA-1"),
    (lambda c: _upsert(c, password=5), TypeError, "password must be str or Secret, not int"),
    (lambda c: _upsert(c, password=""), ValueError, "password of user alice must not be empty"),
    (lambda c: _upsert(c, iterations=4095), ValueError, "of user alice must be 4096 to 1000000"),
    (lambda c: _upsert(c, salt="salt"), TypeError, "salt must be bytes, not str"),
    (lambda c: c.admin.create_delegation_tokens(T), TypeError, "owners must be a list of names"),
    (lambda c: c.admin.create_delegation_tokens([T]), ValueError, "each of owners must be a princ"),
    (
        lambda c: c.admin.create_delegation_tokens(renewers=[":bob"]),
        ValueError,
        "each of renewers must be a principal",
    ),
    (
        lambda c: c.admin.create_delegation_tokens(max_lifetime_ms=-1),
        ValueError,
        "max_lifetime_ms must be 0 to",
    ),
    (lambda c: c.admin.renew_delegation_tokens([T]), TypeError, "each of tokens must be Delegat"),
    (lambda c: c.admin.expire_delegation_tokens([b"h"]), TypeError, "each of tokens must be"),
    (lambda c: c.admin.describe_delegation_tokens([T]), ValueError, "each of owners must be a pr"),
    (lambda c: c.admin.list_topics(timeout="1"), TypeError, "timeout is seconds"),
    (lambda c: c.admin.list_topics(timeout=-1), ValueError, "timeout is 0 seconds or more"),
]


METADATA = MetadataRequest(topics=[])
CLIENT: list[Row] = [
    (lambda c: c.client.request(5, to=AnyBroker()), TypeError, "request must be Request, not int"),
    (lambda c: c.client.request(METADATA, to="x"), TypeError, r"as AnyBroker\(\) or .*not 'x'"),
    (lambda c: c.client.request(METADATA, to=Broker(1), timeout="1"), TypeError, "timeout is sec"),
    (lambda c: c.client.submit(5, to=AnyBroker()), TypeError, "request must be Request, not int"),
    (lambda c: c.client.submit(METADATA, to="x"), TypeError, r"as AnyBroker\(\) or .*not 'x'"),
    (lambda c: c.client.hooks.listen(5, print), TypeError, "event must be a class of"),
    (
        lambda c: c.client.hooks.listen(Fetched, 5),
        TypeError,
        "listener must be callable, not int: 5",
    ),
    (lambda c: c.client.stop("1"), TypeError, "timeout is seconds"),
    (lambda c: c.admin.stop("1"), TypeError, "timeout is seconds"),
    (lambda c: RecordBatch.build(BAD), TypeError, "records must be a list"),
    (lambda c: RecordBatch.build([BAD]), TypeError, "each of records must be a ProducerRecord"),
    (
        lambda c: c.client.request(METADATA, to=AnyBroker(), max_version="x"),
        TypeError,
        "max_version must be int, not str",
    ),
    (
        lambda c: c.client.submit(METADATA, to=Leader(BAD)),
        TypeError,
        "the partition of Leader must be TopicPartition, not bytes",
    ),
    (lambda c: EmbeddedCluster(BAD), TypeError, "brokers must be int"),
    (lambda c: _cluster(racks=["a"]), InvalidConfigurationError, r"racks must be a dict of str by"),
    (lambda c: _cluster(racks={1: 2}), InvalidConfigurationError, "dict of str by broker id"),
    (lambda c: _cluster(ports=5), TypeError, "ports must be a list or another iterable, not int"),
    (lambda c: _cluster(ports=["x"]), TypeError, "each of ports must be int, not str: 'x'"),
    (lambda c: _cluster(ports=[0, 0]), InvalidConfigurationError, "each of 1 brokers, not"),
    (lambda c: _cluster().move_leader(BAD, 1), TypeError, "tp must be a TopicPartition"),
    (lambda c: _cluster(advertised_hosts="a"), InvalidConfigurationError, "hosts must be a dict"),
    (
        lambda c: c.producer.enqueue_nowait(T, b"v").add_done_callback(5),
        TypeError,
        "callback must be callable, not 5",
    ),
    (
        lambda c: c.producer.enqueue_nowait(T, b"v").add_done_callback(c.producer.flush),
        TypeError,
        "callback is async, and is called without waiting",
    ),
]


def _cluster(**options: Any) -> EmbeddedCluster:
    return EmbeddedCluster(**options)


def _new(**fields: Any) -> NewTopic:
    return NewTopic("t", **fields)


ACL = AclBinding(AclResourceType.TOPIC, T, "User:alice", AclOperation.READ)


def _acl(**fields: Any) -> AclBinding:
    return ACL._replace(**fields)


def _upsert(clients: Clients, user: str = "alice", **fields: Any) -> Awaitable[object]:
    given: dict[str, Any] = {"mechanism": "SCRAM-SHA-256", "password": "secret", **fields}
    return clients.admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, **given)])


async def mismatch(clients: Clients, row: Row) -> str | None:
    """Return the difference between the error and the one that a row of a table expects."""
    call, kind, words = row
    try:
        result = call(clients)
        if inspect.isawaitable(result):
            await result
    except Exception as error:  # noqa: BLE001  # whatever it is, it is compared
        if type(error) is kind and re.search(words, str(error)):
            return None
        return f"{kind.__name__} {words!r}: raised {error!r}"
    return f"{kind.__name__} {words!r}: raised nothing"


@pytest.mark.parametrize(
    "table",
    [
        *(record_calls(name) for name in ("enqueue", "enqueue_nowait", "send")),
        *(PRODUCER, TRANSACTION, CONSUMER, ADMIN, CLIENT),
    ],
    ids=[
        *("enqueue", "enqueue_nowait", "send"),
        *("producer", "transaction", "consumer", "admin", "client"),
    ],
)
async def test_bad_argument_raises_with_its_name(clients: Clients, table: list[Row]) -> None:
    found = [await mismatch(clients, row) for row in table]
    assert [text for text in found if text is not None] == []
    # The clients are still usable.
    await clients.producer.send(T, b"more")
    assert await clients.consumer.poll(timeout=30)


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"topics": T}, TypeError, r"topics must be a list of names: write \['orders'\]"),
        ({"topics": [5]}, TypeError, "each of topics must be str"),
        ({"partitions": [T]}, TypeError, "each of partitions must be a TopicPartition"),
        ({"listener": 5}, TypeError, "listener has no method on_assigned"),
        (
            {"hooks": []},
            TypeError,
            r"hooks must be Hooks, not list: create kafka_async.hooks.Hooks()",
        ),
        ({"hooks": Hooks}, TypeError, "hooks must be Hooks, not type: create"),
    ],
)
async def test_bad_argument_of_a_consumer_raises_at_construction(
    options: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        Consumer("localhost:9092", **options)


async def _async(*_: Any) -> Any: ...


class _Async:
    async def __call__(self, *_: Any) -> Any: ...


class _AsyncDescriptor(_Async):
    """Such as an object of a decorator, which binds methods."""

    def __get__(self, instance: object, owner: type[Any] | None = None) -> Any:
        return self


async def _yields(*_: Any) -> AsyncIterator[Any]:
    yield


ASYNC: list[Any] = [
    *(_async, functools.partial(_async, 1), _yields),
    *(_Async(), _Async().__call__, _AsyncDescriptor()),
]
"""Their result would never be awaited."""


@pytest.mark.parametrize("callback", ASYNC)
async def test_async_function_that_would_not_be_awaited_raises(callback: Any) -> None:
    cure = "async, and is called without waiting: define it with `def`"
    with pytest.raises(InvalidConfigurationError, match=f"^partitioner is {cure}"):
        Producer("localhost:9092", partitioner=callback)
    with pytest.raises(TypeError, match=f"^listener is {cure}"):
        Hooks().listen(Fetched, callback)
    with pytest.raises(TypeError, match=f"^callback is {cure}"):
        ShareConsumer("localhost:9092", topics=[T], group_id="g").on_acknowledged(callback)


async def test_control_of_an_unknown_broker_raises_with_the_ids_of_all() -> None:
    async with InMemory(2) as memory:
        cluster = memory.cluster
        await cluster.create_topic(T, 1)
        calls: list[Callable[[Any], Awaitable[object]]] = [
            cluster.stop_broker,
            cluster.start_broker,
            lambda broker: cluster.move_leader(TP, broker),
        ]
        for call in calls:
            with pytest.raises(ValueError, match=r"id of a broker \(1, 2\), not 9"):
                await call(9)


async def test_subscribe_with_a_bad_listener_changes_nothing(clients: Clients) -> None:
    with pytest.raises(TypeError, match="listener has no method"):
        clients.consumer.subscribe(["other"], listener=5)
    assert clients.consumer.subscription() == {T}


async def test_error_of_send_many_has_the_index_of_a_too_large_value(clients: Clients) -> None:
    with pytest.raises(Exception, match=r"values\[1\]: ") as raised:
        await clients.producer.send_many(T, [b"a", bytes(2 << 20)])
    assert type(raised.value).__name__ == "RecordTooLargeError"


async def test_warns_once_of_timestamps_in_seconds(
    clients: Clients, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "kafka_async.producer"):
        for _ in range(2):
            await clients.producer.send("new-topic", b"v", timestamp=1_700_000_000)
            await asyncio.sleep(1)
    assert [row.getMessage() for row in caplog.records] == [
        "timestamp=1700000000 is in early 1970, and retention by time deletes such records soon: "
        "a timestamp is in milliseconds, as int(time.time() * 1000)"
    ]
