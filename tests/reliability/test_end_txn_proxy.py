"""The proxies that hold EndTxn requests."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from tests.reliability.end_txn_proxy import EndTxnProxy

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

pytestmark = [pytest.mark.asyncio, pytest.mark.one_kernel]

END_TXN, PRODUCE = 26, 0


def frame(api_key: int, text: bytes = b"orders:1:0:0") -> bytes:
    request = api_key.to_bytes(2) + text
    return len(request).to_bytes(4) + request


@asynccontextmanager
async def proxied() -> AsyncGenerator[tuple[EndTxnProxy, asyncio.Queue[bytes], int]]:
    """Run a broker that echoes requests, and a proxy in front of it."""
    received: asyncio.Queue[bytes] = asyncio.Queue()
    handlers: set[asyncio.Task[None]] = set()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while size := await reader.read(4):
                request = size + await reader.readexactly(int.from_bytes(size))
                received.put_nowait(request)
                writer.write(request)
        finally:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(echo(reader, writer))
        handlers.add(task)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    proxy = EndTxnProxy()
    await proxy.start([port])
    try:
        yield proxy, received, proxy.ports[port]
    finally:
        await proxy.stop()
        server.close()
        await asyncio.gather(*handlers)


async def test_forwards_requests_and_responses() -> None:
    async with proxied() as (_, received, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for request in (frame(PRODUCE), frame(END_TXN)):
            writer.write(request)
            assert await received.get() == request
            assert await reader.readexactly(len(request)) == request
        writer.close()


async def test_a_held_request_arrives_after_its_sender_is_gone() -> None:
    async with proxied() as (proxy, received, port):
        hold = proxy.hold(1)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        for text in (b"orders:1:0:0", b"orders:1:1:0"):
            writer.write(frame(END_TXN, text))
        await hold.held.wait()
        hold.stop()
        assert await received.get() == frame(END_TXN, b"orders:1:0:0")
        writer.close()
        _, other = await asyncio.open_connection("127.0.0.1", port)
        other.write(frame(END_TXN, b"orders:2:0:0"))  # A request after the stop passes.
        assert await received.get() == frame(END_TXN, b"orders:2:0:0")
        assert received.empty()
        hold.release()
        assert await received.get() == frame(END_TXN, b"orders:1:1:0")
        other.close()


async def test_transactions_of_the_ledger_are_not_held() -> None:
    async with proxied() as (proxy, received, port):
        hold = proxy.hold(0)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        for request in (frame(END_TXN, b"orders:ledger"), frame(PRODUCE)):
            writer.write(request)
            assert await received.get() == request
        assert not hold.held.is_set()
        hold.release()
        writer.close()
