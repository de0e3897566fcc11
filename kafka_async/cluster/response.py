"""An answer that will come: what whoever sent a request waits for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, cast

from kafka_async.errors import DecodeError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from kafka_async.cluster.framing import Frame
    from kafka_async.supervisor import Offload

R = TypeVar("R")

LARGE: Final = 64 * 1024
"""Bytes of a frame from which on decoding it may take milliseconds."""


class ResponseFuture(asyncio.Future[R]):
    """An answer that will come, decoded by whoever looks at it first.

    What resolves it is the frame; `opened` turns that into the message, once, which `told` hears
    of. Cancelling it leaves the request's place in the connection's order alone. One that failed
    and was forgotten stays quiet.
    """

    def __init__(
        self,
        opened: Callable[[Any], R] | None = None,
        told: Callable[[R], None] | None = None,
        *,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(loop=loop)
        self._opened: Callable[[Any], R] | None = opened
        self._told = told
        self._message: R | None = None
        self._flaw: KafkaError | None = None

    def result(self) -> R:
        """The message; raises what `asyncio.Future.result` raises, and DecodeError."""
        frame = super().result()
        opened = self._opened
        if opened is not None:
            self._opened = None
            try:
                self._message = opened(frame)
                if self._told is not None:
                    self._told(self._message)
            except KafkaError as error:
                self._flaw = error
        if self._flaw is not None:
            raise self._flaw
        return frame if self._message is None else self._message

    async def decoded(self, offload: Offload) -> R:
        """Wait for the message; that of a large frame is decoded by `offload`, in a thread."""
        await self._arrived()
        frame = super().result()
        opened = self._opened
        if opened is not None and len(cast("Frame", frame)) >= LARGE:
            message = await offload(opened, frame)
            self._opened = lambda _: message
        return self.result()

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


class Hearing(Generic[R]):
    """An answer that will come, decoded and handed over where it is received."""

    __slots__ = ("_heard", "_loop", "_opened", "_over")

    def __init__(
        self,
        opened: Callable[[Any], R],
        heard: Callable[[R | KafkaError], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._opened = opened
        self._heard = heard
        self._loop = loop
        self._over = False

    def done(self) -> bool:
        """Whether it was heard, or given up."""
        return self._over

    def set_result(self, frame: Frame) -> None:
        """The answer has come."""
        self._over = True
        try:
            answer = self._opened(frame)
        except KafkaError as error:
            self._heard(error)
        except Exception as fault:  # noqa: BLE001  # whatever it is, somebody waits for an outcome
            error = DecodeError(f"the answer cannot be read: {fault!r}")
            error.__cause__ = fault
            self._heard(error)
        else:
            self._heard(answer)

    def fail(self, error: KafkaError) -> None:
        """There is none, unless there was. It is told in a turn of its own: whoever fails a request
        is in the middle of something, as the end of the connection, and others follow.
        """
        if not self._over:
            self._over = True
            self._loop.call_soon(self._heard, error)


Waiter: TypeAlias = "ResponseFuture[Any] | Hearing[Any]"
