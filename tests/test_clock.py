"""Connections in memory behave as asyncio's do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kafka_async.clock import LoopClock, MemoryNetwork, SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.asyncio


class Collector(asyncio.Protocol):
    """Keeps what arrives; `lost` resolves to the reason when the connection ends."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.received = b""
        self.arrived = asyncio.Event()
        self.paused: list[bool] = []
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.arrived.set()

    def pause_writing(self) -> None:
        self.paused.append(True)

    def resume_writing(self) -> None:
        self.paused.append(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


class BufferedCollector(asyncio.BufferedProtocol):
    """Reads through a buffer of seven bytes, so that every write takes several turns."""

    def __init__(self) -> None:
        self.received = b""
        self._buffer = bytearray(7)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += bytes(self._buffer[:nbytes])


async def connect(
    accept: Callable[[], asyncio.BaseProtocol],
) -> tuple[asyncio.Transport, Collector]:
    network = MemoryNetwork()
    host, port = network.listen(accept, "broker")
    return await network.dial(Collector, host, port)


async def test_bytes_arrive_in_order_and_a_close_follows_them() -> None:
    server = Collector()
    transport, client = await connect(lambda: server)
    transport.write(b"one ")
    transport.write(b"two")
    transport.close()
    assert await server.lost is None
    assert await client.lost is None
    assert server.received == b"one two"


async def test_a_buffered_protocol_is_fed_through_its_buffer() -> None:
    server = BufferedCollector()
    transport, client = await connect(lambda: server)
    transport.write(bytes(range(100)))
    transport.close()
    await client.lost
    assert server.received == bytes(range(100))


async def test_an_abort_is_a_reset_for_the_other_end() -> None:
    server = Collector()
    transport, _ = await connect(lambda: server)
    transport.write(b"never read")
    transport.abort()
    assert isinstance(await server.lost, ConnectionResetError)
    assert server.received == b""


async def test_a_reader_that_pauses_makes_the_writer_pause() -> None:
    server = Collector()
    transport, client = await connect(lambda: server)
    assert server.transport is not None
    server.transport.pause_reading()
    transport.write(bytes(100_000))
    assert client.paused == [True]
    server.transport.resume_reading()
    await server.arrived.wait()
    assert client.paused == [True, False]
    transport.close()


async def test_nobody_listening_is_connection_refused() -> None:
    with pytest.raises(ConnectionRefusedError, match="nowhere:9"):
        await MemoryNetwork().dial(Collector, "nowhere", 9)


async def test_an_address_can_be_listened_at_once_only() -> None:
    network = MemoryNetwork()
    network.listen(Collector, "broker", 9092)
    with pytest.raises(OSError, match="in use"):
        network.listen(Collector, "broker", 9092)
    network.close("broker", 9092)
    network.listen(Collector, "broker", 9092)


async def test_both_clocks_go_forward() -> None:
    for clock in (SystemClock(), LoopClock(asyncio.get_running_loop())):
        assert clock.monotonic() <= clock.monotonic()
        assert clock.wall() > 1_600_000_000
