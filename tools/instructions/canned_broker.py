"""Broker in memory that handles produce requests with a small constant number of instructions.

It sends a response that it encoded at the first request, so that the instructions are those of the
client. All other requests go to the embedded cluster.
"""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafka_async.protocol.header import decode_request, encode_response
from kafka_async.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.foundation.memory_network import MemoryNetwork
    from kafka_async.protocol.wire import BytesLike

P = TypeVar("P", bound=asyncio.BaseProtocol)
_HEADER: Final = Struct(">ihhi")
"""Size, API key, version and correlation id of a request."""
_CORRELATION_ID: Final = Struct(">i")
_SIZE: Final = 4


class CannedBroker:
    """`Dialer` to a cluster in memory that handles produce requests itself."""

    def __init__(self, network: MemoryNetwork) -> None:
        self._network = network

    async def dial(
        self, protocol_factory: Callable[[], P], host: str, port: int, **tls: Any
    ) -> tuple[asyncio.Transport, P]:
        """Connect to a listener of the cluster; raise ConnectionRefusedError if nothing listens."""
        transport, protocol = await self._network.dial(protocol_factory, host, port, **tls)
        assert isinstance(protocol, asyncio.BufferedProtocol)
        connection = _Connection(transport.write, protocol)
        setattr(transport, "write", connection.write)  # noqa: B010  # replaces a method
        return transport, protocol


class _Connection:
    """Handles the bytes that a client writes: responds to produce requests, forwards others.

    A write may contain a part of a request or several, but never only a part of a header.
    """

    def __init__(
        self, forward: Callable[[BytesLike], None], protocol: asyncio.BufferedProtocol
    ) -> None:
        self._forward = forward
        self._protocol: Any = protocol
        self._call_soon = asyncio.get_running_loop().call_soon
        self._response = bytearray()
        self._first = bytearray()
        self._remaining = 0
        self._correlation_id = 0

    def write(self, data: BytesLike) -> None:
        """Handle bytes of requests; send responses in the next event loop iteration."""
        at, end = 0, len(data)
        while at < end:
            if not self._remaining:
                size, key, _, self._correlation_id = _HEADER.unpack_from(data, at)
                if key != ProduceRequest.API_KEY:
                    assert at == 0, "other requests have separate connections"
                    self._forward(data)
                    return
                self._remaining = _SIZE + size
            step = min(self._remaining, end - at)
            if not self._response:
                self._first += data[at : at + step]
            self._remaining -= step
            at += step
            if not self._remaining:
                self._response = self._response or encode_success(self._first)
                self._call_soon(self._send_response, self._correlation_id)

    def _send_response(self, correlation_id: int) -> None:
        response = self._response
        _CORRELATION_ID.pack_into(response, _SIZE, correlation_id)
        self._protocol.get_buffer(len(response))[: len(response)] = response
        self._protocol.buffer_updated(len(response))


def encode_success(frame: BytesLike) -> bytearray:
    """Return a successful response frame for a request, which fits all requests of that shape."""
    header, request = decode_request(frame[_SIZE:])
    assert isinstance(request, ProduceRequest)
    topics = [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                PartitionProduceResponse(index=partition.index, base_offset=0)
                for partition in topic.partition_data
            ],
        )
        for topic in request.topic_data
    ]
    response = ProduceResponse(responses=topics)
    return bytearray(b"".join(encode_response(response, header.api_version, 0)))
