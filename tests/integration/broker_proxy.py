"""Proxies of brokers that hold requests or responses, fail or require a rebootstrap.

Also listeners that do not respond.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kafka_async.embedded import ErrorCode
from kafka_async.protocol.header import decode_request_header, encode_response
from kafka_async.protocol.messages.api_versions import ApiVersionsResponse
from kafka_async.protocol.messages.metadata import MetadataResponse
from tests.rebootstrap_roles import SocketDialer

if TYPE_CHECKING:
    import ssl as ssl_module
    from collections.abc import AsyncGenerator, Callable, Iterable
    from typing import Self, TypeVar

    from kafka_async.protocol.message import Response

    P = TypeVar("P", bound=asyncio.BaseProtocol)

HOST = "127.0.0.1"
RESPONSES: dict[int, type[MetadataResponse | ApiVersionsResponse]] = {
    MetadataResponse.API_KEY: MetadataResponse,
    ApiVersionsResponse.API_KEY: ApiVersionsResponse,
}
_SIZE = struct.Struct(">i")


class Hold:
    """Keeps requests of one API from one broker, or its responses from the client.

    Attributes:
        api_key: The API.
        port: The broker's port; None: those of all brokers.
        responses: True: requests are forwarded, and their responses are held.
        sent: Set when the first request has been forwarded.
        reached: Set when the first request or response is held.
        released: Set to forward what is held.
    """

    def __init__(self, api_key: int, port: int | None, *, responses: bool = False) -> None:
        self.api_key = api_key
        self.port = port
        self.responses = responses
        self.sent = asyncio.Event()
        self.reached = asyncio.Event()
        self.released = asyncio.Event()

    async def wait(self) -> None:
        """Wait for `released`."""
        self.reached.set()
        await self.released.wait()


class Proxies(SocketDialer):
    """Dials every broker through a proxy, which is opened for the first connection to it.

    A proxy forwards one request after the other, and responds to `refused` APIs itself.

    Attributes:
        refused: Number of requests, by API key, that get REBOOTSTRAP_REQUIRED next.
        hold: What is held; None: nothing.
    """

    def __init__(self) -> None:
        self.refused: dict[int, int] = {}
        self.hold: Hold | None = None
        self._ports: dict[tuple[str, int], int] = {}
        self._failed: set[int] = set()
        self._lock = asyncio.Lock()
        self._servers: list[asyncio.Server] = []
        self._connections: dict[asyncio.Task[None], int] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        await self.disconnect()

    async def fail(self, port: int) -> None:
        """Close the connections to a broker, and refuse new ones, as if it had been killed."""
        self._failed.add(port)
        await self.disconnect(port)

    async def disconnect(self, port: int | None = None) -> None:
        """Close all connections, or those to the broker with this port."""
        tasks = [task for task, its in self._connections.items() if port in (None, its)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def dial(
        self,
        protocol_factory: Callable[[], P],
        host: str,
        port: int,
        *,
        ssl: ssl_module.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.Transport, P]:
        if port in self._failed:
            raise ConnectionRefusedError(f"broker at port {port} has failed")
        async with self._lock:
            if (host, port) not in self._ports:
                self._ports[host, port] = await self._open(host, port)
        port = self._ports[host, port]
        return await super().dial(
            protocol_factory, HOST, port, ssl=ssl, server_hostname=server_hostname
        )

    async def _open(self, host: str, port: int) -> int:
        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._connections[task] = port
            try:
                if port in self._failed:  # It failed after the connection was accepted.
                    return
                await self._forward(
                    port, reader, writer, *await asyncio.open_connection(host, port)
                )
            except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                pass
            finally:
                writer.transport.abort()
                del self._connections[task]

        server = await asyncio.start_server(forward, HOST, 0)
        self._servers.append(server)
        number: int = server.sockets[0].getsockname()[1]
        return number

    async def _forward(
        self,
        port: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        broker_reader: asyncio.StreamReader,
        broker_writer: asyncio.StreamWriter,
    ) -> None:
        try:
            while True:
                request = await _read_frame(reader)
                response = self._refusal(request)
                if response is None:
                    hold = self._hold_of(request, port)
                    if hold is not None and not hold.responses:
                        await hold.wait()
                    broker_writer.write(request)
                    if hold is not None:
                        hold.sent.set()
                    response = await _read_frame(broker_reader)
                    if hold is not None and hold.responses:
                        await hold.wait()
                writer.write(response)
                await writer.drain()
        finally:
            broker_writer.transport.abort()

    def _hold_of(self, frame: bytes, port: int) -> Hold | None:
        """Return the hold that applies to a request."""
        hold = self.hold
        if hold is None or hold.port not in (None, port):
            return None
        header, _ = decode_request_header(frame[_SIZE.size :])
        return hold if header.api_key == hold.api_key else None

    def _refusal(self, frame: bytes) -> bytes | None:
        header, _ = decode_request_header(frame[_SIZE.size :])
        if not self.refused.get(header.api_key):
            return None
        self.refused[header.api_key] -= 1
        response: Response = RESPONSES[header.api_key](error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
        return b"".join(encode_response(response, header.api_version, header.correlation_id))


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(_SIZE.size)
    return head + await reader.readexactly(_SIZE.unpack(head)[0])


class _Silent(asyncio.Protocol):
    """Accepts a connection and does not respond."""

    def __init__(self, transports: list[asyncio.BaseTransport]) -> None:
        self._transports = transports

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transports.append(transport)


@asynccontextmanager
async def silent_listeners(ports: Iterable[int]) -> AsyncGenerator[None]:
    """Accept connections at ports of stopped brokers without responding."""
    transports: list[asyncio.BaseTransport] = []
    servers: list[asyncio.Server] = []
    loop = asyncio.get_running_loop()
    try:
        for port in ports:
            server = await loop.create_server(lambda: _Silent(transports), HOST, port)
            servers.append(server)
        yield
    finally:
        for open_part in (*servers, *transports):
            open_part.close()
