"""One connection without its socket: requests become bytes, frames become answers. Pure.

Kafka answers a connection's requests in the order in which they were sent, so the queue of what is
under way is all there is to matching. A request that nobody waits for any more stays in the queue
as a tombstone until its answer has come and gone; taking it out would misplace every later answer.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kafka_async.errors import CorrelationIdMismatchError
from kafka_async.protocol.header import encode_request, response_correlation_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.cluster.framing import Frame, FrameReader
    from kafka_async.protocol.message import Request
    from kafka_async.protocol.wire import BytesLike

W = TypeVar("W")
_MAX_CORRELATION_ID = 2**31 - 1


class InFlightRequest(Generic[W]):
    """A request that was sent, and who waits for its answer.

    Times are seconds of the loop's clock: after `deadline` the waiter is told that it took too
    long; after `patience` the connection counts as dead, because nothing behind can be answered.
    """

    __slots__ = (
        "api_key",
        "correlation_id",
        "deadline",
        "patience",
        "sent_at",
        "version",
        "waiter",
    )

    def __init__(  # a row
        self,
        correlation_id: int,
        api_key: int,
        version: int,
        waiter: W,
        sent_at: float,
        deadline: float,
        patience: float,
    ) -> None:
        self.correlation_id = correlation_id
        self.api_key = api_key
        self.version = version
        self.waiter = waiter
        self.sent_at = sent_at
        self.deadline = deadline
        self.patience = patience


class InFlightRequests(Generic[W]):
    """Correlation of one connection. Owned by the connection.

    `answered(exchange, frame)` is called for each answer, in order, while bytes are `received`.
    `under_way` holds the requests without an answer, oldest first; it is for looking only.
    """

    def __init__(
        self,
        client_id: str | None,
        reader: FrameReader,
        answered: Callable[[InFlightRequest[W], Frame], None],
    ) -> None:
        self.under_way: deque[InFlightRequest[W]] = deque()
        self.room = reader.room
        self._client_id = client_id
        self._reader = reader
        self._answered = answered
        self._next_id = 0

    def encode(self, request: Request[Any], version: int) -> tuple[int, list[BytesLike]]:
        """A correlation id and the frame's parts; raises EncodeError, UnsupportedVersionError."""
        correlation_id = self._next_id
        parts = encode_request(request, version, correlation_id, self._client_id)
        self._next_id = 0 if correlation_id == _MAX_CORRELATION_ID else correlation_id + 1
        return correlation_id, parts

    def sent(self, exchange: InFlightRequest[W]) -> None:
        """An answer is expected; call it in the order in which the frames are written."""
        self.under_way.append(exchange)

    def received(self, count: int) -> None:
        """Take in `count` bytes that were put into `room()`.

        Raises:
            FrameSizeError: a frame's size is absurd.
            CorrelationIdMismatchError: an answer that nobody asked for, or the beginning of one.
        """
        if self._reader.received(count, self._match) and not self.under_way:
            # Waiting for the rest would keep its memory booked for as long as the peer likes.
            raise CorrelationIdMismatchError("bytes came that answer no request")

    def _match(self, frame: Frame) -> None:
        correlation_id = response_correlation_id(frame)
        if not self.under_way:
            raise CorrelationIdMismatchError(f"an answer came to no request (id {correlation_id})")
        exchange = self.under_way[0]
        if exchange.correlation_id != correlation_id:
            raise CorrelationIdMismatchError(
                f"an answer to request {correlation_id} came; {exchange.correlation_id} is due"
            )
        self.under_way.popleft()
        self._answered(exchange, frame)

    def abandon(self) -> list[InFlightRequest[W]]:
        """The connection is gone: everything that was under way, oldest first."""
        lost = list(self.under_way)
        self.under_way.clear()
        self._reader.close()
        return lost
