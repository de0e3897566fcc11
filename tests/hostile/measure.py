"""Measures peak memory, and finds input bytes in errors."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import tracemalloc
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_async.testing.environment import in_ci

MIB = 1024 * 1024
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
_MAX_CONTAINED_BYTES = 64
_M_MMAP_THRESHOLD = -3  # of mallopt


@contextlib.contextmanager
def allocates_at_most(limit: int) -> Generator[None]:
    """Fail if the block allocates more than this many bytes of Python memory at its peak."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= limit, f"{peak / MIB:.1f} MiB were allocated"


@contextlib.contextmanager
def grows_at_most(limit: int) -> Generator[None]:
    """Fail if the process grows by more than this many bytes at its peak, libraries included.

    Skips the test if the peak cannot be measured; fails with CI=true.
    """
    try:
        _CLEAR.write_text(_RESET_PEAK)
    except OSError as error:  # not Linux, or a sandbox
        if in_ci():
            raise
        pytest.skip(f"the peak of a process's memory cannot be reset here ({error})")
    # glibc raises its threshold once a large block is freed. Blocks that grow are then copied
    # inside the heap, and the peak would depend on the tests before.
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_M_MMAP_THRESHOLD, MIB)
    gc.collect()
    before, files_before = _status("VmRSS"), _status("RssFile")
    _CLEAR.write_text(_RESET_PEAK)
    yield
    # The system may have dropped pages of libraries that the block loads again.
    peak = _status("VmHWM") - before - max(0, _status("RssFile") - files_before)
    assert peak <= limit, f"the process grew by {peak / MIB:.1f} MiB"


def _status(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def contents_of(error: BaseException) -> Iterator[bytes | str]:
    """Yield every text and bytes that can be reached from an error, and so from logs."""
    seen: set[int] = set()
    pending: list[BaseException] = [error]
    while pending:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield str(current)
        yield repr(current)
        yield from _within((current.args, vars(current), getattr(current, "object", None)))
        pending += [related for related in (current.__cause__, current.__context__) if related]


def _within(value: Any) -> Iterator[bytes | str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes | bytearray | memoryview):
        yield bytes(value)  # pyright: ignore[reportUnknownArgumentType] of any shape
    elif isinstance(value, dict):
        for item in value.values():  # pyright: ignore[reportUnknownVariableType]
            yield from _within(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:  # pyright: ignore[reportUnknownVariableType]
            yield from _within(item)


def assert_contains_little_of(error: BaseException, data: bytes) -> None:
    """Check that an error has no 65 consecutive bytes of the input, in any usual encoding."""
    texts = [
        part if isinstance(part, str) else part.decode("latin-1") for part in contents_of(error)
    ]
    whole = "\n".join(text for text in texts if len(text) > _MAX_CONTAINED_BYTES)
    for at in range(len(data) - _MAX_CONTAINED_BYTES):
        run = data[at : at + _MAX_CONTAINED_BYTES + 1]
        for spelling in (
            run.decode("latin-1"),
            run.decode("utf-8", "replace"),
            repr(run)[2:-1],
            run.hex(),
        ):
            assert spelling not in whole, f"{type(error).__name__} contains {run[:16]!r}..."
