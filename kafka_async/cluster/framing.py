"""Cuts the stream of one connection into frames, and keeps memory in proportion to what arrived.
Pure.

Frames that fit into 64 KiB pass through one buffer that the connection keeps; each is copied out,
as what is decoded may refer to it. A larger frame gets a buffer of its own, which starts at 64 KiB
(or at the size that such frames of this connection had so far) and doubles as bytes arrive: a size
is a claim, and four hostile bytes must not cost a hundred megabytes. It is received in place, and
handed on without a copy.

A size is checked against the cap before any byte of the frame is taken in. All connections of a
client share a `ReceiveBudget`; a large frame books its whole size in it before it goes on, so that
no two frames can hold each other up half-way.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeAlias

from kafka_async.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

Frame: TypeAlias = "bytes | bytearray"

SMALL: Final = 64 * 1024
SMALLEST: Final = 4
"""What a frame has at least: the number of the request that it answers."""
_SIZE: Final = Struct(">i")
_PREFIX: Final = _SIZE.size
_ROOM: Final = SMALL // 4


class FrameSizeError(ProtocolError):
    """A frame claims a size that none has, or one above the cap; `head` has its first bytes."""

    def __init__(self, message: str, head: bytes) -> None:
        super().__init__(message)
        self.head = head


class ReceiveBudget:
    """Bytes that large frames under way may hold, all connections of a client together.

    First come, first served. A frame that is larger than the whole budget passes when nothing else
    is held.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.held = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    def book(self, size: int, granted: Callable[[], None]) -> bool:
        """Take `size` bytes; False if they must be waited for, and `granted()` is called later."""
        if not self._waiting and self._fits(size):
            self.held += size
            return True
        self._waiting.append((size, granted))
        return False

    def release(self, size: int) -> None:
        """Give bytes back, and let those go on who now can."""
        self.held -= size
        self._grant()

    def withdraw(self, granted: Callable[[], None]) -> None:
        """Wait no longer: the connection is gone."""
        self._waiting = deque(entry for entry in self._waiting if entry[1] != granted)
        self._grant()

    def _grant(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size, granted = self._waiting.popleft()
            self.held += size
            granted()

    def _fits(self, size: int) -> bool:
        return not self.held or self.held + size <= self.total


class FrameReader:
    """The receiving half of one connection. Owned by its protocol's callbacks.

    `cap` is the size of the largest frame allowed, and may be raised. `on_blocked(True)` says
    that the budget is used up and reading must pause, `on_blocked(False)` that it may go on.
    """

    def __init__(self, cap: int, budget: ReceiveBudget, on_blocked: Callable[[bool], None]) -> None:
        self.cap = cap
        self._budget = budget
        self._on_blocked = on_blocked
        self._buffer = bytearray(SMALL)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        self._large: bytearray | None = None
        self._large_size = self._filled = 0
        self._usual = SMALL
        self._booked = 0
        self._asking = 0

    def room(self, sizehint: int = -1) -> memoryview:
        """Where the next bytes go; never empty. How many are expected makes no difference."""
        if self._large is not None:
            return memoryview(self._large)[self._filled :]
        if self._start == self._end:
            self._start = self._end = 0
        elif SMALL - self._end < _ROOM:
            kept = self._end - self._start
            self._buffer[:kept] = self._view[self._start : self._end].tobytes()
            self._start, self._end = 0, kept
        return self._view[self._end :]

    def received(self, count: int, deliver: Callable[[Frame], None]) -> bool:
        """Take in `count` bytes that were put into `room()`; `deliver` gets the frames they
        complete, without their sizes. Returns whether they end in the middle of a frame.

        Raises:
            FrameSizeError: a size is below 4 or above the cap.
        """
        if self._large is not None:
            return self._received_large(self._large, count, deliver)
        start = self._start
        end = self._end = self._end + count
        while end - start >= _PREFIX:
            (size,) = _SIZE.unpack_from(self._buffer, start)
            if not SMALLEST <= size <= self.cap:
                raise self._absurd(size)
            begin, start = start, start + _PREFIX + size
            if start > end:
                if size > SMALL - _PREFIX:
                    self._begin_large(size, begin + _PREFIX)
                return True
            self._start = start
            deliver(self._view[begin + _PREFIX : start].tobytes())
        return start != end

    def close(self) -> None:
        """Give back what is booked; nothing more will be received."""
        self._settle()
        self._large = None

    def _absurd(self, size: int) -> FrameSizeError:
        head = self._view[self._start : min(self._end, self._start + 16)].tobytes()
        return FrameSizeError(
            f"a frame claims {size} bytes, {SMALLEST} to {self.cap} are allowed "
            f"(it begins with {head!r})",
            head,
        )

    def _received_large(
        self, large: bytearray, count: int, deliver: Callable[[Frame], None]
    ) -> bool:
        self._filled += count
        if self._filled == self._large_size:
            deliver(self._end_large(large))
            return False
        if self._filled == len(large):
            self._large = _grown(large, self._filled, self._large_size)
        return True

    def _begin_large(self, size: int, begin: int) -> None:
        arrived = self._end - begin
        self._large = bytearray(min(size, self._usual))
        self._large[:arrived] = self._view[begin : self._end]
        self._large_size, self._filled = size, arrived
        self._start = self._end = 0
        self._asking = size
        if self._budget.book(size, self._granted):
            self._asking, self._booked = 0, size
        else:
            self._on_blocked(True)

    def _granted(self) -> None:
        self._asking, self._booked = 0, self._asking
        self._on_blocked(False)

    def _end_large(self, frame: bytearray) -> Frame:
        self._usual = self._large_size
        self._large = None
        self._settle()
        return frame

    def _settle(self) -> None:
        if self._asking:  # what arrived before reading could be paused completed the frame
            self._asking = 0
            self._budget.withdraw(self._granted)
            self._on_blocked(False)
        booked, self._booked = self._booked, 0
        if booked:
            self._budget.release(booked)


def _grown(frame: bytearray, filled: int, size: int) -> bytearray:
    larger = bytearray(min(size, 2 * filled))
    larger[:filled] = frame
    return larger
