"""Proxies of brokers that hold requests or require a rebootstrap, and silent listeners."""

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
    """Keeps requests of one API from one broker.

    Attributes:
        api_key: The API.
        port: The broker's port.
        reached: Set when the first request is held.
        released: Set to forward the requests.
    """

    def __init__(self, api_key: int, port: int) -> None:
        self.api_key = api_key
        self.port = port
        self.reached = asyncio.Event()
        self.released = asyncio.Event()


class Proxies(SocketDialer):
    """Dials every broker through a proxy, which is opened for the first connection to it.

    A proxy forwards one request after the other, and responds to `refused` APIs itself.

    Attributes:
        refused: Number of requests, by API key, that get REBOOTSTRAP_REQUIRED next.
        hold: The requests that are kept from a broker; None: no requests.
    """

    def __init__(self) -> None:
        self.refused: dict[int, int] = {}
        self.hold: Hold | None = None
        self._ports: dict[tuple[str, int], int] = {}
        self._lock = asyncio.Lock()
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        await self.disconnect()

    async def disconnect(self) -> None:
        """Close all connections."""
        tasks = tuple(self._connections)
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
            self._connections.add(task)
            try:
                await self._forward(
                    port, reader, writer, *await asyncio.open_connection(host, port)
                )
            except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                pass
            finally:
                writer.transport.abort()
                self._connections.discard(task)

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
                    await self._wait(request, port)
                    broker_writer.write(request)
                    response = await _read_frame(broker_reader)
                writer.write(response)
                await writer.drain()
        finally:
            broker_writer.transport.abort()

    async def _wait(self, frame: bytes, port: int) -> None:
        """Wait while requests of this kind are held."""
        hold = self.hold
        if hold is None or port != hold.port:
            return
        header, _ = decode_request_header(frame[_SIZE.size :])
        if header.api_key == hold.api_key:
            hold.reached.set()
            await hold.released.wait()

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
