"""Tests that clients are started once, and stopped only in the same event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from kafka_async.admin.admin import Admin
from kafka_async.app.worker_pool import WorkerPool
from kafka_async.client.client import Client
from kafka_async.consumer.consumer import Consumer
from kafka_async.consumer.share.share_consumer import ShareConsumer
from kafka_async.embedded import EmbeddedCluster, run_in_thread
from kafka_async.errors import IllegalStateError
from kafka_async.foundation.supervisor import Supervisor
from kafka_async.group.group_member import GroupMember
from kafka_async.producer.producer import Producer
from kafka_async.spark.orchestrator import Orchestrator

if TYPE_CHECKING:
    from kafka_async.types import Health


class AnyClient(Protocol):
    async def start(self) -> None: ...
    async def stop(self) -> None: ...


class ClientWithHealth(AnyClient, Protocol):
    def health(self) -> Health: ...


async def work(resource: str) -> None:
    await asyncio.Event().wait()


CLIENTS: dict[str, Callable[[str], ClientWithHealth | EmbeddedCluster | Orchestrator]] = {
    "admin": Admin,
    "client": Client,
    "consumer": lambda servers: Consumer(servers, topics=["t"], group_id="g"),
    "embedded cluster": lambda _: EmbeddedCluster(),
    "group member": lambda servers: GroupMember(
        servers, group_id="m", protocol_type="jobs", protocols={"v0": lambda members: {}}
    ),
    "orchestrator": lambda servers: Orchestrator(servers, None, name="o"),
    "producer": Producer,
    "transactional producer": lambda servers: Producer(servers, transactional_id="t"),
    "share consumer": lambda servers: ShareConsumer(servers, topics=["t"], group_id="s"),
    "worker pool": lambda servers: WorkerPool(servers, group_id="w", resources=["a"], worker=work),
}


@pytest.mark.parametrize("name", CLIENTS)
def test_stop_in_another_event_loop_raises_and_leaves_the_client_running(name: str) -> None:
    with run_in_thread() as cluster, asyncio.Runner() as own_loop:
        client = CLIENTS[name](cluster.bootstrap_servers)
        own_loop.run(client.start())
        with pytest.raises(IllegalStateError, match="belongs to the event loop it was started in"):
            asyncio.run(client.stop())
        if not isinstance(client, EmbeddedCluster | Orchestrator):  # These have no health.
            assert client.health().state not in ("stopping", "closed")
        own_loop.run(client.stop())
        asyncio.run(client.stop())  # A closed client has nothing to stop in any loop.


def test_clients_of_a_shared_client_raise_if_they_are_stopped_in_another_event_loop() -> None:
    with run_in_thread() as cluster, asyncio.Runner() as own_loop:
        client = Client(cluster.bootstrap_servers)
        own_loop.run(client.start())
        producer = Producer(client)
        own_loop.run(producer.start())
        with pytest.raises(IllegalStateError, match=r"Producer .* belongs to the event loop"):
            asyncio.run(producer.stop())
        own_loop.run(producer.stop())
        own_loop.run(client.stop())


STARTED_TWICE: dict[str, Callable[[Any], Producer | Consumer | ShareConsumer | GroupMember]] = {
    "Producer": Producer,
    "Producer t": lambda servers: Producer(servers, transactional_id="t"),
    "Consumer g": lambda servers: Consumer(servers, topics=["t"], group_id="g"),
    "ShareConsumer s": lambda servers: ShareConsumer(servers, topics=["t"], group_id="s"),
    "GroupMember m": lambda servers: GroupMember(
        servers, group_id="m", protocol_type="jobs", protocols={"v0": lambda members: {}}
    ),
}


@pytest.mark.asyncio
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", STARTED_TWICE)
async def test_second_start_raises_with_the_name_of_the_class_and_stops_nothing(
    name: str, shared: bool
) -> None:
    words = f"^{name}.* was started before; make a new one instead"
    async with (
        EmbeddedCluster() as cluster,
        Client(cluster.bootstrap_servers) as client,
        STARTED_TWICE[name](client if shared else cluster.bootstrap_servers) as started,
    ):
        with pytest.raises(IllegalStateError, match=words):
            await started.start()
        assert started.health().state in ("starting", "running")


@pytest.mark.asyncio
async def test_second_start_of_an_admin_client_raises_with_the_name_of_the_class() -> None:
    async with EmbeddedCluster() as cluster, Admin(cluster.bootstrap_servers) as admin:
        with pytest.raises(IllegalStateError, match=r"^Admin .* was started before; make a new"):
            await admin.start()
        assert await admin.list_topics() == {}


def test_supervisor_raises_after_its_event_loop_was_closed() -> None:
    supervisor = Supervisor("test")
    asyncio.run(supervisor.start())
    with pytest.raises(IllegalStateError, match="belongs to the event loop"):
        supervisor.check_event_loop()
