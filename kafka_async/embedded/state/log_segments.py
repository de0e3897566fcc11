"""Batches of a log in memory, in preallocated segments; reads return views without a copy. Pure.

A read ends with its segment, so that it returns one contiguous view; the next read begins with the
next segment, as on a broker.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Buffer

MIN_SEGMENT_ALLOCATION_BYTES: Final = 1 << 14
MAX_SEGMENT_BYTES: Final = 1 << 22
"""Segments double in size up to this number of bytes; a larger batch gets a separate segment.

Retention deletes whole segments. They are smaller than Kafka's, so that `retention.bytes` alone
bounds the memory.
"""

NO_LIMIT: Final = 2**63 - 1

_OFFSET: Final = struct.Struct(">q")
_EPOCH: Final = struct.Struct(">i")
_EPOCH_AT: Final = 12


class StoredBatch(NamedTuple):
    """Locates a batch. `address` counts all bytes before it in the log, including deleted ones."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    address: int
    size: int
    segment: LogSegment


class LogSegment:
    """Holds the bytes from `address` on; written bytes never change.

    Attributes:
        last_offset: The highest offset in the segment.
        first_timestamp: The maximum timestamp of the first batch.
        max_timestamp: The maximum timestamp of all batches.
    """

    __slots__ = (
        "address",
        "first_timestamp",
        "last_offset",
        "max_timestamp",
        "used",
        "view",
    )

    def __init__(self, address: int, capacity: int) -> None:
        self.address = address
        self.used = 0
        self.view = memoryview(bytearray(capacity))
        self.last_offset = -1
        self.first_timestamp = self.max_timestamp = -1

    @property
    def end(self) -> int:
        """The address after the last written byte."""
        return self.address + self.used

    @property
    def free_bytes(self) -> int:
        """Bytes that can still be written."""
        return self.view.nbytes - self.used


class LogSegments:
    """Stores all batches of a log in the order of their offsets."""

    def __init__(self) -> None:
        self._batches: list[StoredBatch] = []
        self._base_offsets: list[int] = []
        self._last_offsets: list[int] = []
        self._end_addresses: list[int] = []
        self._max_timestamps: list[int] = []  # of all batches up to each
        self._segments: deque[LogSegment] = deque([LogSegment(0, 0)])  # the last one is active
        self._segment_bytes = MAX_SEGMENT_BYTES
        self._segment_ms = NO_LIMIT

    @property
    def allocated_bytes(self) -> int:
        """Bytes of memory allocated for all segments."""
        return sum(segment.view.nbytes for segment in self._segments)

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return self._end_addresses[-1] - self._batches[0].address if self._batches else 0

    def configure(self, segment_bytes: int, segment_ms: int) -> None:
        """Set `segment.bytes` and `segment.ms`, the limits at which a segment is rolled."""
        self._segment_bytes = min(segment_bytes, MAX_SEGMENT_BYTES)
        self._segment_ms = segment_ms

    def append(
        self,
        batch: Buffer,
        base_offset: int,
        last_offset: int,
        leader_epoch: int,
        max_timestamp: int,
    ) -> bool:
        """Copy a batch, set base offset and leader epoch; return True if it begins a segment."""
        raw = memoryview(batch)
        segment = self._segments[-1]
        full = segment.free_bytes < raw.nbytes
        if full or (segment.used and max_timestamp - segment.first_timestamp > self._segment_ms):
            capacity = max(2 * segment.view.nbytes if full else 0, MIN_SEGMENT_ALLOCATION_BYTES)
            if not segment.used:
                self._segments.pop()
            segment = LogSegment(segment.end, max(min(capacity, self._segment_bytes), raw.nbytes))
            self._segments.append(segment)
        began = not segment.used
        if began:
            segment.first_timestamp = max_timestamp
        segment.max_timestamp = max(segment.max_timestamp, max_timestamp)
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
        self._base_offsets.append(base_offset)
        self._last_offsets.append(last_offset)
        self._end_addresses.append(address + raw.nbytes)
        self._max_timestamps.append(
            max(max_timestamp, self._max_timestamps[-1]) if self._max_timestamps else max_timestamp
        )
        return began

    def read(
        self, offset: int, upper: int, max_bytes: int, *, at_least_one: bool = True
    ) -> memoryview:
        """Return whole batches from the one with `offset` on that begin below offset `upper`.

        They have at most `max_bytes`; with `at_least_one` the first batch may be larger.
        """
        first = bisect_left(self._last_offsets, offset)
        below = bisect_left(self._base_offsets, upper)
        if first >= below:
            return _NOTHING
        start = self._batches[first]
        segment = start.segment
        fitting = bisect_right(
            self._end_addresses, min(start.address + max_bytes, segment.end), first
        )
        stop = min(below, fitting)
        if stop == first:
            if not at_least_one:
                return _NOTHING
            stop = first + 1
        begin = start.address - segment.address
        return segment.view[begin : self._end_addresses[stop - 1] - segment.address]

    def raw(self, batch: StoredBatch) -> memoryview:
        """Return the bytes of one batch."""
        begin = batch.address - batch.segment.address
        return batch.segment.view[begin : begin + batch.size]

    def batches_since(self, timestamp: int) -> list[StoredBatch]:
        """Return the batches from the first one that may reach this timestamp."""
        return self._batches[bisect_left(self._max_timestamps, timestamp) :]

    def batch_with_max_timestamp(self) -> StoredBatch | None:
        """Return the first batch with the highest timestamp, or None."""
        if not self._batches:
            return None
        return self._batches[bisect_left(self._max_timestamps, self._max_timestamps[-1])]

    def first_retained_offset(self, retention_bytes: int, min_timestamp: int) -> int | None:
        """Return the first offset that retention keeps, or None if it deletes no segment.

        The oldest segment is deleted while the others have at least `retention_bytes` (-1: no
        limit) and at least one full segment, or while all its timestamps are below
        `min_timestamp` (milliseconds since the epoch).
        """
        limit = max(retention_bytes, self._segment_bytes) if retention_bytes >= 0 else NO_LIMIT
        first_retained = None
        for segment in self._segments:
            too_large = self._segments[-1].end - segment.end >= limit
            if not segment.used or not (too_large or segment.max_timestamp < min_timestamp):
                break
            first_retained = segment.last_offset + 1
        return first_retained

    def delete_below(self, offset: int) -> None:
        """Delete the batches that end below an offset, and the segments that become empty."""
        count = bisect_left(self._last_offsets, offset)
        for column in (
            self._batches,
            self._base_offsets,
            self._last_offsets,
            self._end_addresses,
            self._max_timestamps,
        ):
            del column[:count]
        while self._segments and self._segments[0].used and self._segments[0].last_offset < offset:
            end = self._segments.popleft().end
            if not self._segments:
                self._segments.append(LogSegment(end, 0))
        highest = -1
        for index, batch in enumerate(self._batches if count else ()):
            highest = max(highest, batch.max_timestamp)
            if self._max_timestamps[index] == highest:
                break  # the remaining maxima do not depend on deleted batches
            self._max_timestamps[index] = highest


_NOTHING: Final = memoryview(b"")
