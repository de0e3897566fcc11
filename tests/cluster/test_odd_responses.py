"""Responses that no broker sends, on scripted brokers.

The embedded cluster cannot produce them: malformed responses, a foreign correlation id, frames
above the limits, metadata that name no broker, two responses in one segment, and a response during
the throttle window of that connection, which the embedded cluster mutes as Kafka does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from kafka_async.cluster.broker_connection import BrokerConnection, ConnectionKind
from kafka_async.errors import DecodeError, KafkaConnectionError
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafka_async.protocol.messages.metadata import MetadataResponse
from tests.cluster.scripted import METADATA, ScriptedBroker, World, always
from tests.embedded_client import until

if TYPE_CHECKING:
    from kafka_async.cluster.client import Client

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

HEARTBEAT = HeartbeatRequest.API_KEY


class Setting:
    """A lane to broker 1 of a scripted world."""

    def __init__(self, world: World, client: Client) -> None:
        self.world = world
        self.connection: BrokerConnection = client.connection(1, ConnectionKind.COORDINATOR, self)

    @property
    def broker(self) -> ScriptedBroker:
        return self.world.brokers[1]


@pytest_asyncio.fixture
async def setting() -> AsyncIterator[Setting]:
    world = World()
    async with world.client(
        request_timeout_ms=10_000,
        metadata_recovery_strategy="none",  # a rebootstrap would disconnect the lane
    ) as client:
        yield Setting(world, client)


def now() -> float:
    return asyncio.get_running_loop().time()


def nonsense(peer: Any, header: Any, request: Any) -> None:
    """Respond with bytes that are no response."""
    body = header.correlation_id.to_bytes(4, "big") + b"\x00\xff"
    peer.transport.write(len(body).to_bytes(4, "big") + body)


async def test_a_malformed_response_fails_its_request_alone(setting: Setting) -> None:
    setting.broker.answers[HEARTBEAT] = nonsense
    await setting.connection.connect(1.0)
    future = setting.connection.submit(HeartbeatRequest(group_id="g"), timeout=1.0)
    gathered = await asyncio.gather(future, return_exceptions=True)
    assert isinstance(gathered[0], DecodeError)
    with pytest.raises(DecodeError, match="HeartbeatResponse version 4"):
        await setting.connection.send(HeartbeatRequest(group_id="g"), timeout=1.0)


async def test_a_malformed_response_is_passed_to_the_callback_as_an_error(setting: Setting) -> None:
    setting.broker.answers[HEARTBEAT] = nonsense
    await setting.connection.connect(1.0)
    heard: list[Any] = []
    setting.connection.ask(HeartbeatRequest(group_id="g"), heard.append, timeout=1.0)
    await until(lambda: len(heard) == 1)
    assert isinstance(heard[0], DecodeError)
    assert setting.connection.connected


async def test_a_response_out_of_order_ends_the_connection(setting: Setting) -> None:
    def other(peer: Any, header: Any, request: Any) -> None:
        peer.say(header._replace(correlation_id=77), HeartbeatResponse())

    setting.broker.answers[HEARTBEAT] = other
    with pytest.raises(KafkaConnectionError, match="an answer to request 77 came; 1 is due"):
        await setting.connection.send(HeartbeatRequest(group_id="g"), timeout=1.0)
    assert not setting.connection.connected


async def test_a_frame_above_the_cap_of_the_lane_ends_the_connection(setting: Setting) -> None:
    def huge(peer: Any, header: Any, request: Any) -> None:
        peer.transport.write((17 * 2**20).to_bytes(4, "big"))

    setting.broker.answers[HEARTBEAT] = huge
    with pytest.raises(KafkaConnectionError, match="claims 17825792 bytes, 4 to 16777216 are"):
        await setting.connection.send(HeartbeatRequest(group_id="g"), timeout=1.0)


async def test_a_frame_above_1_mib_is_refused_during_the_handshake(
    setting: Setting,
) -> None:
    setting.broker.greeting = (2**20 + 1).to_bytes(4, "big")
    with pytest.raises(KafkaConnectionError, match="bytes that are no Kafka"):
        await setting.connection.connect(1.0)


async def test_callbacks_run_before_futures_of_responses_that_arrive_together(
    setting: Setting,
) -> None:
    await setting.connection.connect(1.0)
    setting.broker.held.add(HEARTBEAT)
    order: list[object] = []
    future = setting.connection.submit(HeartbeatRequest(group_id="g"), timeout=5.0)
    future.add_done_callback(lambda _: order.append("the future, one iteration later"))
    setting.connection.ask(HeartbeatRequest(group_id="g"), order.append, timeout=5.0)
    await until(lambda: len(setting.broker.asked(HEARTBEAT)) == 2)
    (peer,) = [peer for peer in setting.broker.peers if peer.open]
    for code, (header, _) in enumerate(peer.seen[1:]):
        peer.say(header, HeartbeatResponse(error_code=code))
    await until(lambda: len(order) == 2)
    assert order == [HeartbeatResponse(error_code=1), "the future, one iteration later"]


async def test_a_request_waits_until_an_extended_throttle_window_ends(
    setting: Setting,
) -> None:
    setting.broker.answers[HEARTBEAT] = always(HeartbeatResponse(throttle_time_ms=3000))
    begun = now()
    await setting.connection.send(HeartbeatRequest(group_id="g"), timeout=1.0)
    setting.broker.answers.clear()
    waiting = asyncio.create_task(
        setting.connection.send(HeartbeatRequest(group_id="g"), timeout=30.0)
    )
    await asyncio.sleep(2)
    setting.broker.answers[HEARTBEAT] = always(HeartbeatResponse(throttle_time_ms=6000))
    await setting.connection.submit(
        HeartbeatRequest(group_id="g"), timeout=1.0
    )  # as one that was pipelined
    setting.broker.answers.clear()
    await waiting
    assert now() - begun == pytest.approx(8.0)


async def test_start_retries_a_broker_that_knows_no_brokers() -> None:
    world = World()
    world.answers[METADATA] = always(MetadataResponse())
    client = world.client()
    starting = asyncio.create_task(client.start())
    await asyncio.sleep(5)
    assert not starting.done()
    assert len(world.brokers[1].asked(METADATA)) <= 12
    del world.answers[METADATA]
    await starting
    await client.stop()
