"""Tests of `Client.health`."""

from __future__ import annotations

import asyncio

import pytest

from kafka_async.admin import Admin
from kafka_async.client.client import services_of
from kafka_async.client.connection.broker_connection import ConnectionKind
from kafka_async.client.connection.connection import UNANSWERED_AFTER
from kafka_async.client.metadata.request_router import Broker
from kafka_async.errors import KafkaTimeoutError, TaskDiedError
from kafka_async.protocol.messages.delete_groups import DeleteGroupsRequest
from kafka_async.protocol.messages.list_groups import ListGroupsRequest
from tests.embedded_client import InMemory, check_states, until

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

REQUEST = ListGroupsRequest()
"""A request that every broker can handle."""


async def test_reports_each_state_from_new_to_closed() -> None:
    async with InMemory() as memory:
        await check_states(memory.client(), memory.hang())


async def test_second_stop_waits_for_the_first() -> None:
    async with InMemory() as memory:
        client = memory.client()
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


async def test_client_stopped_before_start_is_closed() -> None:
    async with InMemory() as memory:
        client = memory.client()
        await client.stop()
        assert client.health().state == "closed"


async def test_reports_connections_requests_and_the_last_response() -> None:
    async with InMemory(3) as memory, memory.client() as client:
        for node_id in (1, 3):
            await client.request(REQUEST, to=Broker(node_id))
        memory.hang("ListGroups", 3)
        connection = services_of(client).brokers.connection(3, ConnectionKind.COORDINATOR, client)
        await connection.connect(1.0)
        waiting = [connection.submit(REQUEST, timeout=60.0) for _ in range(5)]
        await asyncio.sleep(4)
        health = client.health()
        assert health.state == "running"
        assert {1, 3} <= set(health.brokers_connected) <= {1, 2, 3}
        assert health.in_flight == 5
        assert health.last_response_s == pytest.approx(4.0)
        assert health.last_error is None
        for future in waiting:
            future.cancel()


async def test_counts_response_of_dropped_bootstrap_server() -> None:
    async with InMemory() as memory, memory.client() as client:
        assert client.health().brokers_connected == ()
        await asyncio.sleep(4)
        assert client.health().last_response_s == pytest.approx(4.0)


async def test_is_degraded_while_no_broker_can_be_reached() -> None:
    async with InMemory() as memory, memory.client() as client:
        await client.request(REQUEST, to=Broker(1))
        await memory.cluster.stop_broker(1)
        await until(lambda: not client.health().brokers_connected)
        health = client.health()
        assert health.state == "degraded"
        assert health.last_error is not None
        place = f"{memory.address(1)} (broker 1)"
        assert health.last_error.startswith(f"KafkaConnectionError: {place}")
        await memory.cluster.start_broker(1)
        await client.request(REQUEST, to=Broker(1))
        assert client.health().state == "running"


async def test_is_degraded_while_the_only_broker_lets_requests_time_out() -> None:
    async with InMemory() as memory, memory.client() as client:
        frozen = memory.hang("ListGroups")
        with pytest.raises(KafkaTimeoutError):
            await client.request(REQUEST, to=Broker(1), timeout=UNANSWERED_AFTER)
        assert client.health().brokers_connected == (1,)
        assert client.health().state == "degraded"
        frozen.remove()
        await client.request(REQUEST, to=Broker(1))
        assert client.health().state == "running"


@pytest.mark.parametrize("timeout", [0.05, UNANSWERED_AFTER - 0.1])
async def test_short_timeout_of_caller_does_not_degrade(timeout: float) -> None:
    async with InMemory(2) as memory, memory.client(1) as client:
        await client.request(REQUEST, to=Broker(1))
        memory.cluster.faults.add(api="ListGroups", hang=True)
        with pytest.raises(KafkaTimeoutError):
            await client.request(REQUEST, to=Broker(1), timeout=timeout)
        assert client.health().state == "running"


async def test_is_degraded_when_a_request_waited_for_a_short_request_timeout() -> None:
    async with InMemory() as memory, memory.client(request_timeout_ms=500) as client:
        await client.request(REQUEST, to=Broker(1))
        connection = services_of(client).brokers.connection(1, ConnectionKind.COORDINATOR, client)
        await connection.connect(0.5)
        memory.cluster.faults.add(api="ListGroups", hang=True)
        with pytest.raises(KafkaTimeoutError):
            await connection.send(REQUEST, timeout=0.5)
        assert client.health().brokers_connected == (1,)  # by another connection
        assert client.health().state == "degraded"


@pytest.mark.parametrize("brokers", [1, 3])
async def test_is_degraded_five_seconds_after_a_request_to_a_frozen_broker(brokers: int) -> None:
    async with InMemory(brokers) as memory, memory.client() as client:
        frozen = memory.hang(broker=1)
        pending = asyncio.create_task(client.request(REQUEST, to=Broker(1)))
        await asyncio.sleep(UNANSWERED_AFTER - 1)
        assert client.health().state == "running"
        await asyncio.sleep(2)
        health = client.health()
        assert health.state == "degraded"
        place = f"{memory.address(1)} (broker 1)"
        assert health.last_error == f"KafkaTimeoutError: {place} has not responded for 6 s"
        frozen.remove()
        await pending
        assert client.health().state == "running"
        assert client.health().last_error is None


async def test_is_not_degraded_while_other_connections_have_responses() -> None:
    async with InMemory() as memory, memory.client() as client:
        fault = memory.cluster.faults.add(api="ListGroups", hang=True)
        connection = services_of(client).brokers.connection(1, ConnectionKind.PRODUCE, client)
        await connection.connect(1.0)
        waiting = connection.submit(REQUEST, timeout=60.0)
        await fault.wait()
        for _ in range(4):
            await asyncio.sleep(3)
            await client.request(REQUEST, to=Broker(1))
            assert client.health().state == "running"
        await asyncio.sleep(UNANSWERED_AFTER)
        assert client.health().state == "degraded"
        waiting.cancel()


async def test_is_not_degraded_by_slow_api() -> None:
    async with InMemory() as memory, memory.client() as client:
        fault = memory.cluster.faults.add(api="DeleteGroups", hang=True)
        slow = asyncio.create_task(client.request(DeleteGroupsRequest(), to=Broker(1)))
        await fault.wait()
        await asyncio.sleep(20)
        assert client.health().state == "running"
        fault.release()
        await slow


async def test_idle_client_is_not_degraded() -> None:
    async with InMemory() as memory, memory.client(connections_max_idle_ms=5_000) as client:
        await until(lambda: not client.health().brokers_connected)
        assert client.health().state == "running"


async def test_client_whose_task_died_is_failed() -> None:
    async def die() -> None:
        raise RuntimeError("broken")

    async with InMemory() as memory, memory.client() as client:
        services_of(client).supervisor.spawn(die, name="doomed")
        await until(lambda: client.health().state == "failed")
        assert "RuntimeError('broken')" in str(client.health().last_error)
        with pytest.raises(TaskDiedError):
            await client.request(REQUEST, to=Broker(1))


async def test_admin_client_reports_health_of_its_client() -> None:
    async with InMemory() as memory, memory.client() as client, Admin(client) as admin:
        await client.request(REQUEST, to=Broker(1))
        assert admin.health() == client.health()
        assert admin.health().brokers_connected == (1,)
        before = len(memory.received)
        client.health()
        await asyncio.sleep(1)
        assert len(memory.received) == before  # no request
