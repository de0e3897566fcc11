"""Blocking calls in daemon threads, which never delay the end of the process."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

T = TypeVar("T")

READ_SIZE: Final = 1 << 16
"""Bytes per read."""


async def run_in_thread(function: Callable[[], T]) -> T:
    """Run a blocking function in a daemon thread, which a cancelled call abandons.

    A process waits for an executor's threads before it exits: a read from a terminal would delay
    the exit until a key is pressed.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def set_outcome(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]  # None only if T is
        else:
            future.set_exception(error)

    def work() -> None:
        result, error = None, None
        try:
            result = function()
        except BaseException as raised:  # noqa: BLE001  # raised where it is awaited
            error = raised
        try:
            loop.call_soon_threadsafe(set_outcome, result, error)
        except RuntimeError:
            pass  # The event loop was closed: no caller is left.

    threading.Thread(target=work, name="kafka-async background I/O", daemon=True).start()
    return await future


async def read_lines(descriptor: int, max_bytes: int) -> AsyncGenerator[list[bytes]]:
    """Yield the lines of a file or pipe as they arrive; raise ValueError for one over `max_bytes`.

    Does not use Python's buffered readers: an abandoned thread would hold their locks when the
    process exits.
    """
    rest = bytearray()
    while data := await run_in_thread(lambda: os.read(descriptor, READ_SIZE)):
        head, newline, tail = data.rpartition(b"\n")
        if newline:
            rest += head
            lines = [line.removesuffix(b"\r") for line in bytes(rest).split(b"\n")]
            rest = bytearray(tail)
            yield lines
        else:
            rest += data
        if len(rest) > max_bytes:
            raise ValueError(f"a line is longer than {max_bytes:,} bytes")
    if rest:
        yield [bytes(rest).removesuffix(b"\r")]
