"""An answer that will come: what whoever sent a request waits for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, cast

from kafka_async.errors import DecodeError, KafkaError
from kafka_async.protocol.header import decode_response_body
from kafka_async.protocol.message import Response

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from kafka_async.cluster.framing import Frame
    from kafka_async.supervisor import Offload

R = TypeVar("R")
ResponseT = TypeVar("ResponseT", bound=Response)

Told: TypeAlias = "Callable[[int, int, Response], None]"

LARGE: Final = 64 * 1024
"""Bytes of a frame from which on decoding it may take milliseconds."""


class ResponseFuture(asyncio.Future[R]):
    """An answer that will come, decoded by whoever looks at it first.

    What resolves it is the frame; that becomes a `response` once, and `told(api_key, version,
    message)` hears of it; without a `response` it stays the frame. Cancelling it leaves the
    request's place in the connection's order alone. One that failed and was forgotten stays quiet.
    """

    def __init__(
        self,
        response: type[R] | None = None,
        told: Told | None = None,
        *,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(loop=loop)
        self._response: Any = response
        self._told = told
        self._version = -1
        self._message: R | None = None
        self._flaw: KafkaError | None = None

    def result(self) -> R:
        """The message; raises what `asyncio.Future.result` raises, and DecodeError."""
        frame = super().result()
        if self._response is not None:
            try:
                self._take(
                    decode_response_body(cast("Frame", frame), self._response, self._version)
                )
            except KafkaError as error:
                self._response = None
                self._flaw = error
        if self._flaw is not None:
            raise self._flaw
        return frame if self._message is None else self._message

    async def decoded(self, offload: Offload) -> R:
        """Wait for the message; that of a large frame is decoded by `offload`, in a thread."""
        await self._arrived()
        frame = cast("Frame", super().result())
        response = self._response
        if response is not None and len(frame) >= LARGE:
            message = await offload(decode_response_body, frame, response, self._version)
            if self._response is not None:
                self._take(message)
        return self.result()

    def _take(self, message: Any) -> None:
        response, self._response = self._response, None
        self._message = message
        if self._told is not None:
            self._told(response.API_KEY, self._version, message)

    async def _arrived(self) -> None:
        # Not by awaiting it: the task would ask for its result before it goes on.
        arrived: asyncio.Future[None] = self.get_loop().create_future()
        self.add_done_callback(lambda _: arrived.done() or arrived.set_result(None))
        try:
            await arrived
        except asyncio.CancelledError:
            self.cancel()
            raise

    def exception(self) -> BaseException | None:
        """What failed, a message that cannot be decoded included."""
        error = super().exception()
        if error is None:
            try:
                self.result()
            except KafkaError as flaw:
                return flaw
        return error

    def answered(self, frame: Frame, version: int) -> None:
        """The answer has come, in that version; nothing happens if nobody waits any more."""
        if not self.done():
            self._version = version
            self.set_result(cast("R", frame))

    def spared(self, message: R) -> None:
        """There will be no answer, and none is needed: this one stands for it."""
        self._response = None
        self.set_result(message)

    def fail(self, error: Exception) -> None:
        """Fail it, unless it has ended."""
        if not self.done():
            self.set_exception(error)
            super().exception()  # marks it as seen: a handle may be forgotten

    def __await__(self) -> Generator[Any, None, R]:
        if not self.done():
            self._asyncio_future_blocking = True
            yield self
        return self.result()

    __iter__ = __await__


class Hearing(Generic[ResponseT]):
    """An answer that will come, decoded and handed over where it is received.

    `told(api_key, version, message)` hears of it first, `heard` is who asked.
    """

    __slots__ = ("_heard", "_loop", "_over", "_response", "_told")

    def __init__(
        self,
        response: type[ResponseT],
        told: Told,
        heard: Callable[[ResponseT | KafkaError], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._response = response
        self._told = told
        self._heard = heard
        self._loop = loop
        self._over = False

    def answered(self, frame: Frame, version: int) -> None:
        """The answer has come, in that version; nothing happens if it was given up."""
        if self._over:
            return
        self._over = True
        response = self._response
        try:
            message = decode_response_body(frame, response, version)
            self._told(response.API_KEY, version, message)
        except KafkaError as error:
            self._heard(error)
        except Exception as fault:  # noqa: BLE001  # whatever it is, somebody waits for an outcome
            error = DecodeError(f"the answer cannot be read: {fault!r}")
            error.__cause__ = fault
            self._heard(error)
        else:
            self._heard(message)

    def spared(self, message: ResponseT) -> None:
        """There will be no answer, and none is needed: this one stands for it, in a while."""
        self._over = True
        self._loop.call_soon(self._heard, message)

    def fail(self, error: KafkaError) -> None:
        """There is none, unless there was. It is told in a turn of its own: whoever fails a request
        is in the middle of something, as the end of the connection, and others follow.
        """
        if not self._over:
            self._over = True
            self._loop.call_soon(self._heard, error)


Waiter: TypeAlias = "ResponseFuture[Any] | Hearing[Any]"
