"""Every number that a public call takes is used with its meaning, or refused at once by name.

The arguments are read from the signatures, so that a new one is tested as soon as it exists: an
argument without a call in `CALLS` fails `test_every_numeric_argument_has_a_call`.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

import pytest
import pytest_asyncio

from kafka_async.admin import (
    Admin,
    NewTopic,
    OffsetSpec,
    QuotaEntity,
    UserScramCredentialUpsertion,
)
from kafka_async.app import WorkerPool
from kafka_async.client.client import Client
from kafka_async.client.metadata.request_router import AnyBroker
from kafka_async.client.request_handle import RequestHandle
from kafka_async.consumer.consumer import Consumer
from kafka_async.consumer.share.share_consumer import ShareConsumer
from kafka_async.embedded import EmbeddedCluster
from kafka_async.embedded.faults import Faults
from kafka_async.errors import (
    DeliveryError,
    EncodeError,
    InvalidConfigurationError,
    KafkaError,
    TaskDiedError,
)
from kafka_async.group.group_member import GroupMember
from kafka_async.producer.producer import Producer
from kafka_async.producer.transactions.transaction import Transaction
from kafka_async.protocol.messages.list_groups import ListGroupsRequest
from kafka_async.records.batch import RecordBatch
from kafka_async.secrets import SecretBytes
from kafka_async.serde import Integer
from kafka_async.types import OffsetAndMetadata, PreparedTransaction, ProducerRecord, TopicPartition
from tests.embedded_client import InMemory, now
from tests.test_numbers import NO_NUMBERS, VALUES

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]

T = "t"
TP = TopicPartition(T, 0)
RECORD = ProducerRecord(T, b"v")
LONGEST_CALL: Final = 30.0
"""Virtual seconds for which a call may wait with any number; then it is cancelled."""
MOST_TIME_BEFORE_REFUSAL: Final = 1.0
"""Virtual seconds to make what a call needs, such as a transaction."""


class World(NamedTuple):
    memory: InMemory
    client: Any
    admin: Any
    producer: Any
    transactional: Any
    consumer: Any
    share: Any


NAMES: Final = map(str, itertools.count())


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    with suppress(DeliveryError):  # of records with the number of a missing partition
        async with InMemory() as memory:
            await memory.cluster.create_topic(T, 1)
            servers = memory.cluster.bootstrap_servers
            async with (
                memory.client() as client,
                Admin(client) as admin,
                memory.producer() as producer,
                memory.producer(transactional_id="x") as transactional,
                memory.consumer(T, group_id="g", auto_offset_reset="earliest") as consumer,
                ShareConsumer(servers, topics=[T], group_id="s", dialer=memory.network) as share,
            ):
                await producer.send(T, b"v")
                assert await consumer.poll(timeout=30)
                await share.poll(timeout=5)
                yield World(memory, client, admin, producer, transactional, consumer, share)


Call = Callable[[Any, dict[str, Any]], Any]


def on(part: str, method: str, *args: Any, **given: Any) -> Call:
    """Return a call of a method with these arguments besides the number."""
    return lambda it, number: getattr(getattr(it, part), method)(*args, **{**given, **number})


def in_transaction(method: str, *args: Any) -> Call:
    async def call(it: World, number: dict[str, Any]) -> None:
        async with it.memory.producer(transactional_id=next(NAMES)) as producer:
            transaction = await producer.begin()
            await transaction.send(T, b"v")
            await getattr(transaction, method)(*args, **number)

    return call


def stop_of(make: Callable[[World], Any]) -> Call:
    async def call(it: World, number: dict[str, Any]) -> None:
        started = make(it)
        await started.start()
        try:
            await started.stop(**number)
        finally:
            await started.stop(0)

    return call


async def response(it: World, number: dict[str, Any]) -> None:
    await it.client.submit(ListGroupsRequest(), to=AnyBroker()).response(**number)


async def process(it: World, number: dict[str, Any]) -> None:
    async def handler(_: Any) -> None: ...

    processing = asyncio.ensure_future(it.consumer.process(handler, **{"concurrency": 1, **number}))
    await asyncio.wait({processing}, timeout=1)
    if not processing.done():
        processing.cancel()
        await asyncio.wait({processing})
        return
    processing.result()


async def streams(it: World, number: dict[str, Any]) -> None:
    async with it.consumer.partition_streams(**number):
        pass


async def stop_and_start_broker(it: World, number: dict[str, Any]) -> None:
    await it.memory.cluster.stop_broker(1)
    try:
        await it.memory.cluster.start_broker(1, **number)
    finally:
        if 1 not in it.memory.cluster.brokers.alive_ids():
            await it.memory.cluster.start_broker(1)


def embedded(it: World, number: dict[str, Any]) -> None:
    EmbeddedCluster(**number)


def add_fault(it: World, number: dict[str, Any]) -> None:
    it.memory.cluster.faults.add(api="AlterClientQuotas", **number).remove()


async def create_embedded_topic(it: World, number: dict[str, Any]) -> None:
    await it.memory.cluster.create_topic("embedded", **number)
    await it.memory.cluster.delete_topic("embedded")


async def create_topic(it: World, fields: dict[str, Any]) -> None:
    await it.admin.create_topics([NewTopic("new", **fields)], validate_only=True)


TIMED_ADMIN: Final[dict[str, tuple[Any, ...]]] = {
    "alter_client_quotas": ({},),
    "alter_configs": ({},),
    "alter_group_offsets": ("other", {TP: 0}),
    "alter_share_group_offsets": ("other", {TP: 0}),
    "alter_user_scram_credentials": ([],),
    "create_acls": ([],),
    "create_delegation_tokens": (),
    "create_partitions": ({},),
    "create_topics": ([],),
    "delete_acls": ([],),
    "delete_groups": ([],),
    "delete_share_group_offsets": ("other", [T]),
    "delete_topics": ([],),
    "describe_acls": (),
    "describe_client_quotas": (),
    "describe_cluster": (),
    "describe_configs": ([],),
    "describe_delegation_tokens": (),
    "describe_groups": (["g"],),
    "describe_share_groups": (["s"],),
    "describe_topics": ([T],),
    "describe_transactions": (["x"],),
    "describe_user_scram_credentials": (),
    "end_transaction": (PreparedTransaction("gone", 1, 1),),
    "expire_delegation_tokens": ([SecretBytes(b"h")],),
    "fence_producers": (["gone"],),
    "list_group_offsets": ("g",),
    "list_groups": (),
    "list_offsets": ({TP: OffsetSpec.LATEST},),
    "list_share_group_offsets": ("s",),
    "list_topics": (),
    "list_transactions": (),
    "renew_delegation_tokens": ([SecretBytes(b"h")],),
    "resolve_client_quotas": (QuotaEntity(user="u"),),
    "set_quota_enforcement": (False,),
}
CALLS: Final[dict[str, Call]] = {
    **{f"Admin.{name}": on("admin", name, *args) for name, args in TIMED_ADMIN.items()},
    "Admin.stop": stop_of(lambda it: it.memory.admin()),
    "Client.quota_usage": on("client", "quota_usage"),
    "Client.request": on("client", "request", ListGroupsRequest(), to=AnyBroker()),
    "Client.submit": on("client", "submit", ListGroupsRequest(), to=AnyBroker()),
    "Client.stop": stop_of(lambda it: it.memory.client()),
    "RequestHandle.response": response,
    "Consumer.beginning_offsets": on("consumer", "beginning_offsets", [TP]),
    "Consumer.commit": on("consumer", "commit"),
    "Consumer.committed": on("consumer", "committed", [TP]),
    "Consumer.end_offsets": on("consumer", "end_offsets", [TP]),
    "Consumer.offsets_for_times": on("consumer", "offsets_for_times", {TP: 1.0}),
    "Consumer.partition_streams": streams,
    "Consumer.partitions_for": on("consumer", "partitions_for", T),
    "Consumer.poll": on("consumer", "poll"),
    "Consumer.poll_batches": on("consumer", "poll_batches"),
    "Consumer.position": on("consumer", "position", TP),
    "Consumer.process": process,
    "Consumer.rewind": on("consumer", "rewind", {TP: 0}),
    "Consumer.seek": on("consumer", "seek", TP),
    "Consumer.seek_to_committed": on("consumer", "seek_to_committed"),
    "Consumer.seek_to_time": on("consumer", "seek_to_time", when=1.0),
    "Consumer.stop": stop_of(lambda it: it.memory.consumer(T)),
    "Consumer.topics": on("consumer", "topics"),
    "ShareConsumer.commit": on("share", "commit"),
    "ShareConsumer.poll": on("share", "poll"),
    "ShareConsumer.stop": stop_of(lambda it: ShareConsumer(it.client, topics=[T], group_id="s2")),
    "GroupMember.stop": stop_of(
        lambda it: GroupMember(
            it.client,
            group_id="m",
            protocol_type="p",
            protocols={"a": lambda members: {member.member_id: b"" for member in members}},
        )
    ),
    "WorkerPool.stop": stop_of(
        lambda it: WorkerPool(
            it.client, group_id="w", resources=[], worker=lambda _: asyncio.sleep(0)
        )
    ),
    "Producer.flush": on("producer", "flush"),
    "Producer.init_transactions": on("transactional", "init_transactions"),
    "Producer.send": on("producer", "send", T, b"v"),
    "Producer.send_many": on("producer", "send_many", T, [b"v"]),
    "Producer.stop": stop_of(lambda it: it.memory.producer()),
    "Transaction.abort": in_transaction("abort"),
    "Transaction.commit": in_transaction("commit"),
    "Transaction.commit_offsets": in_transaction("commit_offsets", {TP: 0}, "other"),
    "Transaction.prepare": in_transaction("prepare"),
    "Transaction.send": in_transaction("send", T, b"v"),
    "Transaction.send_many": in_transaction("send_many", T, [b"v"]),
    "EmbeddedCluster.__init__": embedded,
    "EmbeddedCluster.add_partitions": lambda it, number: it.memory.cluster.add_partitions(
        T, **number
    ),
    "EmbeddedCluster.create_topic": create_embedded_topic,
    "EmbeddedCluster.disconnect": lambda it, number: it.memory.cluster.disconnect(**number),
    "EmbeddedCluster.move_leader": lambda it, number: it.memory.cluster.move_leader(TP, **number),
    "EmbeddedCluster.start_broker": stop_and_start_broker,
    "EmbeddedCluster.stop_broker": lambda it, number: it.memory.cluster.stop_broker(**number),
    "Faults.add": add_fault,
    "Integer.__init__": lambda _, number: Integer(**number),
    "Integer.serialize": lambda _, number: Integer().serialize(**number),
    "NewTopic.__init__": create_topic,
    "RecordBatch.build": lambda _, number: RecordBatch.build([RECORD], "zstd", **number),
    "UserScramCredentialUpsertion.__init__": lambda it, number: (
        it.admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("u", "SCRAM-SHA-256", "p", **number)]
        )
    ),
}
"""By method: a call to which an argument with a number is added."""
IN_COLLECTIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "Admin.alter_client_quotas.entries": lambda n: {
        QuotaEntity(user="u"): {"producer_byte_rate": n}
    },
    "Admin.alter_group_offsets.offsets": lambda n: {TP: n},
    "Admin.alter_share_group_offsets.offsets": lambda n: {TP: n},
    "Admin.create_partitions.counts": lambda n: {T: n},
    "Admin.list_offsets.partitions": lambda n: {TP: n},
    "Consumer.offsets_for_times.times": lambda n: {TP: n},
    "Consumer.rewind.offsets": lambda n: {TP: n},
    "Transaction.commit_offsets.offsets": lambda n: {TP: OffsetAndMetadata(n)},
    "EmbeddedCluster.__init__.ports": lambda n: [n],
    "EmbeddedCluster.create_topic.assignments": lambda n: {0: [n]},
    "NewTopic.__init__.assignments": lambda n: {0: [n]},
}
"""By argument: the collection that has the number."""
OF_TIMEOUTS: Final = (
    *("zero", "negative", "denormal", "2**31", "no float", "infinity", "nan"),
    *("bool", "decimal", "int64", "timedelta", "text"),
)
"""Numbers for arguments that one function checks; the others are tested with all."""
PUBLIC: Final = (
    *(Admin, Client, RequestHandle, Consumer, ShareConsumer, GroupMember, WorkerPool, Producer),
    *(Transaction, EmbeddedCluster, Faults, Integer, NewTopic, UserScramCredentialUpsertion),
)
NUMERIC: Final = re.compile(r"\b(float|int|datetime|OffsetTarget)\b")


def numeric_arguments() -> Iterator[str]:
    for kind in PUBLIC:
        for name, function in inspect.getmembers(kind, callable):
            if (name.startswith("_") and name != "__init__") or isinstance(function, type):
                continue
            for parameter in inspect.signature(function).parameters.values():
                if NUMERIC.search(str(parameter.annotation)):
                    yield f"{kind.__name__}.{name}.{parameter.name}"
    yield from ("RecordBatch.build.level", "RecordBatch.build.timestamp")


ARGUMENTS: Final = [*numeric_arguments()]
ALSO_ACCEPTED: Final[dict[str, set[str]]] = {
    # The hot path takes what has an `__index__`; a check of the type costs too much per record.
    f"{kind}.{argument}": {"bool", "numpy bool"}
    for kind in ("Producer", "Transaction")
    for argument in ("send.timestamp", "send_many.partition")
}
"""Arguments that take some objects besides numbers."""


async def test_every_numeric_argument_has_a_call() -> None:
    assert {name.rpartition(".")[0] for name in ARGUMENTS} == CALLS.keys()
    assert IN_COLLECTIONS.keys() <= {*ARGUMENTS}


async def outcome(world: World, argument: str, label: str) -> str | None:
    """Return what is wrong with the outcome of a call with a number; None if nothing is."""
    method, _, name = argument.rpartition(".")
    value = VALUES[label]
    given = IN_COLLECTIONS.get(argument, lambda number: number)(value)
    started, refused = now(), False
    try:
        result = CALLS[method](world, {name: given})
        if inspect.isawaitable(result):
            await asyncio.wait_for(result, LONGEST_CALL)
    except (EncodeError, TaskDiedError) as error:
        return repr(error)
    except (KafkaError, TimeoutError) as error:
        refused = isinstance(error, ValueError | InvalidConfigurationError)
    except (TypeError, ValueError) as error:
        refused = True
        if now() - started > MOST_TIME_BEFORE_REFUSAL:
            return f"not at once: {error!r}"
    except Exception as error:  # noqa: BLE001  # whatever it is, it is reported
        return repr(error)
    if label in NO_NUMBERS - ALSO_ACCEPTED.get(argument, set()) and not refused:
        return "accepted"
    return None


@pytest.mark.parametrize("kind", dict.fromkeys(method.partition(".")[0] for method in CALLS))
async def test_numbers_are_used_or_refused_at_once(world: World, kind: str) -> None:
    wrong: list[str] = []
    for argument in ARGUMENTS:
        if argument.partition(".")[0] == kind:
            for label in OF_TIMEOUTS if argument.endswith(".timeout") else VALUES:
                found = await outcome(world, argument, label)
                if found is not None:
                    wrong.append(f"{argument}={label}: {found}")
    assert wrong == []
