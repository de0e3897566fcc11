"""How much memory something takes at its worst, and all that an error carries."""

from __future__ import annotations

import contextlib
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
_CARRIED = 64


@contextlib.contextmanager
def allocating_at_most(limit: int) -> Generator[None]:
    """What runs inside may have so many bytes more of Python's memory than before, at any time."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= limit, f"{peak / MIB:.1f} MiB were allocated"


@contextlib.contextmanager
def growing_at_most(limit: int) -> Generator[None]:
    """The process may be so many bytes larger than before, at any time; libraries included.

    Where that cannot be measured it skips, and fails where CI=true.
    """
    try:
        _CLEAR.write_text(_RESET_PEAK)
    except OSError as error:  # not Linux, or a sandbox
        if in_ci():
            raise
        pytest.skip(f"the peak of a process's memory cannot be reset here ({error})")
    gc.collect()
    before = _status("VmRSS")
    _CLEAR.write_text(_RESET_PEAK)
    yield
    peak = _status("VmHWM") - before
    assert peak <= limit, f"the process grew by {peak / MIB:.1f} MiB"


def _status(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def carried(error: BaseException) -> Iterator[bytes | str]:
    """Every text and every bytes that can be reached from an error: what a log may show of it."""
    seen: set[int] = set()
    waiting: list[BaseException] = [error]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield str(one)
        yield repr(one)
        yield from _within((one.args, vars(one), getattr(one, "object", None)))
        waiting += [follower for follower in (one.__cause__, one.__context__) if follower]


def _within(value: Any) -> Iterator[bytes | str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes | bytearray | memoryview):
        yield bytes(value)  # pyright: ignore[reportUnknownArgumentType] any shape will do
    elif isinstance(value, dict):
        for item in value.values():  # pyright: ignore[reportUnknownVariableType]
            yield from _within(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:  # pyright: ignore[reportUnknownVariableType]
            yield from _within(item)


def assert_it_carries_little(error: BaseException, data: bytes) -> None:
    """No run of more than 64 bytes of the input is in the error, as it is or spelt in some way."""
    texts = [part if isinstance(part, str) else part.decode("latin-1") for part in carried(error)]
    whole = "\n".join(text for text in texts if len(text) > _CARRIED)
    for at in range(len(data) - _CARRIED):
        run = data[at : at + _CARRIED + 1]
        for spelling in (
            run.decode("latin-1"),
            run.decode("utf-8", "replace"),
            repr(run)[2:-1],
            run.hex(),
        ):
            assert spelling not in whole, f"{type(error).__name__} carries {run[:16]!r}..."
