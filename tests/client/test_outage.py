"""Tests of the log messages while no broker can be reached."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from kafka_async.client.client import services_of
from kafka_async.client.metadata.outage import OutageLog
from kafka_async.client.metadata.request_router import Broker
from kafka_async.protocol.messages.list_groups import ListGroupsRequest
from tests.embedded_client import InMemory, until


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    rows = [row for row in caplog.records if row.levelno >= logging.WARNING]
    assert {row.name for row in rows} <= {"kafka_async.cluster"}
    return [row.getMessage() for row in rows]


def test_warns_at_start_and_at_growing_intervals() -> None:
    log = OutageLog()
    due = [now for now in range(2000) if log.record_unreachable(float(now)) is not None]
    assert due == [0, 10, 30, 70, 150, 310, 610, 910, 1210, 1510, 1810]


def test_measures_each_outage_separately() -> None:
    log = OutageLog()
    assert log.record_reachable(1.0) is None
    assert log.record_unreachable(2.0) == 0.0
    assert log.record_unreachable(13.0) == 11.0
    assert log.record_reachable(20.0) == 18.0
    assert log.record_reachable(21.0) is None
    assert log.record_unreachable(22.0) == 0.0
    assert log.record_unreachable(31.9) is None
    assert log.record_unreachable(32.0) == 10.0


@asynccontextmanager
async def stopped(memory: InMemory) -> AsyncGenerator[None]:
    for broker in memory.cluster.brokers:
        await memory.cluster.stop_broker(broker)
    yield
    for broker in memory.cluster.brokers:
        await memory.cluster.start_broker(broker)


@asynccontextmanager
async def frozen(memory: InMemory) -> AsyncGenerator[None]:
    fault = memory.hang()
    yield
    fault.remove()


@pytest.mark.asyncio
@pytest.mark.virtual_clock
@pytest.mark.parametrize("strategy", ["rebootstrap", "none"])
@pytest.mark.parametrize("outage", [stopped, frozen])
async def test_logs_start_and_end_of_outage(
    caplog: pytest.LogCaptureFixture,
    outage: Callable[[InMemory], AbstractAsyncContextManager[None]],
    strategy: str,
) -> None:
    async with (
        InMemory(2) as memory,
        memory.client(
            metadata_recovery_strategy=strategy,
            request_timeout_ms=2_000,
            metadata_max_age_ms=10_000,
        ) as client,
    ):
        for node_id in memory.cluster.brokers:
            await client.request(ListGroupsRequest(), to=Broker(node_id))
        async with outage(memory):
            await until(lambda: bool(warnings(caplog)))
            (first,) = warnings(caplog)
            assert first.startswith("no broker of the cluster can be reached: 127.0.0.1:")
            assert first.endswith("; the client keeps retrying")
            assert client.health().state == "degraded"
            await asyncio.sleep(100)
            assert 3 <= len(warnings(caplog)) <= 4  # after 10 s, 30 s and 70 s
            assert " for 1" in warnings(caplog)[1]
            caplog.clear()
        await until(lambda: bool(warnings(caplog)))
        (recovered,) = warnings(caplog)
        assert recovered.startswith("the cluster can be reached again, after 1")
        await asyncio.sleep(100)
        assert warnings(caplog) == [recovered]
        assert client.health().state == "running"


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_loss_of_one_broker_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    async with InMemory(3) as memory, memory.client(metadata_max_age_ms=5_000) as client:
        await client.request(ListGroupsRequest(), to=Broker(1))
        await memory.cluster.stop_broker(1)
        await asyncio.sleep(60)
        await services_of(client).metadata.refresh()
        assert warnings(caplog) == []


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_logs_outage_of_frozen_broker_at_first_request_timeout(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A new connection fails only after another timeout."""
    async with InMemory() as memory, memory.client(request_timeout_ms=2_000) as client:
        await client.request(ListGroupsRequest(), to=Broker(1))
        async with frozen(memory):
            refreshing = asyncio.create_task(services_of(client).metadata.refresh())
            start = asyncio.get_running_loop().time()
            await until(lambda: bool(warnings(caplog)))
            assert asyncio.get_running_loop().time() - start == pytest.approx(2.0, abs=0.01)
        await refreshing
