"""The lifetime of a client: every wait fails when the client stops."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from kafka_async.errors import KafkaError

T = TypeVar("T")


class Lifetime:
    """Ends the waits of one client when it stops or fails; `ended` is the reason, or None."""

    def __init__(self) -> None:
        self.ended: KafkaError | None = None
        self._waits: set[asyncio.Future[Any]] = set()

    def end(self, error: KafkaError) -> None:
        """Fail all current and future waits with `error`; only the first call has an effect."""
        if self.ended is not None:
            return
        self.ended = error
        # A copy, since a wait that ends removes itself.
        for wait in list(self._waits):
            if not wait.done():
                wait.set_exception(error)

    async def wait(self, future: asyncio.Future[T], deadline: float | None = None) -> T:
        """Wait for a future that no other task awaits.

        Raises TimeoutError after `deadline` (time of the loop's clock), and the reason of a client
        when the client has stopped.
        """
        if self.ended is not None:
            raise self.ended
        self._waits.add(future)
        try:
            async with asyncio.timeout_at(deadline):
                return await future
        finally:
            self._waits.discard(future)

    async def sleep(self, seconds: float) -> None:
        """Wait for some seconds; raise the reason if the client has stopped."""
        # Not asyncio.sleep, which the end of the client would not interrupt.
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(seconds, _wake, future)
        try:
            await self.wait(future)
        finally:
            timer.cancel()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
