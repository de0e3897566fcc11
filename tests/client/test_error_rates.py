"""Tests of how many requests a client sends while a broker returns the same error."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import pytest

from kafka_async.admin import ConfigResource, ResourceType
from kafka_async.embedded import ErrorCode
from kafka_async.errors import KafkaError, RetriableError, for_code
from kafka_async.protocol.api import APIS
from kafka_async.protocol.messages.api_versions import ApiVersionsRequest
from kafka_async.protocol.messages.metadata import MetadataRequest
from tests.embedded_client import InMemory
from tests.rebootstrap_roles import (
    ROLES,
    AdminClient,
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


class Observed(NamedTuple):
    """Describes what a client does while an error is returned.

    Attributes:
        rate: The most requests per second that a broker gets.
        kinds: Number of requests of each API that this broker gets.
        injected: Number of responses with the error, of all brokers.
        pending: True if the calls of the role have not ended while the error was returned.
        error: The error that the calls have raised, then or after the error has ended.
    """

    rate: float
    kinds: Counter[str]
    injected: int
    pending: bool
    error: KafkaError | None

    def check(self, code: ErrorCode) -> None:
        """Check that requests got the error, and that it was retried or raised."""
        assert self.injected > 0, code.name
        if self.pending:  # The calls succeed after the error has ended.
            assert self.error is None, code.name
            assert self.injected > 1, code.name
        elif self.error is None:  # A task of the client retries, such as for a fetch.
            assert self.injected > 1, code.name
        else:
            found = self.error if self.error.code is not None else self.error.__cause__
            assert isinstance(found, for_code(code)), code.name
        assert self.rate <= MAX_REQUESTS_PER_SECOND, (code.name, self.kinds)


async def run_role(role: Role) -> KafkaError | None:
    """Make calls of a role, which may fail; return the error."""
    try:
        if isinstance(role, LowLevelClient):
            await role.error_codes()
        elif isinstance(role, AdminClient):  # Listing topics sends only metadata requests.
            await role.admin.describe_configs([ConfigResource(ResourceType.TOPIC, role.topic)])
            await role.admin.list_groups()
            await role.during()
        else:
            await role.during()
    except KafkaError as error:
        return error
    return None


async def observe(
    kind: type[Role], code: ErrorCode, excluded: Collection[int], *, disconnect: bool = False
) -> Observed:
    """Return an error to all requests of other APIs for some time.

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
            rows, pending = memory.received[first:], not calls.done()
            fault.remove()
            error = await calls
        counts = Counter(row.broker for row in rows)
        broker, count = counts.most_common(1)[0] if counts else (0, 0)
        kinds = Counter(type(row.request).__name__ for row in rows if row.broker == broker)
        return Observed(count / DURATION, kinds, fault.hits, pending, error)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ROLES, ids=lambda kind: kind.name)
async def test_client_sends_few_requests_while_an_error_is_returned(kind: type[Role]) -> None:
    for code in ERRORS:
        (await observe(kind, code, HANDSHAKE | METADATA)).check(code)


@pytest.mark.slow
async def test_metadata_is_requested_seldom_while_an_error_is_returned() -> None:
    """Checks the consumer: metadata is requested in the same loop for all roles."""
    for code in ERRORS:
        (await observe(StaticConsumer, code, HANDSHAKE)).check(code)


@pytest.mark.parametrize("kind", ROLES, ids=lambda kind: kind.name)
async def test_client_sends_few_requests_while_rebootstrap_is_required(kind: type[Role]) -> None:
    """Checks connections too: each begins with an ApiVersions request, which gets the error."""
    others = {api.key for api in APIS} - HANDSHAKE - METADATA
    code = ErrorCode.REBOOTSTRAP_REQUIRED
    observed = await observe(kind, code, others, disconnect=True)
    assert observed.rate <= MAX_REQUESTS_PER_SECOND, observed.kinds
    assert observed.injected > 1
    assert observed.error is None  # The application does not see the error.
