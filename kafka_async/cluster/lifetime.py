"""The waits of one client, which all end with it: nobody waits for what will never come."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from kafka_async.errors import KafkaError

T = TypeVar("T")


class Lifetime:
    """From a client's start to its end. `ended` is why it is over, None while it is not."""

    def __init__(self) -> None:
        self.ended: KafkaError | None = None
        self._waits: set[asyncio.Future[Any]] = set()

    def end(self, error: KafkaError) -> None:
        """Fail every wait at once, and those that are still to come; the first call counts."""
        if self.ended is not None:
            return
        self.ended = error
        for wait in list(self._waits):
            if not wait.done():
                wait.set_exception(error)

    async def wait(self, future: asyncio.Future[T], deadline: float | None = None) -> T:
        """Wait for a future of one's own; TimeoutError at `deadline` (the loop's time)."""
        if self.ended is not None:
            raise self.ended
        self._waits.add(future)
        try:
            async with asyncio.timeout_at(deadline):
                return await future
        finally:
            self._waits.discard(future)

    async def sleep(self, seconds: float) -> None:
        """Wait for some time."""
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
