"""Malformed frames close the connection, fail its requests with retriable errors, take no memory.

The broker is scripted: the embedded cluster sends well-formed frames only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from kafka_async.client.client import services_of
from kafka_async.client.connection.broker_connection import (
    MAX_FRAME_SIZES,
    BrokerConnection,
    ConnectionKind,
)
from kafka_async.client.connection.connection import MAX_HANDSHAKE_FRAME_SIZE
from kafka_async.client.wire.framing import Frame, FrameReader, FrameSizeError, ReceiveBudget
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
from tests.client.scripted import Peer, ScriptedBroker, World, always
from tests.embedded_client import until
from tests.hostile.measure import MIB, allocates_at_most, grows_at_most

if TYPE_CHECKING:
    from kafka_async.protocol.header import RequestHeader
    from kafka_async.protocol.message import Response

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

API_VERSIONS, HEARTBEAT, PRODUCE = 18, 12, 0
CAP = MAX_FRAME_SIZES[ConnectionKind.COORDINATOR]


class FrameHarness:
    """Holds a connection with requests in flight to a scripted broker."""

    def __init__(self, world: World, connection: BrokerConnection) -> None:
        self.connection = connection
        self.broker: ScriptedBroker = world.brokers[1]
        self.broker.held.add(HEARTBEAT)
        self.peer: Peer
        self.pending: list[asyncio.Future[HeartbeatResponse]] = []

    async def send_requests(self, count: int = 2) -> None:
        """Send this many requests, which get no response yet."""
        await self.connection.connect(5.0)
        (self.peer,) = [peer for peer in self.broker.peers if peer.open and len(peer.seen) == 1]
        self.pending = [
            self.connection.submit(HeartbeatRequest(group_id="g"), timeout=60.0)
            for _ in range(count)
        ]
        await until(lambda: len(self.broker.requests(HEARTBEAT)) == count)

    def header(self, index: int) -> RequestHeader:
        """Return the header of a request; index 0 is the first after ApiVersions."""
        return self.peer.seen[1 + index][0]

    async def outcomes(self) -> list[Any]:
        """Return the response or error of each request."""
        return await asyncio.gather(*self.pending, return_exceptions=True)

    async def assert_reconnects(self) -> None:
        """Check that the connection is closed at once and that the next request reconnects."""
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
async def harness() -> AsyncIterator[FrameHarness]:
    world = World()
    async with world.client(request_timeout_ms=10_000) as client:
        yield FrameHarness(
            world, services_of(client).brokers.connection(1, ConnectionKind.COORDINATOR, None)
        )


def frame(header: RequestHeader, response: Response, tail: bytes = b"") -> bytes:
    whole = b"".join(encode_response(response, header.api_version, header.correlation_id)) + tail
    return (len(whole) - 4).to_bytes(4, "big") + whole[4:]


def size(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


def response_bytes(harness: FrameHarness, *indexes: int, shift: int = 0) -> bytes:
    """Return responses to these requests, with correlation ids `shift` too high."""
    headers = [harness.header(index) for index in indexes]
    headers = [h._replace(correlation_id=h.correlation_id + shift) for h in headers]
    return b"".join(frame(header, HeartbeatResponse()) for header in headers)


@dataclass(frozen=True)
class Case:
    """Holds the bytes sent for two requests, the number of valid responses, and the error."""

    bytes_sent: Callable[[FrameHarness], bytes]
    responses: int = 0
    cause: type[Exception] = CorrelationIdMismatchError
    closes: bool = False


CASES: dict[str, Case] = {
    "size -1": Case(lambda _: size(-1) + b"x" * 50, cause=FrameSizeError),
    "size -2^31": Case(lambda _: size(-(2**31)), cause=FrameSizeError),
    "size 0": Case(lambda _: size(0), cause=FrameSizeError),
    "size 3": Case(lambda _: size(3) + b"abc", cause=FrameSizeError),
    "size above the cap": Case(lambda _: size(CAP + 1), cause=FrameSizeError),
    "size 2^31-1": Case(lambda _: size(2**31 - 1) + b"x" * 1000, cause=FrameSizeError),
    "another protocol": Case(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n", cause=FrameSizeError),
    "EOF mid-size": Case(lambda _: size(100)[:2], cause=ConnectionError, closes=True),
    "EOF mid-body": Case(lambda s: response_bytes(s, 0)[:-1], cause=ConnectionError, closes=True),
    "EOF in a frame at the cap": Case(
        lambda _: size(CAP) + b"x" * 1000, cause=ConnectionError, closes=True
    ),
    "unknown correlation id": Case(lambda s: response_bytes(s, 0, shift=1000)),
    "negative correlation id": Case(lambda _: size(4) + size(-1)),
    "reordered responses": Case(lambda s: response_bytes(s, 1, 0)),
    "duplicate correlation id": Case(lambda s: response_bytes(s, 0, 0), responses=1),
    "a response too many": Case(lambda s: response_bytes(s, 0, 1, 1), responses=2),
    "one byte too many": Case(lambda s: response_bytes(s, 0, 1) + b"\0", responses=2),
}


@pytest.mark.parametrize("byte_by_byte", [False, True])
@pytest.mark.parametrize("name", CASES)
async def test_malformed_frame_closes_connection(
    harness: FrameHarness, name: str, byte_by_byte: bool
) -> None:
    case = CASES[name]
    await harness.send_requests()
    sent = case.bytes_sent(harness)
    loop = asyncio.get_running_loop()
    with allocates_at_most(2 * MIB):
        for piece in map(int.to_bytes, sent) if byte_by_byte else [sent]:
            harness.peer.transport.write(piece)
            await asyncio.sleep(0.01)
        ended = loop.time()
        if case.closes:
            harness.peer.transport.close()
        await until(lambda: not harness.peer.open)
        outcomes = await harness.outcomes()
    assert loop.time() - ended < 1.0
    assert outcomes[: case.responses] == [HeartbeatResponse()] * case.responses
    for error in outcomes[case.responses :]:
        assert isinstance(error, KafkaConnectionError)
        assert error.retriable
        assert isinstance(error.__cause__, case.cause)
        assert "broker 1" in str(error)
    await harness.assert_reconnects()


async def test_response_to_acks_0_closes_connection(harness: FrameHarness) -> None:
    def respond(peer: Peer, header: RequestHeader, request: Any) -> Response:
        return ProduceResponse()

    harness.broker.handlers[PRODUCE] = respond
    await harness.send_requests(0)
    request = ProduceRequest(acks=0)
    await harness.connection.submit(request, timeout=5.0)
    await harness.assert_reconnects()


async def test_response_to_acks_0_is_not_matched_to_next_request(harness: FrameHarness) -> None:
    await harness.send_requests(0)
    await harness.connection.submit(ProduceRequest(acks=0), timeout=5.0)
    harness.pending = [harness.connection.submit(HeartbeatRequest(group_id="g"), timeout=60.0)]
    (error,) = await harness.outcomes()
    assert isinstance(error.__cause__, CorrelationIdMismatchError)
    await harness.assert_reconnects()


async def test_unsolicited_bytes_close_connection(harness: FrameHarness) -> None:
    await harness.send_requests(0)
    harness.peer.transport.write(size(CAP)[:1])
    await harness.assert_reconnects()


async def test_extra_bytes_in_frame_fail_only_that_request(harness: FrameHarness) -> None:
    await harness.send_requests()
    first, second = harness.header(0), harness.header(1)
    harness.peer.transport.write(frame(first, HeartbeatResponse(), b"extra"))
    harness.peer.transport.write(frame(second, HeartbeatResponse()))
    error, other = await harness.outcomes()
    assert isinstance(error, DecodeError)
    assert "5 bytes after the message" in str(error)
    assert other == HeartbeatResponse()
    assert harness.connection.connected  # the start of the next frame is known


async def test_slow_response_times_out(harness: FrameHarness) -> None:
    await harness.send_requests()
    loop = asyncio.get_running_loop()
    begun = loop.time()
    harness.pending = [harness.connection.submit(HeartbeatRequest(group_id="g"), timeout=20.0)]
    send_slowly(harness.peer, size(CAP) + bytes(CAP // MIB * 1000))
    with allocates_at_most(2 * MIB):
        (error,) = await harness.outcomes()
        await until(lambda: not harness.peer.open)
    assert isinstance(error, KafkaTimeoutError | KafkaConnectionError)
    assert loop.time() - begun == pytest.approx(20.0, abs=0.1)
    await harness.assert_reconnects()


async def test_slow_handshake_times_out(harness: FrameHarness) -> None:
    def slowly(peer: Peer, header: RequestHeader, request: Any) -> None:
        send_slowly(peer, size(MAX_HANDSHAKE_FRAME_SIZE) + bytes(1000))

    harness.broker.handlers[API_VERSIONS] = slowly
    before = harness.broker.connections
    loop = asyncio.get_running_loop()
    begun = loop.time()
    with pytest.raises(KafkaConnectionError):
        await harness.connection.connect(100.0)
    assert loop.time() - begun <= 12.0  # socket_connection_setup_timeout_ms is about 10 s
    await until(lambda: harness.broker.connections == before)


def send_slowly(peer: Peer, data: Sequence[int]) -> None:
    """Send one byte per second."""
    loop = asyncio.get_running_loop()
    rest = iter(data)

    def next_byte() -> None:
        byte = next(rest, None)
        if byte is not None and peer.open:
            peer.transport.write(bytes([byte]))
            loop.call_later(1.0, next_byte)

    next_byte()


# -- size limits ----------------------------------------------------------------------------------

SIZE_LIMITS = {
    ConnectionKind.GENERAL: 16 * MIB,
    ConnectionKind.SLOW: 16 * MIB,
    ConnectionKind.PRODUCE: 16 * MIB,
    ConnectionKind.COORDINATOR: 16 * MIB,
    ConnectionKind.FETCH: 100 * MIB,
}


async def test_frame_size_limits() -> None:
    assert MAX_FRAME_SIZES == SIZE_LIMITS
    assert MAX_HANDSHAKE_FRAME_SIZE == MIB


@pytest.mark.one_kernel
@pytest.mark.parametrize("kind", ConnectionKind)
@pytest.mark.parametrize("over", [0, 1])
async def test_each_connection_kind_limits_frame_size(kind: ConnectionKind, over: int) -> None:
    world = World()
    async with world.client() as client:
        connection = services_of(client).brokers.connection(1, kind, None)
        await connection.connect(5.0)
        peer = world.brokers[1].peers[-1]
        world.brokers[1].held.add(HEARTBEAT)
        pending = connection.submit(HeartbeatRequest(group_id="g"), timeout=5.0)
        with grows_at_most(2 * MIB):
            peer.transport.write(size(SIZE_LIMITS[kind] + over) + b"x" * 1000)
            await asyncio.sleep(0.1)
            assert connection.connected is not bool(over)
        if over:
            with pytest.raises(KafkaConnectionError, match="a frame claims"):
                await pending
        pending.cancel()


@pytest.mark.parametrize("over", [0, 1])
async def test_handshake_frame_is_limited_to_1_mib(harness: FrameHarness, over: int) -> None:
    def claim(peer: Peer, header: RequestHeader, request: Any) -> None:
        peer.transport.write(size(MAX_HANDSHAKE_FRAME_SIZE + over))

    harness.broker.handlers[API_VERSIONS] = claim
    connecting = asyncio.create_task(harness.connection.connect(100.0))
    await asyncio.sleep(1.0)
    assert connecting.done() is bool(over)
    harness.broker.handlers[API_VERSIONS] = always(ApiVersionsResponse(error_code=-1))
    with pytest.raises(KafkaConnectionError):
        await connecting


@pytest.mark.parametrize("kind", ConnectionKind)
async def test_claimed_frame_sizes_allocate_only_received_bytes(kind: ConnectionKind) -> None:
    cap = MAX_FRAME_SIZES[kind]
    budget = ReceiveBudget(1 << 40)
    blocked: list[bool] = []
    frames: list[Frame] = []
    readers = [FrameReader(cap, budget, blocked.append) for _ in range(100)]
    with allocates_at_most(100 * 66 * 1024):  # each large frame begins with 64 KiB
        for reader in readers:
            room = reader.room()
            room[:8] = size(cap) + b"only"
            room.release()
            assert reader.received(8, frames.append)
    for reader in readers:
        reader.close()
    assert not frames
    assert budget.held == 0


async def test_frame_errors_are_protocol_errors() -> None:
    assert issubclass(FrameSizeError, ProtocolError)
    assert issubclass(CorrelationIdMismatchError, ProtocolError)
