"""Rules from vulnerabilities of other clients, with their CVE numbers."""

from __future__ import annotations

import ast
import asyncio
import logging
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kafka_async
from kafka_async.client.client import services_of
from kafka_async.client.connection.transport import Stream
from kafka_async.client.metadata.metadata import LeaderHint
from kafka_async.client.metadata.request_router import Broker, Leader
from kafka_async.config import ClientConfig, ConsumerConfig, ProducerConfig
from kafka_async.errors import InvalidConfigurationError, KafkaTimeoutError
from kafka_async.producer.producer import preload
from kafka_async.protocol.messages.list_groups import ListGroupsRequest
from kafka_async.types import Node, TopicPartition
from tests.embedded_client import InMemory, until
from tests.protocol.samples import all_classes, structures_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafka_async.protocol.spec import Struct
    from kafka_async.protocol.wire import BytesLike

PACKAGE = Path(kafka_async.__file__).parent

preload("none", transactional=False)


def on_virtual_time(function: Any) -> Any:
    return pytest.mark.virtual_clock(pytest.mark.asyncio(function))


# -- CVE-2026-35554: buffers do not change after they were passed on ------------------------------


@on_virtual_time
@pytest.mark.parametrize("size", [100, 200_000])
async def test_buffers_passed_to_transport_never_change(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Expired batches in flight are not overwritten by new ones."""
    passed: list[tuple[BytesLike, bytes]] = []
    write = Stream.write

    def recording(self: Stream, parts: Sequence[BytesLike], hurry: bool) -> None:
        passed.extend((part, bytes(part)) for part in parts)
        write(self, parts, hurry)

    monkeypatch.setattr(Stream, "write", recording)
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
            assert any(values[0] in copy for _, copy in passed)
            held.remove()
            for number in range(50):
                await producer.send("other", b"%d" % number * (size // 2))
    for part, copy in passed:
        assert type(part) is bytes or memoryview(part).readonly
        assert part == copy


# -- CVE-2024-31141: values of the configuration are not expanded ---------------------------------


@pytest.mark.parametrize("role", [ClientConfig, ProducerConfig, ConsumerConfig])
@pytest.mark.parametrize(
    "text",
    ["$PATH", "%(path)s", "{0.__class__}", "~/secret"],
)
def test_configuration_values_are_not_expanded(
    role: type[ClientConfig], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "leaked")
    read = role.from_properties({"bootstrap.servers": "a:9092", "client.id": text})
    assert read.client_id == text
    assert "leaked" not in repr(read)


@pytest.mark.parametrize("role", [ClientConfig, ProducerConfig, ConsumerConfig])
@pytest.mark.parametrize("text", ["${file:/etc/passwd:root}", "${env:PATH}"])
def test_references_to_config_providers_are_refused(role: type[ClientConfig], text: str) -> None:
    with pytest.raises(InvalidConfigurationError, match="nothing is expanded"):
        role.from_properties({"bootstrap.servers": "a:9092", "client.id": text})


# -- CVE-2023-25194 and similar: data is never executed -------------------------------------------


def test_data_is_never_executed() -> None:
    """No pickle, marshal or eval; the only exec compiles codecs from the schemas."""
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


# -- CVE-2026-33558: the schema marks secrets -----------------------------------------------------

SECRET_FIELDS = {"auth_bytes", "hmac", "salt", "salted_password"}


def test_secret_fields_are_marked() -> None:
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
    pending: list[type[Struct]] = list(all_classes())
    while pending:
        kind = pending.pop()
        if kind not in found:
            found.add(kind)
            pending += structures_in(kind)
    return found


@on_virtual_time
async def test_logs_contain_no_produced_record(caplog: pytest.LogCaptureFixture) -> None:
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


# -- brokers cannot redirect a client to arbitrary hosts ------------------------------------------

ALLOWED = ["127.0.0.?", "*.corp"]


@on_virtual_time
@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "corp", "169.254.169.254", ""]
)
async def test_metadata_hosts_are_checked_against_allowed_hosts(host: str) -> None:
    async with (
        InMemory(2, advertised_hosts={2: host}) as memory,
        memory.client(1, allowed_broker_hosts=ALLOWED) as client,
    ):
        assert services_of(client).metadata.snapshot.brokers[2].host == host
        with pytest.raises(InvalidConfigurationError, match="allowed_broker_hosts"):
            await client.request(ListGroupsRequest(), to=Broker(2), timeout=5.0)
        await client.request(ListGroupsRequest(), to=Broker(1), timeout=5.0)


@on_virtual_time
async def test_leader_hints_are_checked_against_allowed_hosts() -> None:
    partition = TopicPartition("t", 0)
    async with InMemory() as memory:
        await memory.cluster.create_topic("t")
        async with memory.client(allowed_broker_hosts=ALLOWED) as client:
            await services_of(client).metadata.wait_for_topics(["t"], timeout=5.0)
            services_of(client).metadata.update_leaders(
                [LeaderHint(partition, 7, 1, Node(7, "evil.example", 9092, None))]
            )
            await until(lambda: services_of(client).metadata.snapshot.leader(partition) == (7, 1))
            with pytest.raises(InvalidConfigurationError, match="allowed_broker_hosts"):
                await client.request(ListGroupsRequest(), to=Leader(partition), timeout=5.0)
