"""Tests of the memory that hostile headers take: they become more objects per byte than others."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable
from types import ModuleType

import pytest

from tests.kernel.wire import field, record, section, varint

TIMES = 32
SIZE = 60_000

HIGH = [bytes([byte]) for byte in range(0x80, 0x100)]  # none of them UTF-8
PAIRS = [bytes([first, second]) for first in range(0xC4, 0xD0) for second in range(0x80, 0xC0)]
SHORT = [b"%02x" % number for number in range(256)]

HEADERS: dict[str, tuple[list[bytes], list[bytes | None]]] = {
    "empty and null": ([b""], [None]),
    "of two kinds": ([b"", b"a", b"b"], [None, b""]),
    "one byte that is no text": (HIGH, [None]),
    "one byte that is no text, with a value": (HIGH, [b"x"]),
    "one byte that is no text, with two": (HIGH, list(SHORT)),
    "one character of two bytes": (PAIRS, [None]),
    "two bytes that are no text": ([one + other for one in HIGH for other in HIGH], [None]),
    "two letters": (SHORT, [None]),
    "three bytes": ([b"%03x" % number for number in range(4096)], [None]),
}


def hostile(names: list[bytes], values: list[bytes | None]) -> bytes:
    """Encode a record with as many of these headers as fit into SIZE bytes."""
    headers: list[bytes] = []
    size = 0
    for name, value in zip(itertools.cycle(names), itertools.cycle(values), strict=False):
        headers.append(field(name) + field(value))
        size += len(headers[-1])
        if size > SIZE:
            break
    return record(headers=varint(len(headers)) + b"".join(headers))


def peak(call: Callable[[], object]) -> int:
    call()  # makes the objects that are made only once
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", HEADERS)
def test_records_take_at_most_32_times_their_bytes(kernel: ModuleType, kind: str) -> None:
    data = hostile(*HEADERS[kind])
    read = section(data)
    used = peak(lambda: kernel.parse_records(read, "t", 1))
    assert used <= TIMES * len(data), f"{used / len(data):.1f} times"


@pytest.mark.parametrize("kind", HEADERS)
def test_columns_take_at_most_32_times_their_bytes(kernel: ModuleType, kind: str) -> None:
    data = hostile(*HEADERS[kind])
    read = section(data)
    used = peak(lambda: kernel.parse_columns([read], "t", 1, headers=True))
    assert used <= TIMES * len(data), f"{used / len(data):.1f} times"


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
    read = section(data, count=COUNT, last=deltas[-1])
    for call in (
        lambda: kernel.parse_records(read, "t", 1),
        lambda: kernel.parse_columns([read], "t", 1, headers=True),
    ):
        used = peak(call)
        assert used <= TIMES * len(data), f"{used / len(data):.1f} times"
