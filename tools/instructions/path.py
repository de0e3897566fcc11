"""The description of a counted path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TypeAlias

Work: TypeAlias = Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Path:
    """Operation on a record, a batch or a message, whose instructions are counted.

    Attributes:
        name: the name in the budget.
        prepare: prepares a number of operations, and yields the function that performs them; only
            that function is counted.
        operations: the number of operations; the count is the difference from twice as many.
    """

    name: str
    prepare: Callable[[int], AbstractAsyncContextManager[Work]]
    operations: int
