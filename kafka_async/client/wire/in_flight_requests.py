"""Encodes the requests of one connection and matches responses to them. Pure.

Kafka responds to the requests of a connection in the order in which they were sent, so a queue is
enough to match them. A request whose caller was cancelled stays in the queue until its response has
arrived; removing it would assign every later response to the wrong request.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kafka_async.errors import CorrelationIdMismatchError
from kafka_async.protocol.header import encode_request, response_correlation_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.client.wire.framing import Frame, FrameReader
    from kafka_async.protocol.message import Request
    from kafka_async.protocol.wire import BytesLike

W = TypeVar("W")
_MAX_CORRELATION_ID = 2**31 - 1


@dataclass(slots=True, eq=False)
class InFlightRequest(Generic[W]):
    """A request that was sent, and the waiter for its response.

    Times are seconds of the loop's clock. After `deadline` the waiter fails with a timeout. After
    `connection_deadline` the connection counts as dead, because responses arrive in order.
    """

    correlation_id: int
    api_key: int
    version: int
    waiter: W
    sent_at: float
    deadline: float
    connection_deadline: float


class InFlightRequests(Generic[W]):
    """Correlates requests and responses of one connection. Owned by the connection.

    Args:
        on_response: Called with the request and the response's frame, in order.

    Attributes:
        queue: Requests without a response, oldest first; read-only for callers.
        next_id: Correlation id of the next request; read-only for callers.
    """

    def __init__(
        self,
        client_id: str | None,
        reader: FrameReader,
        on_response: Callable[[InFlightRequest[W], Frame], None],
    ) -> None:
        self.queue: deque[InFlightRequest[W]] = deque()
        # The transport writes into the reader's buffer directly.
        self.room = reader.room
        self._client_id = client_id
        self._reader = reader
        self._on_response = on_response
        self.next_id = 0

    def encode(self, request: Request[Any], version: int) -> tuple[int, list[BytesLike]]:
        """Return a new correlation id and the buffers of the frame; raises as `Message.encode`."""
        correlation_id = self.next_id
        # Encoded first: an id is used up only by a request that can be sent.
        parts = encode_request(request, version, correlation_id, self._client_id)
        self.next_id = 0 if correlation_id == _MAX_CORRELATION_ID else correlation_id + 1
        return correlation_id, parts

    def check(self, request: Request[Any], version: int) -> None:
        """Raise as `encode` if a request cannot be encoded."""
        encode_request(request, version, 0, self._client_id)

    def add(self, request: InFlightRequest[W]) -> None:
        """Expect a response; call this in the order in which the frames are written."""
        self.queue.append(request)

    def received(self, count: int) -> None:
        """Process `count` bytes that were written into `room()`.

        Raises FrameSizeError, and CorrelationIdMismatchError if a response, or the beginning of
        one, does not match a request.
        """
        if self._reader.received(count, self._match) and not self.queue:
            # Waiting for the rest would keep its memory reserved for as long as the peer likes.
            raise CorrelationIdMismatchError("received bytes while no request was in flight")

    def _match(self, frame: Frame) -> None:
        correlation_id = response_correlation_id(frame)
        if not self.queue:
            raise CorrelationIdMismatchError(
                f"received a response while no request was in flight (correlation id "
                f"{correlation_id})"
            )
        request = self.queue[0]
        # The stream is out of step: no later response could be trusted either.
        if request.correlation_id != correlation_id:
            raise CorrelationIdMismatchError(
                f"received the response to request {correlation_id} instead of "
                f"{request.correlation_id}"
            )
        # Before the callback, which may send or close.
        self.queue.popleft()
        self._on_response(request, frame)

    def close(self) -> list[InFlightRequest[W]]:
        """Stop reading and return the requests that will get no response, oldest first."""
        unanswered = list(self.queue)
        self.queue.clear()
        self._reader.close()
        return unanswered
