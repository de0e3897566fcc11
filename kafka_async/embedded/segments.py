"""Batches at rest: appended once into preallocated segments, read as views without a copy. Pure.

A read never crosses a segment, so what it returns is one contiguous view; the next read goes on
in the next segment, as on a real broker.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Buffer

FIRST_SEGMENT: Final = 1 << 14
LARGEST_SEGMENT: Final = 1 << 22
"""Segments double from the first size to the largest, in bytes; a larger batch gets its own."""

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
    """Memory for the bytes from `address` on; what was written never changes again."""

    __slots__ = ("address", "used", "view")

    def __init__(self, address: int, capacity: int) -> None:
        self.address = address
        self.used = 0
        self.view = memoryview(bytearray(capacity))

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
        self._segment = Segment(0, 0)

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return self._ends[-1] - self._batches[0].address if self._batches else 0

    def append(
        self,
        batch: Buffer,
        base_offset: int,
        last_offset: int,
        leader_epoch: int,
        max_timestamp: int,
    ) -> None:
        """Copy a batch in, with the offset and the epoch that the leader gives it."""
        raw = memoryview(batch)
        segment = self._segment
        if segment.room < raw.nbytes:
            capacity = min(max(2 * segment.view.nbytes, FIRST_SEGMENT), LARGEST_SEGMENT)
            segment = Segment(segment.address + segment.used, max(capacity, raw.nbytes))
            self._segment = segment
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
        segment_end = segment.address + segment.used
        fitting = bisect_right(self._ends, min(start.address + max_bytes, segment_end), first)
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

    def drop_below(self, offset: int) -> None:
        """Forget the batches that end below an offset."""
        count = bisect_left(self._lasts, offset)
        for column in (self._batches, self._bases, self._lasts, self._ends, self._latest):
            del column[:count]
        highest = -1
        for index, batch in enumerate(self._batches if count else ()):
            self._latest[index] = highest = max(highest, batch.max_timestamp)


_NOTHING: Final = memoryview(b"")
