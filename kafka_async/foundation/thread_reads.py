"""Reads the state of a client in any thread, while its event loop runs in another one. Pure."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")

MAX_READS: Final = 100
"""Maximum consecutive reads that another thread may disturb before the error is raised."""


def readable_in_any_thread(read: Callable[P, R]) -> Callable[P, R]:
    """Repeat a read-only function if another thread disturbs it.

    The event loop's thread may change a collection during an iteration over it, or close a
    connection between its check and its use. Both raise an error, and a second read finds the new
    state. In the loop's own thread, no state changes during the read. A lock would slow down the
    paths of records, and a call in the loop would wait while the loop is blocked.
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
