"""An embedded cluster in memory with a started client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest_asyncio

from tests.embedded_client import InMemory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kafka_async.client.client import Client
    from kafka_async.embedded.faults import Fault


@pytest_asyncio.fixture
async def memory() -> AsyncIterator[InMemory]:
    async with InMemory() as memory:
        yield memory


@pytest_asyncio.fixture
async def client(memory: InMemory) -> AsyncIterator[Client]:
    async with memory.client() as client:
        yield client


def silence(memory: InMemory, client_id: str) -> Fault:
    """Do not respond to a client any more, as if its network had failed."""
    return memory.cluster.faults.add(
        when=lambda context, _: context.client_id == client_id, hang=True, count=None
    )
