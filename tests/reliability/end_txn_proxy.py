"""Proxies between a Spark driver and the brokers, which can hold EndTxn requests.

A request that is held arrives late, also after its sender was killed, like a packet that the
network delays.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kafka_async.protocol.messages.end_txn import EndTxnRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

RESPONSE_SECONDS: Final = 5.0
"""Time for the response to a held request whose sender is gone."""
LEDGER: Final = b":ledger"
"""End of the transactional id of a sink's ledger, whose EndTxn requests always pass."""


class Hold:
    """Holds the EndTxn requests of tasks' transactions, after the first `after` ones."""

    def __init__(self, after: int) -> None:
        self.held = asyncio.Event()
        self._after = after
        self._is_matching = True
        self._released = asyncio.Event()

    def matches(self) -> bool:
        """Count a request, and return True if it is held."""
        if not self._is_matching:
            return False
        self._after -= 1
        if self._after >= 0:
            return False
        self.held.set()
        return True

    def stop(self) -> None:
        """Let later requests pass; those that are held stay so."""
        self._is_matching = False

    def release(self) -> None:
        """Forward the requests that are held, and let later ones pass."""
        self.stop()
        self._released.set()

    async def wait(self) -> None:
        """Wait for the release."""
        await self._released.wait()


class EndTxnProxy:
    """Runs a proxy for each broker.

    Attributes:
        ports: Port of the proxy by the broker's port.
    """

    def __init__(self) -> None:
        self.ports: dict[int, int] = {}
        self._hold: Hold | None = None
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, broker_ports: Iterable[int]) -> None:
        """Listen in front of each broker of 127.0.0.1."""
        for port in broker_ports:
            server = await asyncio.start_server(self._accept(port), "127.0.0.1", 0)
            self._servers.append(server)
            self.ports[port] = server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close all connections."""
        for server in self._servers:
            server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def hold(self, after: int) -> Hold:
        """Hold EndTxn requests of tasks' transactions from now on, after the first `after` ones."""
        self._hold = Hold(after)
        return self._hold

    def _accept(self, port: int):  # The type of a closure.
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(self._serve(port, reader, writer))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

        return accept

    async def _serve(
        self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        responses = asyncio.ensure_future(_copy(broker_reader, writer))
        try:
            held = await self._forward_requests(reader, broker_writer)
            if held:
                await asyncio.wait([responses], timeout=RESPONSE_SECONDS)
        finally:
            responses.cancel()
            broker_writer.close()
            writer.close()

    async def _forward_requests(
        self, reader: asyncio.StreamReader, broker: asyncio.StreamWriter
    ) -> bool:
        """Forward requests until a connection ends; return True if one of them was held."""
        held = False
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                size = await reader.readexactly(4)
                request = await reader.readexactly(int.from_bytes(size))
                hold = self._hold
                if _is_end_of_task(request) and hold is not None and hold.matches():
                    held = True
                    await hold.wait()
                broker.write(size + request)
                await broker.drain()
        return held


def _is_end_of_task(request: bytes) -> bool:
    return int.from_bytes(request[:2]) == EndTxnRequest.API_KEY and LEDGER not in request


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()
