"""The migration pages list every public call of the other clients, and existing calls here."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from kafka_async import Admin, Client, Consumer, Producer, Record, Transaction, errors
from kafka_async.config import ConsumerConfig, ProducerConfig
from kafka_async.embedded import run_in_thread
from kafka_async.errors import InvalidConfigurationError
from tests.docs.markdown_blocks import ROOT, blocks_of
from tests.integration.helpers import load

AIOKAFKA = ROOT / "docs" / "migrating-from-aiokafka.md"
CONFLUENT = ROOT / "docs" / "migrating-from-confluent-kafka.md"
PAGES = {"aiokafka": AIOKAFKA, "confluent-kafka": CONFLUENT}

CODE = re.compile(r"`([^`]+)`")
CALL = re.compile(r"^(\w+)\(")
OURS = re.compile(
    r"\b(?:\w+\.(?=client\.))?(producer|consumer|admin|client|transaction|record)\.(\w+)"
)
OWNERS: Mapping[str, Any] = {
    kind.__name__.lower(): kind for kind in (Producer, Consumer, Admin, Client, Transaction, Record)
}
PECULIAR = {
    "acks",
    "bootstrap_servers",
    "client_id",
    "client_rack",
    "partition_assignment_strategy",
    "partitioner",
}
"""Options whose default at aiokafka is an object or a name, or None for an empty text."""
REFUSED = ("not supported yet", "no need for it")
SERVERS = "localhost:9092"


CLASSES: Mapping[tuple[str, str], Sequence[str]] = {
    ("aiokafka", "Producer"): ["aiokafka.AIOKafkaProducer"],
    ("aiokafka", "Consumer"): ["aiokafka.AIOKafkaConsumer"],
    ("aiokafka", "Admin"): ["aiokafka.admin.AIOKafkaAdminClient"],
    ("confluent-kafka", "Producer"): [
        *("confluent_kafka.Producer", "confluent_kafka.SerializingProducer"),
        *("confluent_kafka.aio.AIOProducer", "confluent_kafka.aio.AsyncSerializingProducer"),
    ],
    ("confluent-kafka", "Consumer"): [
        *("confluent_kafka.Consumer", "confluent_kafka.DeserializingConsumer"),
        *("confluent_kafka.aio.AIOConsumer", "confluent_kafka.aio.AsyncDeserializingConsumer"),
    ],
    ("confluent-kafka", "Message"): ["confluent_kafka.Message"],
    ("confluent-kafka", "AdminClient"): ["confluent_kafka.admin.AdminClient"],
}
"""Classes of a client that a section of its page is about."""


def classes(client: str, section: str) -> list[Any]:
    paths = [path.rpartition(".") for path in CLASSES[client, section]]
    return [getattr(load(module), name) for module, _, name in paths]


@dataclass(frozen=True)
class Row:
    """Holds a row of a table: the codes of its first cell, and its last cell."""

    theirs: tuple[str, ...]
    ours: str


def section(client: str, title: str) -> str:
    """Return the text of a section, to the next heading of any level."""
    text = PAGES[client].read_text("utf-8")
    match = re.search(rf"^#+ {title}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert match is not None, f"no section {title}"
    return match[1]


def rows(client: str, title: str) -> list[Row]:
    cells = [
        line.strip("| ").split(" | ")
        for line in section(client, title).splitlines()
        if line.startswith("| `")
    ]
    return [Row(tuple(CODE.findall(first)), last) for first, *_, last in cells]


def calls(row: Row) -> set[str]:
    return {match[1] for code in row.theirs if (match := CALL.match(code))}


def public(kind: Any) -> set[str]:
    return {
        name
        for name in dir(kind)
        if not name.startswith("_") and callable(inspect.getattr_static(kind, name, None))
    }


@pytest.mark.parametrize(("client", "title"), CLASSES)
def test_table_lists_every_public_method_and_no_other(client: str, title: str) -> None:
    expected = set[str]().union(*map(public, classes(client, title)))
    named = set[str]().union(*map(calls, rows(client, title)))
    assert len(expected) > 10
    assert named == expected


@pytest.mark.parametrize(("client", "title"), CLASSES)
def test_every_row_names_an_existing_call_or_has_no_equivalent(client: str, title: str) -> None:
    for row in rows(client, title):
        found = OURS.findall(row.ours)
        for owner, name in found:
            assert hasattr(OWNERS[owner], name), row
        without = (
            "not supported yet",
            "no equivalent",
            "nothing",
            "the same",
            "the call",
            "RecordBatch",
            "anext",
        )
        assert found or any(words in row.ours for words in without), row


def refusal(name: str) -> str:
    """Return the errors that the producer and the consumer raise for an option."""
    texts: list[str] = []
    options: dict[str, Any] = {name.replace(".", "_"): 1}
    kinds: tuple[Any, ...] = (Producer, Consumer)
    for kind in kinds:
        try:
            kind(SERVERS, **options)
        except (InvalidConfigurationError, TypeError) as error:
            texts.append(str(error))
    return "\n".join(texts)


@pytest.mark.parametrize("client", PAGES)
def test_options_table_agrees_with_the_errors(client: str) -> None:
    table = rows(client, "Options")
    assert len(table) > 8
    for row in table:
        if "first argument" in row.ours:
            continue
        for name in row.theirs:
            refused = [text for text in REFUSED if text in row.ours]
            expected = refused or CODE.findall(row.ours)
            assert expected[0] in refusal(name), (name, refusal(name))


def options_of(client: Any) -> dict[str, object]:
    parameters = inspect.signature(client.__init__).parameters.values()
    return {
        one.name: one.default for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY
    }


def test_every_option_of_aiokafka_exists_here_or_is_in_the_table() -> None:
    named = {name for row in rows("aiokafka", "Options") for name in row.theirs}
    for title, config in (("Producer", ProducerConfig), ("Consumer", ConsumerConfig)):
        (kind,) = classes("aiokafka", title)
        options = set(options_of(kind))
        assert len(options) > 20
        assert options - set(config.__dataclass_fields__) <= named


def test_table_lists_the_defaults_that_differ_from_aiokafka() -> None:
    text = section("aiokafka", "Other defaults")
    shown = {
        name: (theirs, ours)
        for name, theirs, ours in re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \|$", text, re.MULTILINE)
    }
    for title, config in (("Producer", ProducerConfig), ("Consumer", ConsumerConfig)):
        (kind,) = classes("aiokafka", title)
        for name, theirs in options_of(kind).items():
            if name not in config.__dataclass_fields__ or name in PECULIAR:
                continue
            ours = config.__dataclass_fields__[name].default
            if ours != theirs:
                assert shown[name][0] == f"`{theirs}`"
                assert shown[name][1] == f"`{ours!r}`".replace("'", '"')
            else:
                assert name not in shown


def test_errors_of_the_table_exist() -> None:
    theirs = load("aiokafka.errors")
    table = rows("aiokafka", "Errors")
    assert len(table) > 5
    for row in table:
        assert all(hasattr(theirs, name) for name in row.theirs)
        assert not any(hasattr(errors, name) for name in row.theirs)
        assert all(hasattr(errors, name) for name in CODE.findall(row.ours))


@pytest.mark.parametrize("client", PAGES)
def test_the_first_section_says_that_send_waits(client: str) -> None:
    headings = re.findall(r"^## (.+)$", PAGES[client].read_text("utf-8"), re.MULTILINE)
    assert headings[0] == "`send` waits for the acknowledgement"


def test_partitioner_of_the_page_agrees_with_librdkafka() -> None:
    (source,) = (b.body for b in blocks_of(CONFLUENT) if "def consistent_random" in b.body)
    names: dict[str, Any] = {}
    exec(source.partition("async def")[0], names)
    keys = [b"key %d" % number for number in range(50)]
    found: dict[bytes, int] = {}

    def delivered(_: object, message: Any) -> None:
        found[message.key()] = message.partition()

    with run_in_thread() as cluster:
        cluster.create_topic("pages", partitions=7)
        servers = cluster.bootstrap_servers
        producer = load("confluent_kafka").Producer({"bootstrap.servers": servers})
        for key in keys:
            producer.produce("pages", b"", key, on_delivery=delivered)
        assert producer.flush(30) == 0
    assert found == {key: names["consistent_random"]("pages", key, 7) for key in keys}
    assert len(set(found.values())) == 7
