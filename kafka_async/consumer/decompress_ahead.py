"""What comes next is decompressed in threads while the application works on what it has.

Batch by batch a thread would wait for Python's lock after each, until the event loop lets go of it;
so it decompresses many batches in one call (`compression.decompress_frames`). What it makes is
given to the batches, for whoever reads them. A batch that was read or dropped meanwhile takes
nothing. One that cannot take part, or is damaged, is decompressed alone when its turn comes.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from kafka_async.records.compression import decompress_frames
from kafka_async.supervisor import THREADS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Iterator

    from kafka_async.records.batch import BatchView
    from kafka_async.supervisor import Supervisor

    Call: TypeAlias = asyncio.Future[list[memoryview]]

T = TypeVar("T")
SIZE: Final = 1024 * 1024
"""Decompressed bytes of one call, and the most that a batch may have to take part."""
LEAST: Final = SIZE // 8
"""Decompressed bytes below which the way to a thread is not worth it."""
CALLS: Final = 2 * THREADS
"""Calls begun: a thread that has done with one goes on with the next without asking the loop."""
ROOM: Final = 8 * SIZE
"""Decompressed bytes that may wait to be read."""
LOOKED_AT: Final = 256
"""Batches that are looked at without a pause: each takes some microseconds of the loop's time."""
ALONE: Final = 8
"""Of them, those that cannot take part: where there are so many there may be nothing else."""
_NEVER: Final = 1 << 62


def in_turn(rows: Iterable[Iterator[T]]) -> Iterator[T]:
    """The first of each row, then the second of each, and so on; a row is begun at its turn."""
    rounds: deque[Iterator[T]] = deque()
    for row in rows:
        yield from islice(row, 1)
        rounds.append(row)
    while rounds:
        row = rounds.popleft()
        for item in islice(row, 1):
            yield item
            rounds.append(row)


class Ahead:
    """Decompresses what `upcoming` gives: the batches in the order in which they will be read."""

    def __init__(self, supervisor: Supervisor, upcoming: Callable[[], Iterable[BatchView]]) -> None:
        self._supervisor = supervisor
        self._upcoming = upcoming
        self._calls: dict[Call, list[BatchView]] = {}
        self._look_at = 0

    def look(self) -> None:
        """There is something new to read."""
        self._look_at = 0

    def go_on(self, read: int) -> None:
        """Begin with what comes next; `read` counts the decompressed bytes of all that was read."""
        if read >= self._look_at and len(self._calls) < CALLS:
            self._look_at = _NEVER
            views = self._next(read)
            if views:
                self._look_at = 0
                self._begin(views)

    def until(self, view: BatchView) -> Call | None:
        """What to wait for until a batch is no longer `awaited`."""
        return next((call for call, views in self._calls.items() if view in views), None)

    def _next(self, read: int) -> list[BatchView]:
        views: list[BatchView] = []
        ready = size = 0
        alone = 0
        for looked_at, view in enumerate(self._upcoming(), 1):
            content = view.content_size
            alone += not content
            if view.awaited or not view.compressed_bytes:
                ready += content
            elif 0 < content <= SIZE:
                views.append(view)
                size += content
            if ready + size >= ROOM:
                self._look_at = read + SIZE
            if size >= SIZE or ready + size >= ROOM or looked_at == LOOKED_AT or alone == ALONE:
                break
        return views if size >= LEAST else []

    def _begin(self, views: list[BatchView]) -> None:
        frames: list[memoryview] = []
        begun: list[BatchView] = []
        for view in views:
            frame = view.begin_decompression()
            if frame is not None:
                frames.append(frame)
                begun.append(view)
        if not begun:
            return
        sizes = [view.content_size for view in begun]
        call = self._supervisor.submit(decompress_frames, frames, sizes)
        self._calls[call] = begun
        call.add_done_callback(self._ended)

    def _ended(self, call: Call) -> None:
        views = self._calls.pop(call)
        failed = call.cancelled() or call.exception() is not None
        made = [None] * len(views) if failed else call.result()
        for view, unpacked in zip(views, made, strict=True):
            view.end_decompression(unpacked)
        self.look()
