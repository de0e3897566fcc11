"""Fixtures of integration tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest_asyncio

from tests.integration.raw_cluster import RawCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kafka_async.testing.fixtures import ClusterHandle


@pytest_asyncio.fixture
async def raw_cluster(kafka_cluster: ClusterHandle) -> AsyncIterator[RawCluster]:
    opened = await RawCluster.open(kafka_cluster.bootstrap_servers)
    yield opened
    await opened.close()
