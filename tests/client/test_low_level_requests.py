"""Tests of the low-level client's handles, and of requests without a response (acks=0)."""

from __future__ import annotations

import asyncio
import gc
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from kafka_async.client.client import services_of
from kafka_async.client.metadata.request_router import (
    AnyBroker,
    Broker,
    Controller,
    CoordinatorOfGroup,
    CoordinatorOfTransactionalId,
    Destination,
    Leader,
)
from kafka_async.errors import (
    BrokerNotAvailableError,
    ClientClosedError,
    EncodeError,
    KafkaConnectionError,
    KafkaTimeoutError,
)
from kafka_async.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafka_async.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kafka_async.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kafka_async.protocol.messages.sync_group import SyncGroupRequest
from kafka_async.types import TopicPartition
from tests.embedded_client import InMemory, now, settle, until
from tests.raw_connection import batch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kafka_async.client.client import Client
    from kafka_async.client.connection.broker_connection import BrokerConnection

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

REQUEST = ListGroupsRequest()
"""A request that every broker can handle."""
PARTITION = TopicPartition("t", 0)
RECORD_BYTES = 700_000
"""Size of a record that fills the connection's buffers, and is below message.max.bytes."""


def numbered(number: int) -> FindCoordinatorRequest:
    """Return a request whose response has the number too."""
    return FindCoordinatorRequest(coordinator_keys=[str(number)])


def unacknowledged(*values: bytes) -> ProduceRequest:
    """Return a Produce request with acks=0 that writes the values to `PARTITION`."""
    data = PartitionProduceData(index=PARTITION.partition, records=batch(*values))
    topic = TopicProduceData(name=PARTITION.topic, partition_data=[data])
    return ProduceRequest(acks=0, timeout_ms=1000, topic_data=[topic])


class Setting:
    """A client of a cluster with two brokers; broker 1 leads `PARTITION`."""

    def __init__(self, memory: InMemory, client: Client) -> None:
        self.memory, self.client = memory, client

    @property
    def connection(self) -> BrokerConnection:
        """The connection that requests to broker 1 use."""
        return services_of(self.client).brokers.general(1)

    @property
    def writing_paused(self) -> bool:
        """True while the broker does not read what the client writes."""
        connection: Any = self.connection
        return connection._connection.writing_paused


@pytest_asyncio.fixture
async def setting() -> AsyncIterator[Setting]:
    async with InMemory(2) as memory:
        await memory.cluster.create_topic("t", assignments={0: [1]})
        async with memory.client(request_timeout_ms=10_000) as client:
            # So that no request for metadata has to pass a connection that the broker blocks.
            await services_of(client).metadata.wait_for_topics(["t"], 5.0)
            yield Setting(memory, client)


@pytest.fixture
def client(setting: Setting) -> Client:
    return setting.client


# -- handles --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "to",
    [
        AnyBroker(),
        Broker(2),
        Leader(PARTITION),
        CoordinatorOfGroup("g"),
        CoordinatorOfTransactionalId("x"),
        Controller(),
    ],
    ids=str,
)
async def test_handle_returns_the_response_of_each_destination(
    client: Client, to: Destination
) -> None:
    handle = client.submit(REQUEST, to=to)
    assert not handle.done
    assert await handle == ListGroupsResponse()
    assert handle.done
    assert await handle == await handle.response() == ListGroupsResponse()


async def test_requests_are_pipelined_and_responses_belong_to_their_handles(
    setting: Setting,
) -> None:
    held = setting.memory.hang("FindCoordinator", broker=1)
    handles = [setting.client.submit(numbered(number), to=Broker(1)) for number in range(20)]
    await held.wait()
    await until(lambda: setting.connection.in_flight == 20)
    held.remove()
    responses = await asyncio.gather(*handles)
    assert [int(response.coordinators[0].key) for response in responses] == list(range(20))


async def test_each_await_is_cancelled_alone(setting: Setting) -> None:
    held = setting.memory.hang("ListGroups")
    handle = setting.client.submit(REQUEST, to=Broker(1))
    first, second = (asyncio.ensure_future(handle.response()) for _ in range(2))
    await held.wait()
    first.cancel()
    await asyncio.wait({first})
    assert first.cancelled()
    assert not handle.done
    held.remove()
    assert await second == await handle == ListGroupsResponse()


