"""Proxies of brokers that hold requests or responses, fail or require a rebootstrap.

Also listeners that do not respond.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kafka_async.embedded import ErrorCode
from kafka_async.protocol.header import (
    decode_request_header,
    decode_response_body,
    encode_response,
)
from kafka_async.protocol.messages.api_versions import ApiVersionsResponse
from kafka_async.protocol.messages.find_coordinator import FindCoordinatorResponse
from kafka_async.protocol.messages.metadata import MetadataResponse
from tests.rebootstrap_roles import SocketDialer

if TYPE_CHECKING:
    import ssl as ssl_module
    from collections.abc import AsyncGenerator, Callable, Iterable
    from typing import Self, TypeVar

    from kafka_async.protocol.header import RequestHeader
    from kafka_async.protocol.message import Response

    P = TypeVar("P", bound=asyncio.BaseProtocol)

HOST = "127.0.0.1"
RESPONSES: dict[int, type[MetadataResponse | ApiVersionsResponse]] = {
    MetadataResponse.API_KEY: MetadataResponse,
    ApiVersionsResponse.API_KEY: ApiVersionsResponse,
}
"""Responses that can require a rebootstrap, by API key."""
_SIZE = struct.Struct(">i")


class BootstrapPort:
    """Forwards connections to the address `target`, which may change, as behind a load balancer.

    It is for clients whose name resolution a test cannot set, such as those in other processes.

    Attributes:
        target: Address of new connections, as host:port.
        connections: Number of connections so far.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.connections = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """The port's `host:port`."""
        return f"{HOST}:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        host, _, port = self.target.rpartition(":")
        try:
            from_broker, to_broker = await asyncio.open_connection(host, int(port))
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(_copy(reader, to_broker))
                    group.create_task(_copy(from_broker, writer))
            finally:
                to_broker.transport.abort()
        except (OSError, ExceptionGroup, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._tasks.discard(task)


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

    A proxy forwards one request after the other. For clients that a test gives no dialer, addresses
    of proxies replace those of the brokers in responses, after the first call of `servers`.

    Attributes:
        hold: What is held; None: nothing.
        refusals: Number of requests that got REBOOTSTRAP_REQUIRED.
    """

    def __init__(self) -> None:
        self.hold: Hold | None = None
        self.refusals = 0
        self._refused: int | None = None
        self._replaces_addresses = False
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

    async def servers(self, brokers: str) -> str:
        """Return the addresses of the proxies of brokers, both separated by commas."""
        self._replaces_addresses = True
        found: list[str] = []
        for broker in brokers.split(","):
            host, _, port = broker.rpartition(":")
            found.append(f"{HOST}:{await self._port(host, int(port))}")
        return ",".join(found)

    async def refuse(self, api_key: int) -> None:
        """Require a rebootstrap in the responses of an API, and close all connections."""
        self._refused = api_key
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
        port = await self._port(host, port)
        return await super().dial(
            protocol_factory, HOST, port, ssl=ssl, server_hostname=server_hostname
        )

    async def _port(self, host: str, port: int) -> int:
        """Return the port of the proxy of a broker."""
        async with self._lock:
            if (host, port) not in self._ports:
                self._ports[host, port] = await self._open(host, port)
        return self._ports[host, port]

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
                header, _ = decode_request_header(request[_SIZE.size :])
                response = self._refusal(header)
                if response is None:
                    hold = self._hold_of(header, port)
                    if hold is not None and not hold.responses:
                        await hold.wait()
                    broker_writer.write(request)
                    if hold is not None:
                        hold.sent.set()
                    response = await self._with_proxies(await _read_frame(broker_reader), header)
                    if hold is not None and hold.responses:
                        await hold.wait()
                writer.write(response)
                await writer.drain()
        finally:
            broker_writer.transport.abort()

    def _hold_of(self, header: RequestHeader, port: int) -> Hold | None:
        """Return the hold that applies to a request."""
        hold = self.hold
        if hold is None or hold.port not in (None, port):
            return None
        return hold if header.api_key == hold.api_key else None

    def _refusal(self, header: RequestHeader) -> bytes | None:
        if header.api_key != self._refused:
            return None
        self.refusals += 1
        response = RESPONSES[header.api_key](error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
        return _encode(response, header)

    async def _with_proxies(self, frame: bytes, header: RequestHeader) -> bytes:
        """Return a response, with addresses of proxies if they replace those of the brokers.

        Leaders do not move here, so a response to a produce or fetch request has no addresses.
        """
        body, version = frame[_SIZE.size :], header.api_version
        if not self._replaces_addresses:
            return frame
        if header.api_key == MetadataResponse.API_KEY:
            response = decode_response_body(body, MetadataResponse, version)
            rows = response.brokers
        elif header.api_key == FindCoordinatorResponse.API_KEY:
            response = decode_response_body(body, FindCoordinatorResponse, version)
            rows = [row for row in response.coordinators if not row.error_code]
        else:
            return frame
        for row in rows:
            row.host, row.port = HOST, await self._port(row.host, row.port)
        return _encode(response, header)


def _encode(response: Response, header: RequestHeader) -> bytes:
    return b"".join(encode_response(response, header.api_version, header.correlation_id))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes until one side ends, which ends the other copy too."""
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    raise ConnectionResetError


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
