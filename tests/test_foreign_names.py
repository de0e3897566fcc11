"""Names and arguments of aiokafka and confluent-kafka raise with the call to use instead."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

import aiokafka
import confluent_kafka
import pytest

from kafka_async import blocking
from kafka_async.admin import Admin
from kafka_async.cluster.client import Client
from kafka_async.consumer.consumer import Consumer
from kafka_async.errors import InvalidConfigurationError
from kafka_async.foreign_names import ADMIN, CONSUMER, PRODUCER
from kafka_async.producer.producer import Producer
from kafka_async.producer.transactions.transaction import Transaction

SERVERS = "localhost:9092"
TABLES: list[tuple[type, Mapping[str, str]]] = [
    (Producer, PRODUCER),
    (Consumer, CONSUMER),
    (Admin, ADMIN),
]
CALLS = [(client, name) for client, table in TABLES for name in table]


@pytest.mark.parametrize(("client", "name"), CALLS, ids=[f"{c.__name__}.{n}" for c, n in CALLS])
def test_name_of_another_client_raises_with_the_call_to_use(client: Any, name: str) -> None:
    instance = client(SERVERS)
    with pytest.raises(AttributeError, match=f"{client.__name__} has no {name}: .") as raised:
        getattr(instance, name)
    assert raised.value.name == name
    assert not hasattr(instance, name)
    assert getattr(instance, name, 5) == 5


@pytest.mark.parametrize(("client", "table"), TABLES)
def test_hints_name_existing_calls(client: type, table: Mapping[str, str]) -> None:
    known = {"consumer": Consumer, "producer": Producer, "admin": Admin, "transaction": Transaction}
    for hint in table.values():
        for owner, call in re.findall(r"\b(consumer|producer|admin|transaction)\.(\w+)\(", hint):
            assert callable(getattr(known[owner], call)), hint


@pytest.mark.parametrize(("client", "table"), TABLES)
def test_attribute_look_up_stays_fast(client: type, table: Mapping[str, str]) -> None:
    """Checks that there is no `__getattr__`, which would slow down every attribute."""
    assert not hasattr(client, "__getattr__")
    assert client.__getattribute__ is object.__getattribute__


PUBLIC: list[tuple[type, type, set[str]]] = [
    # The excluded calls have no equivalent.
    (aiokafka.AIOKafkaProducer, Producer, {"partitions_for"}),
    (aiokafka.AIOKafkaConsumer, Consumer, set()),
    (confluent_kafka.Producer, Producer, {"set_sasl_credentials"}),
    (confluent_kafka.Consumer, Consumer, {"set_sasl_credentials"}),
]


@pytest.mark.parametrize(("theirs", "ours", "excluded"), PUBLIC)
def test_every_call_of_other_clients_is_known(theirs: type, ours: type, excluded: set[str]) -> None:
    names = {name for name in dir(theirs) if not name.startswith("_")} - excluded
    known = {name for client, table in TABLES if client is ours for name in table}
    assert names - known - set(dir(ours)) == set()


FORMS: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    (("orders",), {"bootstrap_servers": SERVERS}, "takes bootstrap servers first, and"),
    ((SERVERS, "orders"), {}, "takes bootstrap servers first, and"),
]


@pytest.mark.parametrize("client", [Client, Producer, Consumer, Admin])
@pytest.mark.parametrize(("args", "options", "words"), FORMS)
def test_construction_in_another_clients_form_raises_with_the_right_one(
    client: Any, args: tuple[Any, ...], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(TypeError, match=f"^{client.__name__} {words}"):
        client(*args, **options)


def test_error_for_positional_topics_shows_the_keyword() -> None:
    consumer: Any = Consumer
    with pytest.raises(TypeError, match=r'Consumer\("localhost:9092", topics=\["orders"\], ...\)'):
        consumer("orders", "payments", bootstrap_servers=SERVERS)


DICT_REFUSED = r"takes options by name.*\(\*\*options\).*config=.*\.from_properties"


@pytest.mark.parametrize(
    "client",
    [
        *(Client, Producer, Consumer, Admin),
        *(blocking.Client, blocking.Producer, blocking.Consumer, blocking.Admin),
    ],
)
def test_clients_refuse_a_dict(client: Any) -> None:
    with pytest.raises(InvalidConfigurationError, match=DICT_REFUSED) as caught:
        client({"bootstrap.servers": SERVERS, "sasl.password": "planted"})
    assert "planted" not in str(caught.value)


def public_calls() -> list[tuple[type, str]]:
    """Return the calls with arguments and the coroutine functions of clients and transactions."""
    found: list[tuple[type, str]] = []
    for owner in (Producer, Transaction, Consumer, Admin):
        for name, member in inspect.getmembers(owner, inspect.isfunction):
            takes = len(inspect.signature(member).parameters) > 1
            if not name.startswith("_") and (takes or inspect.iscoroutinefunction(member)):
                found.append((owner, name))
    return found


PER_RECORD = {"enqueue", "enqueue_nowait"}
"""Calls of the kernel, which raise Python's own error."""
CALLS_WITH_ARGUMENTS = [
    pytest.param(owner, name, id=f"{owner.__name__}.{name}")
    for owner, name in public_calls()
    if name not in PER_RECORD
]


