"""Client quotas on every kind of cluster: what the admin client sets is what brokers enforce."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from kafka_async.admin import Admin, NewTopic, QuotaEntity, QuotaName, ResolvedQuota
from kafka_async.errors import InvalidRequestError, ThrottlingQuotaExceededError
from kafka_async.hooks import Hooks, Throttled, ThrottleEnded
from kafka_async.producer.producer import Producer
from kafka_async.protocol.header import encode_request
from kafka_async.protocol.messages.api_versions import ApiVersionsRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from kafka_async.testing.fixtures import ClusterHandle
    from tests.integration.kafka_tools import Tools

pytestmark = [pytest.mark.asyncio]


@pytest_asyncio.fixture
async def admin(kafka_cluster: ClusterHandle) -> AsyncIterator[Admin]:
    async with Admin(kafka_cluster.bootstrap_servers, default_api_timeout_ms=30_000) as started:
        yield started


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until brokers have learned of a change, which the controller tells them afterwards."""
    async with asyncio.timeout(30.0):
        while not await condition():  # noqa: ASYNC110  # no event of the cluster tells
            await asyncio.sleep(0.05)


async def test_sets_describes_resolves_and_removes_quotas(
    admin: Admin, kafka_cluster: ClusterHandle
) -> None:
    name = kafka_cluster.topic()  # unique in this cluster
    user, both = QuotaEntity(user=name), QuotaEntity(user=name, client_id=name)
    default = QuotaEntity(user=name, client_id=QuotaName.DEFAULT)
    entries = {
        user: {"producer_byte_rate": 1000.0, "request_percentage": 50.0},
        both: {"producer_byte_rate": 2000.0},
        default: {"consumer_byte_rate": 3000.0},
    }
    await admin.alter_client_quotas(entries, validate_only=True)
    await admin.alter_client_quotas(entries)

    async def known() -> bool:
        return await admin.describe_client_quotas(user) == entries

    await until(known)
    resolved = await admin.resolve_client_quotas(both)
    assert resolved["producer_byte_rate"] == ResolvedQuota(2000.0, both)
    assert resolved["consumer_byte_rate"] == ResolvedQuota(3000.0, default)
    assert resolved["request_percentage"] == ResolvedQuota(50.0, user)
    assert await admin.set_quota_enforcement(user, False) == entries[user]

    async def off() -> bool:
        found = await admin.describe_client_quotas(user, strict=True)
        return found[user]["producer_byte_rate"] > 1e15

    await until(off)
    assert await admin.set_quota_enforcement(user, True) == entries[user]
    await until(known)
    await admin.alter_client_quotas({each: dict.fromkeys(v) for each, v in entries.items()})

    async def gone() -> bool:
        return await admin.describe_client_quotas(user) == {}

    await until(gone)


async def test_cluster_refuses_what_is_not_an_address(admin: Admin) -> None:
    with pytest.raises(InvalidRequestError):
        await admin.alter_client_quotas(
            {QuotaEntity(ip="not an address"): {"connection_creation_rate": 5}}
        )


async def test_producer_over_its_quota_waits(admin: Admin, kafka_cluster: ClusterHandle) -> None:
    topic = kafka_cluster.topic()
    await admin.create_topics([NewTopic(topic, 1, 1)])
    client = QuotaEntity(client_id=topic)
    await admin.alter_client_quotas({client: {"producer_byte_rate": 20_000}})

    async def known() -> bool:
        return client in await admin.describe_client_quotas(client)

    await until(known)
    hooks = Hooks()
    throttled: list[Throttled] = []
    waits: list[ThrottleEnded] = []
    hooks.listen(Throttled, throttled.append)
    hooks.listen(ThrottleEnded, waits.append)
    async with Producer(kafka_cluster.bootstrap_servers, client_id=topic, hooks=hooks) as producer:
        # Brokers learn of a quota one after the other: send until this one throttles.
        while not throttled:
            await producer.send(topic, b"v" * 21_000)
        await producer.send(topic, b"v")
        assert waits
        assert waits[-1].kind == throttled[-1].kind == "produce"
        (fraction,) = (await producer.client.quota_usage()).values()
        assert fraction is not None
        assert fraction > 0.5
    await admin.alter_client_quotas({client: {"producer_byte_rate": None}})


