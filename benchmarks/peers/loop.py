"""The event loop for asyncio clients: uvloop if it is installed, else asyncio's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


def name() -> str:
    """Return the name of the event loop."""
    try:
        import uvloop
    except ImportError:
        return "asyncio"
    return uvloop.__name__


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, and return its result."""
    if name() == "asyncio":
        return asyncio.run(work)
    import uvloop

    return uvloop.run(work)
