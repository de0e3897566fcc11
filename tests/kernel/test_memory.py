"""Tests of the memory that hostile headers take: they become more objects per byte than others."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from fuzz.oracle import MEMORY_FACTOR
from fuzz.records import large_sections
from tests.kernel.wire import field, record, section, varint
from tests.rows import row

if TYPE_CHECKING:
    from kafka_async.kernel import Section


def peak(call: Callable[[], object]) -> int:
    call()  # makes the objects that are made only once
    gc.collect()  # gives up freed tuples, which Python would use again without allocating memory
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def check_memory(kernel: ModuleType, read: Section) -> None:
    """Check the memory of the records of a section, and of its columns."""
    size = len(bytes(read.data))
    for call in (
        lambda: kernel.parse_records(read, "t", 1),
        lambda: kernel.parse_columns([read], "t", 1, headers=True),
    ):
        used = peak(call)
        assert used <= MEMORY_FACTOR * size, f"{used / size:.1f} times"


LARGE = 16 * 1024
"""Bytes. Larger ones take as much memory per byte, and more time."""


def test_large_records_take_at_most_32_times_their_bytes(kernel: ModuleType) -> None:
    for number, (data, count) in enumerate(large_sections(LARGE)):
        with row(number):
            check_memory(kernel, section(data, count=count, last=count))


ONE: dict[str, Callable[[int], bytes]] = {
    "none": lambda number: b"\0",
    "the same": lambda number: varint(1) + field(b"") + field(None),
    "another each time": lambda number: varint(1) + field(b"%05d" % number) + field(None),
}


COUNT = 2_000


# The fast path misreads an offset of three bytes, and must not keep what it has misread.
@pytest.mark.parametrize("first", [0, 100_000])
@pytest.mark.parametrize("headers", ONE.values(), ids=ONE)
def test_many_small_records_take_at_most_32_times_their_bytes(
    kernel: ModuleType, headers: Callable[[int], bytes], first: int
) -> None:
    deltas = range(first, first + COUNT)
    made = (record(delta=n, time=n % 63 + 1, value=b"", headers=headers(n)) for n in deltas)
    data = b"".join(made)
    check_memory(kernel, section(data, count=COUNT, last=deltas[-1]))
