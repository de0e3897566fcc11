"""Malformed frames end the connection, fail its requests retriably, and cost no memory.

The broker is scripted, since the embedded cluster sends well-formed frames only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from kafka_async.cluster.broker_connection import MAX_FRAME_SIZES, BrokerConnection, ConnectionKind
from kafka_async.cluster.connection import MAX_HANDSHAKE_FRAME_SIZE
from kafka_async.cluster.framing import Frame, FrameReader, FrameSizeError, ReceiveBudget
from kafka_async.errors import (
    CorrelationIdMismatchError,
    DecodeError,
    KafkaConnectionError,
    KafkaTimeoutError,
    ProtocolError,
)
from kafka_async.protocol.header import encode_response
from kafka_async.protocol.messages.api_versions import ApiVersionsResponse
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafka_async.protocol.messages.produce import ProduceRequest, ProduceResponse
from tests.cluster.scripted import Peer, ScriptedBroker, World, always
from tests.embedded_client import until
from tests.hostile.measure import MIB, allocating_at_most, growing_at_most

if TYPE_CHECKING:
    from kafka_async.protocol.header import RequestHeader
    from kafka_async.protocol.message import Response

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

API_VERSIONS, HEARTBEAT, PRODUCE = 18, 12, 0
CAP = MAX_FRAME_SIZES[ConnectionKind.COORDINATOR]


class Siege:
    """A lane with requests under way to a broker that a test speaks for."""

    def __init__(self, world: World, connection: BrokerConnection) -> None:
        self.connection = connection
        self.broker: ScriptedBroker = world.brokers[1]
        self.broker.held.add(HEARTBEAT)
        self.peer: Peer
        self.waiting: list[asyncio.Future[HeartbeatResponse]] = []

    async def ask(self, count: int = 2) -> None:
        """Have so many requests under way."""
        await self.connection.connect(5.0)
        (self.peer,) = [peer for peer in self.broker.peers if peer.open and len(peer.seen) == 1]
        self.waiting = [
            self.connection.submit(HeartbeatRequest(group_id="g"), timeout=60.0)
            for _ in range(count)
        ]
        await until(lambda: len(self.broker.requests(HEARTBEAT)) == count)

    def header(self, index: int) -> RequestHeader:
        """That of the request so many after ApiVersions."""
        return self.peer.seen[1 + index][0]

    async def outcomes(self) -> list[Any]:
        """What became of each request."""
        return await asyncio.gather(*self.waiting, return_exceptions=True)

    async def recovers(self) -> None:
        """The connection is gone at both ends at once, and the next request makes another."""
        begun = asyncio.get_running_loop().time()
        await until(lambda: not self.peer.open)
        assert asyncio.get_running_loop().time() - begun < 1.0
        assert not self.connection.connected
        self.broker.held.clear()
        assert (
            await self.connection.send(HeartbeatRequest(group_id="g"), timeout=5.0)
            == HeartbeatResponse()
        )


@pytest_asyncio.fixture
async def siege() -> AsyncIterator[Siege]:
    world = World()
    async with world.client(request_timeout_ms=10_000) as client:
        yield Siege(world, client.connection(1, ConnectionKind.COORDINATOR, None))


def frame(header: RequestHeader, response: Response, tail: bytes = b"") -> bytes:
    whole = b"".join(encode_response(response, header.api_version, header.correlation_id)) + tail
    return (len(whole) - 4).to_bytes(4, "big") + whole[4:]


def size(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


def answer(siege: Siege, *indexes: int, shift: int = 0) -> bytes:
    """Answers to the requests of these numbers, with ids that are `shift` too high."""
    headers = [siege.header(index) for index in indexes]
    headers = [h._replace(correlation_id=h.correlation_id + shift) for h in headers]
    return b"".join(frame(header, HeartbeatResponse()) for header in headers)


@dataclass(frozen=True)
class Case:
    """What the broker says to two requests, how many it answers with it, what is wrong."""

    says: Callable[[Siege], bytes]
    answered: int = 0
    cause: type[Exception] = CorrelationIdMismatchError
    hangs_up: bool = False


CASES: dict[str, Case] = {
    "size -1": Case(lambda _: size(-1) + b"x" * 50, cause=FrameSizeError),
    "size -2^31": Case(lambda _: size(-(2**31)), cause=FrameSizeError),
    "size 0": Case(lambda _: size(0), cause=FrameSizeError),
    "size 3": Case(lambda _: size(3) + b"abc", cause=FrameSizeError),
    "size above the cap": Case(lambda _: size(CAP + 1), cause=FrameSizeError),
    "size 2^31-1": Case(lambda _: size(2**31 - 1) + b"x" * 1000, cause=FrameSizeError),
    "another protocol": Case(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n", cause=FrameSizeError),
    "EOF mid-size": Case(lambda _: size(100)[:2], cause=ConnectionError, hangs_up=True),
    "EOF mid-body": Case(lambda s: answer(s, 0)[:-1], cause=ConnectionError, hangs_up=True),
    "EOF in a frame at the cap": Case(
        lambda _: size(CAP) + b"x" * 1000, cause=ConnectionError, hangs_up=True
    ),
    "unknown correlation id": Case(lambda s: answer(s, 0, shift=1000)),
    "negative correlation id": Case(lambda _: size(4) + size(-1)),
    "reordered answers": Case(lambda s: answer(s, 1, 0)),
    "duplicate correlation id": Case(lambda s: answer(s, 0, 0), answered=1),
    "an answer too many": Case(lambda s: answer(s, 0, 1, 1), answered=2),
    "one byte too many": Case(lambda s: answer(s, 0, 1) + b"\0", answered=2),
}


@pytest.mark.parametrize("name", CASES)
async def test_a_frame_that_is_none_ends_the_connection(siege: Siege, name: str) -> None:
    case = CASES[name]
    await siege.ask()
    said = case.says(siege)
    begun = asyncio.get_running_loop().time()
    with allocating_at_most(2 * MIB):
        siege.peer.transport.write(said)
        if case.hangs_up:
            siege.peer.transport.close()
        await until(lambda: not siege.peer.open)
        outcomes = await siege.outcomes()
    assert asyncio.get_running_loop().time() - begun < 1.0
    assert outcomes[: case.answered] == [HeartbeatResponse()] * case.answered
    for error in outcomes[case.answered :]:
        assert isinstance(error, KafkaConnectionError)
        assert error.retriable
        assert isinstance(error.__cause__, case.cause)
        assert "broker 1" in str(error)
    await siege.recovers()


@pytest.mark.parametrize("name", CASES)
async def test_a_frame_that_is_none_ends_it_byte_by_byte_too(siege: Siege, name: str) -> None:
    case = CASES[name]
    await siege.ask()
    for byte in case.says(siege):
        siege.peer.transport.write(bytes([byte]))
        await asyncio.sleep(0.01)
    if case.hangs_up:
        siege.peer.transport.close()
    outcomes = await siege.outcomes()
    assert outcomes[: case.answered] == [HeartbeatResponse()] * case.answered
    assert all(isinstance(error, KafkaConnectionError) for error in outcomes[case.answered :])
    await siege.recovers()


async def test_an_answer_to_acks_0_ends_the_connection(siege: Siege) -> None:
    def answer_it(peer: Peer, header: RequestHeader, request: Any) -> Response:
        return ProduceResponse()

    siege.broker.handlers[PRODUCE] = answer_it
    await siege.ask(0)
    request = ProduceRequest(acks=0)
    await siege.connection.submit(request, timeout=5.0, expect_response=False)
    await siege.recovers()


async def test_an_answer_to_acks_0_is_not_taken_for_another_requests(siege: Siege) -> None:
    await siege.ask(0)
    await siege.connection.submit(ProduceRequest(acks=0), timeout=5.0, expect_response=False)
    siege.waiting = [siege.connection.submit(HeartbeatRequest(group_id="g"), timeout=60.0)]
    (error,) = await siege.outcomes()
    assert isinstance(error.__cause__, CorrelationIdMismatchError)
    await siege.recovers()


async def test_bytes_that_nobody_asked_for_end_the_connection(siege: Siege) -> None:
    await siege.ask(0)
    siege.peer.transport.write(size(CAP)[:1])
    await siege.recovers()


async def test_bytes_after_a_message_in_its_frame_fail_that_call_only(siege: Siege) -> None:
    await siege.ask()
    first, second = siege.header(0), siege.header(1)
    siege.peer.transport.write(frame(first, HeartbeatResponse(), b"extra"))
    siege.peer.transport.write(frame(second, HeartbeatResponse()))
    error, other = await siege.outcomes()
    assert isinstance(error, DecodeError)
    assert "5 bytes after the message" in str(error)
    assert other == HeartbeatResponse()
    assert siege.connection.connected  # where the next frame begins is known


async def test_a_dribble_gets_no_more_time_than_silence(siege: Siege) -> None:
    await siege.ask()
    loop = asyncio.get_running_loop()
    begun = loop.time()
    siege.waiting = [siege.connection.submit(HeartbeatRequest(group_id="g"), timeout=20.0)]
    dribble(siege.peer, size(CAP) + bytes(CAP // MIB * 1000))
    with allocating_at_most(2 * MIB):
        (error,) = await siege.outcomes()
        await until(lambda: not siege.peer.open)
    assert isinstance(error, KafkaTimeoutError | KafkaConnectionError)
    assert loop.time() - begun == pytest.approx(20.0, abs=0.1)
    await siege.recovers()


async def test_a_dribble_in_the_handshake_gets_no_more_time_than_silence(siege: Siege) -> None:
    def slowly(peer: Peer, header: RequestHeader, request: Any) -> None:
        dribble(peer, size(MAX_HANDSHAKE_FRAME_SIZE) + bytes(1000))

    siege.broker.handlers[API_VERSIONS] = slowly
    before = siege.broker.connections
    loop = asyncio.get_running_loop()
    begun = loop.time()
    with pytest.raises(KafkaConnectionError):
        await siege.connection.connect(100.0)
    assert loop.time() - begun <= 12.0  # socket_connection_setup_timeout_ms is 10 s, give or take
    await until(lambda: siege.broker.connections == before)


def dribble(peer: Peer, data: Sequence[int]) -> None:
    """A byte each second."""
    loop = asyncio.get_running_loop()
    rest = iter(data)

    def next_byte() -> None:
        byte = next(rest, None)
        if byte is not None and peer.open:
            peer.transport.write(bytes([byte]))
            loop.call_later(1.0, next_byte)

    next_byte()


# -- caps by lane ---------------------------------------------------------------------------------

CAPS = {
    ConnectionKind.GENERAL: 16 * MIB,
    ConnectionKind.SLOW: 16 * MIB,
    ConnectionKind.PRODUCE: 16 * MIB,
    ConnectionKind.COORDINATOR: 16 * MIB,
    ConnectionKind.FETCH: 100 * MIB,
}


async def test_the_caps_are_those_of_the_design() -> None:
    assert MAX_FRAME_SIZES == CAPS
    assert MAX_HANDSHAKE_FRAME_SIZE == MIB


@pytest.mark.parametrize("kind", ConnectionKind)
@pytest.mark.parametrize("over", [0, 1])
async def test_each_lane_has_its_cap(kind: ConnectionKind, over: int) -> None:
    world = World()
    async with world.client() as client:
        connection = client.connection(1, kind, None)
        await connection.connect(5.0)
        peer = world.brokers[1].peers[-1]
        world.brokers[1].held.add(HEARTBEAT)
        waiting = connection.submit(HeartbeatRequest(group_id="g"), timeout=5.0)
        with growing_at_most(2 * MIB):
            peer.transport.write(size(CAPS[kind] + over) + b"x" * 1000)
            await asyncio.sleep(0.1)
            assert connection.connected is not bool(over)
        if over:
            with pytest.raises(KafkaConnectionError, match="a frame claims"):
                await waiting
        waiting.cancel()


@pytest.mark.parametrize("over", [0, 1])
async def test_before_the_handshake_is_over_a_frame_has_1_mib(siege: Siege, over: int) -> None:
    def claim(peer: Peer, header: RequestHeader, request: Any) -> None:
        peer.transport.write(size(MAX_HANDSHAKE_FRAME_SIZE + over))

    siege.broker.handlers[API_VERSIONS] = claim
    connecting = asyncio.create_task(siege.connection.connect(100.0))
    await asyncio.sleep(1.0)
    assert connecting.done() is bool(over)
    siege.broker.handlers[API_VERSIONS] = always(ApiVersionsResponse(error_code=-1))
    with pytest.raises(KafkaConnectionError):
        await connecting


@pytest.mark.parametrize("kind", ConnectionKind)
async def test_a_hundred_claims_of_a_whole_cap_cost_what_arrived(kind: ConnectionKind) -> None:
    cap = MAX_FRAME_SIZES[kind]
    budget = ReceiveBudget(1 << 40)
    blocked: list[bool] = []
    frames: list[Frame] = []
    readers = [FrameReader(cap, budget, blocked.append) for _ in range(100)]
    with allocating_at_most(100 * 66 * 1024):  # the 64 KiB that each large frame begins with
        for reader in readers:
            room = reader.room()
            room[:8] = size(cap) + b"only"
            room.release()
            assert reader.received(8, frames.append)
    for reader in readers:
        reader.close()
    assert not frames
    assert budget.held == 0


async def test_frame_errors_are_the_protocols() -> None:
    assert issubclass(FrameSizeError, ProtocolError)
    assert issubclass(CorrelationIdMismatchError, ProtocolError)
