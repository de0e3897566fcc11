"""Waiters for the response of a request: a future, or a callback."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

from kafka_async.errors import DecodeError, KafkaError
from kafka_async.foundation.fairness import OFFLOAD_DECODE_BYTES
from kafka_async.protocol.header import decode_response_body, leading_throttle_time_ms
from kafka_async.protocol.message import Response

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from kafka_async.client.wire.framing import Frame
    from kafka_async.foundation.supervisor import Offload

R = TypeVar("R")
ResponseT = TypeVar("ResponseT", bound=Response)

OnThrottle: TypeAlias = "Callable[[int, int, int], None]"
"""Receives the API key, the version and the throttle time of a response, in milliseconds."""


def _report_throttle(
    frame: Frame, response: type[Response], version: int, on_throttle: OnThrottle
) -> None:
    """Report the throttle time of a response that no caller awaits any more."""
    try:
        message = decode_response_body(frame, response, version)
    except KafkaError:
        return
    if throttle := getattr(message, "throttle_time_ms", 0):
        on_throttle(response.API_KEY, version, throttle)


class ResponseFuture(asyncio.Future[R]):
    """A future for a response, which is decoded when its result is first read.

    It is done when the frame has arrived. Reading the result decodes the frame once; without a
    `response` class the result is the frame itself. `on_throttle` is called when the frame arrives,
    even after the future was cancelled or has failed. Cancelling the future does not change the
    order of the connection's responses. An exception that is never retrieved is not logged.
    """

    def __init__(
        self,
        response: type[R] | None = None,
        on_throttle: OnThrottle | None = None,
        *,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(loop=loop)
        # Set to None once the frame is decoded; `_class` stays.
        self._response: Any = response
        self._class = response
        self._on_throttle = on_throttle
        self._version = -1
        self._message: R | None = None
        self._decode_error: KafkaError | None = None

    def result(self) -> R:
        """Return the decoded response; raise DecodeError, or the error of the request."""
        frame = super().result()
        if self._response is not None:
            try:
                self._set_message(
                    decode_response_body(cast("Frame", frame), self._response, self._version)
                )
            except KafkaError as error:
                self._response = None
                self._decode_error = error
        if self._decode_error is not None:
            raise self._decode_error
        return frame if self._message is None else self._message

    async def decoded(self, offload: Offload) -> R:
        """Wait for the response; a large frame is decoded in a thread by `offload`."""
        await self._wait_for_frame()
        frame = cast("Frame", super().result())
        response = self._response
        if response is not None and len(frame) >= OFFLOAD_DECODE_BYTES:
            message = await offload(decode_response_body, frame, response, self._version)
            # Another caller may have read the result in the meantime.
            if self._response is not None:
                self._set_message(message)
        return self.result()

    def _set_message(self, message: Any) -> None:
        self._response, self._message = None, message

    async def _wait_for_frame(self) -> None:
        # Awaiting the future itself would decode the frame in the event loop.
        arrived: asyncio.Future[None] = self.get_loop().create_future()
        self.add_done_callback(lambda _: arrived.done() or arrived.set_result(None))
        try:
            await arrived
        except asyncio.CancelledError:
            self.cancel()
            raise

    def exception(self) -> BaseException | None:
        """Return the error of the request or of decoding its response, or None."""
        error = super().exception()
        if error is None:
            try:
                self.result()
            except KafkaError as decode_error:
                return decode_error
        return error

    def set_frame(self, frame: Frame, version: int) -> None:
        """Complete the future with a response in this version, unless it is done."""
        if self._on_throttle is not None and self._class is not None:
            self._set_throttle(frame, cast("Any", self._class), version, self._on_throttle)
        if not self.done():
            self._version = version
            self.set_result(cast("R", frame))

    def _set_throttle(
        self, frame: Frame, response: type[Response], version: int, on_throttle: OnThrottle
    ) -> None:
        """Report the throttle time now: the caller may decode the frame later, or never."""
        throttle = leading_throttle_time_ms(frame, response, version)
        # The version has it elsewhere, so the whole response is decoded.
        if throttle is None:
            _report_throttle(frame, response, version, on_throttle)
        elif throttle:
            on_throttle(response.API_KEY, version, throttle)

    def set_empty_response(self, message: R) -> None:
        """Complete the future of a request to which the broker does not respond (acks=0)."""
        self._response = None
        self.set_result(message)

    def fail(self, error: Exception) -> None:
        """Fail the future, unless it is done."""
        if not self.done():
            self.set_exception(error)
            super().exception()  # marks it as retrieved: callers may drop the future

    def __await__(self) -> Generator[Any, None, R]:
        # As asyncio.Future does, without its call of `result` on the raw frame.
        if not self.done():
            self._asyncio_future_blocking = True
            yield self
        return self.result()

    __iter__ = __await__


class ResponseCallback(Generic[ResponseT]):
    """Decodes a response in the protocol's callback and passes it on without a future.

    `callback` is called exactly once, with the response or an error. `on_throttle` is called before
    it, and for a response that arrives after it.
    """

    __slots__ = ("_callback", "_done", "_loop", "_on_throttle", "_response")

    def __init__(
        self,
        response: type[ResponseT],
        on_throttle: OnThrottle,
        callback: Callable[[ResponseT | KafkaError], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._response = response
        self._on_throttle = on_throttle
        self._callback = callback
        self._loop = loop
        self._done = False

    def set_frame(self, frame: Frame, version: int) -> None:
        """Decode a response in this version and call the callback, unless it was called."""
        response = self._response
        # The request has timed out; its throttle time still applies.
        if self._done:
            _report_throttle(frame, response, version, self._on_throttle)
            return
        self._done = True
        try:
            message = decode_response_body(frame, response, version)
            if throttle := getattr(message, "throttle_time_ms", 0):
                self._on_throttle(response.API_KEY, version, throttle)
        except KafkaError as error:
            self._callback(error)
        except Exception as fault:  # noqa: BLE001  # the callback needs an outcome in any case
            error = DecodeError(f"the response cannot be read: {fault!r}")
            error.__cause__ = fault
            self._callback(error)
        else:
            self._callback(message)

    def set_empty_response(self, message: ResponseT) -> None:
        """Schedule the callback of a request to which the broker does not respond (acks=0)."""
        self._done = True
        self._loop.call_soon(self._callback, message)

    def fail(self, error: KafkaError) -> None:
        """Schedule the callback with an error, unless it was called.

        It runs in the next event loop iteration, because the caller is in the middle of closing
        the connection and fails other requests next.
        """
        if not self._done:
            self._done = True
            self._loop.call_soon(self._callback, error)


Waiter: TypeAlias = "ResponseFuture[Any] | ResponseCallback[Any]"
