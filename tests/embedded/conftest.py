"""Clusters in memory, with raw connections to their brokers."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Protocol, Unpack

import pytest_asyncio

from tests.embedded.stage import staged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kafka_async.embedded.settings import SettingOptions
    from tests.embedded.stage import Stage


class StartStage(Protocol):
    async def __call__(self, brokers: int = 1, **settings: Unpack[SettingOptions]) -> Stage: ...


@pytest_asyncio.fixture
async def start_stage() -> AsyncIterator[StartStage]:
    """Start clusters in memory; at the end none of them may have failed in itself."""

    async def start(brokers: int = 1, **settings: Unpack[SettingOptions]) -> Stage:
        return await stack.enter_async_context(staged(brokers, topic=False, **settings))

    async with AsyncExitStack() as stack:
        yield start


@pytest_asyncio.fixture
async def stage(start_stage: StartStage) -> Stage:
    """One broker, and the topic `t` with two partitions."""
    started = await start_stage()
    await started.cluster.create_topic("t", 2)
    return started
