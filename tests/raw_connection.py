"""Sends any request to a broker, without a client, and builds record batches."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any, TypeVar

from kafka_async.errors import DecodeError
from kafka_async.protocol import api
from kafka_async.protocol.header import decode_response, encode_request
from kafka_async.protocol.message import Request, Response
from kafka_async.protocol.messages.api_versions import ApiVersionsRequest
from kafka_async.records.batch import RecordBatch
from kafka_async.types import ProducerRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from ssl import SSLContext

    from kafka_async.embedded import EmbeddedCluster
    from kafka_async.foundation.memory_network import MemoryNetwork

R = TypeVar("R", bound=Response)

CLIENT_ID = "test-client"
TIMEOUT = 120
"""Maximum seconds of a call."""


def batch(
    *values: bytes,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    timestamp: int = 1_000,
    timestamps: Sequence[int] = (),
    compression: str = "none",
) -> bytes:
    """Return a batch as a producer sends it; `timestamps` has one per value."""
    records = [
        ProducerRecord("", value, timestamp=timestamps[index] if timestamps else timestamp)
        for index, value in enumerate(values)
    ]
    return RecordBatch.build(records, compression).frame(
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


class RawConnection(asyncio.Protocol):
    """Represents a connection to a broker; fails if responses are not in order."""

    def __init__(self, client_id: str | None = CLIENT_ID) -> None:
        self.client_id = client_id
        self.closed = asyncio.Event()
        self.error: Exception | None = None
        self.transport: asyncio.Transport | None = None
        self._ids = itertools.count(1)
        self._last_response = 0
        self._pending: dict[int, tuple[Callable[[bytes], Any], asyncio.Future[Any]]] = {}
        self._buffer = bytearray()

    @classmethod
    async def dial(
        cls,
        host: str,
        port: int,
        network: MemoryNetwork | None = None,
        client_id: str = CLIENT_ID,
        ssl: SSLContext | None = None,
    ) -> RawConnection:
        """Connect to a broker, in memory or with a socket."""
        loop = asyncio.get_running_loop()
        dial = loop.create_connection if network is None else network.dial
        return (await dial(lambda: cls(client_id), host, port, ssl=ssl))[1]

    @classmethod
    async def open(
        cls, cluster: EmbeddedCluster, network: MemoryNetwork | None, broker_id: int = 1
    ) -> RawConnection:
        """Connect to a broker of an embedded cluster."""
        broker = cluster.brokers[broker_id]
        return await cls.dial(broker.host, broker.port, network)

    async def call(self, request: Request[R], version: int | None = None) -> R:
        """Send a request and return its response; the default is the latest version.

        Raises:
            ConnectionResetError: The broker has closed the connection.
            DecodeError: The response is not valid.
            TimeoutError: No response within `TIMEOUT`.
        """
        latest = api.lookup(request.API_KEY).versions.max
        async with asyncio.timeout(TIMEOUT):
            return await self.send(request, latest if version is None else version)

    async def api_versions(self) -> dict[int, range]:
        """Return the versions that the broker advertises, by API key."""
        request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
        response = await self.call(request, 3)
        assert response.error_code == 0
        return {
            row.api_key: range(row.min_version, row.max_version + 1) for row in response.api_keys
        }

    def send(self, request: Request[R], version: int) -> asyncio.Future[R]:
        """Send a request and return the future of its response."""

        def decode(frame: bytes) -> R:
            return decode_response(frame, request.RESPONSE, version)[1]

        return self.submit(self.encode(request, version), decode)

    def encode(self, request: Request[Any], version: int) -> bytes:
        """Return the body of a request's frame, with the next correlation id."""
        return b"".join(encode_request(request, version, self.next_id(), self.client_id))[4:]

    def next_id(self) -> int:
        """Return the correlation id of the next request."""
        return next(self._ids)

    def submit(self, body: bytes, decode: Callable[[bytes], Any] = bytes) -> asyncio.Future[Any]:
        """Send the body of a frame and return the future of the decoded body of the response."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[int.from_bytes(body[4:8])] = decode, future
        if self.closed.is_set():
            self._fail_pending()
        else:
            self.write(len(body).to_bytes(4) + body)
        return future

    def write(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)

    def drop(self) -> None:
        assert self.transport is not None
        self.transport.abort()

    async def close(self) -> None:
        self.drop()
        await self.closed.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # uvloop's is no asyncio.Transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            size = int.from_bytes(self._buffer[:4])
            if len(self._buffer) < 4 + size:
                return
            frame = bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
            correlation_id = int.from_bytes(frame[:4])
            assert correlation_id > self._last_response
            self._last_response = correlation_id
            decode, future = self._pending.pop(correlation_id)
            if not future.done():
                try:
                    future.set_result(decode(frame))
                except DecodeError as error:
                    future.set_exception(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self.closed.set()
        self._fail_pending()

    def _fail_pending(self) -> None:
        for _, future in self._pending.values():
            if not future.done():
                future.set_exception(ConnectionResetError("the broker closed the connection"))
                future.exception()  # a test need not await it
        self._pending.clear()
