"""A producer of a cluster in memory, on virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.producer.bench import Bench


@pytest.fixture
def version() -> int:
    """Return the version of transactions, unless a test has it as a parameter."""
    return 2


@pytest_asyncio.fixture
async def bench() -> AsyncIterator[Bench]:
    """Start a producer and one broker, with a topic "clicks" of one partition."""
    async with Bench({"clicks": [1]}) as bench:
        yield bench