async def test_response_raises_after_its_timeout_and_the_request_goes_on(setting: Setting) -> None:
    held = setting.memory.hang("ListGroups")
    handle = setting.client.submit(REQUEST, to=Broker(1))
    start = now()
    with pytest.raises(KafkaTimeoutError, match="the request has no response after 2 s"):
        await handle.response(timeout=2.0)
    assert now() - start == pytest.approx(2.0)
    held.remove()
    assert await handle.response(timeout=2.0) == ListGroupsResponse()
    assert len(setting.memory.requests(ListGroupsRequest)) == 1


async def test_cancelled_request_keeps_the_order_of_responses_and_is_not_sent_again(
    setting: Setting,
) -> None:
    held = setting.memory.hang("FindCoordinator", broker=1)
    first, second = (setting.client.submit(numbered(number), to=Broker(1)) for number in (1, 2))
    await held.wait()
    await until(lambda: setting.connection.in_flight == 2)
    assert first.cancel()
    assert not first.cancel()
    assert first.cancelled
    with pytest.raises(asyncio.CancelledError):
        await first
    held.remove()
    assert (await second).coordinators[0].key == "2"
    assert not second.cancel()
    assert not second.cancelled
    keys = [each.coordinator_keys[0] for each in setting.memory.requests(FindCoordinatorRequest)]
    assert keys == ["1", "2"]


async def test_request_that_is_cancelled_at_once_does_not_leave(setting: Setting) -> None:
    handle = setting.client.submit(REQUEST, to=Broker(1))
    handle.cancel()
    await setting.client.request(numbered(1), to=Broker(1))
    assert setting.memory.requests(ListGroupsRequest) == []


async def test_error_is_raised_by_each_await(client: Client) -> None:
    handle = client.submit(REQUEST, to=Broker(7))
    for _ in range(2):
        with pytest.raises(BrokerNotAvailableError, match="no broker 7"):
            await handle
    wrong = client.submit(SyncGroupRequest(group_id=5), to=AnyBroker())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(EncodeError):
        await wrong


