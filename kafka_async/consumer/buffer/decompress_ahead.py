"""Decompresses the next batches in threads while the application processes the current ones.

A thread that returned after each batch would wait for the interpreter lock each time, until the
event loop releases it. So one call decompresses many batches (`compression.decompress_frames`),
and the results are attached to the batches. A batch that was read or dropped before that takes no
result. A batch that is unsuitable or corrupt is decompressed alone when it is read.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from kafka_async.foundation.fairness import (
    DECOMPRESSED_BYTES_PER_CALL,
    MAX_BATCHES_SCANNED,
    MIN_DECOMPRESSED_BYTES_PER_CALL,
)
from kafka_async.foundation.supervisor import THREADS
from kafka_async.records.compression import decompress_frames

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Iterator

    from kafka_async.foundation.supervisor import Supervisor
    from kafka_async.records.batch import BatchView

    DecompressCall: TypeAlias = asyncio.Future[list[memoryview]]

T = TypeVar("T")
MAX_CALLS: Final = 2 * THREADS
"""Calls in flight: each thread has a next call ready without waiting for the event loop."""
MAX_READY_BYTES: Final = 8 * DECOMPRESSED_BYTES_PER_CALL
"""Decompressed bytes that may wait to be read."""
MAX_UNSUITABLE_BATCHES: Final = 8
"""Unsuitable batches after which a scan ends: the rest is likely to be unsuitable too."""
# A value of `_scan_at`: only new batches lead to another scan.
_NEVER: Final = 1 << 62


def round_robin(rows: Iterable[Iterator[T]]) -> Iterator[T]:
    """Yield the first item of each row, then the second of each; rows are started when reached."""
    rounds: deque[Iterator[T]] = deque()
    for row in rows:
        yield from islice(row, 1)
        rounds.append(row)
    while rounds:
        row = rounds.popleft()
        for item in islice(row, 1):
            yield item
            rounds.append(row)


class AheadDecompressor:
    """Decompresses the batches of `upcoming`, which yields them in reading order."""

    def __init__(self, supervisor: Supervisor, upcoming: Callable[[], Iterable[BatchView]]) -> None:
        self._supervisor = supervisor
        self._upcoming = upcoming
        # Calls in flight with their batches, and the number of read bytes at which to scan again.
        self._calls: dict[DecompressCall, list[BatchView]] = {}
        self._scan_at = 0

    def on_new_batches(self) -> None:
        """Scan again at the next `start_calls`."""
        self._scan_at = 0

    def start_calls(self, read_bytes: int) -> None:
        """Start to decompress the next batches, after `read_bytes` decompressed bytes were read."""
        if read_bytes >= self._scan_at and len(self._calls) < MAX_CALLS:
            # Unless `_select` finds the limit of ready bytes, only new batches change the result.
            self._scan_at = _NEVER
            views = self._select(read_bytes)
            if views:
                # More may fit: scan again for another call.
                self._scan_at = 0
                self._submit(views)

    def call_for(self, view: BatchView) -> DecompressCall | None:
        """Return the call that decompresses `view`, or None."""
        return next((call for call, views in self._calls.items() if view in views), None)

    def _select(self, read_bytes: int) -> list[BatchView]:
        views: list[BatchView] = []
        ready_bytes = size = 0
        unsuitable = 0
        for scanned, view in enumerate(self._upcoming(), 1):
            content = view.content_size
            # Without a known size the result has no bound, so the batch is decompressed alone.
            unsuitable += not content
            if view.decompressing or not view.compressed_bytes:
                ready_bytes += content
            elif 0 < content <= DECOMPRESSED_BYTES_PER_CALL:
                views.append(view)
                size += content
            if ready_bytes + size >= MAX_READY_BYTES:
                # Reading makes room.
                self._scan_at = read_bytes + DECOMPRESSED_BYTES_PER_CALL
            # Enough for a call, enough ready bytes, or a scan that has become too long or too
            # fruitless.
            if (
                size >= DECOMPRESSED_BYTES_PER_CALL
                or ready_bytes + size >= MAX_READY_BYTES
                or scanned == MAX_BATCHES_SCANNED
                or unsuitable == MAX_UNSUITABLE_BATCHES
            ):
                break
        # A smaller call costs more than it saves.
        return views if size >= MIN_DECOMPRESSED_BYTES_PER_CALL else []

    def _submit(self, views: list[BatchView]) -> None:
        frames: list[memoryview] = []
        submitted: list[BatchView] = []
        # A batch may have been read between the scan and now.
        for view in views:
            frame = view.begin_decompression()
            if frame is not None:
                frames.append(frame)
                submitted.append(view)
        if not submitted:
            return
        sizes = [view.content_size for view in submitted]
        call = self._supervisor.submit(decompress_frames, frames, sizes)
        self._calls[call] = submitted
        call.add_done_callback(self._on_done)

    def _on_done(self, call: DecompressCall) -> None:
        views = self._calls.pop(call)
        # Each batch is then decompressed alone, when it is read.
        failed = call.cancelled() or call.exception() is not None
        results = [None] * len(views) if failed else call.result()
        for view, unpacked in zip(views, results, strict=True):
            view.end_decompression(unpacked)
        self.on_new_batches()
