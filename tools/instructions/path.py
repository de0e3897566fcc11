"""What a counted path is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TypeAlias

Work: TypeAlias = Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Path:
    """Something that is done for every record, batch or message.

    Attributes:
        name: what is done, as the budget lists it.
        prepare: makes ready what so many operations need, and gives the function that does them;
            only that function is counted.
        operations: how many are done; twice as many are done too, and the difference counts.
    """

    name: str
    prepare: Callable[[int], AbstractAsyncContextManager[Work]]
    operations: int
