"""What an `async for` awaits: records at hand at once, everything else by `more`."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.asyncio


class Hand:
    """A `NextRecord` of some records, and its clock; what is not at hand is -1."""

    def __init__(self, kernel: ModuleType, records: list[Any]) -> None:
        self.now = 0.0
        self.asked = 0
        self.next = kernel.NextRecord(lambda: self.now, self._more)
        self.next.records, self.next.until = records, 1.0
        self.stream = kernel.RecordIterator(self.next)

    async def _more(self) -> Any:
        self.asked += 1
        await asyncio.sleep(0)
        return -1


async def test_records_at_hand_are_given_in_order_and_then_more_is_asked_for(
    kernel: ModuleType,
) -> None:
    hand = Hand(kernel, [10, 11])
    assert (await hand.next, hand.next.at, hand.asked) == (10, 1, 0)
    assert (await hand.next, hand.next.at, hand.asked) == (11, 2, 0)
    assert (await hand.next, hand.next.at, hand.asked) == (-1, 2, 1)
    hand.next.records, hand.next.at = [12], 0
    assert (await hand.next, hand.asked) == (12, 1)


async def test_nothing_is_given_at_once_when_the_time_is_up(kernel: ModuleType) -> None:
    hand = Hand(kernel, [10, 11])
    hand.now = 1.0
    assert (await hand.next, hand.next.at) == (-1, 0)
    hand.next.until = 1.5
    assert (await hand.next, hand.next.at) == (10, 1)


async def test_a_new_one_has_nothing_at_hand(kernel: ModuleType) -> None:
    first = kernel.NextRecord(lambda: 0.0, lambda: None)
    assert (first.records, first.at, first.until) == ([], 0, float("-inf"))


async def test_what_a_tuple_is_given_as(kernel: ModuleType) -> None:
    """A value in a StopIteration is taken apart where it is not wrapped with care."""
    assert await Hand(kernel, [(1, 2)]).next == (1, 2)


async def test_what_more_raises_is_raised(kernel: ModuleType) -> None:
    async def fail() -> Any:
        raise LookupError("none")

    with pytest.raises(LookupError, match="none"):
        await kernel.NextRecord(lambda: 0.0, fail)


async def test_a_record_is_taken_when_it_is_awaited_not_before(kernel: ModuleType) -> None:
    hand = Hand(kernel, [10, 11])
    pending = [anext(hand.stream), anext(hand.stream)]
    assert hand.next.at == 0
    assert [await one for one in pending] == [10, 11]


async def test_it_can_be_awaited_by_a_task(kernel: ModuleType) -> None:
    stream = Hand(kernel, [10]).stream
    assert await asyncio.wait_for(anext(stream), 5) == 10
    assert await asyncio.wait_for(anext(stream), 5) == -1


async def test_a_cancelled_wait_takes_nothing(kernel: ModuleType) -> None:
    hand = Hand(kernel, [10])
    waiting = asyncio.ensure_future(anext(hand.stream))
    waiting.cancel()
    await asyncio.wait({waiting})
    assert (waiting.cancelled(), hand.next.at) == (True, 0)


async def test_an_async_for_goes_through_all(kernel: ModuleType) -> None:
    hand = Hand(kernel, list(range(100)))
    seen: list[Any] = []
    async for record in hand.stream:
        if record == -1:
            break
        seen.append(record)
    assert (seen, hand.asked) == (list(range(100)), 1)


async def test_a_traced_async_for_does_so_too(kernel: ModuleType) -> None:
    """The interpreter takes another way then."""
    seen: list[Any] = []

    def ignore(*_: object) -> None:
        pass

    sys.setprofile(ignore)
    try:
        async for record in Hand(kernel, [(1, 2), 11]).stream:
            if record == -1:
                break
            seen.append(record)
    finally:
        sys.setprofile(None)
    assert seen == [(1, 2), 11]
