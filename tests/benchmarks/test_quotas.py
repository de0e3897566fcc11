"""A producer and a consumer reach their quotas on the embedded cluster, in virtual time."""

from __future__ import annotations

import pytest

from benchmarks.quotas import load
from benchmarks.quotas.load import MEASURED, QUOTA, WINDOW
from tests.embedded_client import InMemory

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


async def test_producer_reaches_its_quota() -> None:
    async with InMemory() as memory:
        servers = memory.cluster.bootstrap_servers
        await load.set_quotas(servers, QUOTA, dialer=memory.network)
        meter = await load.produce(servers, memory.network)
        assert 0.9 <= meter.rate() / QUOTA <= 1.1
        assert memory.cluster.throttle_log.violations() == []


async def test_consumer_reaches_its_quota() -> None:
    async with InMemory() as memory:
        servers = memory.cluster.bootstrap_servers
        await load.set_quotas(servers, QUOTA, dialer=memory.network)
        await load.fill(servers, int(QUOTA * (WINDOW + MEASURED) * 1.5), memory.network)
        meter = await load.consume(servers, memory.network)
        assert 0.8 <= meter.rate() / QUOTA <= 1.1
        assert memory.cluster.throttle_log.violations() == []
