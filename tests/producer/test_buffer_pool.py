"""The bound of buffer_memory: reservations, waiters, and the share of stranded accounts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafka_async.producer.buffer.buffer_pool import BufferPool, BufferWaiter, MemoryAccount
from tests.producer.futures import FakeFuture


def pool_of(total: int = 100) -> BufferPool:
    return BufferPool(total, FakeFuture)


def sendable() -> MemoryAccount:
    return MemoryAccount(stranded=False)


def stranded() -> MemoryAccount:
    return MemoryAccount(stranded=True)


def full_pool() -> tuple[BufferPool, MemoryAccount]:
    """Return a pool and the account that has reserved all of it."""
    pool, account = pool_of(), sendable()
    assert pool.reserve(100, account)
    return pool, account


def test_reserves_at_most_the_total() -> None:
    pool, account = pool_of(), sendable()
    assert pool.reserve(60, account)
    assert not pool.reserve(41, account)
    assert pool.reserve(40, account)
    assert (pool.reserved_bytes, account.reserved_bytes) == (100, 100)
    pool.release(100, account)
    assert (pool.reserved_bytes, account.reserved_bytes) == (0, 0)


def test_grants_waiters_in_order_and_keeps_their_bytes() -> None:
    pool, account = full_pool()
    first, second = pool.add_waiter(60, account), pool.add_waiter(10, account)
    pool.release(50, account)
    # The second would fit, but the first came earlier, and its bytes are not available to others.
    assert not first.granted
    assert not second.granted
    assert not pool.reserve(5, account)
    pool.release(20, account)
    assert first.granted
    assert second.granted
    assert pool.reserved_bytes == 100
    pool.use_grant(first)
    assert pool.reserve(60, account, overtake=True)


def test_removing_a_waiter_releases_its_grant() -> None:
    pool, account = full_pool()
    waiter, after = pool.add_waiter(60, account), pool.add_waiter(50, account)
    pool.release(60, account)
    assert waiter.granted
    pool.remove_waiter(waiter)
    assert after.granted
    assert pool.reserved_bytes == 90


def test_skips_cancelled_waiters() -> None:
    pool, account = full_pool()
    gone, after = pool.add_waiter(60, account), pool.add_waiter(50, account)
    assert isinstance(gone.future, FakeFuture)
    gone.future.cancelled = True
    pool.release(100, account)
    assert after.granted
    assert not gone.granted
    pool.remove_waiter(gone)
    assert pool.reserved_bytes == 50


def test_stranded_accounts_reserve_at_most_half() -> None:
    pool = pool_of()
    one, two, good = stranded(), stranded(), sendable()
    assert pool.reserve(50, one)
    assert not pool.reserve(1, one)
    assert not pool.reserve(1, two)
    assert pool.reserve(50, good)


def test_stranded_accounts_share_their_half_equally() -> None:
    pool = pool_of()
    one, two = stranded(), stranded()
    assert pool.reserve(20, one)
    assert pool.reserve(20, two)
    assert not pool.reserve(6, one)
    assert pool.reserve(5, two)


def test_stranded_record_larger_than_half_is_accepted_alone() -> None:
    pool, account = pool_of(), stranded()
    assert pool.reserve(80, account)
    assert not pool.reserve(10, account)


def test_stranded_waiter_delays_only_stranded_accounts() -> None:
    pool = pool_of()
    lost, good = stranded(), sendable()
    assert pool.reserve(50, lost)
    assert pool.reserve(40, good)
    waiting = pool.add_waiter(10, lost)
    assert not waiting.granted
    assert pool.reserve(10, good)
    pool.release(50, good)
    assert not waiting.granted
    pool.set_stranded(lost, False)
    assert waiting.granted


def test_losing_the_leader_counts_bytes_already_reserved() -> None:
    pool = pool_of()
    lost, other = sendable(), stranded()
    assert pool.reserve(60, lost)
    pool.set_stranded(lost, True)
    assert not pool.reserve(1, other)
    pool.set_stranded(lost, False)
    assert pool.reserve(1, other)


def test_wakes_all_waiters_without_a_grant() -> None:
    pool, account = full_pool()
    waiters = [pool.add_waiter(10, account) for _ in range(3)]
    pool.wake_all_waiters()
    assert [waiter.future.done() for waiter in waiters] == [True] * 3
    assert not any(waiter.granted for waiter in waiters)
    assert pool.waiter_count == 0


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(1, 60)), max_size=60))
def test_accounting_is_consistent(steps: list[tuple[int, int, int]]) -> None:
    pool = pool_of()
    accounts = [sendable(), sendable(), stranded(), stranded()]
    waiters: list[BufferWaiter] = []
    for action, who, size in steps:
        account = accounts[who]
        if action in (0, 1):
            pool.reserve(size, account)
        elif action == 2:
            pool.release(min(size, account.reserved_bytes - granted_to(waiters, account)), account)
        elif action == 3:
            waiters.append(pool.add_waiter(size, account))
        elif action == 4 and waiters:
            pool.remove_waiter(waiters.pop(size % len(waiters)))
        elif action == 5:
            pool.set_stranded(account, not account.stranded)
        assert 0 <= pool.reserved_bytes <= pool.total_bytes
        assert pool.reserved_bytes == sum(account.reserved_bytes for account in accounts)
        assert pool.waiter_count == sum(not waiter.granted for waiter in waiters)
    for waiter in waiters:
        pool.remove_waiter(waiter)
    for account in accounts:
        pool.release(account.reserved_bytes, account)
    assert pool.reserved_bytes == 0
    assert pool.reserve(100, sendable())


def granted_to(waiters: list[BufferWaiter], account: MemoryAccount) -> int:
    return sum(waiter.size for waiter in waiters if waiter.granted and waiter.account is account)
