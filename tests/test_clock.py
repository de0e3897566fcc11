"""Tests of clocks and of connections in memory, which behave like asyncio's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kafka_async.foundation.clock import LoopClock
from kafka_async.foundation.memory_network import MemoryNetwork

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.asyncio


class Collector(asyncio.Protocol):
    """Collects received bytes; `lost` resolves to the error when the connection ends."""

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
    """Reads through a buffer of seven bytes, so that a write needs several reads."""

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


async def test_close_delivers_written_bytes_first() -> None:
    server = Collector()
    transport, client = await connect(lambda: server)
    transport.write(b"one ")
    transport.write(b"two")
    transport.close()
    assert await server.lost is None
    assert await client.lost is None
    assert server.received == b"one two"


async def test_feeds_buffered_protocol() -> None:
    server = BufferedCollector()
    transport, client = await connect(lambda: server)
    transport.write(bytes(range(100)))
    transport.close()
    await client.lost
    assert server.received == bytes(range(100))


async def test_abort_resets_the_other_end() -> None:
    server = Collector()
    transport, _ = await connect(lambda: server)
    transport.write(b"never read")
    transport.abort()
    assert isinstance(await server.lost, ConnectionResetError)
    assert server.received == b""


async def test_paused_reader_pauses_the_writer() -> None:
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


async def test_dial_without_listener_is_refused() -> None:
    with pytest.raises(ConnectionRefusedError, match="nowhere:9"):
        await MemoryNetwork().dial(Collector, "nowhere", 9)


async def test_address_accepts_only_one_listener() -> None:
    network = MemoryNetwork()
    network.listen(Collector, "broker", 9092)
    with pytest.raises(OSError, match="in use"):
        network.listen(Collector, "broker", 9092)
    network.close("broker", 9092)
    network.listen(Collector, "broker", 9092)


async def test_clock_advances() -> None:
    clock = LoopClock(asyncio.get_running_loop())
    assert clock.monotonic() <= clock.monotonic()
    assert clock.wall() > 1_600_000_000
