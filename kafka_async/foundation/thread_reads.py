"""Reads the state of a client in any thread, while its event loop runs in another one. Pure."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")

MAX_READS: Final = 100
"""Reads that another thread may disturb one after another before the error is raised."""


def readable_in_any_thread(read: Callable[P, R]) -> Callable[P, R]:
    """Make a function that only reads repeat its work if another thread disturbs it.

    The event loop's thread may change a collection between two steps of an iteration over it, or
    close a connection between the check for one and its use. Both raise an error, and a second read
    finds the new state. In the loop's own thread nothing changes meanwhile. A lock would slow down
    the paths of records, and a call in the loop would wait while the loop is blocked.
    """

    @functools.wraps(read)
    def read_again(*args: P.args, **kwargs: P.kwargs) -> R:
        for _ in range(MAX_READS - 1):
            try:
                return read(*args, **kwargs)
            except (RuntimeError, AttributeError, TypeError, LookupError):
                continue
        return read(*args, **kwargs)

    return read_again
