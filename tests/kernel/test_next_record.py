"""Tests of `NextRecord`: returns fetched records without a coroutine, else awaits `more`."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.asyncio


class Stream:
    """Holds a `NextRecord` of some records and its clock; `more` returns -1."""

    def __init__(self, kernel: ModuleType, records: list[Any]) -> None:
        self.now = 0.0
        self.more_calls = 0
        self.next = kernel.NextRecord(lambda: self.now, self._more)
        self.next.records, self.next.until = records, 1.0
        self.iterator = kernel.RecordIterator(self.next)

    async def _more(self) -> Any:
        self.more_calls += 1
        await asyncio.sleep(0)
        return -1


async def test_returns_fetched_records_in_order_then_awaits_more(kernel: ModuleType) -> None:
    stream = Stream(kernel, [10, 11])
    assert (await stream.next, stream.next.at, stream.more_calls) == (10, 1, 0)
    assert (await stream.next, stream.next.at, stream.more_calls) == (11, 2, 0)
    assert (await stream.next, stream.next.at, stream.more_calls) == (-1, 2, 1)
    stream.next.records, stream.next.at = [12], 0
    assert (await stream.next, stream.more_calls) == (12, 1)


async def test_awaits_more_once_the_time_limit_has_passed(kernel: ModuleType) -> None:
    stream = Stream(kernel, [10, 11])
    stream.now = 1.0
    assert (await stream.next, stream.next.at) == (-1, 0)
    stream.next.until = 1.5
    assert (await stream.next, stream.next.at) == (10, 1)


async def test_new_next_record_has_no_records(kernel: ModuleType) -> None:
    first = kernel.NextRecord(lambda: 0.0, lambda: None)
    assert (first.records, first.at, first.until) == ([], 0, float("-inf"))


async def test_tuple_is_returned_unchanged(kernel: ModuleType) -> None:
    """A StopIteration unpacks a tuple unless the tuple is wrapped."""
    assert await Stream(kernel, [(1, 2)]).next == (1, 2)


async def test_exception_of_more_is_raised(kernel: ModuleType) -> None:
    async def fail() -> Any:
        raise LookupError("none")

    with pytest.raises(LookupError, match="none"):
        await kernel.NextRecord(lambda: 0.0, fail)


async def test_record_is_consumed_when_awaited(kernel: ModuleType) -> None:
    stream = Stream(kernel, [10, 11])
    pending = [anext(stream.iterator), anext(stream.iterator)]
    assert stream.next.at == 0
    assert [await one for one in pending] == [10, 11]


async def test_task_can_await_next_record(kernel: ModuleType) -> None:
    iterator = Stream(kernel, [10]).iterator
    assert await asyncio.wait_for(anext(iterator), 5) == 10
    assert await asyncio.wait_for(anext(iterator), 5) == -1


async def test_cancelled_await_consumes_no_record(kernel: ModuleType) -> None:
    stream = Stream(kernel, [10])
    waiting = asyncio.ensure_future(anext(stream.iterator))
    waiting.cancel()
    await asyncio.wait({waiting})
    assert (waiting.cancelled(), stream.next.at) == (True, 0)


async def test_async_for_iterates_all_records(kernel: ModuleType) -> None:
    stream = Stream(kernel, list(range(100)))
    seen: list[Any] = []
    async for record in stream.iterator:
        if record == -1:
            break
        seen.append(record)
    assert (seen, stream.more_calls) == (list(range(100)), 1)


async def test_async_for_under_profiler_iterates_all_records(kernel: ModuleType) -> None:
    """The interpreter calls `__next__` instead of the slot am_send under a profiler."""
    seen: list[Any] = []

    def ignore(*_: object) -> None:
        pass

    sys.setprofile(ignore)
    try:
        async for record in Stream(kernel, [(1, 2), 11]).iterator:
            if record == -1:
                break
            seen.append(record)
    finally:
        sys.setprofile(None)
    assert seen == [(1, 2), 11]
