"""The bound on what a producer keeps in memory: pure accounting, and a line of those who wait.

Bytes are taken when a batch is opened or grows and given back when its outcome is known, and with
them what Python takes for the batch itself: else many small ones would be twice as large. Whoever
finds too little may queue for it; the line is served in order, and a place in it holds the bytes
once granted, so nobody who comes later can take them.

What cannot be sent, for want of a leader or because the topic is not known, is stranded. All that
is stranded together may hold half of the memory, and each holder of it an equal share of that half,
so the rest can go on. A stranded holder in the line is passed over, not waited for.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kafka_async.producer.outcome import NewPromise, Promise

__all__ = ["OVERHEAD", "BufferMemory", "Holder", "Place", "Shortage"]

OVERHEAD: Final = 768
"""Bytes that a batch, or a record that waits for its topic, takes besides what is in it."""


class Holder:
    """Somebody who holds bytes: a partition's queue, or a topic's queue without a partition."""

    __slots__ = ("held", "stranded")

    def __init__(self, *, stranded: bool) -> None:
        self.held = 0
        self.stranded = stranded


class Shortage(NamedTuple):
    """There is no memory: how many bytes are needed, and who would hold them."""

    size: int
    holder: Holder


class Place:
    """A place in the line. `promise` is fulfilled when the bytes are there; then redeem it."""

    __slots__ = ("granted", "holder", "promise", "size")

    def __init__(self, size: int, holder: Holder, promise: Promise) -> None:
        self.size = size
        self.holder = holder
        self.promise = promise
        self.granted = False


class BufferMemory:
    """`total` bytes, who holds how many, and who waits."""

    def __init__(self, total: int, new_promise: NewPromise) -> None:
        self.total = total
        self.used = 0
        self._new_promise = new_promise
        self._line: deque[Place] = deque()
        self._stranded_bytes = 0
        self._stranded_holders = 0

    @property
    def waiting(self) -> int:
        """How many wait for room."""
        return len(self._line)

    def take(self, size: int, holder: Holder, *, overtake: bool = False) -> bool:
        """Take bytes if they are there and nobody came earlier (or one may overtake)."""
        if not self._fits(size, holder):
            return False
        if self._line and self._contested(holder) and not overtake:
            return False
        self._move(size, holder)
        return True

    def force(self, size: int, holder: Holder) -> None:
        """Take bytes for what was accepted already, whether they are there or not."""
        self._move(size, holder)

    def give(self, size: int, holder: Holder) -> None:
        """Give bytes back, and serve the line."""
        self._move(-size, holder)
        if self._line:
            self._serve()

    def transfer(self, size: int, giver: Holder, taker: Holder) -> None:
        """Let another hold bytes that are taken already."""
        self._move(-size, giver)
        self._move(size, taker)

    def strand(self, holder: Holder, stranded: bool) -> None:
        """The holder can no longer be sent, or can again."""
        if holder.stranded == stranded:
            return
        held = holder.held
        self._move(-held, holder)
        holder.stranded = stranded
        self._move(held, holder)
        self._serve()

    def queue(self, size: int, holder: Holder) -> Place:
        """Stand in line for bytes."""
        place = Place(size, holder, self._new_promise())
        self._line.append(place)
        self._serve()
        return place

    def redeem(self, place: Place) -> None:
        """Free what a place was granted, for its owner to take in the same breath."""
        if place.granted:
            place.granted = False
            self._move(-place.size, place.holder)

    def leave(self, place: Place) -> None:
        """Give up a place, and what it was granted; harmless when it was redeemed."""
        if place in self._line:
            self._line.remove(place)
        self.redeem(place)
        self._serve()

    def wake_all(self) -> None:
        """Fulfil every promise without granting anything: the owner closes."""
        while self._line:
            place = self._line.popleft()
            if not place.promise.done():
                place.promise.set_result(None)

    def _contested(self, holder: Holder) -> bool:
        """Whether somebody came earlier; a stranded place in the line holds up only its like."""
        return any(holder.stranded or not place.holder.stranded for place in self._line)

    def _fits(self, size: int, holder: Holder) -> bool:
        if self.used + size > self.total:
            return False
        if not holder.stranded or self._stranded_bytes == 0:
            return True
        limit = self.total // 2
        others = self._stranded_holders + (0 if holder.held else 1)
        return self._stranded_bytes + size <= limit and holder.held + size <= limit // max(
            1, others
        )

    def _serve(self) -> None:
        passed: list[Place] = []
        while self._line:
            place = self._line[0]
            if place.promise.done():  # cancelled: its owner is about to leave
                self._line.popleft()
            elif self._fits(place.size, place.holder):
                self._line.popleft()
                self._move(place.size, place.holder)
                place.granted = True
                place.promise.set_result(None)
            elif place.holder.stranded:
                passed.append(self._line.popleft())
            else:
                break
        self._line.extendleft(reversed(passed))

    def _move(self, size: int, holder: Holder) -> None:
        before = holder.held
        self.used += size
        holder.held += size
        if holder.stranded:
            self._stranded_bytes += size
            self._stranded_holders += (holder.held > 0) - (before > 0)
