"""A target with planted bugs for tests of the fuzzer, each found by another check."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from types import FunctionType

from fuzz.oracle import require
from fuzz.target import Target


def run(data: bytes) -> None:
    require(data[:3] != b"Kaf", "the planted promise is broken")


def subject(data: bytes) -> Callable[[], object]:
    """Return a call that is slow for 0x01 as first byte and takes much memory for 0x02."""

    def work() -> object:
        if data[:1] == b"\x01":
            return sum(range(400_000))
        return bytearray(5_000_000) if data[:1] == b"\x02" else None

    return work


def seeds() -> Iterator[tuple[str, bytes]]:
    yield "harmless", bytes(8)


def functions() -> list[FunctionType]:
    if "PLANTED_FAILURE" in os.environ:
        raise RuntimeError("the fuzzer does not start")
    return [run]


TARGET = Target(run, subject, len, seeds, functions, overhead=100_000)
