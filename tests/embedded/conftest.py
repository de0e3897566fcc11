"""Fixtures: clusters in memory with raw connections to their brokers."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Protocol, Unpack

import pytest_asyncio

from tests.embedded.harness import running_harness

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kafka_async.embedded.settings import SettingOptions
    from tests.embedded.harness import ClusterHarness


class StartHarness(Protocol):
    async def __call__(
        self, brokers: int = 1, **settings: Unpack[SettingOptions]
    ) -> ClusterHarness: ...


@pytest_asyncio.fixture
async def start_harness() -> AsyncIterator[StartHarness]:
    """Start clusters in memory; check at the end that they had no internal errors."""

    async def start(brokers: int = 1, **settings: Unpack[SettingOptions]) -> ClusterHarness:
        return await stack.enter_async_context(running_harness(brokers, topic=False, **settings))

    async with AsyncExitStack() as stack:
        yield start


@pytest_asyncio.fixture
async def harness(start_harness: StartHarness) -> ClusterHarness:
    """Start one broker with topic `t` of two partitions."""
    started = await start_harness()
    await started.cluster.create_topic("t", 2)
    return started
