"""Processes the values of records in the same way for all clients."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable

    from benchmarks.peers.task import Task


def weigh(task: Task) -> Callable[[Any], int]:
    """Return the function for values: the checksum in a check run, else the length."""
    return zlib.crc32 if task.verify else len


async def one_by_one(records: AsyncIterable[Any], task: Task) -> tuple[int, int]:
    """Iterate with `async for`; return the number of records and the sum of their weights."""
    touch = weigh(task)
    seen = total = 0
    count = task.records
    async for record in records:
        total += touch(record.value)
        seen += 1
        if seen == count:
            break
    return seen, total
