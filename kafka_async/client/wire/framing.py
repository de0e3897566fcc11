"""Splits the byte stream of one connection into frames, with memory in proportion to what arrived.

Pure. Frames that fit into 64 KiB pass through one buffer that the connection keeps; each is copied,
because decoded messages may refer to the frame. A larger frame gets a separate buffer, which starts
at 64 KiB (or at the size of this connection's last large frame) and doubles as bytes arrive: the
size field is not trusted, and four hostile bytes must not cost a hundred megabytes. A large frame
is received in place and passed on without a copy.

The size is checked against the limit before any byte of the frame is processed. All connections of
a client share a `ReceiveBudget`. A large frame reserves its whole size before more of it is read,
so that two half-received frames cannot block each other.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeAlias

from kafka_async.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

Frame: TypeAlias = "bytes | bytearray"

BUFFER_SIZE: Final = 64 * 1024
"""Bytes of a connection's buffer for small frames."""
MIN_FRAME_SIZE: Final = 4
"""Bytes of the smallest frame, which has only a correlation id."""
_SIZE: Final = Struct(">i")
_PREFIX: Final = _SIZE.size
_MIN_READ_SIZE: Final = BUFFER_SIZE // 4


class FrameSizeError(ProtocolError):
    """The size field of a frame is out of range.

    Attributes:
        head: The first bytes of the frame, its size field included.
    """

    def __init__(self, message: str, head: bytes) -> None:
        super().__init__(message)
        self.head = head


class ReceiveBudget:
    """Limits the bytes of large frames that all connections of a client receive at a time.

    Reservations are granted in order. A frame that is larger than the whole budget is granted when
    nothing else is reserved.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.held = 0
        # In order, so that a large frame is not passed by small ones forever.
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    def reserve(self, size: int, granted: Callable[[], None]) -> bool:
        """Reserve `size` bytes; if they are not free, return False and call `granted()` later."""
        if not self._waiting and self._fits(size):
            self.held += size
            return True
        self._waiting.append((size, granted))
        return False

    def release(self, size: int) -> None:
        """Return bytes to the budget and grant waiting reservations that now fit."""
        self.held -= size
        self._grant()

    def cancel(self, granted: Callable[[], None]) -> None:
        """Cancel a reservation that was not granted yet."""
        # Bound methods are compared by equality: each access creates another object.
        self._waiting = deque(entry for entry in self._waiting if entry[1] != granted)
        self._grant()

    def _grant(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size, granted = self._waiting.popleft()
            self.held += size
            granted()

    def _fits(self, size: int) -> bool:
        # A frame beyond the whole budget must not wait forever.
        return not self.held or self.held + size <= self.total


class FrameReader:
    """Splits the bytes that one connection receives into frames. Owned by the protocol's callbacks.

    Args:
        max_frame_size: Maximum size of a frame, in bytes; may be raised later.
        on_blocked: Called with True when the budget is used up and reading must pause, with False
            when reading may resume.
    """

    def __init__(
        self, max_frame_size: int, budget: ReceiveBudget, on_blocked: Callable[[bool], None]
    ) -> None:
        self.max_frame_size = max_frame_size
        self._budget = budget
        self._on_blocked = on_blocked
        self._buffer = bytearray(BUFFER_SIZE)
        self._view = memoryview(self._buffer)
        # Small frames: the part of the buffer with unread bytes.
        self._start = self._end = 0
        # A large frame: its buffer, size and received bytes; the size of the last one is the first
        # guess.
        self._large: bytearray | None = None
        self._large_size = self._filled = 0
        self._expected_large_size = BUFFER_SIZE
        # Bytes granted by the budget, and those still waited for.
        self._reserved = 0
        self._requested = 0

    def room(self, sizehint: int = -1) -> memoryview:
        """Return the buffer for the next bytes, never empty; `sizehint` is ignored."""
        if self._large is not None:
            return memoryview(self._large)[self._filled :]
        if self._start == self._end:
            self._start = self._end = 0
        # Few bytes are left: moving the incomplete frame costs less than many tiny reads.
        elif BUFFER_SIZE - self._end < _MIN_READ_SIZE:
            kept = self._end - self._start
            self._buffer[:kept] = self._view[self._start : self._end].tobytes()
            self._start, self._end = 0, kept
        return self._view[self._end :]

    def received(self, count: int, deliver: Callable[[Frame], None]) -> bool:
        """Process `count` new bytes in `room()`; return True if they end in the middle of a frame.

        `deliver` is called with each frame that is complete now, without its size field. Raises
        FrameSizeError for a size below 4 or above `max_frame_size`.
        """
        if self._large is not None:
            return self._received_large(self._large, count, deliver)
        start = self._start
        end = self._end = self._end + count
        # Ends at an incomplete frame, or with an error before any of its bytes is used.
        while end - start >= _PREFIX:
            (size,) = _SIZE.unpack_from(self._buffer, start)
            if not MIN_FRAME_SIZE <= size <= self.max_frame_size:
                raise self._size_error(size)
            begin, start = start, start + _PREFIX + size
            if start > end:
                # Too large for the buffer: it continues in a buffer of its size.
                if size > BUFFER_SIZE - _PREFIX:
                    self._begin_large(size, begin + _PREFIX)
                return True
            # Before the call: `deliver` may close the connection.
            self._start = start
            deliver(self._view[begin + _PREFIX : start].tobytes())
        return start != end

    def close(self) -> None:
        """Return the reserved bytes; no more bytes will be received."""
        self._release_budget()
        self._large = None

    def _size_error(self, size: int) -> FrameSizeError:
        head = self._view[self._start : min(self._end, self._start + 16)].tobytes()
        return FrameSizeError(
            f"a frame claims {size} bytes, {MIN_FRAME_SIZE} to {self.max_frame_size} are allowed "
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
        # Not the claimed size: a peer must send bytes to make the buffer grow.
        self._large = bytearray(min(size, self._expected_large_size))
        self._large[:arrived] = self._view[begin : self._end]
        self._large_size, self._filled = size, arrived
        self._start = self._end = 0
        self._requested = size
        if self._budget.reserve(size, self._granted):
            self._requested, self._reserved = 0, size
        else:
            self._on_blocked(True)

    def _granted(self) -> None:
        self._requested, self._reserved = 0, self._requested
        self._on_blocked(False)

    def _end_large(self, frame: bytearray) -> Frame:
        self._expected_large_size = self._large_size
        self._large = None
        self._release_budget()
        return frame

    def _release_budget(self) -> None:
        if self._requested:  # the frame was completed before reading could be paused
            self._requested = 0
            self._budget.cancel(self._granted)
            self._on_blocked(False)
        reserved, self._reserved = self._reserved, 0
        if reserved:
            self._budget.release(reserved)


def _grown(frame: bytearray, filled: int, size: int) -> bytearray:
    larger = bytearray(min(size, 2 * filled))
    larger[:filled] = frame
    return larger
