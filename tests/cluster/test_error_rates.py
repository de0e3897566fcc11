"""Tests of how many requests a client sends while a broker returns the same error."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from kafka_async.embedded import ErrorCode
from kafka_async.errors import KafkaError, RetriableError, for_code
from kafka_async.protocol.api import APIS
from kafka_async.protocol.messages.api_versions import ApiVersionsRequest
from kafka_async.protocol.messages.metadata import MetadataRequest
from tests.embedded_client import InMemory
from tests.rebootstrap_roles import (
    ROLES,
    BootstrapName,
    LowLevelClient,
    Place,
    Role,
    StaticConsumer,
    opened,
)

if TYPE_CHECKING:
    from collections.abc import Collection

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

DURATION = 10.0
"""Seconds of virtual time for which the error is returned."""
MAX_REQUESTS_PER_SECOND = 20
"""Requests of one client to one broker."""
HANDSHAKE = {ApiVersionsRequest.API_KEY}
METADATA = {MetadataRequest.API_KEY}
ERRORS = [code for code in ErrorCode if code and issubclass(for_code(code), RetriableError)]


async def run_role(role: Role) -> None:
    """Make calls of a role, which may fail."""
    with suppress(KafkaError):
        await (role.error_codes() if isinstance(role, LowLevelClient) else role.during())


async def busiest(
    kind: type[Role], code: ErrorCode, excluded: Collection[int], *, disconnect: bool = False
) -> tuple[float, Counter[str]]:
    """Return the most requests per second that a broker gets, and how many of each API.

    With `disconnect` all connections are reset first.
    """
    async with InMemory(3) as memory:
        place = Place(BootstrapName(memory.network, memory.address(1)), "x")
        async with opened(place, [kind]) as (role,):
            fault = memory.cluster.faults.add(
                when=lambda context, _: context.api_key not in excluded,
                error=code.name,
                count=None,
            )
            first = len(memory.received)
            if disconnect:
                await memory.cluster.disconnect()
            calls = asyncio.create_task(run_role(role))
            await asyncio.sleep(DURATION)
            rows = memory.received[first:]
            fault.remove()
            await calls
        counts = Counter(row.broker for row in rows)
        broker, count = counts.most_common(1)[0] if counts else (0, 0)
        kinds = Counter(type(row.request).__name__ for row in rows if row.broker == broker)
        return count / DURATION, kinds


@pytest.mark.slow
@pytest.mark.parametrize("kind", ROLES, ids=lambda kind: kind.name)
async def test_client_sends_few_requests_while_an_error_is_returned(kind: type[Role]) -> None:
    assert await loops_that_are_too_fast(kind, HANDSHAKE | METADATA) == {}


@pytest.mark.slow
async def test_metadata_is_requested_seldom_while_an_error_is_returned() -> None:
    """Checks the consumer: metadata is requested in the same loop for all roles."""
    assert await loops_that_are_too_fast(StaticConsumer, HANDSHAKE) == {}


async def loops_that_are_too_fast(
    kind: type[Role], excluded: Collection[int]
) -> dict[str, tuple[float, Counter[str]]]:
    """Return the errors, by name, for which a role exceeds the limit, and its requests."""
    found = {code.name: await busiest(kind, code, excluded) for code in ERRORS}
    return {name: row for name, row in found.items() if row[0] > MAX_REQUESTS_PER_SECOND}


@pytest.mark.parametrize("kind", ROLES, ids=lambda kind: kind.name)
async def test_client_sends_few_requests_while_rebootstrap_is_required(kind: type[Role]) -> None:
    """Checks connections too: each begins with an ApiVersions request, which gets the error."""
    others = {api.key for api in APIS} - HANDSHAKE - METADATA
    rate, kinds = await busiest(kind, ErrorCode.REBOOTSTRAP_REQUIRED, others, disconnect=True)
    assert rate <= MAX_REQUESTS_PER_SECOND, kinds
    assert kinds
