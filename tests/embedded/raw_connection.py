"""Sends any request to a broker, without a client, and builds record batches."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

from kafka_async.protocol import api
from kafka_async.protocol.header import decode_response, encode_request
from kafka_async.protocol.message import Request, Response
from kafka_async.records.batch import RecordBatch
from kafka_async.types import ProducerRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafka_async.clock import MemoryNetwork
    from kafka_async.embedded import EmbeddedCluster

R = TypeVar("R", bound=Response)


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
    """Represents a connection to a broker."""

    def __init__(self, client_id: str | None = "test-client") -> None:
        self.client_id = client_id
        self.closed = asyncio.Event()
        self._ids = itertools.count(1)
        self.pending: deque[tuple[type[Any], int, int, asyncio.Future[Any]]] = deque()
        self._buffer = bytearray()
        self.transport: asyncio.Transport | None = None

    @classmethod
    async def open(
        cls, cluster: EmbeddedCluster, network: MemoryNetwork | None, broker_id: int = 1
    ) -> RawConnection:
        broker = cluster.brokers[broker_id]
        if network is not None:
            return (await network.dial(cls, broker.host, broker.port))[1]
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(cls, broker.host, broker.port))[1]

    async def call(self, request: Request[R], version: int | None = None) -> R:
        """Send a request and return its response; the default is the latest version.

        Raises:
            ConnectionResetError: The broker has closed the connection.
        """
        latest = api.lookup(request.API_KEY).versions.max
        return await self.send(request, latest if version is None else version)

    def send(self, request: Request[R], version: int) -> asyncio.Future[R]:
        """Send a request and return the future of its response."""
        correlation_id = next(self._ids)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.pending.append((request.RESPONSE, version, correlation_id, future))
        self.write(b"".join(encode_request(request, version, correlation_id, self.client_id)))
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
            response_class, version, expected, future = self.pending.popleft()
            correlation_id, response = decode_response(frame, response_class, version)
            assert correlation_id == expected
            future.set_result(response)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()
        for *_, future in self.pending:
            if not future.done():
                future.set_exception(ConnectionResetError("the broker closed the connection"))
                future.exception()  # a test need not await it
        self.pending.clear()
