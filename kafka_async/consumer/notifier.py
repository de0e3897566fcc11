"""A signal that wakes whoever waits at that moment, and leaves nothing behind."""

from __future__ import annotations

import asyncio


class Pulse:
    """`wait()` returns at the next `beat()`."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def beat(self) -> None:
        """Wake all that wait."""
        self._next.set()
        self._next = asyncio.Event()

    async def wait(self) -> None:
        """Wait for the next beat."""
        await self._next.wait()
