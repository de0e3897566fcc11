"""What all clients do alike with the records that they read: each value is touched."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable

    from benchmarks.peers.task import Task


def weigh(task: Task) -> Callable[[Any], int]:
    """What each value is touched with: its checksum in a checked run, else its length."""
    return zlib.crc32 if task.verify else len


async def one_by_one(records: AsyncIterable[Any], task: Task) -> tuple[int, int]:
    """By `async for`: how many records there were, and the sum of what they weigh."""
    touch = weigh(task)
    seen = total = 0
    wanted = task.records
    async for record in records:
        total += touch(record.value)
        seen += 1
        if seen == wanted:
            break
    return seen, total
