"""The rules that other clients' security holes have taught (CVEs by number), one test each."""

from __future__ import annotations

import ast
import asyncio
import logging
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kafka_async
from kafka_async.cluster.request_destinations import Broker, Leader
from kafka_async.cluster.transport import Stream
from kafka_async.config import ClientConfig, ConsumerConfig, ProducerConfig
from kafka_async.errors import InvalidConfigurationError, KafkaTimeoutError
from kafka_async.producer.preload import preload
from kafka_async.protocol.messages.list_groups import ListGroupsRequest
from kafka_async.protocol.spec import Array, Fixed, Sized
from kafka_async.types import Node, TopicPartition
from tests.embedded_client import InMemory, until
from tests.protocol.samples import all_classes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafka_async.protocol.message import Struct
    from kafka_async.protocol.spec import FieldType
    from kafka_async.protocol.wire import BytesLike

PACKAGE = Path(kafka_async.__file__).parent

preload("none", transactional=False)


def on_virtual_time(function: Any) -> Any:
    return pytest.mark.virtual_clock(pytest.mark.asyncio(function))


# -- CVE-2026-35554: a buffer that was handed over changes no more --------------------------------


@on_virtual_time
@pytest.mark.parametrize("size", [100, 200_000])
async def test_what_was_handed_to_the_transport_never_changes(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Batches expire while they are on the wire, others are made: no byte of theirs moves."""
    handed: list[tuple[BytesLike, bytes]] = []
    write = Stream.write

    def watched(self: Stream, parts: Sequence[BytesLike], hurry: bool) -> None:
        handed.extend((part, bytes(part)) for part in parts)
        write(self, parts, hurry)

    monkeypatch.setattr(Stream, "write", watched)
    values = [random.randbytes(size) for _ in range(6)]
    async with InMemory() as memory:
        await memory.cluster.create_topic("clicks")
        await memory.cluster.create_topic("other")
        held = memory.cluster.faults.add(api="Produce", hang=True, count=None)
        async with memory.producer(
            enable_idempotence=False,
            max_request_size=10_000_000,
            delivery_timeout_ms=3_000,
            request_timeout_ms=2_000,
        ) as producer:
            expired = [await producer.enqueue("clicks", value) for value in values]
            await asyncio.sleep(5)
            for delivery in expired:
                assert isinstance(delivery.exception(), KafkaTimeoutError)
            assert any(values[0] in copy for _, copy in handed)
            held.remove()
            for number in range(50):
                await producer.send("other", b"%d" % number * (size // 2))
    for part, copy in handed:
        assert type(part) is bytes or memoryview(part).readonly
        assert part == copy


# -- CVE-2024-31141: nothing in the configuration is looked up anywhere ----------------------------


@pytest.mark.parametrize("role", [ClientConfig, ProducerConfig, ConsumerConfig])
@pytest.mark.parametrize(
    "text",
    ["${file:/etc/passwd:root}", "${env:PATH}", "$PATH", "%(path)s", "{0.__class__}", "~/secret"],
)
def test_configuration_is_taken_as_it_is(
    role: type[ClientConfig], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "leaked")
    read = role.from_properties({"bootstrap.servers": "a:9092", "client.id": text})
    assert read.client_id == text
    assert "leaked" not in repr(read)


# -- CVE-2023-25194 and its kin: no code comes out of data ----------------------------------------


def test_nothing_that_runs_code_is_fed_with_data() -> None:
    """No pickle, no marshal, no eval; the one exec is that of codecs made from our own schemas."""
    found: list[tuple[str, str]] = []
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found += [(name, alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                found.append((name, node.module or ""))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                found.append((name, f"{node.func.id}()"))
    dangerous = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "eval()", "exec()"}
    assert [one for one in found if one[1] in dangerous] == [("protocol/compiler.py", "exec()")]


# -- CVE-2026-33558: secrets are hidden by the schema ---------------------------------------------

SECRET_FIELDS = {"auth_bytes", "hmac", "salt", "salted_password"}


def test_every_field_that_holds_a_secret_is_marked() -> None:
    seen: set[str] = set()
    for kind in every_structure():
        for field in kind.SPEC.fields:
            if field.name in SECRET_FIELDS:
                seen.add(field.name)
                assert field.secret, f"{kind.__name__}.{field.name} would be shown"
                planted = kind()
                setattr(planted, field.name, b"planted-secret")
                assert "planted" not in repr(planted)
    assert seen == SECRET_FIELDS


def every_structure() -> set[type[Struct]]:
    found: set[type[Struct]] = set()
    waiting: list[type[Struct]] = list(all_classes())
    while waiting:
        kind = waiting.pop()
        if kind not in found:
            found.add(kind)
            waiting += filter(None, (structure_in(field.type) for field in kind.SPEC.fields))
    return found


def structure_in(kind: FieldType) -> type[Struct] | None:
    while isinstance(kind, Array):
        kind = kind.element
    return None if isinstance(kind, Fixed | Sized) else kind


@on_virtual_time
async def test_no_log_shows_a_record_on_its_way_out(caplog: pytest.LogCaptureFixture) -> None:
    secret = "planted-record-" + "x" * 50
    options: dict[str, Any] = {"delivery_timeout_ms": 3_000, "request_timeout_ms": 2_000}
    async with InMemory() as memory:
        await memory.cluster.create_topic("clicks")
        memory.cluster.faults.add(api="Produce", hang=True, count=None)
        with caplog.at_level(logging.DEBUG):
            async with memory.producer(enable_idempotence=False, **options) as producer:
                delivery = await producer.enqueue(
                    "clicks", secret.encode(), key=secret.encode(), headers=[("h", secret.encode())]
                )
                await asyncio.sleep(5)
                error = delivery.exception()
    assert isinstance(error, KafkaTimeoutError)
    assert "planted" not in caplog.text + str(error) + repr(error) + repr(delivery)


# -- a broker cannot send a client, and its credentials, anywhere ---------------------------------

ALLOWED = ["127.0.0.?", "*.corp"]


@on_virtual_time
@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "corp", "169.254.169.254", ""]
)
async def test_metadata_sends_a_client_only_where_it_may_go(host: str) -> None:
    async with (
        InMemory(2, advertised_hosts={2: host}) as memory,
        memory.client(1, allowed_broker_hosts=ALLOWED) as client,
    ):
        assert client.metadata.brokers[2].host == host
        with pytest.raises(InvalidConfigurationError, match="allowed_broker_hosts"):
            await client.request(ListGroupsRequest(), to=Broker(2), timeout=5.0)
        await client.request(ListGroupsRequest(), to=Broker(1), timeout=5.0)


@on_virtual_time
async def test_a_leader_hint_sends_a_client_only_where_it_may_go() -> None:
    partition = TopicPartition("t", 0)
    async with InMemory() as memory:
        await memory.cluster.create_topic("t")
        async with memory.client(allowed_broker_hosts=ALLOWED) as client:
            await client.metadata_for(["t"], timeout=5.0)
            client.update_leader(partition, 7, 1, Node(7, "evil.example", 9092, None))
            await until(lambda: client.metadata.leader(partition) == (7, 1))
            with pytest.raises(InvalidConfigurationError, match="allowed_broker_hosts"):
                await client.request(ListGroupsRequest(), to=Leader(partition), timeout=5.0)
