"""The event loop that asyncio clients are measured on: uvloop, or asyncio's own without it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


def name() -> str:
    """Which one it is."""
    try:
        import uvloop
    except ImportError:
        return "asyncio"
    return uvloop.__name__


def run(work: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns."""
    if name() == "asyncio":
        return asyncio.run(work)
    import uvloop

    return uvloop.run(work)
