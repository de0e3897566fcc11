"""A producer and a consumer reach their quotas on the embedded cluster, in virtual time."""

from __future__ import annotations

import pytest

from benchmarks.quotas import load
from benchmarks.quotas.__main__ import CHART, chart
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


async def test_chart_in_the_documentation_is_current() -> None:
    """`make bench-quotas QUOTA_ARGS=--chart` draws it again."""
    assert await chart() == CHART.read_text("utf-8")


async def test_rate_of_another_client_is_that_after_the_window() -> None:
    progress = [(0.0, 50), (WINDOW, 100), (WINDOW + 10, 200), (WINDOW + MEASURED + 1, 900)]
    assert load.rate_of(progress) == 100 / MEASURED
    assert load.rate_of(progress, 40.0) == 800 / 40
