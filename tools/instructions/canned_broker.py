"""A broker in memory that takes produce requests for a few instructions, always as many.

It answers them with bytes that were prepared when the first one came, so that what is counted is
the client. Everything else goes to the embedded cluster.
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
    import ssl as ssl_module
    from collections.abc import Callable

    from kafka_async.clock import MemoryNetwork
    from kafka_async.protocol.wire import BytesLike

P = TypeVar("P", bound=asyncio.BaseProtocol)
_HEAD: Final = Struct(">ihhi")
"""A request's size, API, version and number."""
_NUMBER: Final = Struct(">i")
_SIZE: Final = 4


class CannedBroker:
    """A `Dialer` to a cluster in memory whose produce requests are answered here."""

    def __init__(self, network: MemoryNetwork) -> None:
        self._network = network

    async def dial(
        self,
        protocol_factory: Callable[[], P],
        host: str,
        port: int,
        *,
        ssl: ssl_module.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.Transport, P]:
        """Connect to the cluster's listener; ConnectionRefusedError if there is none."""
        transport, protocol = await self._network.dial(
            protocol_factory, host, port, ssl=ssl, server_hostname=server_hostname
        )
        assert isinstance(protocol, asyncio.BufferedProtocol)
        connection = _Connection(transport.write, protocol)
        setattr(transport, "write", connection.write)  # noqa: B010  # a method's place
        return transport, protocol


class _Connection:
    """What a client writes: produce requests are dropped and answered, the others go on.

    A request may come in pieces, and a piece may hold several; its first bytes come together.
    """

    def __init__(
        self, forward: Callable[[BytesLike], None], protocol: asyncio.BufferedProtocol
    ) -> None:
        self._forward = forward
        self._protocol: Any = protocol
        self._soon = asyncio.get_running_loop().call_soon
        self._answer = bytearray()
        self._first = bytearray()
        self._left = 0
        self._number = 0

    def write(self, data: BytesLike) -> None:
        """Take some bytes of requests; an answer comes with the loop's next turn."""
        at, end = 0, len(data)
        while at < end:
            if not self._left:
                size, key, _, self._number = _HEAD.unpack_from(data, at)
                if key != ProduceRequest.API_KEY:
                    assert at == 0, "other requests have connections of their own"
                    self._forward(data)
                    return
                self._left = _SIZE + size
            step = min(self._left, end - at)
            if not self._answer:
                self._first += data[at : at + step]
            self._left -= step
            at += step
            if not self._left:
                self._answer = self._answer or answer_to(self._first)
                self._soon(self._reply, self._number)

    def _reply(self, number: int) -> None:
        answer = self._answer
        _NUMBER.pack_into(answer, _SIZE, number)
        self._protocol.get_buffer(len(answer))[: len(answer)] = answer
        self._protocol.buffer_updated(len(answer))


def answer_to(frame: BytesLike) -> bytearray:
    """The frame of an answer that says all is well, to be used for all requests of that shape."""
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