def raised_by(owner: type, name: str, **unknown: Any) -> str:
    """Return the message of a call with arguments that it does not have."""
    method = getattr(owner, name)
    made: Any = owner
    parameters = list(inspect.signature(method).parameters.values())[1:]
    required = [row for row in parameters if row.default is row.empty]
    given = [row for row in required if row.kind is row.POSITIONAL_OR_KEYWORD]
    named: dict[str, Any] = {row.name: row for row in required if row.kind is row.KEYWORD_ONLY}

    def call() -> None:
        result: Any = method(made.__new__(made), *given, **named, **unknown)
        result.send(None)

    with pytest.raises(TypeError) as raised:
        call()
    return str(raised.value)


@pytest.mark.parametrize(("owner", "name"), CALLS_WITH_ARGUMENTS)
def test_unknown_argument_raises_with_the_existing_ones(owner: type, name: str) -> None:
    message = raised_by(owner, name, no_such_argument=5)
    assert message.startswith(f"{owner.__name__}.{name} has no argument no_such_argument")
    assert "unknown" not in message


@pytest.mark.parametrize(
    ("owner", "name", "given", "words"),
    [
        (Consumer, "poll", "timeout_ms", "use timeout, in seconds"),
        (Consumer, "poll", "max_poll_records", "use max_records"),
        (Consumer, "poll_batches", "max_records", "; its arguments are timeout"),
        (Consumer, "commit", "asynchronous", "use await in place of it"),
        (Consumer, "seek", "offsets", "did you mean offset?"),
        (Consumer, "subscribe", "on_revoke", r"use listener, or consumer.on_revoked\(callback\)"),
        (Consumer, "unsubscribe", "timeout", "; it takes none"),
        (Producer, "send", "values", "did you mean value?"),
        (Producer, "send", "timestamp_ms", "use timestamp, in milliseconds"),
        (Producer, "send", "on_delivery", "use await, or add_done_callback of the delivery"),
        (Producer, "flush", "timeout_ms", "use timeout, in seconds"),
        (Transaction, "send", "val", "did you mean value?"),
        (Transaction, "commit", "timeout_ms", "use timeout, in seconds"),
        (Admin, "create_topics", "timeout_ms", "use timeout, in seconds"),
        (Admin, "create_topics", "request_timeout", "use timeout, in seconds"),
        (Admin, "delete_topics", "topics", "use names"),
        (Admin, "list_group_offsets", "group", "did you mean group_id?"),
    ],
)
def test_argument_of_another_client_raises_with_the_one_to_use(
    owner: type, name: str, given: str, words: str
) -> None:
    message = raised_by(owner, name, **{given: 5})
    assert re.fullmatch(rf"{owner.__name__}\.{name} has no argument {given}(: |){words}.*", message)


@pytest.mark.parametrize("name", sorted(PER_RECORD))
def test_error_of_calls_per_record_names_the_argument(name: str) -> None:
    producer: Any = Producer(SERVERS)
    with pytest.raises(TypeError, match="values"):
        getattr(producer, name)("orders", values=b"v")
