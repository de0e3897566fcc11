"""Calls several brokers at once, so that a slow one delays no response but its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Iterable

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")


async def call_each(items: Iterable[K], function: Callable[[K], Awaitable[V]]) -> dict[K, V]:
    """Call an async function for all items at once; return the results by item, in order.

    The first exception is raised and cancels the other calls.
    """
    # Tasks, so that all calls run at once.
    calls = {item: asyncio.ensure_future(function(item)) for item in items}
    try:
        await asyncio.gather(*calls.values())
    finally:
        for call in calls.values():
            call.cancel()  # `gather` leaves them running when another one fails
    return {item: call.result() for item, call in calls.items()}
