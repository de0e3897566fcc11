"""Batches at rest: appended once into preallocated segments, read as views without a copy. Pure.

A read never crosses a segment, so what it returns is one contiguous view; the next read goes on
in the next segment, as on a real broker.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Buffer

FIRST_SEGMENT: Final = 1 << 14
LARGEST_SEGMENT: Final = 1 << 22
"""Segments double from the first size to the largest, in bytes; a larger batch gets its own.

Retention deletes whole segments. They are smaller than Kafka's, so that memory is bounded by
`retention.bytes` alone.
"""

NO_LIMIT: Final = 2**63 - 1

_OFFSET: Final = struct.Struct(">q")
_EPOCH: Final = struct.Struct(">i")
_EPOCH_AT: Final = 12


class StoredBatch(NamedTuple):
    """Where a batch lies. `address` counts bytes since the log began, whatever has been deleted."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    address: int
    size: int
    segment: Segment


class Segment:
    """Memory for the bytes from `address` on; what was written never changes again.

    `last_offset` is the highest offset in it, `first_timestamp` and `latest` are the timestamps of
    its first batch and the highest of all.
    """

    __slots__ = ("address", "first_timestamp", "last_offset", "latest", "used", "view")

    def __init__(self, address: int, capacity: int) -> None:
        self.address = address
        self.used = 0
        self.view = memoryview(bytearray(capacity))
        self.last_offset = -1
        self.first_timestamp = self.latest = -1

    @property
    def end(self) -> int:
        """The address after the last byte written."""
        return self.address + self.used

    @property
    def room(self) -> int:
        """Bytes that still fit."""
        return self.view.nbytes - self.used


class Segments:
    """All batches of a log, in the order of offsets."""

    def __init__(self) -> None:
        self._batches: list[StoredBatch] = []
        self._bases: list[int] = []
        self._lasts: list[int] = []
        self._ends: list[int] = []
        self._latest: list[int] = []  # the highest timestamp up to each batch
        self._segments: deque[Segment] = deque([Segment(0, 0)])  # the last one is written to
        self._max_bytes = LARGEST_SEGMENT
        self._max_ms = NO_LIMIT

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def allocated(self) -> int:
        """Bytes of memory that all segments take."""
        return sum(segment.view.nbytes for segment in self._segments)

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return self._ends[-1] - self._batches[0].address if self._batches else 0

    def limit(self, segment_bytes: int, segment_ms: int) -> None:
        """Set the size of a segment and the time between its first and its last batch at most."""
        self._max_bytes = min(segment_bytes, LARGEST_SEGMENT)
        self._max_ms = segment_ms

    def append(
        self,
        batch: Buffer,
        base_offset: int,
        last_offset: int,
        leader_epoch: int,
        max_timestamp: int,
    ) -> bool:
        """Copy a batch in, with the offset and the epoch that the leader gives it.

        Return whether it begins a segment.
        """
        raw = memoryview(batch)
        segment = self._segments[-1]
        full = segment.room < raw.nbytes
        if full or (segment.used and max_timestamp - segment.first_timestamp > self._max_ms):
            capacity = max(2 * segment.view.nbytes if full else 0, FIRST_SEGMENT)
            if not segment.used:
                self._segments.pop()
            segment = Segment(segment.end, max(min(capacity, self._max_bytes), raw.nbytes))
            self._segments.append(segment)
        began = not segment.used
        if began:
            segment.first_timestamp = max_timestamp
        segment.latest = max(segment.latest, max_timestamp)
        segment.last_offset = last_offset
        at = segment.used
        segment.view[at : at + raw.nbytes] = raw
        _OFFSET.pack_into(segment.view, at, base_offset)
        _EPOCH.pack_into(segment.view, at + _EPOCH_AT, leader_epoch)
        segment.used = at + raw.nbytes
        address = segment.address + at
        self._batches.append(
            StoredBatch(base_offset, last_offset, max_timestamp, address, raw.nbytes, segment)
        )
        self._bases.append(base_offset)
        self._lasts.append(last_offset)
        self._ends.append(address + raw.nbytes)
        self._latest.append(max(max_timestamp, self._latest[-1]) if self._latest else max_timestamp)
        return began

    def read(
        self, offset: int, upper: int, max_bytes: int, *, at_least_one: bool = True
    ) -> memoryview:
        """The batches from the one that holds `offset` on, whole, that begin below offset `upper`.

        At most `max_bytes`, but for the first batch if `at_least_one`; empty if there is nothing.
        """
        first = bisect_left(self._lasts, offset)
        below = bisect_left(self._bases, upper)
        if first >= below:
            return _NOTHING
        start = self._batches[first]
        segment = start.segment
        fitting = bisect_right(self._ends, min(start.address + max_bytes, segment.end), first)
        stop = min(below, fitting)
        if stop == first:
            if not at_least_one:
                return _NOTHING
            stop = first + 1
        begin = start.address - segment.address
        return segment.view[begin : self._ends[stop - 1] - segment.address]

    def bytes_from(self, offset: int, upper: int) -> int:
        """How much `read` could return in all, segment after segment."""
        first = bisect_left(self._lasts, offset)
        below = bisect_left(self._bases, upper)
        return 0 if first >= below else self._ends[below - 1] - self._batches[first].address

    def raw(self, batch: StoredBatch) -> memoryview:
        """The bytes of one batch."""
        begin = batch.address - batch.segment.address
        return batch.segment.view[begin : begin + batch.size]

    def since(self, timestamp: int) -> list[StoredBatch]:
        """The batches from the first on that may hold a record of this time or later."""
        return self._batches[bisect_left(self._latest, timestamp) :]

    def latest(self) -> StoredBatch | None:
        """The first batch with the highest timestamp of all."""
        if not self._batches:
            return None
        return self._batches[bisect_left(self._latest, self._latest[-1])]

    def first_kept(self, retention_bytes: int, expired: int) -> int | None:
        """Return the first offset that retention keeps; None if it deletes nothing.

        Segments go from the oldest on while what is left has at least `retention_bytes` (-1: any
        size is kept) and at least a segment of full size, or while all their timestamps are lower
        than `expired` (epoch milliseconds).
        """
        kept = max(retention_bytes, self._max_bytes) if retention_bytes >= 0 else NO_LIMIT
        found = None
        for segment in self._segments:
            too_much = self._segments[-1].end - segment.end >= kept
            if not segment.used or not (too_much or segment.latest < expired):
                break
            found = segment.last_offset + 1
        return found

    def drop_below(self, offset: int) -> None:
        """Forget the batches that end below an offset, and the segments of which none is left."""
        count = bisect_left(self._lasts, offset)
        for column in (self._batches, self._bases, self._lasts, self._ends, self._latest):
            del column[:count]
        while self._segments and self._segments[0].used and self._segments[0].last_offset < offset:
            end = self._segments.popleft().end
            if not self._segments:
                self._segments.append(Segment(end, 0))
        highest = -1
        for index, batch in enumerate(self._batches if count else ()):
            highest = max(highest, batch.max_timestamp)
            if self._latest[index] == highest:
                break  # from here on the deleted batches have not been the latest
            self._latest[index] = highest


_NOTHING: Final = memoryview(b"")
