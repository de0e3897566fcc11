"""A notification for the tasks that wait at that moment."""

from __future__ import annotations

import asyncio


class Notifier:
    """Wakes the tasks that wait; a later `wait` does not see an earlier notification."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def notify_all(self) -> None:
        """Wake all waiting tasks."""
        self._next.set()
        self._next = asyncio.Event()

    async def wait(self) -> None:
        """Wait for the next notification."""
        await self._next.wait()