async def test_dropped_handle_does_not_end_its_request_and_logs_no_error(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    setting.client.submit(REQUEST, to=Broker(1))
    setting.client.submit(REQUEST, to=Broker(7))
    await until(lambda: len(setting.memory.requests(ListGroupsRequest)) == 1)
    await settle()
    gc.collect()
    assert [row for row in caplog.records if row.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("sent", [False, True])
async def test_stop_of_the_client_fails_its_handles(setting: Setting, sent: bool) -> None:
    held = setting.memory.hang("ListGroups")
    handle = setting.client.submit(REQUEST, to=Broker(1))
    if sent:
        await held.wait()
    await setting.client.stop()
    with pytest.raises(ClientClosedError, match="closed"):
        await handle
    with pytest.raises(ClientClosedError):
        setting.client.submit(REQUEST, to=Broker(1))


async def test_handle_retries_after_a_lost_connection_unless_told_not_to(setting: Setting) -> None:
    await setting.client.request(REQUEST, to=Broker(1))
    for retry in (True, False):
        setting.memory.cluster.faults.add(api="ListGroups", broker=1, disconnect="before")
        handle = setting.client.submit(REQUEST, to=Broker(1), retry=retry)
        if retry:
            assert await handle == ListGroupsResponse()
            continue
        with pytest.raises(KafkaConnectionError):
            await handle


# -- requests without a response ------------------------------------------------------------------


@pytest.mark.parametrize("submitted", [False, True])
async def test_request_without_a_response_returns_when_it_was_written(
    setting: Setting, submitted: bool
) -> None:
    client = setting.client
    await client.request(REQUEST, to=Broker(1))
    if submitted:
        response = await client.submit(unacknowledged(b"v"), to=Leader(PARTITION), max_version=9)
    else:
        response = await client.request(unacknowledged(b"v"), to=Leader(PARTITION), max_version=9)
    assert response == ProduceResponse()
    assert setting.connection.in_flight == 0
    # The next response would close the connection if the table of requests had an entry more.
    assert (await client.request(numbered(3), to=Broker(1))).coordinators[0].key == "3"
    assert setting.memory.values("t") == [b"v"]
    assert setting.memory.connections(1) == 1


async def test_request_without_a_response_leaves_between_requests_in_flight(
    setting: Setting,
) -> None:
    held = setting.memory.hang("ListGroups", broker=1)
    before = setting.client.submit(REQUEST, to=Broker(1))
    await held.wait()
    await setting.client.request(unacknowledged(b"v"), to=Leader(PARTITION), max_version=9)
    after = setting.client.submit(numbered(4), to=Broker(1))
    await until(lambda: setting.connection.in_flight == 2)
    held.remove()
    assert await before == ListGroupsResponse()
    assert (await after).coordinators[0].key == "4"
    assert setting.memory.values("t") == [b"v"]


async def stop_reading(setting: Setting) -> Any:
    """Let broker 1 stop reading its connection; return the fault that causes it."""
    held = setting.memory.hang("ListGroups", broker=1)
    for _ in range(3):
        setting.client.submit(REQUEST, to=Broker(1), timeout=600.0, retry=False)
    await held.wait()
    await until(lambda: setting.connection.in_flight == 3)
    return held


async def test_request_without_a_response_waits_until_the_broker_reads_it(
    setting: Setting,
) -> None:
    held = await stop_reading(setting)
    large = unacknowledged(b"v" * RECORD_BYTES)
    writing = setting.client.submit(large, to=Leader(PARTITION), max_version=9)
    await until(lambda: setting.writing_paused)
    await asyncio.sleep(1.0)
    assert not writing.done
    held.remove()
    assert await writing == ProduceResponse()
    await setting.client.request(REQUEST, to=Broker(1))
    assert setting.memory.values("t") == [b"v" * RECORD_BYTES]


async def test_request_without_a_response_raises_if_the_broker_does_not_read(
    setting: Setting,
) -> None:
    held = await stop_reading(setting)
    large = unacknowledged(b"v" * RECORD_BYTES)
    for _ in range(2):  # the second request waits before it is written
        start = now()
        with pytest.raises(KafkaTimeoutError, match="has not read the bytes"):
            await setting.client.request(
                large, to=Leader(PARTITION), timeout=2.0, retry=False, max_version=9
            )
        assert now() - start == pytest.approx(2.0, abs=0.01)
    held.remove()
    await setting.client.request(REQUEST, to=Broker(1))
    assert len(setting.memory.values("t")) == 1


async def test_request_without_a_response_raises_if_the_connection_ends_before_it_was_written(
    setting: Setting,
) -> None:
    await stop_reading(setting)
    large = unacknowledged(b"v" * RECORD_BYTES)
    writing = setting.client.submit(large, to=Leader(PARTITION), retry=False, max_version=9)
    await until(lambda: setting.writing_paused)
    setting.connection.disconnect(KafkaConnectionError("closed by the test"))
    with pytest.raises(KafkaConnectionError, match="lost before the request was written"):
        await writing


async def test_connection_without_responses_is_closed_if_the_broker_stops_reading(
    setting: Setting,
) -> None:
    """The next request opens another one."""
    await setting.client.request(REQUEST, to=Broker(1))
    held = setting.memory.hang("Produce", broker=1)
    large = unacknowledged(b"v" * RECORD_BYTES)
    handles = [
        setting.client.submit(large, to=Leader(PARTITION), retry=False, max_version=9)
        for _ in range(5)
    ]
    await until(lambda: setting.writing_paused)
    await asyncio.sleep(9.0)
    assert setting.connection.connected
    await asyncio.sleep(1.5)
    assert not setting.connection.connected
    for handle in handles:
        with suppress(KafkaConnectionError, KafkaTimeoutError):  # some were written
            await handle
    held.remove()
    await setting.client.request(REQUEST, to=Broker(1))


async def test_request_without_a_response_waits_for_the_end_of_a_throttle_window(
    setting: Setting,
) -> None:
    setting.memory.cluster.faults.add(api="ListGroups", broker=1, throttle=3.0)
    await setting.client.request(REQUEST, to=Broker(1))
    start = now()
    await setting.client.request(unacknowledged(b"v"), to=Leader(PARTITION), max_version=9)
    assert now() - start == pytest.approx(3.0)
    assert setting.memory.cluster.throttle_log.violations() == []