async def test_creation_of_topics_over_the_quota(
    admin: Admin, kafka_cluster: ClusterHandle
) -> None:
    name = kafka_cluster.topic()
    client = QuotaEntity(client_id=name)
    await admin.alter_client_quotas({client: {"controller_mutation_rate": 1.0}})

    async def known() -> bool:
        return client in await admin.describe_client_quotas(client)

    await until(known)
    async with Admin(kafka_cluster.bootstrap_servers, client_id=name) as limited:
        await limited.create_topics([NewTopic(name, 40, 1)])
        with pytest.raises(ThrottlingQuotaExceededError, match="Retry in") as raised:
            await limited.create_topics([NewTopic(kafka_cluster.topic("late"), 1, 1)], timeout=5.0)
        assert raised.value.throttle_time_ms > 5_000
    await admin.alter_client_quotas({client: {"controller_mutation_rate": None}})


SOURCE = "127.0.0.2"
"""An address of this machine from which no other connection comes."""
CONNECTIONS = 60


async def is_accepted(server: str) -> bool:
    """Return whether a broker responds to a new connection; otherwise it closes the connection."""
    host, _, port = server.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), local_addr=(SOURCE, 0))
    try:
        writer.write(b"".join(encode_request(ApiVersionsRequest(), 0, 7, "raw")))
        return bool(await reader.read(4))
    except ConnectionResetError:
        return False
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_connections_over_the_quota_of_an_address_are_closed_without_a_response(
    admin: Admin, kafka_cluster: ClusterHandle
) -> None:
    """A broker accepts about eleven at once with a quota of one per second (KIP-612)."""
    server = kafka_cluster.bootstrap_servers.split(",")[0]
    address = QuotaEntity(ip=SOURCE)
    assert all(await asyncio.gather(*(is_accepted(server) for _ in range(CONNECTIONS))))
    await admin.alter_client_quotas({address: {"connection_creation_rate": 1}})
    try:
        # Brokers learn of the quota one after the other: connect until this one closes some.
        async with asyncio.timeout(60.0):
            while True:
                found = await asyncio.gather(*(is_accepted(server) for _ in range(CONNECTIONS)))
                if not all(found):
                    break
        # Other addresses and the open connections of this client are not affected.
        assert (await admin.describe_client_quotas(address))[address] == {
            "connection_creation_rate": 1.0
        }
        async with Admin(kafka_cluster.bootstrap_servers) as other:
            assert await other.list_topics() is not None
        # The samples have what was accepted, so nearly all connections are closed now.
        found = await asyncio.gather(*(is_accepted(server) for _ in range(CONNECTIONS)))
        assert found.count(False) >= CONNECTIONS // 2
    finally:
        await admin.alter_client_quotas({address: {"connection_creation_rate": None}})
    async with asyncio.timeout(60.0):
        while not all(await asyncio.gather(*(is_accepted(server) for _ in range(CONNECTIONS)))):
            pass


@pytest.mark.foreign
@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_kafkas_command_reads_and_writes_the_same_quotas(
    admin: Admin, kafka_cluster: ClusterHandle, tools: Tools
) -> None:
    name = kafka_cluster.topic()
    entity = QuotaEntity(user=name, client_id=QuotaName.DEFAULT)
    named = ("--entity-type", "users", "--entity-name", name)
    await admin.alter_client_quotas({entity: {"producer_byte_rate": 1234, "request_percentage": 5}})
    described = ("--describe", *named, "--entity-type", "clients", "--entity-default")

    async def shown() -> bool:
        shown = await asyncio.to_thread(
            tools.run, kafka_cluster, "kafka.admin.ConfigCommand", *described
        )
        return "producer_byte_rate=1234.0" in shown and "request_percentage=5.0" in shown

    await until(shown)
    change = ("--alter", *named, "--add-config", "consumer_byte_rate=4321")
    await asyncio.to_thread(tools.run, kafka_cluster, "kafka.admin.ConfigCommand", *change)

    async def read() -> bool:
        found = await admin.describe_client_quotas(QuotaEntity(user=name), strict=True)
        return found == {QuotaEntity(user=name): {"consumer_byte_rate": 4321.0}}

    await until(read)
    removed: dict[str, float | None] = {"consumer_byte_rate": None}
    await admin.alter_client_quotas(
        {
            QuotaEntity(user=name): removed,
            entity: {"producer_byte_rate": None, "request_percentage": None},
        }
    )
