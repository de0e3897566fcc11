"""The condition of a client, as `health` reports it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafka_async import kernel
from kafka_async.admin import Admin
from kafka_async.cluster.destinations import Broker
from kafka_async.cluster.lane import LaneKind
from kafka_async.errors import KafkaTimeoutError, TaskDiedError
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest
from kafka_async.types import Health
from tests.cluster.scripted import World, until

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

HEARTBEAT = HeartbeatRequest.API_KEY


async def test_reports_each_state_from_new_to_closed() -> None:
    world = World()
    world.brokers[1].silent = True
    client = world.client()
    assert client.health() == Health(state="new", kernel=kernel.IMPLEMENTATION)
    starting = asyncio.create_task(client.start())
    await until(lambda: world.brokers[1].connections == 1)
    assert client.health().state == "starting"
    world.brokers[1].silent = False
    world.brokers[1].drop()
    await starting
    assert client.health().state == "running"
    stopping = asyncio.create_task(client.stop())
    await asyncio.sleep(0)
    assert client.health().state == "stopping"
    await stopping
    health = client.health()
    assert (health.state, health.brokers_connected, health.in_flight) == ("closed", (), 0)


async def test_a_second_stop_waits_for_the_first() -> None:
    """Of a client, and so of an admin client, whose `stop` is that of its client."""
    client = World().client()
    await client.start()
    first = asyncio.create_task(client.stop())
    second = asyncio.create_task(client.stop())
    await asyncio.sleep(0)
    assert client.health().state == "stopping"
    assert not second.done()
    await second
    assert client.health().state == "closed"
    await first
    await client.stop()


async def test_a_client_stopped_before_its_start_is_closed() -> None:
    client = World().client()
    await client.stop()
    assert client.health().state == "closed"


async def test_reports_connections_requests_and_the_last_response() -> None:
    world = World(brokers=3)
    async with world.client() as client:
        for node_id in (1, 3):
            await client.request(HeartbeatRequest(group_id="g"), to=Broker(node_id))
        world.brokers[3].held.add(HEARTBEAT)
        lane = client.lane(3, LaneKind.COORDINATOR, client)
        await lane.connect(1.0)
        waiting = [lane.submit(HeartbeatRequest(group_id="g"), timeout=60.0) for _ in range(5)]
        await asyncio.sleep(4)
        health = client.health()
        assert health.state == "running"
        assert {1, 3} <= set(health.brokers_connected) <= {1, 2, 3}
        assert health.in_flight == 5
        assert health.last_response_s == pytest.approx(4.0)
        assert health.last_error is None
        for future in waiting:
            future.cancel()


async def test_is_degraded_while_no_broker_can_be_reached() -> None:
    world = World()
    async with world.client() as client:
        await client.request(HeartbeatRequest(group_id="g"), to=Broker(1))
        world.brokers[1].stop()
        await until(lambda: not client.health().brokers_connected)
        health = client.health()
        assert health.state == "degraded"
        assert health.last_error is not None
        assert health.last_error.startswith("KafkaConnectionError: b1:9092 (broker 1)")
        world.brokers[1].start()
        await client.request(HeartbeatRequest(group_id="g"), to=Broker(1))
        assert client.health().state == "running"


async def test_is_degraded_while_the_only_broker_lets_requests_time_out() -> None:
    world = World()
    async with world.client() as client:
        world.brokers[1].held.add(HEARTBEAT)
        with pytest.raises(KafkaTimeoutError):
            await client.request(HeartbeatRequest(group_id="g"), to=Broker(1), timeout=2.0)
        assert client.health().brokers_connected == (1,)
        assert client.health().state == "degraded"
        world.brokers[1].held.clear()
        world.brokers[1].drop()
        await client.request(HeartbeatRequest(group_id="g"), to=Broker(1))
        assert client.health().state == "running"


async def test_an_idle_client_is_not_degraded() -> None:
    world = World()
    async with world.client(connections_max_idle_ms=5_000) as client:
        await until(lambda: not client.health().brokers_connected)
        assert client.health().state == "running"


async def test_a_client_whose_task_died_is_failed() -> None:
    async def die() -> None:
        raise RuntimeError("broken")

    world = World()
    async with world.client() as client:
        client.supervisor.spawn(die, name="doomed")
        await until(lambda: client.health().state == "failed")
        assert "RuntimeError('broken')" in str(client.health().last_error)
        with pytest.raises(TaskDiedError):
            await client.request(HeartbeatRequest(group_id="g"), to=Broker(1))


async def test_an_admin_client_reports_its_clients_health() -> None:
    world = World()
    async with world.client() as client, Admin(client) as admin:
        await client.request(HeartbeatRequest(group_id="g"), to=Broker(1))
        assert admin.health() == client.health()
        assert admin.health().brokers_connected == (1,)
        counted: list[Any] = world.brokers[1].seen[:]
        client.health()
        await asyncio.sleep(1)
        assert world.brokers[1].seen == counted  # no request
