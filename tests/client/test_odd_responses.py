"""Tests of responses that no correct broker sends, on scripted brokers.

The embedded cluster cannot produce them: malformed responses, a wrong correlation id, frames above
the limits, metadata without brokers, two responses in one segment, and a response while that
connection is muted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from kafka_async.client.client import services_of
from kafka_async.client.connection.broker_connection import BrokerConnection, ConnectionKind
from kafka_async.errors import DecodeError, KafkaConnectionError, KafkaTimeoutError
from kafka_async.hooks import Rebootstrapped
from kafka_async.protocol.header import encode_response
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafka_async.protocol.messages.metadata import MetadataResponse
from tests.client.scripted import METADATA, ScriptedBroker, World, always
from tests.embedded_client import now, until

if TYPE_CHECKING:
    from kafka_async.client.client import Client

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

HEARTBEAT = HeartbeatRequest.API_KEY
REQUEST = HeartbeatRequest(group_id="g")


class Setting:
    """A connection to broker 1 of a scripted cluster."""

    def __init__(self, world: World, client: Client) -> None:
        self.world, self.client = world, client
        self.connection: BrokerConnection = services_of(client).brokers.connection(
            1, ConnectionKind.COORDINATOR, self
        )

    @property
    def broker(self) -> ScriptedBroker:
        return self.world.brokers[1]


@pytest_asyncio.fixture
async def setting() -> AsyncIterator[Setting]:
    world = World()
    async with world.client(
        request_timeout_ms=10_000,
        metadata_recovery_strategy="none",  # a rebootstrap would close the connection
    ) as client:
        yield Setting(world, client)


def respond_malformed(peer: Any, header: Any, request: Any) -> None:
    """Respond with bytes that cannot be decoded."""
    body = header.correlation_id.to_bytes(4, "big") + b"\x00\xff"
    peer.transport.write(len(body).to_bytes(4, "big") + body)


async def test_malformed_response_fails_only_its_request(setting: Setting) -> None:
    setting.broker.handlers[HEARTBEAT] = respond_malformed
    await setting.connection.connect(1.0)
    future = setting.connection.submit(REQUEST, timeout=1.0)
    gathered = await asyncio.gather(future, return_exceptions=True)
    assert isinstance(gathered[0], DecodeError)
    with pytest.raises(DecodeError, match="HeartbeatResponse version 4"):
        await setting.connection.send(REQUEST, timeout=1.0)


async def test_malformed_response_is_passed_to_callback_as_error(setting: Setting) -> None:
    setting.broker.handlers[HEARTBEAT] = respond_malformed
    await setting.connection.connect(1.0)
    results: list[Any] = []
    setting.connection.submit_with_callback(REQUEST, results.append, timeout=1.0)
    await until(lambda: len(results) == 1)
    assert isinstance(results[0], DecodeError)
    assert setting.connection.connected


async def test_response_out_of_order_closes_the_connection(setting: Setting) -> None:
    def other(peer: Any, header: Any, request: Any) -> None:
        peer.respond(header._replace(correlation_id=77), HeartbeatResponse())

    setting.broker.handlers[HEARTBEAT] = other
    with pytest.raises(KafkaConnectionError, match="response to request 77 instead of 1"):
        await setting.connection.send(REQUEST, timeout=1.0)
    assert not setting.connection.connected


async def test_bytes_after_the_last_response_close_the_connection(setting: Setting) -> None:
    def twice(peer: Any, header: Any, request: Any) -> None:
        parts = encode_response(HeartbeatResponse(), header.api_version, header.correlation_id)
        peer.transport.write(2 * b"".join(parts))

    setting.broker.handlers[HEARTBEAT] = twice
    assert await setting.connection.send(REQUEST, timeout=1.0) == HeartbeatResponse()
    await until(lambda: not setting.connection.connected)
    unexpected = "a response while no request was in flight (correlation id 1)"
    assert unexpected in str(setting.client.health().last_error)


async def test_beginning_of_an_unexpected_response_closes_the_connection(setting: Setting) -> None:
    await setting.connection.connect(1.0)
    setting.broker.peers[-1].transport.write(b"\x00")
    await until(lambda: not setting.connection.connected)
    unexpected = "received bytes while no request was in flight"
    assert unexpected in str(setting.client.health().last_error)


async def test_frame_above_max_frame_size_closes_the_connection(setting: Setting) -> None:
    def huge(peer: Any, header: Any, request: Any) -> None:
        peer.transport.write((17 * 2**20).to_bytes(4, "big"))

    setting.broker.handlers[HEARTBEAT] = huge
    with pytest.raises(KafkaConnectionError, match="claims 17825792 bytes, 4 to 16777216 are"):
        await setting.connection.send(REQUEST, timeout=1.0)


async def test_rejects_frame_above_1_mib_during_handshake(setting: Setting) -> None:
    setting.broker.greeting = (2**20 + 1).to_bytes(4, "big")
    with pytest.raises(KafkaConnectionError, match="bytes that are not the Kafka protocol"):
        await setting.connection.connect(1.0)


async def test_callbacks_run_before_futures_of_responses_that_arrive_together(
    setting: Setting,
) -> None:
    await setting.connection.connect(1.0)
    setting.broker.held.add(HEARTBEAT)
    order: list[object] = []
    future = setting.connection.submit(REQUEST, timeout=5.0)
    future.add_done_callback(lambda _: order.append("the future, one iteration later"))
    setting.connection.submit_with_callback(REQUEST, order.append, timeout=5.0)
    await until(lambda: len(setting.broker.requests(HEARTBEAT)) == 2)
    (peer,) = [peer for peer in setting.broker.peers if peer.open]
    for code, (header, _) in enumerate(peer.seen[1:]):
        peer.respond(header, HeartbeatResponse(error_code=code))
    await until(lambda: len(order) == 2)
    assert order == [HeartbeatResponse(error_code=1), "the future, one iteration later"]


@pytest.mark.parametrize(("throttle_time_ms", "end"), [(6000, 8.0), (100, 3.0)])
async def test_second_throttle_time_extends_and_does_not_shorten_the_wait(
    setting: Setting, throttle_time_ms: int, end: float
) -> None:
    setting.broker.handlers[HEARTBEAT] = always(HeartbeatResponse(throttle_time_ms=3000))
    start = now()
    await setting.connection.send(REQUEST, timeout=1.0)
    setting.broker.handlers.clear()
    waiting = asyncio.create_task(setting.connection.send(REQUEST, timeout=30.0))
    await asyncio.sleep(2)
    response = HeartbeatResponse(throttle_time_ms=throttle_time_ms)
    setting.broker.handlers[HEARTBEAT] = always(response)
    await setting.connection.submit(REQUEST, timeout=1.0)  # pipelined
    setting.broker.handlers.clear()
    await setting.connection.send(REQUEST, timeout=30.0)
    assert now() - start == pytest.approx(end)
    await waiting
    assert now() - start == pytest.approx(end)


async def test_start_retries_after_metadata_without_brokers() -> None:
    world = World()
    world.handlers[METADATA] = always(MetadataResponse())
    client = world.client()
    starting = asyncio.create_task(client.start())
    await asyncio.sleep(5)
    assert not starting.done()
    assert len(world.brokers[1].requests(METADATA)) <= 12
    del world.handlers[METADATA]
    await starting
    await client.stop()


async def test_response_without_brokers_does_not_end_the_time_without_metadata() -> None:
    world = World()
    async with world.client(metadata_recovery_rebootstrap_trigger_ms=5_000) as client:
        reasons: list[str] = []
        client.hooks.listen(Rebootstrapped, lambda event: reasons.append(event.reason))
        world.brokers[1].handlers[METADATA] = always(MetadataResponse(brokers=[]))
        with pytest.raises(KafkaTimeoutError):
            await services_of(client).metadata.refresh(timeout=8.0)
        assert reasons == ["no metadata for 5 s"]
