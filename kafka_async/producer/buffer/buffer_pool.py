"""Bounds the memory of a producer's batches, with a queue of callers waiting for it.

Bytes are reserved when a batch is opened or grows, and released when its outcome is known. The
overhead of a batch's Python objects counts too, since many small batches would otherwise take twice
the memory. A caller that finds too little may wait. Waiters are served in order, and a granted
waiter holds its bytes, so that later callers cannot take them.

Batches that cannot be sent, because their partition has no leader or their topic is unknown, are
stranded. All stranded accounts together may hold half of the memory, and each an equal share of
that half, so that the others can continue.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kafka_async.producer.buffer.outcome import FutureFactory, FutureLike

__all__ = ["MEMORY_OVERHEAD", "BufferPool", "BufferShortage", "BufferWaiter", "MemoryAccount"]

MEMORY_OVERHEAD: Final = 768
"""Bytes reserved for each batch or unpartitioned record in addition to its contents."""


@dataclass(slots=True, eq=False, repr=False)
class MemoryAccount:
    """Counts the bytes reserved for one partition, or for the unpartitioned records of a topic."""

    reserved_bytes: int = field(default=0, init=False)
    stranded: bool = field(default=True, kw_only=True)


class BufferShortage(NamedTuple):
    """Result of an append without memory: the bytes needed, and the account they are for."""

    size: int
    account: MemoryAccount


@dataclass(slots=True, eq=False, repr=False)
class BufferWaiter:
    """A caller waiting for memory; `future` is done when it is granted or the pool is closed."""

    size: int
    account: MemoryAccount
    future: FutureLike
    granted: bool = False


class BufferPool:
    """Reserves and releases bytes of buffer_memory.

    `reserved_bytes` includes bytes granted to waiters.
    """

    def __init__(self, total: int, new_future: FutureFactory) -> None:
        self.total_bytes = total
        self.reserved_bytes = 0
        # `_stranded_bytes` and `_stranded_accounts` are kept up to date by `_adjust`, since adding
        # them up would cost a pass over all partitions per reservation.
        self._new_future = new_future
        self._waiters: deque[BufferWaiter] = deque()
        self._stranded_bytes = 0
        self._stranded_accounts = 0

    @property
    def waiter_count(self) -> int:
        """Number of callers waiting for memory."""
        return len(self._waiters)

    def reserve(self, size: int, account: MemoryAccount, *, overtake: bool = False) -> bool:
        """Reserve bytes if they are available; return whether they were.

        Earlier waiters come first unless `overtake` is set.
        """
        if not self._fits(size, account):
            return False
        # Otherwise small records could take the memory that a large one waits for, forever.
        if self._waiters and self._has_earlier_waiter(account) and not overtake:
            return False
        self._adjust(size, account)
        return True

    def force_reserve(self, size: int, account: MemoryAccount) -> None:
        """Reserve bytes for records that were accepted already, beyond the limit if necessary."""
        self._adjust(size, account)

    def release(self, size: int, account: MemoryAccount) -> None:
        """Release bytes, and grant them to waiters."""
        self._adjust(-size, account)
        if self._waiters:
            self._grant_waiters()

    def transfer(self, size: int, source: MemoryAccount, target: MemoryAccount) -> None:
        """Move reserved bytes from one account to another."""
        self._adjust(-size, source)
        self._adjust(size, target)

    def set_stranded(self, account: MemoryAccount, stranded: bool) -> None:
        """Set whether batches of an account cannot be sent."""
        if account.stranded == stranded:
            return
        # Taken out and put back, so that `_adjust` counts them on the other side.
        reserved_bytes = account.reserved_bytes
        self._adjust(-reserved_bytes, account)
        account.stranded = stranded
        self._adjust(reserved_bytes, account)
        self._grant_waiters()

    def add_waiter(self, size: int, account: MemoryAccount) -> BufferWaiter:
        """Add a waiter after all earlier ones; its future is done once the bytes are granted."""
        waiter = BufferWaiter(size, account, self._new_future())
        self._waiters.append(waiter)
        # Memory may have been released between the shortage and this call.
        self._grant_waiters()
        return waiter

    def use_grant(self, waiter: BufferWaiter) -> None:
        """Undo a waiter's grant; the caller reserves the bytes again before any other task runs."""
        if waiter.granted:
            waiter.granted = False
            self._adjust(-waiter.size, waiter.account)

    def remove_waiter(self, waiter: BufferWaiter) -> None:
        """Remove a waiter and release its unused grant."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        self.use_grant(waiter)
        # The removed waiter may have held up the others, or has returned its bytes.
        self._grant_waiters()

    def wake_all_waiters(self) -> None:
        """Complete the future of each waiter without a grant: the producer is closing."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.future.done():
                waiter.future.set_result(None)

    def _has_earlier_waiter(self, account: MemoryAccount) -> bool:
        """Return True if a waiter comes first; a stranded one delays only stranded accounts."""
        return any(account.stranded or not waiter.account.stranded for waiter in self._waiters)

    def _fits(self, size: int, account: MemoryAccount) -> bool:
        if self.reserved_bytes + size > self.total_bytes:
            return False
        # One stranded batch always fits, or a single large record could never be appended.
        if not account.stranded or self._stranded_bytes == 0:
            return True
        limit = self.total_bytes // 2
        others = self._stranded_accounts + (0 if account.reserved_bytes else 1)
        return (
            self._stranded_bytes + size <= limit
            and account.reserved_bytes + size <= limit // max(1, others)
        )

    def _grant_waiters(self) -> None:
        # Stranded waiters are passed over and put back in order; the first other that does not fit
        # holds up the rest.
        passed: list[BufferWaiter] = []
        while self._waiters:
            waiter = self._waiters[0]
            if waiter.future.done():  # cancelled; its caller removes it
                self._waiters.popleft()
            elif self._fits(waiter.size, waiter.account):
                self._waiters.popleft()
                self._adjust(waiter.size, waiter.account)
                waiter.granted = True
                waiter.future.set_result(None)
            elif waiter.account.stranded:
                passed.append(self._waiters.popleft())
            else:
                break
        self._waiters.extendleft(reversed(passed))

    def _adjust(self, size: int, account: MemoryAccount) -> None:
        before = account.reserved_bytes
        self.reserved_bytes += size
        account.reserved_bytes += size
        if account.stranded:
            self._stranded_bytes += size
            self._stranded_accounts += (account.reserved_bytes > 0) - (before > 0)
